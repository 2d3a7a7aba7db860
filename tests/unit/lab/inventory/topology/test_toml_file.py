"""A topology file: what it says, each mistake by file, key, what was expected and what was seen; writing it."""

from pathlib import Path

import pytest

from placebench.errors import TopologyError
from placebench.lab.inventory.seeding import find_topology
from placebench.lab.inventory.topology import (
    ClaimPattern,
    Inventory,
    Node,
    RandomSubset,
    Take,
    Topology,
    TreeType,
    read_topology,
    render_toml,
)

GOOD = """
trees = 3
request = "/allocation_candidates?resources=VCPU:1"

[[providers]]
name = "cn"
aggregates = ["rack"]
inventories.VCPU = { total = 8, reserved = 1, min_unit = 2, max_unit = 4, step_size = 2, allocation_ratio = 1.5 }

[[providers]]
name = "gpu"
parent = "cn"
traits = ["CUSTOM_A"]
inventories.CUSTOM_SLOT = { total = 1 }
some_traits = { of = ["CUSTOM_B", "HW_CPU_X86_AVX2"], at_most = 1 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A topology file without a mistake."""
    path = tmp_path / "pair.toml"
    path.write_text(GOOD)
    return path


def test_a_file_is_read(file: Path) -> None:
    """Every key arrives, and what is left out is Placement's default."""
    topology = read_topology(file)

    assert (topology.name, topology.trees, topology.seed) == ("pair", 3, 1)
    assert topology.request == "/allocation_candidates?resources=VCPU:1"
    (tree_type,) = topology.tree_types
    assert tree_type.nodes == (
        Node("cn", "cn", inventories=(Inventory("VCPU", 8, 1, 2, 4, 2, 1.5),), aggregates=("rack",)),
        Node(
            "gpu",
            "cn/gpu",
            parent=0,
            inventories=(Inventory("CUSTOM_SLOT", 1, 0, 1, 2147483647, 1, 1.0),),
            traits=("CUSTOM_A",),
            some_traits=RandomSubset(("CUSTOM_B", "HW_CPU_X86_AVX2"), at_least=0, at_most=1),
        ),
    )


