"""The claims of a topology file, and what is said about wrong ones."""

from pathlib import Path

import pytest

from placebench.errors import TopologyError
from placebench.topology import ClaimPattern, Take, read_topology, render_toml

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
        ("counts = [0, 2, 1]", "counts = []", "claims[0].counts: expected a list of length >= 1, saw []"),
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
    """That of the command line."""
    with pytest.raises(TopologyError, match=r"^utilization: expected a number from 0 to 1, saw 1\.5$"):
        read_topology(path, utilization=1.5)
