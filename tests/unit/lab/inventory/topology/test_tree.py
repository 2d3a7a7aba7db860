"""One tree: choices of its providers, and the consumers that fill it."""

from collections import Counter
from statistics import mean

import pytest

from placebench.lab.inventory.seeding import find_topology
from placebench.lab.inventory.topology import (
    ClaimPattern,
    Inventory,
    Node,
    RandomSubset,
    Take,
    Topology,
    TreeType,
    inventory_map,
)
from placebench.lab.inventory.topology.tree import draw_consumer_count, find_overdrawn


def test_a_choice_favours_nobody() -> None:
    """Over all numbers, how many are chosen is even, and so is which of them: two sizes, six pairs in order."""
    some = RandomSubset(("a", "b", "c"), at_least=1, at_most=2)

    chosen = Counter(tuple(some.choose(number)) for number in range(12))

    assert Counter(a=2, b=2, c=2) == Counter({names[0]: n for names, n in chosen.items() if len(names) == 1})
    assert {("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")} == {
        names for names in chosen if len(names) == 2
    }


def test_a_choice_stays_within_its_bounds() -> None:
    """Between at_least and at_most names, none twice."""
    some = RandomSubset(("a", "b", "c", "d"), at_least=2, at_most=4)

    chosen = [some.choose(number) for number in range(1000)]

    assert {len(names) for names in chosen} == {2, 3, 4}
    assert all(len(set(names)) == len(names) for names in chosen)


def test_nothing_can_be_chosen() -> None:
    """at_least = 0 leaves some with nothing."""
    assert RandomSubset(("a",), at_least=0, at_most=1).choose(0) == []


NAMES = ("nested-perfload", "flat-perfload", "shared-storage", "wide", "deep", "mixed", "mixed-cloud", "partly-used")


def cloud(request: str, *nodes: Node) -> Topology:
    """One full tree."""
    return Topology("one", 1, 1, f"/allocation_candidates?{request}", (TreeType(nodes),), utilization=1.0)


def takes(topology: Topology) -> list[tuple[Take, ...]]:
    """Of each consumer of the first tree."""
    return [consumer.takes for consumer in topology.consumers(0)]


def test_a_full_nested_tree_has_two_consumers() -> None:
    """Both FPGAs below n1 are given away, each with the processors and memory of n1; nothing of n0, which is no FOO."""
    first, second = takes(find_topology("nested-perfload", utilization=1.0))

    assert first == ((0, "DISK_GB", 10), (2, "VCPU", 1), (2, "MEMORY_MB", 256), (5, "FPGA", 1))
    assert second == ((0, "DISK_GB", 10), (2, "VCPU", 1), (2, "MEMORY_MB", 256), (6, "FPGA", 1))


@pytest.mark.parametrize("name", NAMES)
def test_no_tree_is_overdrawn(name: str) -> None:
    """Of no topology, when it is full; and each has consumers in every tree."""
    topology = find_topology(name, utilization=1.0)

    for number in range(min(25, topology.trees)):
        nodes, consumers = topology.tree_types[topology.type_index(number)].nodes, topology.consumers(number)
        claims = [ClaimPattern(each, (count,)) for each, count in Counter(each.takes for each in consumers).items()]
        assert find_overdrawn(inventory_map(nodes), claims) is None
        assert claims


def test_isolated_groups_take_of_different_providers() -> None:
    """Two devices of 1: one consumer; with group_policy=none one device of 2 would do."""
    root, devices = Node("cn", "cn"), [Node(f"d{n}", f"cn/d{n}", 0, (Inventory("VGPU", 1),)) for n in range(2)]

    (only,) = takes(cloud("resources_A=VGPU:1&resources_B=VGPU:1&group_policy=isolate", root, *devices))

    assert only == ((1, "VGPU", 1), (2, "VGPU", 1))


def test_what_groups_take_together_is_one_legal_amount() -> None:
    """Two groups may share a device of 8, but 2 are more than it gives to one consumer."""
    device = Node("cn", "cn", inventories=(Inventory("VGPU", 8, max_unit=1),))

    assert [] == takes(cloud("resources_A=VGPU:1&resources_B=VGPU:1&group_policy=none", device))


@pytest.mark.parametrize(
    ("traits", "expected"), [("required_A=HW_X", [1]), ("required_A=in:HW_X,HW_Y", [1, 2]), ("required_A=!HW_X", [2])]
)
def test_the_traits_of_a_group_choose_its_providers(traits: str, expected: list[int]) -> None:
    """Required, one of several, forbidden."""
    root = Node("cn", "cn")
    x, y = (Node(name, f"cn/{name}", 0, (Inventory("VGPU", 1),), (f"HW_{name}",)) for name in "XY")

    assert expected == [take.place for (take,) in takes(cloud(f"resources_A=VGPU:1&{traits}", root, x, y))]


def test_a_class_that_the_tree_has_not_got_is_left_out() -> None:
    """A host takes its disk from elsewhere; a storage has consumers that take nothing but disk."""
    topology = find_topology("shared-storage", utilization=1.0)
    (host,), (storage,) = ({len(each) for each in plan} for plan in topology._full)

    assert (2, 1) == (host, storage)


def test_a_fill_is_kept_on_average_and_varies_from_tree_to_tree() -> None:
    """Of ten that fit, at 0.7: from 4 to 10, 7 on average; at 0 none and at 1 all."""
    tree_types = (TreeType((Node("a", "a", None, (Inventory("VCPU", 10),)),)),)
    clouds = {each: Topology("t", 2000, 1, "/x?resources=VCPU:1", tree_types, each) for each in (0.0, 0.7, 1.0)}

    counts = {each: [len(topology.consumers(n)) for n in range(2000)] for each, topology in clouds.items()}

    assert ({0}, {10}) == (set(counts[0.0]), set(counts[1.0]))
    assert {4, 5, 6, 7, 8, 9, 10} == set(counts[0.7])
    assert 6.9 < mean(counts[0.7]) < 7.1


def test_chance_reaches_both_ends() -> None:
    """The least and the greatest number drawn."""
    assert [0, 4, 8] == [
        draw_consumer_count(0, 0.5, 8),
        draw_consumer_count(2**159, 0.5, 8),
        draw_consumer_count(2**160 - 1, 0.5, 8),
    ]


def test_the_same_seed_gives_the_same_consumers() -> None:
    """And another seed others; more trees leave the first as they are."""
    one, two, more = (find_topology("partly-used", trees=t, seed=s) for t, s in ((9, 1), (9, 2), (90, 1)))

    assert [one.consumers(n) for n in range(9)] == [more.consumers(n) for n in range(9)]
    assert one.consumers(0) != two.consumers(0)
