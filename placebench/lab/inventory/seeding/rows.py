"""The rows of each table, generated from a topology tree by tree, and the ids of names that the rows refer to.

`table_rows` generates the rows lazily, so that memory does not grow with the data set. Row ids are assigned here, not
by the database: the ids of the first tree begin with 1, and each tree continues after the previous one. `ensure_ids`
adds names of resource classes, traits and aggregates that a database lacks, `add_standard_names` those that clients
rely on. The cost of a row decides the speed of seeding, so the inner loops only add numbers and build tuples.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import os_resource_classes
from sqlalchemy import Column, Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from placebench.lab.inventory import tables
from placebench.lab.inventory.topology import CONSUMER_TYPE, OWNER, Node, Topology

# Placement numbers custom classes from here; smaller ids are those of standard classes.
_FIRST_CUSTOM_CLASS = 10_000


def _insert_ignore(table: Table) -> Any:
    return table.insert().prefix_with("IGNORE")


_INSERT: dict[str, Callable[[Table], Any]] = {
    "postgresql": lambda table: postgresql.insert(table).on_conflict_do_nothing(),
    "sqlite": lambda table: sqlite.insert(table).on_conflict_do_nothing(),
    "mysql": _insert_ignore,
    "mariadb": _insert_ignore,
}


@dataclass(frozen=True)
class Owner:
    """The ids of the project, user and consumer type of all consumers."""

    project: int
    user: int
    consumer_type: int


@dataclass(frozen=True)
class Ids:
    """The database ids of the names in the topology, and an owner if the topology has consumers."""

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    owner: Owner | None = None


def add_standard_names(connection: Connection, further: Collection[str] = ()) -> None:
    """Add missing classes of os-resource-classes and traits of os-traits; existing rows are unchanged.

    Placement does the same at its start, possibly at the same time, so rows that it adds meanwhile are not an error.
    The id of a class is its position in os-resource-classes. Takes two statements, and one more for each table that
    lacks rows.

    further: additional traits that must exist.
    """
    import os_traits  # 377 traits in 36 modules: a quarter of a second

    classes = [{"id": place, "name": name} for place, name in enumerate(os_resource_classes.STANDARDS)]
    _add_standard(connection, tables.resource_classes, classes)
    _add_standard(connection, tables.traits, [{"name": name} for name in sorted({*os_traits.get_traits(), *further})])


def ensure_ids(connection: Connection, topology: Topology) -> Ids:
    """Return the ids of the topology's names after adding missing names; takes at most 18 statements."""
    _add_custom_classes(connection, topology.resource_classes)
    _add(connection, tables.traits.c.name, topology.traits)
    _add(connection, tables.placement_aggregates.c.uuid, topology.aggregate_uuids.values())
    aggregates = _ids(connection, tables.placement_aggregates.c.uuid, topology.aggregate_uuids.values())
    owner = None
    if topology.is_used:
        owner = Owner(
            project=_id(connection, tables.projects.c.external_id, OWNER),
            user=_id(connection, tables.users.c.external_id, OWNER),
            consumer_type=_id(connection, tables.consumer_types.c.name, CONSUMER_TYPE),
        )
    return Ids(
        resource_classes=_ids(connection, tables.resource_classes.c.name, topology.resource_classes),
        traits=_ids(connection, tables.traits.c.name, topology.traits),
        aggregates={name: aggregates[uuid] for name, uuid in topology.aggregate_uuids.items()},
        owner=owner,
    )


def _add_custom_classes(connection: Connection, names: Collection[str]) -> None:
    table = tables.resource_classes
    there = _ids(connection, table.c.name, names)
    highest = connection.scalar(select(func.max(table.c.id))) or 0
    first = max(highest + 1, _FIRST_CUSTOM_CLASS)
    missing = [name for name in names if name not in there]
    if missing:
        connection.execute(table.insert(), [{"id": first + n, "name": name} for n, name in enumerate(missing)])