def test_trees_and_seed_of_the_caller_go_first(file: Path) -> None:
    """--trees and --seed; no trees is a number, too."""
    topology = read_topology(file, trees=0, seed=9)

    assert (topology.trees, topology.seed) == (0, 9)


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        (
            "trees = 3",
            "tree = 3",
            "unknown key 'tree', did you mean 'trees'? expected one of request, trees, utilization, ",
        ),
        ("trees = 3", "trees = -3", "trees: expected a whole number >= 0, saw -3"),
        ("trees = 3", "trees = true", "trees: expected a whole number, saw True"),
        ("trees = 3", "trees = 2000000000", "trees: expected a whole number from 0 to 1073741823, saw 2000000000"),
        ("request = ", "#", "request is missing"),
        ('"/allocation_candidates?resources=VCPU:1"', '"VCPU:1"', "request: expected the path and query"),
        ('[[providers]]\nname = "cn"', '[providers]\nname = "cn"', ": cannot be read: "),
        ('name = "gpu"', 'name = "cn"', "providers[1].name: expected a name that no other provider has, saw 'cn'"),
        ('name = "gpu"', 'name = "g p"', "providers[1].name: expected a name of letters, digits, '_', '.', '-'"),
        ('name = "gpu"', "name = 7", "providers[1].name: expected a string, saw 7"),
        ('name = "gpu"', "", "providers[1]: name is missing"),
        ('parent = "cn"', 'parent = "x"', "providers[1].parent: expected a provider above: cn, saw 'x'"),
        ('parent = "cn"', "", "providers[1].parent: expected a provider above: cn, saw None"),
        ('name = "cn"', 'name = "cn"\nparent = "cn"', "providers[0].parent: expected no parent: the first provider"),
        (
            "aggregates",
            "agregates",
            "providers[0]: unknown key 'agregates', did you mean 'aggregates'? expected one of name, parent",
        ),
        ('["rack"]', '"rack"', "providers[0].aggregates: expected an array, saw 'rack'"),
        ('["rack"]', '["rack", "rack"]', "providers[0].aggregates[1]: expected each name once, saw 'rack'"),
        ('["CUSTOM_A"]', '["custom_a"]', "providers[1].traits[0]: expected a standard trait (COMPUTE_…, HW_…,"),
        ('["CUSTOM_A"]', "[1]", "providers[1].traits[0]: expected a string, saw 1"),
        ("VCPU = {", "VCPUS = {", "inventories.VCPUS: expected a standard resource class or CUSTOM_[A-Z0-9_]+, saw"),
        (
            "CUSTOM_SLOT = { total = 1 }",
            "CUSTOM_SLOT = 1",
            "providers[1].inventories.CUSTOM_SLOT: expected a table, saw 1",
        ),
        (
            "total = 8",
            "totl = 8",
            "inventories.VCPU: unknown key 'totl', did you mean 'total'? expected one of total, reserved, min_unit",
        ),
        ("total = 8,", "", "inventories.VCPU: total is missing"),
        ("total = 8", "total = -8", "inventories.VCPU.total: expected a whole number >= 1, saw -8"),
        ("total = 8", "total = 8.0", "inventories.VCPU.total: expected a whole number, saw 8.0"),
        ("reserved = 1", "reserved = 9", "inventories.VCPU.reserved: expected a whole number from 0 to 8, saw 9"),
        ("step_size = 2", "step_size = 0", "inventories.VCPU.step_size: expected a whole number >= 1, saw 0"),
        ("ratio = 1.5", "ratio = 0", "inventories.VCPU.allocation_ratio: expected a number > 0.0, saw 0"),
        ("ratio = 1.5", "ratio = nan", "inventories.VCPU.allocation_ratio: expected a number > 0.0, saw nan"),
        ("ratio = 1.5", "ratio = true", "inventories.VCPU.allocation_ratio: expected a number, saw True"),
        ("at_most = 1", "at_most = 3", "some_traits.at_most: expected a whole number from 0 to 2, saw 3"),
        ("at_most = 1", "at_least = 3", "some_traits.at_least: expected a whole number from 0 to 2, saw 3"),
        ('"CUSTOM_B"', '"CUSTOM_A"', "some_traits.of[0]: expected a name that the provider does not always have, saw"),
    ],
)
def test_a_mistake_is_told_by_key_expected_and_seen(file: Path, right: str, wrong: str, problem: str) -> None:
    """One change to a good file, one message, which begins with the file."""
    assert right in GOOD
    file.write_text(GOOD.replace(right, wrong))

    with pytest.raises(TopologyError) as caught:
        read_topology(file)

    assert str(caught.value).startswith(f"{file}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(("trees", "seed"), [(-1, 1), (1_073_741_824, 1), (1, 2**63)])
def test_numbers_that_no_column_holds_are_refused(file: Path, trees: int, seed: int) -> None:
    """Two providers a tree: the ids of 2**30 trees would not fit 31 bits."""
    with pytest.raises(TopologyError, match="expected a whole number from"):
        read_topology(file, trees=trees, seed=seed)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The reason is the system's."""
    with pytest.raises(TopologyError, match=r"nowhere\.toml: cannot be read: No such file or directory"):
        read_topology(tmp_path / "nowhere.toml")


def test_a_file_with_no_providers_is_refused(file: Path) -> None:
    """A tree has a root at least."""
    file.write_text('request = "/x"\nproviders = []')

    with pytest.raises(TopologyError, match=r"providers: expected an array of length >= 1, saw \[\]"):
        read_topology(file)


def test_a_files_name_becomes_the_topologys(tmp_path: Path) -> None:
    """It goes into ids, so it has to be a name."""
    path = tmp_path / "two words.toml"
    path.write_text(GOOD)

    with pytest.raises(TopologyError, match="the file's name: expected a name of letters"):
        read_topology(path)


TREE_TYPES = """
request = "/allocation_candidates?resources=VCPU:1"

[[tree_types]]
weight = 3
[[tree_types.providers]]
name = "cn"
[[tree_types.providers]]
name = "gpu"
count = 2
parent = "cn"

[[tree_types]]
[[tree_types.providers]]
name = "nfs"
"""


def test_tree_types_and_counts_are_read(tmp_path: Path) -> None:
    """Two types with weights of 3 and 1; two providers alike are numbered."""
    path = tmp_path / "types.toml"
    path.write_text(TREE_TYPES)

    first, second = read_topology(path).tree_types

    assert (3, ["cn", "gpu0", "gpu1"]) == (first.weight, [node.name for node in first.nodes])
    assert (1, ["nfs"]) == (second.weight, [node.name for node in second.nodes])


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("weight = 3", "weight = 0", "tree_types[0].weight: expected a whole number >= 1, saw 0"),
        ("count = 2", "count = 0", "tree_types[0].providers[1].count: expected a whole number >= 1, saw 0"),
        (
            'name = "nfs"',
            'name = "nfs"\ncount = 2',
            "tree_types[1].providers[0].count: expected no count: a tree has one root",
        ),
        (
            "[[tree_types]]\nweight",
            "[[providers]]\nname = 'x'\n[[tree_types]]\nweight",
            "providers: expected none of them outside of [[tree_types]]",
        ),
    ],
)
def test_a_mistake_in_a_tree_type_is_told(tmp_path: Path, right: str, wrong: str, problem: str) -> None:
    """By the place of the type in the file."""
    path = tmp_path / "types.toml"
    path.write_text(TREE_TYPES.replace(right, wrong, 1))

    with pytest.raises(TopologyError) as caught:
        read_topology(path)

    assert problem in str(caught.value)


