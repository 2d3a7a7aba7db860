"""The rows of each table, made from a topology one tree after the other, so that memory does not grow with the cloud.

Ids are given here, not by the database: the provider at place p of tree t has the id t * size + p + 1. The cost of a
row is the speed of seeding, so the inner loops do nothing but add and build tuples.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Column, Table

from placebench import tables
from placebench.seeding.vocabulary import Ids
from placebench.topology import Topology

Row = tuple[object, ...]


@dataclass(frozen=True)
class Rows:
    """The rows of one table, as a list for each tree."""

    table: Table
    columns: tuple[str, ...]
    trees: Iterable[list[Row]]

    def targets(self) -> list[Column[object]]:
        """The table's columns that the values of a row belong to."""
        return [self.table.c[name] for name in self.columns]


def rows_of(topology: Topology, ids: Ids) -> tuple[Rows, ...]:
    """The rows of every table that a topology fills, parents first."""
    return (
        Rows(
            tables.resource_providers,
            ("id", "uuid", "name", "generation", "root_provider_id", "parent_provider_id"),
            _providers(topology),
        ),
        Rows(
            tables.inventories,
            (
                "id",
                "resource_provider_id",
                "resource_class_id",
                "total",
                "reserved",
                "min_unit",
                "max_unit",
                "step_size",
                "allocation_ratio",
            ),
            _inventories(topology, ids),
        ),
        Rows(tables.resource_provider_traits, ("resource_provider_id", "trait_id"), _traits(topology, ids)),
        Rows(
            tables.resource_provider_aggregates,
            ("resource_provider_id", "aggregate_id"),
            _aggregates(topology, ids),
        ),
    )


def _providers(topology: Topology) -> Iterator[list[Row]]:
    nodes = [(place, node.name, node.parent) for place, node in enumerate(topology.nodes)]
    for tree in range(topology.trees):
        root = tree * len(nodes) + 1
        uuids = topology.uuids(tree)
        yield [
            (root + place, uuids[place], f"{name}-{tree}", 0, root, None if parent is None else root + parent)
            for place, name, parent in nodes
        ]


def _inventories(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    parts = [
        (
            place,
            (
                ids.resource_classes[inventory.resource_class],
                inventory.total,
                inventory.reserved,
                inventory.min_unit,
                inventory.max_unit,
                inventory.step_size,
                inventory.allocation_ratio,
            ),
        )
        for place, node in enumerate(topology.nodes)
        for inventory in node.inventories
    ]
    for tree in range(topology.trees):
        root = tree * len(topology.nodes) + 1
        first = tree * len(parts) + 1
        yield [(first + number, root + place, *amounts) for number, (place, amounts) in enumerate(parts)]


def _traits(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    always = [(place, ids.traits[name]) for place, node in enumerate(topology.nodes) for name in node.traits]
    choosers = [(place, node) for place, node in enumerate(topology.nodes) if node.some_traits]
    for tree in range(topology.trees):
        root = tree * len(topology.nodes) + 1
        rows: list[Row] = [(root + place, trait) for place, trait in always]
        for place, node in choosers:
            rows += [(root + place, ids.traits[name]) for name in topology.chosen_traits(tree, node)]
        yield rows


def _aggregates(topology: Topology, ids: Ids) -> Iterator[list[Row]]:
    always = [(place, ids.aggregates[name]) for place, node in enumerate(topology.nodes) for name in node.aggregates]
    choosers = [(place, node) for place, node in enumerate(topology.nodes) if node.some_aggregates]
    for tree in range(topology.trees):
        root = tree * len(topology.nodes) + 1
        rows: list[Row] = [(root + place, aggregate) for place, aggregate in always]
        for place, node in choosers:
            rows += [(root + place, ids.aggregates[name]) for name in topology.chosen_aggregates(tree, node)]
        yield rows
