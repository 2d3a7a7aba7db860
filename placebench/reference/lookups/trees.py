"""Whole trees: their providers, inventories and traits, asked for by the ids of their roots."""

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import BigInteger, Select, cast, func, select

from placebench import tables
from placebench.reference.lookups.reader import Reader

_PROVIDERS = tables.resource_providers.c


def root_of(reader: Reader, uuid: str) -> int | None:
    """The id of the root above the provider of this uuid, None if there is no such provider; 1 round trip.

    SELECT root_provider_id FROM resource_providers WHERE uuid = :uuid
    """
    rows = list(reader.read(select(_PROVIDERS.root_provider_id).where(_PROVIDERS.uuid == uuid)))
    return rows[0][0] if rows else None


def roots_of(reader: Reader, provider_ids: Collection[int]) -> dict[int, int]:
    """The id of the root above each provider; 1 round trip.

    SELECT id, root_provider_id FROM resource_providers WHERE id IN (:values)
    """
    statement = select(_PROVIDERS.id, _PROVIDERS.root_provider_id)
    return dict(reader.read_for(statement, _PROVIDERS.id, provider_ids))


def all_roots(reader: Reader) -> list[int]:
    """The ids of all providers that have no parent; 1 round trip.

    SELECT id FROM resource_providers WHERE parent_provider_id IS NULL
    """
    statement = select(_PROVIDERS.id).where(_PROVIDERS.parent_provider_id.is_(None))
    return [key for (key,) in reader.read(statement)]


def providers_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """(id, uuid, parent id, root id) of every provider in the trees; 1 round trip.

    SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers
    WHERE root_provider_id IN (:values)
    """
    statement = select(_PROVIDERS.id, _PROVIDERS.uuid, _PROVIDERS.parent_provider_id, _PROVIDERS.root_provider_id)
    return reader.read_for(statement, _PROVIDERS.root_provider_id, root_ids)


def traits_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """(provider id, trait id) of every provider in the trees; 1 round trip.

    SELECT h.resource_provider_id, h.trait_id FROM resource_provider_traits h
    JOIN resource_providers p ON p.id = h.resource_provider_id WHERE p.root_provider_id IN (:values)
    """
    holds = tables.resource_provider_traits.c
    statement = select(holds.resource_provider_id, holds.trait_id).join(
        tables.resource_providers, _PROVIDERS.id == holds.resource_provider_id
    )
    return reader.read_for(statement, _PROVIDERS.root_provider_id, root_ids)


def stocks_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """(provider id, root id, class id, total, reserved, ratio, max_unit, used) of the trees' inventories; 1 round trip.

    SELECT i.resource_provider_id, p.root_provider_id, i.resource_class_id,
           i.total, i.reserved, i.allocation_ratio, i.max_unit, CAST(coalesce(usage.used, 0) AS BIGINT) AS used
    FROM inventories i
    JOIN resource_providers p ON p.id = i.resource_provider_id
    LEFT JOIN (SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations
               GROUP BY resource_provider_id, resource_class_id) usage
           ON usage.resource_provider_id = i.resource_provider_id AND usage.resource_class_id = i.resource_class_id
    WHERE p.root_provider_id IN (:values)
    """
    return reader.read_for(_STOCKS, _PROVIDERS.root_provider_id, root_ids)


def _stocks() -> Select[Any]:
    stock, allocated = tables.inventories.c, tables.allocations.c
    of_provider_and_class = (allocated.resource_provider_id, allocated.resource_class_id)
    usage = (
        select(*of_provider_and_class, func.sum(allocated.used).label("used"))
        .group_by(*of_provider_and_class)
        .subquery("usage")
    )
    same_provider = usage.c.resource_provider_id == stock.resource_provider_id
    return (
        select(
            stock.resource_provider_id,
            _PROVIDERS.root_provider_id,
            stock.resource_class_id,
            stock.total,
            stock.reserved,
            stock.allocation_ratio,
            stock.max_unit,
            cast(func.coalesce(usage.c.used, 0), BigInteger).label("used"),
        )
        .join(tables.resource_providers, _PROVIDERS.id == stock.resource_provider_id)
        .outerjoin(usage, same_provider & (usage.c.resource_class_id == stock.resource_class_id))
    )


_STOCKS = _stocks()
