"""Reads a Placement from its database: five queries in one transaction, on any database that SQLAlchemy speaks to.

The key piece is `read_database`.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, inspect, select

from placebench import tables
from placebench.errors import DatabaseError
from placebench.export.live import Allocation, Cloud, Provider
from placebench.seeding import reading
from placebench.topology import Inventory

_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def read_database(url: str) -> Cloud:
    """The cloud in the database, as of one moment where it keeps snapshots; nothing is written or migrated.

    Raises DatabaseError, in one line, for one that does not answer or is no Placement's.
    """
    with reading(url) as connection:
        if not inspect(connection).has_table(tables.resource_providers.name):
            raise DatabaseError("the database has no table resource_providers: expected the database of a Placement")
        return _cloud(connection)


def _cloud(connection: Connection) -> Cloud:
    provider = tables.resource_providers
    parent = provider.alias("parent")
    providers = select(provider.c.uuid, parent.c.uuid).outerjoin_from(
        provider, parent, parent.c.id == provider.c.parent_provider_id
    )
    inventories = _grouped(connection.execute(_inventories()))
    traits = _grouped(connection.execute(_traits()))
    aggregates = _grouped(connection.execute(_aggregates()))
    return Cloud(
        tuple(
            Provider(
                uuid,
                parent_uuid,
                tuple(Inventory(*amounts) for amounts in inventories[uuid]),
                frozenset(name for (name,) in traits[uuid]),
                frozenset(aggregate for (aggregate,) in aggregates[uuid]),
            )
            for uuid, parent_uuid in connection.execute(providers)
        ),
        {
            consumer: tuple(Allocation(*each) for each in found)
            for consumer, found in _grouped(connection.execute(_allocations())).items()
        },
    )


def _grouped(rows: Iterable[Any]) -> defaultdict[str, list[tuple[Any, ...]]]:
    """The rows by their first column."""
    found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for key, *rest in rows:
        found[key].append(tuple(rest))
    return found


def _inventories() -> Select[Any]:
    provider, inventory, resource_class = tables.resource_providers, tables.inventories, tables.resource_classes
    return (
        select(provider.c.uuid, resource_class.c.name, *(inventory.c[name] for name in _AMOUNTS))
        .join_from(inventory, provider, provider.c.id == inventory.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == inventory.c.resource_class_id)
    )


def _traits() -> Select[Any]:
    provider, trait, link = tables.resource_providers, tables.traits, tables.resource_provider_traits
    return (
        select(provider.c.uuid, trait.c.name)
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(trait, trait.c.id == link.c.trait_id)
    )


def _aggregates() -> Select[Any]:
    provider, aggregate = tables.resource_providers, tables.placement_aggregates
    link = tables.resource_provider_aggregates
    return (
        select(provider.c.uuid, aggregate.c.uuid)
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(aggregate, aggregate.c.id == link.c.aggregate_id)
    )


def _allocations() -> Select[Any]:
    provider, allocation, resource_class = tables.resource_providers, tables.allocations, tables.resource_classes
    return (
        select(allocation.c.consumer_id, provider.c.uuid, resource_class.c.name, allocation.c.used)
        .join_from(allocation, provider, provider.c.id == allocation.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == allocation.c.resource_class_id)
    )