FILE = """
trees = 7
request = "/allocation_candidates?resources=VCPU:1"

[[providers]]
name = "cn"
inventories.VCPU = { total = 8, max_unit = 4 }

[[providers]]
name = "gpu.0"
parent = "cn"
inventories.VGPU = { total = 2 }

[[claims]]
counts = [0, 2, 1]
takes.cn.VCPU = 3
takes."gpu.0".VGPU = 1

[[claims]]
counts = [1, 0, 1]
takes.cn = { VCPU = 2 }
"""
FIRST, SECOND = (Take(0, "VCPU", 3), Take(1, "VGPU", 1)), (Take(0, "VCPU", 2),)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good file."""
    path = tmp_path / "used.toml"
    path.write_text(FILE)
    return path


def test_trees_take_the_counts_by_turns(path: Path) -> None:
    """Of three counts the fourth tree has those of the first."""
    topology = read_topology(path)

    assert (ClaimPattern(FIRST, (0, 2, 1)), ClaimPattern(SECOND, (1, 0, 1))) == topology.tree_types[0].claims
    assert [[SECOND], [FIRST, FIRST], [FIRST, SECOND], [SECOND]] == [
        [consumer.takes for consumer in topology.consumers(number)] for number in range(4)
    ]


def test_a_utilization_that_was_asked_for_is_in_the_place_of_claims(path: Path) -> None:
    """All eight VCPU are given away, one by one."""
    assert 8 == len(read_topology(path, utilization=1.0).consumers(0))
    assert [] == read_topology(path, utilization=0.0).consumers(1)


def test_turns_count_the_trees_of_each_type(tmp_path: Path) -> None:
    """Every second tree is of the second type: its third tree is the sixth of the cloud."""
    tree_type = '[[tree_types]]\n[[tree_types.providers]]\nname = "{}"\ninventories.VCPU = {{ total = 9 }}\n'
    claims = "[[tree_types.claims]]\ntakes.b.VCPU = 1\ncounts = [1, 2, 3]\n"
    path = tmp_path / "two.toml"
    path.write_text(f'request = "/x"\n{tree_type.format("a")}{tree_type.format("b")}{claims}')

    assert [0, 1, 0, 2, 0, 3, 0, 1] == [len(read_topology(path).consumers(number)) for number in range(8)]


def test_what_is_written_is_read_again(path: Path) -> None:
    """Claims and the names in them."""
    topology = read_topology(path)

    path.write_text(render_toml(topology, comments=["a comment"]))

    assert topology == read_topology(path)


@pytest.mark.parametrize(
    ("right", "wrong", "problem"),
    [
        ("takes.cn.VCPU = 3", "takes.cn.VCPU = 5", "claims[0].takes.cn.VCPU: expected an amount that an inventory of"),
        ("takes.cn.VCPU = 3", "takes.cn.VGPU = 1", "claims[0].takes.cn.VGPU: expected an amount that an inventory of"),
        (
            "takes.cn.VCPU = 3",
            "takes.x.VCPU = 3",
            "claims[0].takes.x: expected a provider of this tree: cn, gpu.0, saw",
        ),
        ("counts = [0, 2, 1]", "counts = [0, 3, 1]", "claims: expected at most 8 VCPU of cn in each tree, saw 'more'"),
        ("counts = [0, 2, 1]", "counts = []", "claims[0].counts: expected an array of length >= 1, saw []"),
        ("counts = [0, 2, 1]", "counts = [0, -1, 1]", "claims[0].counts[1]: expected a whole number >= 0, saw -1"),
        (
            "counts = [1, 0, 1]",
            "counts = [1, 0]",
            "claims[1].counts: expected as many counts as the first claim of the",
        ),
        ("takes.cn = { VCPU = 2 }", "", "claims[1]: takes is missing"),
        ("trees = 7", "utilization = 0.5", "utilization: expected no utilization beside claims, saw 0.5"),
        ("trees = 7", "utilization = 2", "utilization: expected a number <= 1.0, saw 2"),
    ],
)
def test_a_wrong_claim_is_told(path: Path, right: str, wrong: str, problem: str) -> None:
    """By file, key, what was expected and what was seen."""
    path.write_text(FILE.replace(right, wrong))

    with pytest.raises(TopologyError) as caught:
        read_topology(path)

    assert f"{path}: {problem}" in str(caught.value)


def test_a_utilization_out_of_range_is_told(path: Path) -> None:
    """The value from the command line is checked like the one in the file."""
    with pytest.raises(TopologyError, match=r"^utilization: expected a number from 0 to 1, saw 1\.5$"):
        read_topology(path, utilization=1.5)


@pytest.mark.parametrize(
    "name",
    ["nested-perfload", "flat-perfload", "shared-storage", "wide", "deep", "mixed", "mixed-cloud", "partly-used"],
)
def test_each_topology_of_ours_is_read_again(tmp_path: Path, name: str) -> None:
    """Tree types, weights, choices, utilization and all."""
    topology, path = find_topology(name), tmp_path / f"{name}.toml"

    path.write_text(render_toml(topology))

    assert topology == read_topology(path)


def test_providers_alike_are_written_once() -> None:
    """Three of four are: the fourth has more."""
    gpus = [Node(f"gpu{n}", f"cn/gpu{n}", 0, (Inventory("VGPU", 4 if n < 3 else 8),)) for n in range(4)]

    written = render_toml(Topology("t", 1, 1, "/x", (TreeType((Node("cn", "cn"), *gpus)),)))

    assert 'name = "gpu"\ncount = 3\nparent = "cn"\ninventories.VGPU = { total = 4 }\n' in written
    assert 'name = "gpu3"\nparent = "cn"\ninventories.VGPU = { total = 8 }\n' in written
