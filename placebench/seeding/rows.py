"""The rows of each table, made from a topology one tree after the other, so that memory does not grow with the cloud.

Ids are given here, not by the database: the first tree begins with 1, and each goes on where the one before it ended.
The cost of a row is the speed of seeding, so the inner loops do nothing but add and build tuples.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import Table

from placebench import tables
from placebench.seeding.name_ids import Ids, Owner
from placebench.topology import Node, Topology

Row = tuple[object, ...]

_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_PROVIDER = ("id", "uuid", "name", "generation", "root_provider_id", "parent_provider_id")
_INVENTORY = ("id", "resource_provider_id", "resource_class_id", *_AMOUNTS)
_CONSUMER = ("id", "uuid", "project_id", "user_id", "generation", "consumer_type_id")
_ALLOCATION = ("id", "resource_provider_id", "consumer_id", "resource_class_id", "used")


@dataclass(frozen=True)
class Rows:
    """The rows of one table, as a list for each tree."""

    table: Table
    columns: tuple[str, ...]
    trees: Iterable[list[Row]]


def rows_of(topology: Topology, ids: Ids) -> tuple[Rows, ...]:
    """The rows of every table that a topology fills, parents first; of consumers only where it has some."""
    used = (
        ()
        if ids.owner is None
        else (
            Rows(tables.consumers, _CONSUMER, _consumers(topology, ids.owner)),
            Rows(tables.allocations, _ALLOCATION, _allocations(topology, ids)),
        )
    )
    return (
        Rows(tables.resource_providers, _PROVIDER, _providers(topology)),
        Rows(tables.inventories, _INVENTORY, _inventories(topology, ids)),
        Rows(tables.resource_provider_traits, ("resource_provider_id", "trait_id"), _traits(topology, ids)),
        Rows(tables.resource_provider_aggregates, ("resource_provider_id", "aggregate_id"), _aggregates(topology, ids)),
        *used,
    )


def _providers(topology: Topology) -> Iterator[list[Row]]:
    kinds = [[(place, node.name, node.parent) for place, node in enumerate(kind.nodes)] for kind in topology.kinds]
    for tree, kind, root in _trees(topology):
        uuids = topology.uuids(tree)
        yield [
            (root + place, uuids[place], f"{name}-{tree}", 0, root, None if parent is None else root + parent)
            for place, name, parent in kinds[kind]
        ]


def _inventories(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    kinds = [
        [
            (place, (ids.resource_classes[inventory.resource_class], *(getattr(inventory, name) for name in _AMOUNTS)))
            for place, node in enumerate(kind.nodes)
            for inventory in node.inventories
        ]
        for kind in topology.kinds
    ]
    first = 1
    for _, kind, root in _trees(topology):
        parts = kinds[kind]
        yield [(first + number, root + place, *amounts) for number, (place, amounts) in enumerate(parts)]
        first += len(parts)


def _traits(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    return _links(topology, ids.traits, lambda node: node.traits, topology.chosen_traits)


def _aggregates(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    return _links(topology, ids.aggregates, topology.common_aggregates, topology.chosen_aggregates)


def _links(
    topology: Topology,
    ids: Mapping[str, int],
    always: Callable[[Node], tuple[str, ...]],
    chosen: Callable[[int, Node], list[str]],
) -> Iterator[list[Row]]:
    """A row for each name that a provider has: those that it always has, and those chosen for it in this tree."""
    kinds = [
        [(place, ids[name]) for place, node in enumerate(kind.nodes) for name in always(node)]
        for kind in topology.kinds
    ]
    for tree, kind, root in _trees(topology):
        rows: list[Row] = [(root + place, number) for place, number in kinds[kind]]
        for place, node in enumerate(topology.kinds[kind].nodes):
            rows += [(root + place, ids[name]) for name in chosen(tree, node)]
        yield rows


def _consumers(topology: Topology, owner: Owner) -> Iterator[list[Row]]:
    whose = (owner.project, owner.user, 1, owner.consumer_type)
    first = 1
    for tree in range(topology.trees):
        consumers = topology.consumers(tree)
        yield [(first + number, uuid, *whose) for number, (uuid, _) in enumerate(consumers)]
        first += len(consumers)


def _allocations(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    first = 1
    for tree, _, root in _trees(topology):
        rows: list[Row] = [
            (root + place, uuid, ids.resource_classes[name], amount)
            for uuid, takes in topology.consumers(tree)
            for place, name, amount in takes
        ]
        yield [(first + number, *row) for number, row in enumerate(rows)]
        first += len(rows)


def _trees(topology: Topology) -> Iterator[tuple[int, int, int]]:
    """Each tree's number, the place of its kind, and the id of its root."""
    sizes = [len(kind.nodes) for kind in topology.kinds]
    root = 1
    for tree in range(topology.trees):
        kind = topology.kind(tree)
        yield tree, kind, root
        root += sizes[kind]
