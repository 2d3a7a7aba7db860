"""One line of text for each thing a database holds, by uuid and name: what the digest is taken of.

The key piece is `LINES`: a query for each kind. No surrogate ids, generations or stamps are in a line, nor traits and
classes that nobody uses. Numbers with a fraction are in millionths, since databases write fractions in different ways.
"""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, String, cast, func, literal, select
from sqlalchemy.sql.elements import SQLCoreOperations

from placebench import tables


def _provider_lines() -> Select[str]:
    provider = tables.resource_providers
    parent, root = provider.alias("parent"), provider.alias("root")
    return (
        select(_line(provider.c.uuid, provider.c.name, parent.c.uuid, root.c.uuid))
        .outerjoin_from(provider, parent, parent.c.id == provider.c.parent_provider_id)
        .outerjoin(root, root.c.id == provider.c.root_provider_id)
    )


def _inventory_lines() -> Select[str]:
    provider, inventory, resource_class = tables.resource_providers, tables.inventories, tables.resource_classes
    amounts = [inventory.c[name] for name in ("total", "reserved", "min_unit", "max_unit", "step_size")]
    millionths = cast(func.round(inventory.c.allocation_ratio * 1_000_000), BigInteger)
    return (
        select(_line(provider.c.uuid, resource_class.c.name, *amounts, millionths))
        .join_from(inventory, provider, provider.c.id == inventory.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == inventory.c.resource_class_id)
    )


def _trait_lines() -> Select[str]:
    provider, trait, link = tables.resource_providers, tables.traits, tables.resource_provider_traits
    return (
        select(_line(provider.c.uuid, trait.c.name))
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(trait, trait.c.id == link.c.trait_id)
    )


def _aggregate_lines() -> Select[str]:
    provider, aggregate = tables.resource_providers, tables.placement_aggregates
    link = tables.resource_provider_aggregates
    return (
        select(_line(provider.c.uuid, aggregate.c.uuid))
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(aggregate, aggregate.c.id == link.c.aggregate_id)
    )


def _consumer_lines() -> Select[str]:
    consumer, project, user, kind = tables.consumers, tables.projects, tables.users, tables.consumer_types
    return (
        select(_line(consumer.c.uuid, project.c.external_id, user.c.external_id, kind.c.name))
        .outerjoin_from(consumer, project, project.c.id == consumer.c.project_id)
        .outerjoin(user, user.c.id == consumer.c.user_id)
        .outerjoin(kind, kind.c.id == consumer.c.consumer_type_id)
    )


def _allocation_lines() -> Select[str]:
    provider, allocation, resource_class = tables.resource_providers, tables.allocations, tables.resource_classes
    return (
        select(_line(provider.c.uuid, allocation.c.consumer_id, resource_class.c.name, allocation.c.used))
        .join_from(allocation, provider, provider.c.id == allocation.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == allocation.c.resource_class_id)
    )


def _line(*columns: SQLCoreOperations[Any]) -> ColumnElement[str]:
    """The columns as text with bars between them; NULL is empty."""
    line: ColumnElement[str] = literal("")
    for place, column in enumerate(columns):
        field = func.coalesce(cast(column, String), literal(""))
        line = line + literal("|") + field if place else field
    return line.label("line")


LINES = {
    "providers": _provider_lines(),
    "inventories": _inventory_lines(),
    "provider_traits": _trait_lines(),
    "provider_aggregates": _aggregate_lines(),
    "consumers": _consumer_lines(),
    "allocations": _allocation_lines(),
}