def _add_standard(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert the missing rows in one statement with ON CONFLICT DO NOTHING or IGNORE."""
    there = set(connection.scalars(select(table.c.name)))
    if missing := [row for row in rows if row["name"] not in there]:
        connection.execute(_INSERT[connection.dialect.name](table).values(missing))


def _add(connection: Connection, column: Column[str], names: Collection[str]) -> None:
    there = _ids(connection, column, names)
    missing = [name for name in names if name not in there]
    if missing:
        connection.execute(_table(column).insert(), [{column.name: name} for name in missing])


def _id(connection: Connection, column: Column[str], name: str) -> int:
    _add(connection, column, [name])
    return _ids(connection, column, [name])[name]


def _ids(connection: Connection, column: Column[str], names: Collection[str]) -> dict[str, int]:
    found = connection.execute(select(column, _table(column).c.id).where(column.in_(names)))
    return {row[0]: row[1] for row in found}


def _table(column: Column[str]) -> Table:
    table = column.table
    assert isinstance(table, Table)
    return table


_Row = tuple[object, ...]

_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_PROVIDER = ("id", "uuid", "name", "generation", "root_provider_id", "parent_provider_id")
_INVENTORY = ("id", "resource_provider_id", "resource_class_id", *_AMOUNTS)
_CONSUMER = ("id", "uuid", "project_id", "user_id", "generation", "consumer_type_id")
_ALLOCATION = ("id", "resource_provider_id", "consumer_id", "resource_class_id", "used")


@dataclass(frozen=True)
class Rows:
    """The rows of one table, as one list per tree."""

    table: Table
    columns: tuple[str, ...]
    trees: Iterable[list[_Row]]


def table_rows(topology: Topology, ids: Ids) -> tuple[Rows, ...]:
    """Return the rows of every table that a topology fills, parents first; consumers' tables only if it has some."""
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
        Rows(
            tables.resource_provider_traits,
            ("resource_provider_id", "trait_id"),
            _links(topology, ids.traits, lambda node: node.traits, topology.chosen_traits),
        ),
        Rows(
            tables.resource_provider_aggregates,
            ("resource_provider_id", "aggregate_id"),
            _links(topology, ids.aggregates, topology.common_aggregates, topology.chosen_aggregates),
        ),
        *used,
    )


def _providers(topology: Topology) -> Iterator[list[_Row]]:
    types = [[(place, node.name, node.parent) for place, node in enumerate(each.nodes)] for each in topology.tree_types]
    for tree, index, root in _trees(topology):
        uuids = topology.uuids(tree)
        yield [
            (root + place, uuids[place], f"{name}-{tree}", 0, root, None if parent is None else root + parent)
            for place, name, parent in types[index]
        ]


def _inventories(topology: Topology, ids: Ids) -> Iterator[list[_Row]]:
    types = [
        [
            (place, (ids.resource_classes[inventory.resource_class], *(getattr(inventory, name) for name in _AMOUNTS)))
            for place, node in enumerate(each.nodes)
            for inventory in node.inventories
        ]
        for each in topology.tree_types
    ]
    first = 1
    for _, index, root in _trees(topology):
        parts = types[index]
        yield [(first + number, root + place, *amounts) for number, (place, amounts) in enumerate(parts)]
        first += len(parts)


def _links(
    topology: Topology,
    ids: Mapping[str, int],
    always: Callable[[Node], tuple[str, ...]],
    chosen: Callable[[int, Node], list[str]],
) -> Iterator[list[_Row]]:
    """Yield a row for each name of a provider: names that it always has, and names chosen for it in this tree."""
    types = [
        [(place, ids[name]) for place, node in enumerate(each.nodes) for name in always(node)]
        for each in topology.tree_types
    ]
    for tree, index, root in _trees(topology):
        rows: list[_Row] = [(root + place, number) for place, number in types[index]]
        for place, node in enumerate(topology.tree_types[index].nodes):
            rows += [(root + place, ids[name]) for name in chosen(tree, node)]
        yield rows


def _consumers(topology: Topology, owner: Owner) -> Iterator[list[_Row]]:
    whose = (owner.project, owner.user, 1, owner.consumer_type)
    first = 1
    for tree in range(topology.trees):
        consumers = topology.consumers(tree)
        yield [(first + number, uuid, *whose) for number, (uuid, _) in enumerate(consumers)]
        first += len(consumers)


def _allocations(topology: Topology, ids: Ids) -> Iterator[list[_Row]]:
    first = 1
    for tree, _, root in _trees(topology):
        rows: list[_Row] = [
            (root + place, uuid, ids.resource_classes[name], amount)
            for uuid, takes in topology.consumers(tree)
            for place, name, amount in takes
        ]
        yield [(first + number, *row) for number, row in enumerate(rows)]
        first += len(rows)


def _trees(topology: Topology) -> Iterator[tuple[int, int, int]]:
    """Yield the number, the index of the type and the root's id of each tree."""
    sizes = [len(each.nodes) for each in topology.tree_types]
    root = 1
    for tree in range(topology.trees):
        index = topology.type_index(tree)
        yield tree, index, root
        root += sizes[index]
