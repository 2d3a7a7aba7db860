"""A topology file: what it says, and each mistake told by file, key, what was expected and what was seen."""

from pathlib import Path

import pytest

from placebench.errors import TopologyError
from placebench.topology import Inventory, Node, RandomSubset, read_topology

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
            "unknown key 'tree', expected one of request, trees, utilization, aggregates_every, providers",
        ),
        ("trees = 3", "trees = -3", "trees: expected a whole number >= 0, saw -3"),
        ("trees = 3", "trees = true", "trees: expected a whole number, saw True"),
        ("trees = 3", "trees = 2000000000", "trees: expected a whole number from 0 to 1073741823, saw 2000000000"),
        ("request = ", "#", "request is missing"),
        ('"/allocation_candidates?resources=VCPU:1"', '"VCPU:1"', "request: expected the path and query"),
        ('[[providers]]\nname = "cn"', '[providers]\nname = "cn"', ": cannot be read: "),
        ('name = "gpu"', 'name = "cn"', "providers[1].name: expected a name that no other provider has, saw 'cn'"),
        ('name = "gpu"', 'name = "g p"', "providers[1].name: expected a name of letters, digits, '_', '.', '-'"),
        ('name = "gpu"', "name = 7", "providers[1].name: expected a text, saw 7"),
        ('name = "gpu"', "", "providers[1]: name is missing"),
        ('parent = "cn"', 'parent = "x"', "providers[1].parent: expected a provider above: cn, saw 'x'"),
        ('parent = "cn"', "", "providers[1].parent: expected a provider above: cn, saw None"),
        ('name = "cn"', 'name = "cn"\nparent = "cn"', "providers[0].parent: expected no parent: the first provider"),
        ("aggregates", "agregates", "providers[0]: unknown key 'agregates', expected one of name, parent, inventories"),
        ('["rack"]', '"rack"', "providers[0].aggregates: expected a list, saw 'rack'"),
        ('["rack"]', '["rack", "rack"]', "providers[0].aggregates[1]: expected each name once, saw 'rack'"),
        ('["CUSTOM_A"]', '["custom_a"]', "providers[1].traits[0]: expected a standard trait (COMPUTE_…, HW_…,"),
        ('["CUSTOM_A"]', "[1]", "providers[1].traits[0]: expected a text, saw 1"),
        ("VCPU = {", "VCPUS = {", "inventories.VCPUS: expected a standard resource class or CUSTOM_[A-Z0-9_]+, saw"),
        (
            "CUSTOM_SLOT = { total = 1 }",
            "CUSTOM_SLOT = 1",
            "providers[1].inventories.CUSTOM_SLOT: expected an object, saw 1",
        ),
        ("total = 8", "totl = 8", "inventories.VCPU: unknown key 'totl', expected one of total, reserved, min_unit"),
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

    with pytest.raises(TopologyError, match=r"providers: expected a list of length >= 1, saw \[\]"):
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
