"""The rows of each table, made from a topology one tree after the other, and the standard names."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import os_resource_classes
import os_traits
import pytest
from sqlalchemy import Connection, create_engine, insert, select

from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import Ids, Owner, add_standard_names, find_topology, table_rows
from placebench.lab.inventory.topology import ClaimPattern, Inventory, Node, RandomSubset, Take, Topology, TreeType

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


@pytest.fixture
def connection() -> Iterator[Connection]:
    """The tables, empty."""
    engine = create_engine("sqlite://")
    tables.metadata.create_all(engine)
    with engine.connect() as connected:
        yield connected
    engine.dispose()


def names(connection: Connection) -> tuple[dict[str, int], dict[str, int]]:
    """The ids of all classes, and of all traits."""
    both = (tables.resource_classes, tables.traits)
    classes, traits = (dict(connection.execute(select(table.c.name, table.c.id)).all()) for table in both)
    return classes, traits


def test_all_that_the_standard_libraries_name_is_there(connection: Connection) -> None:
    """Every trait, and every class under its place as id: VCPU is 0, PCPU 14, the newest so far 20."""
    add_standard_names(connection)

    classes, traits = names(connection)
    assert set(os_traits.get_traits()) == traits.keys()
    assert set(os_resource_classes.STANDARDS) == classes.keys()
    assert (0, 14, 20) == tuple(classes[name] for name in ("VCPU", "PCPU", "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC"))


def test_every_row_says_when_it_was_made(connection: Connection) -> None:
    """Rows with a time and rows without in one table make Placement's GET /resource_classes and /traits a 500."""
    add_standard_names(connection)

    for table in (tables.resource_classes, tables.traits):
        assert None not in connection.scalars(select(table.c.created_at)).all()


def test_a_second_time_adds_nothing(connection: Connection) -> None:
    """The same rows with the same ids."""
    add_standard_names(connection)
    before = names(connection)
    add_standard_names(connection)

    assert before == names(connection)


def test_what_is_there_stays(connection: Connection) -> None:
    """A trait under an id that another program gave it, and what users made; the others come beside them."""
    connection.execute(insert(tables.traits), [{"id": 7, "name": "HW_CPU_X86_AVX2"}, {"id": 8, "name": "CUSTOM_RED"}])
    connection.execute(insert(tables.resource_classes), [{"id": 0, "name": "VCPU"}, {"id": 10_000, "name": "CUSTOM_A"}])
    add_standard_names(connection)

    classes, traits = names(connection)
    assert (7, 8) == (traits["HW_CPU_X86_AVX2"], traits["CUSTOM_RED"])
    assert len(os_traits.get_traits()) + 1 == len(traits)
    assert (0, 1, 10_000) == (classes["VCPU"], classes["MEMORY_MB"], classes["CUSTOM_A"])
    assert len(os_resource_classes.STANDARDS) + 1 == len(classes)


def test_traits_that_the_library_does_not_have_may_be_named_beside_it(connection: Connection) -> None:
    """A topology may be newer than the installed os-traits."""
    add_standard_names(connection, ["HW_OF_TOMORROW"])

    assert {*os_traits.get_traits(), "HW_OF_TOMORROW"} == names(connection)[1].keys()
