"""Whole trees: their providers, inventories and traits, asked for by the ids of their roots.

A provider whose root_provider_id is NULL, as a Placement before nested providers left them, is in no tree.
"""

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, FromClause, Select, cast, func, select

from placebench import tables
from placebench.reference.lookups.reader import Reader, TotalsWay


def root_of(reader: Reader, uuid: str) -> int | None:
    """The id of the root above the provider of this uuid, None if there is no such provider in a tree; 1 round trip.

    SELECT root_provider_id FROM resource_providers WHERE uuid = :uuid
    """
    own = reader.providers.c
    rows = list(reader.read(select(own.root_provider_id).where(own.uuid == uuid)))
    return rows[0][0] if rows else None


def roots_of(reader: Reader, provider_ids: Collection[int]) -> dict[int, int]:
    """The id of the root above each of the providers that is in a tree; 1 round trip.

    SELECT id, root_provider_id FROM resource_providers WHERE root_provider_id IS NOT NULL AND id IN (:values)
    """
    own = reader.providers.c
    statement = select(own.id, own.root_provider_id).where(own.root_provider_id.is_not(None))
    return dict(reader.read_for(statement, own.id, provider_ids))


def all_roots(reader: Reader) -> list[int]:
    """The ids of all providers that have no parent; 1 round trip.

    SELECT id FROM resource_providers WHERE parent_provider_id IS NULL
    """
    own = tables.resource_providers.c
    statement = select(own.id).where(own.parent_provider_id.is_(None))
    return [key for (key,) in reader.read(statement)]


def providers_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """(id, uuid, parent id, root id) of every provider in the trees; 1 round trip.

    SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers
    WHERE root_provider_id IN (:values)
    """
    own = reader.providers.c
    statement = select(own.id, own.uuid, own.parent_provider_id, own.root_provider_id)
    return reader.read_for(statement, own.root_provider_id, root_ids)


def traits_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """(provider id, trait id) of every provider in the trees; 1 round trip.

    SELECT h.resource_provider_id, h.trait_id FROM resource_provider_traits h
    JOIN resource_providers p ON p.id = h.resource_provider_id WHERE p.root_provider_id IN (:values)
    """
    holds, own = tables.resource_provider_traits.c, reader.providers.c
    statement = select(holds.resource_provider_id, holds.trait_id).join(
        reader.providers, own.id == holds.resource_provider_id
    )
    return reader.read_for(statement, own.root_provider_id, root_ids)


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
    statement = _stocks(reader.providers, reader.totals)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


def everything_of_trees(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Providers, traits and stocks of the trees, each trait of a provider with each stock; 1 round trip.

    (id, uuid, parent id, root id, trait id, class id, total, reserved, ratio, max_unit, used), the trait or the stock
    None where the provider has none.

    SELECT p.id, p.uuid, p.parent_provider_id, p.root_provider_id, h.trait_id, i.resource_class_id,
           i.total, i.reserved, i.allocation_ratio, i.max_unit, CAST(coalesce(usage.used, 0) AS BIGINT) AS used
    FROM resource_providers p
    LEFT JOIN resource_provider_traits h ON h.resource_provider_id = p.id
    LEFT JOIN inventories i ON i.resource_provider_id = p.id
    LEFT JOIN (...) usage
           ON usage.resource_provider_id = i.resource_provider_id AND usage.resource_class_id = i.resource_class_id
    WHERE p.root_provider_id IN (:values)
    """
    statement = _everything(reader.providers, reader.totals)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


@cache
def _stocks(providers: FromClause, totals: TotalsWay) -> Select[Any]:
    stock, usage = tables.inventories.c, totals(None)
    same_provider = usage.c.resource_provider_id == stock.resource_provider_id
    return (
        select(
            stock.resource_provider_id,
            providers.c.root_provider_id,
            stock.resource_class_id,
            stock.total,
            stock.reserved,
            stock.allocation_ratio,
            stock.max_unit,
            cast(func.coalesce(usage.c.used, 0), BigInteger).label("used"),
        )
        .join(providers, providers.c.id == stock.resource_provider_id)
        .outerjoin(usage, same_provider & (usage.c.resource_class_id == stock.resource_class_id))
    )


@cache
def _everything(providers: FromClause, totals: TotalsWay) -> Select[Any]:
    own, holds, stock, usage = providers.c, tables.resource_provider_traits.c, tables.inventories.c, totals(None)
    same_provider = usage.c.resource_provider_id == stock.resource_provider_id
    return (
        select(
            own.id,
            own.uuid,
            own.parent_provider_id,
            own.root_provider_id,
            holds.trait_id,
            stock.resource_class_id,
            stock.total,
            stock.reserved,
            stock.allocation_ratio,
            stock.max_unit,
            cast(func.coalesce(usage.c.used, 0), BigInteger).label("used"),
        )
        .select_from(providers)
        .outerjoin(tables.resource_provider_traits, holds.resource_provider_id == own.id)
        .outerjoin(tables.inventories, stock.resource_provider_id == own.id)
        .outerjoin(usage, same_provider & (usage.c.resource_class_id == stock.resource_class_id))
    )
