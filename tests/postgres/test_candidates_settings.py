"""What an operator may set: a maximum of candidates, the order of trees, and any candidates instead of the first."""

from collections import Counter
from typing import Any

import pytest

from placebench.lab.reference.domain.settings import BREADTH_FIRST, ServiceSettings

EVERY_VARIANT = pytest.mark.parametrize("name", ["naive", "own"])


@pytest.fixture
def racks(cloud: Any) -> Any:
    """Three trees with four devices each.

    cn0 ┬ d00 ... d03   VGPU 1      cn1, cn2 alike
    """
    for tree in range(3):
        cloud.add(f"cn{tree}")
        for device in range(4):
            cloud.add(f"d{tree}{device}", parent=f"cn{tree}", VGPU=1)
    return cloud


def trees(found: list[str]) -> list[str]:
    """The trees that give a device in each candidate, `d01 VGPU:1`."""
    return sorted({line[1] for line in found})


@EVERY_VARIANT
def test_the_search_ends_at_the_maximum_in_the_first_tree(racks: Any, name: str) -> None:
    """Depth first, four of the twelve candidates come from one tree."""
    found = racks.candidates("resources=VGPU:1", name, ServiceSettings(maximum=4))

    assert len(set(found)) == 4
    assert len(trees(found)) == 1


@EVERY_VARIANT
def test_breadth_first_takes_from_each_tree_by_turns(racks: Any, name: str) -> None:
    """Three of the twelve candidates come from the three trees; twelve are all of them."""
    settings = ServiceSettings(maximum=3, strategy=BREADTH_FIRST)

    assert trees(racks.candidates("resources=VGPU:1", name, settings)) == ["0", "1", "2"]
    assert len(set(racks.candidates("resources=VGPU:1", name, ServiceSettings(strategy=BREADTH_FIRST)))) == 12


@EVERY_VARIANT
@pytest.mark.parametrize(("limit", "expected"), [(2, 2), (4, 4), (20, 5)])
def test_a_limit_and_a_maximum_hold_both(racks: Any, name: str, limit: int, expected: int) -> None:
    """The smaller of the two."""
    found = racks.candidates(f"resources=VGPU:1&limit={limit}", name, ServiceSettings(maximum=5))

    assert len(found) == expected


@pytest.mark.long
@EVERY_VARIANT
def test_any_candidates_under_a_limit(racks: Any, name: str) -> None:
    """Forty requests for two of twelve do not all get the same (once in 10^70), and without a limit all come."""
    settings = ServiceSettings(randomize=True)

    found = [tuple(racks.candidates("resources=VGPU:1&limit=2", name, settings)) for _ in range(40)]

    assert {len(set(pair)) for pair in found} == {2}
    assert len(set(found)) > 1
    assert len(racks.candidates("resources=VGPU:1", name, settings)) == 12


@EVERY_VARIANT
@pytest.mark.parametrize(("limit", "expected"), [(3, [1, 1, 1]), (9, [2, 3, 4]), (12, [4, 4, 4])])
def test_a_tree_gives_its_share_first(racks: Any, name: str, limit: int, expected: list[int]) -> None:
    """Of three candidates one is of each tree; nine are two of each, two more of one and one of another."""
    found = racks.candidates(f"resources=VGPU:1&limit={limit}", name)

    assert len(set(found)) == limit
    assert sorted(Counter(line[1] for line in found).values()) == expected


@pytest.mark.long
@EVERY_VARIANT
@pytest.mark.parametrize("maximum", [None, 4])
def test_different_requests_name_different_hosts(cloud: Any, name: str, maximum: int | None) -> None:
    """Sixty requests for two of forty equal hosts each name all of them but one at most, the same request the same two,
    and with another seed others."""
    for number in range(40):
        cloud.add(f"cn{number}", VCPU=100)
    settings = ServiceSettings(maximum=maximum)

    found = [cloud.candidates(f"resources=VCPU:{amount}&limit=2", name, settings) for amount in range(1, 61)]

    assert {len(set(pair)) for pair in found} == {2}
    assert len({line.split()[0] for pair in found for line in pair}) >= 39
    assert cloud.candidates("resources=VCPU:7&limit=2", name, settings) == found[6]
    other = cloud.candidates("resources=VCPU:7&limit=2", name, ServiceSettings(maximum=maximum, seed=1))
    assert other != found[6]


@EVERY_VARIANT
def test_a_limit_for_most_hosts_leaves_none_out_for_ever(cloud: Any, name: str) -> None:
    """Thirty requests for eight of twelve equal hosts name all of them, also before a request without a limit."""
    for number in range(12):
        cloud.add(f"cn{number}", VCPU=100)

    found = [cloud.candidates(f"resources=VCPU:{amount}&limit=8", name) for amount in range(1, 31)]

    assert {len(set(each)) for each in found} == {8}
    assert len({line.split()[0] for each in found for line in each}) == 12


def test_the_maximum_stops_a_search_that_would_explode(cloud: Any) -> None:
    """Eight groups on eight devices have 40 320 candidates among 16 777 216 combinations; ten are found at once."""
    cloud.add("cn")
    for device in range(8):
        cloud.add(f"d{device}", parent="cn", VGPU=1)
    groups = "&".join(f"resources{number}=VGPU:1" for number in range(8))

    found = cloud.document(f"{groups}&group_policy=isolate", settings=ServiceSettings(maximum=10))

    assert len(found["allocation_requests"]) == 10
