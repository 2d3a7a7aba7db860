"""A search that does not explode: tuned responds in milliseconds where the full product has millions of combinations.

A search that tried every combination would not end in time; the counts show that the responses are complete.
"""

import tracemalloc
from math import perm
from typing import Any

import pytest

from placebench.lab.reference.candidates import combinations
from placebench.lab.reference.domain.problems import BadRequest


@pytest.fixture
def rack(cloud: Any) -> Any:
    """One node with eight devices of one unit, and two devices of two units beside them.

    cn ┬ d0 ... d7   VGPU 1
       └ e0, e1      MEMORY_MB 2          d0 is RED
    """
    cloud.add("cn")
    for number in range(8):
        cloud.add(f"d{number}", parent="cn", traits="" if number else "CUSTOM_RED", VGPU=1)
    for number in range(2):
        cloud.add(f"e{number}", parent="cn", MEMORY_MB=2)
    return cloud


def groups(count: int, policy: str, name: str = "VGPU") -> str:
    """A query with *count* groups that ask for the same."""
    requested = "&".join(f"resources{number}={name}:1" for number in range(1, count + 1))
    return f"{requested}&group_policy={policy}"


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_eight_groups_on_eight_devices_stop_at_the_limit(rack: Any, policy: str) -> None:
    """16 777 216 combinations, of which 40 320 are allowed; ten are requested and come, all distinct."""
    found = rack.mappings(f"{groups(8, policy)}&limit=10")

    assert len(set(found)) == 10


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_nine_groups_find_no_place_on_eight_devices(rack: Any, policy: str) -> None:
    """134 217 728 combinations and none is allowed, which is seen before the first is tried."""
    assert rack.candidates(groups(9, policy)) == []


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_groups_that_no_count_refuses_are_not_tried_in_every_order(rack: Any, policy: str) -> None:
    """Eight groups, eight devices, and the last two groups both want the red one: 40 320 arrangements of the others
    fail alike, and are tried once for each set of devices that they leave."""
    assert rack.candidates(f"{groups(8, policy)}&required7=CUSTOM_RED&required8=CUSTOM_RED") == []


@pytest.mark.parametrize("name", ["naive", "own"])
@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_all_arrangements_are_found(rack: Any, name: str, policy: str) -> None:
    """Three groups on eight devices have 8 * 7 * 6 arrangements, and each mapping comes once."""
    found = rack.mappings(groups(3, policy), name)

    assert len(found) == len(set(found)) == perm(8, 3) == 336


def test_devices_with_more_units_serve_several_groups_unless_isolated(rack: Any) -> None:
    """Three groups on two devices of two units: all but the two that put three on one."""
    assert len(rack.candidates(groups(3, "none", "MEMORY_MB"))) == 6
    assert rack.candidates(groups(3, "isolate", "MEMORY_MB")) == []


def test_a_search_that_is_hard_is_refused(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight different amounts fill four different devices exactly and do not fit, which takes more than a
    hundred steps to find out: the request is 400 where only 100 may be taken in vain."""
    cloud.add("cn")
    for number, total in enumerate((70, 72, 78, 100)):
        cloud.add(f"d{number}", parent="cn", VGPU=total)
    amounts = enumerate((37, 53, 29, 41, 59, 23, 47, 31), 1)
    query = "&".join(f"resources{number}=VGPU:{amount}" for number, amount in amounts) + "&group_policy=none"
    assert cloud.candidates(query) == []
    monkeypatch.setattr(combinations, "MAX_STEPS", 100)

    with pytest.raises(BadRequest, match="given up after 100 steps"):
        cloud.candidates(f"{query}&limit=5")


def test_the_search_does_not_depend_on_the_order_of_the_groups(cloud: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight amounts that fit four devices: in the order of the request the search takes 4,426 steps in vain, and
    with large amounts first 217."""
    monkeypatch.setattr(combinations, "MAX_STEPS", 1_000)
    cloud.add("cn")
    for number, total in enumerate((92, 94, 81, 82)):
        cloud.add(f"d{number}", parent="cn", VGPU=total)
    amounts = enumerate((29, 34, 37, 40, 43, 48, 49, 60), 1)
    query = "&".join(f"resources{number}=VGPU:{amount}" for number, amount in amounts) + "&group_policy=none"

    assert len(cloud.candidates(f"{query}&limit=5")) == 5


@pytest.mark.parametrize("group", ["", "&resources1=VGPU:1"])
def test_a_limit_bounds_the_unsuffixed_group(cloud: Any, group: str) -> None:
    """Three classes on 24 providers have 24³ = 13,824 solutions, 7 MB as objects: for a limit of 2 few are made,
    also beside a group that wants another class."""
    cloud.add("cn")
    for number in range(24):
        cloud.add(f"d{number}", parent="cn", VCPU=9, MEMORY_MB=9, DISK_GB=9, VGPU=9)
    query = f"resources=VCPU:1,MEMORY_MB:1,DISK_GB:1{group}&limit=2"
    cloud.candidates(query)

    tracemalloc.start()
    found = cloud.candidates(query)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(set(found)) == 2
    assert peak_bytes < 3_000_000
