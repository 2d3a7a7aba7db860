"""The names of resource classes, traits and aggregates in a database, added where they are missing, and their ids.

The key pieces are `add_standard_names`, for those that clients count on, and `ids_for`, for those of a topology.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import os_resource_classes
from sqlalchemy import Column, Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from placebench import tables
from placebench.topology import CONSUMER_TYPE, OWNER, Topology

# Placement counts custom classes from here; below are the standard ones, which the migration has added.
_FIRST_CUSTOM_CLASS = 10_000

_INSERT: dict[str, Callable[[Table], Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}


@dataclass(frozen=True)
class Owner:
    """The ids of whose the consumers are, and of their type."""

    project: int
    user: int
    consumer_type: int


@dataclass(frozen=True)
class Ids:
    """The id in the database of each name of the topology; an owner where it has consumers."""

    resource_classes: Mapping[str, int]
    traits: Mapping[str, int]
    aggregates: Mapping[str, int]
    owner: Owner | None = None


def add_standard_names(connection: Connection, further: Collection[str] = ()) -> None:
    """Add the classes of os-resource-classes and the traits of os-traits that are missing; what is there stays.

    As Placement does when it starts, which may be now: what it adds meanwhile is no error. The id of a class is its
    place in os-resource-classes. Two statements, and one more for each table that lacks some.

    further: traits that are to be there, too.
    """
    import os_traits  # 377 traits in 36 modules: a quarter of a second

    classes = [{"id": place, "name": name} for place, name in enumerate(os_resource_classes.STANDARDS)]
    _add_standard(connection, tables.resource_classes, classes)
    _add_standard(connection, tables.traits, [{"name": name} for name in sorted({*os_traits.get_traits(), *further})])


def ids_for(connection: Connection, topology: Topology) -> Ids:
    """The ids of the topology's names, after adding those that are missing: at most 18 statements."""
    _add_custom_classes(connection, topology.resource_classes)
    _add(connection, tables.traits.c.name, topology.traits)
    _add(connection, tables.placement_aggregates.c.uuid, topology.aggregate_uuids.values())
    aggregates = _ids(connection, tables.placement_aggregates.c.uuid, topology.aggregate_uuids.values())
    return Ids(
        resource_classes=_ids(connection, tables.resource_classes.c.name, topology.resource_classes),
        traits=_ids(connection, tables.traits.c.name, topology.traits),
        aggregates={name: aggregates[uuid] for name, uuid in topology.aggregate_uuids.items()},
        owner=_owner(connection) if topology.is_used else None,
    )


def _owner(connection: Connection) -> Owner:
    return Owner(
        project=_id(connection, tables.projects.c.external_id, OWNER),
        user=_id(connection, tables.users.c.external_id, OWNER),
        consumer_type=_id(connection, tables.consumer_types.c.name, CONSUMER_TYPE),
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
    """INSERT INTO traits (created_at, name) VALUES (...), (...) ON CONFLICT DO NOTHING, of the rows that are missing"""
    there = set(connection.scalars(select(table.c.name)))
    if missing := [row for row in rows if row["name"] not in there]:
        connection.execute(_INSERT[connection.dialect.name](table).values(missing).on_conflict_do_nothing())


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
