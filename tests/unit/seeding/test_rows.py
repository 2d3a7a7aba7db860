"""The rows of each table, made from a topology one tree after the other."""

from dataclasses import replace
from itertools import islice

from placebench.seeding import Ids, Owner, find_topology, table_rows
from placebench.topology import ClaimPattern, Inventory, Node, RandomSubset, Take, Topology, TreeType

PAIR = Topology(
    "pair",
    trees=2,
    seed=1,
    request="/x",
    tree_types=(
        TreeType(
            (
                Node(
                    "cn",
                    "cn",
                    inventories=(Inventory("VCPU", 8), Inventory("DISK_GB", 9, reserved=1)),
                    aggregates=("a",),
                ),
                Node("gpu", "cn/gpu", parent=0, traits=("HW_X",), some_traits=RandomSubset(("HW_Y",), 1, 1)),
            )
        ),
    ),
)
IDS = Ids(resource_classes={"VCPU": 0, "DISK_GB": 2}, traits={"HW_X": 5, "HW_Y": 6}, aggregates={"a": 7})


def test_the_rows_of_the_second_tree() -> None:
    """Ids go on where the first tree ended, and every row points into its own tree."""
    providers, inventories, traits, aggregates = (list(part.trees)[1] for part in table_rows(PAIR, IDS))

    first, second = PAIR.uuids(1)
    assert providers == [(3, first, "cn-1", 0, 3, None), (4, second, "gpu-1", 0, 3, 3)]
    assert inventories == [(3, 3, 0, 8, 0, 1, 2147483647, 1, 1.0), (4, 3, 2, 9, 1, 1, 2147483647, 1, 1.0)]
    assert traits == [(4, 5), (4, 6)]
    assert aggregates == [(3, 7)]


def test_consumers_and_allocations_go_on_where_the_tree_before_ended() -> None:
    """Two consumers in the first tree, one with two allocations; one in the second tree."""
    both, one = (
        ClaimPattern((Take(0, "VCPU", 2), Take(1, "DISK_GB", 1)), (1, 0)),
        ClaimPattern((Take(0, "VCPU", 1),), (1, 1)),
    )
    nodes = (Node("cn", "cn", inventories=(Inventory("VCPU", 8),)), Node("d", "cn/d", 0, (Inventory("DISK_GB", 9),)))
    used = Topology("used", trees=2, seed=1, request="/x", tree_types=(TreeType(nodes, claims=(both, one)),))

    *_, consumers, allocations = (list(part.trees) for part in table_rows(used, replace(IDS, owner=Owner(4, 5, 6))))

    first, second, third = (consumer.uuid for tree in range(2) for consumer in used.consumers(tree))
    assert consumers == [[(1, first, 4, 5, 1, 6), (2, second, 4, 5, 1, 6)], [(3, third, 4, 5, 1, 6)]]
    assert allocations == [
        [(1, 1, first, 0, 2), (2, 2, first, 2, 1), (3, 1, second, 0, 1)],
        [(4, 3, third, 0, 1)],
    ]


def test_no_more_trees_are_made_than_are_taken() -> None:
    """The rows of two hundred million trees begin at once: memory does not grow with the cloud."""
    topology = find_topology("nested-perfload", trees=200_000_000)
    ids = Ids(dict.fromkeys(topology.resource_classes, 1), dict.fromkeys(topology.traits, 1), {})

    taken = [[len(tree) for tree in islice(part.trees, 2)] for part in table_rows(topology, ids)]

    assert taken == [[7, 7], [9, 9], [4, 4], [0, 0]]
