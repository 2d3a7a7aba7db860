"""The SELECTs of the candidate search of `naive` and `tuned`: one function per query, with its SQL.

A `Reader` is a connection with the variant's implementations of binding lists, reading rows, roots and usage totals.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    FromClause,
    Integer,
    Select,
    bindparam,
    cast,
    func,
    select,
)

from placebench.lab.inventory import tables

RowReader = Callable[[CursorResult[Any]], Iterable[Any]]
ListBinding = Callable[[Connection, Select[Any], ColumnElement[Any], Sequence[Any]], CursorResult[Any]]
UsageTotals = Callable[[ColumnElement[Any] | None], FromClause]
DivisibilityTest = Callable[[ColumnElement[int], ColumnElement[int]], ColumnElement[bool]]


@dataclass(frozen=True, slots=True)
class Reader:
    """Executes SELECTs on one connection, in the transaction that the caller has begun."""

    connection: Connection
    rows: RowReader
    binding: ListBinding
    providers: FromClause  # with id, uuid, parent_provider_id and root_provider_id
    totals: UsageTotals
    divides: DivisibilityTest

    def read(self, statement: Select[Any], parameters: Mapping[str, Any] | None = None) -> Iterable[Any]:
        """Return the rows of the statement, which unpack like tuples; 1 round trip."""
        return self.rows(self.connection.execute(statement, parameters))

    def read_for(self, statement: Select[Any], column: ColumnElement[Any], values: Collection[Any]) -> Iterable[Any]:
        """Return the rows of the statement whose *column* is one of *values*; 1 round trip, or none without values."""
        if not values:
            return ()
        return self.rows(self.binding(self.connection, statement, column, list(values)))


_Key = TypeVar("_Key")


def read_trait_holders(reader: Reader, trait_ids: Collection[int]) -> Mapping[int, list[int]]:
    """Return the ids of the providers that hold each trait, by trait id; 1 round trip.

    SELECT trait_id, resource_provider_id FROM resource_provider_traits WHERE trait_id IN (:values)
    """
    rows = reader.read_for(_TRAIT_HOLDERS, tables.resource_provider_traits.c.trait_id, trait_ids)
    return _group_by_key(rows, trait_ids)


def read_aggregate_members(reader: Reader, uuids: Collection[str]) -> Mapping[str, list[int]]:
    """Return the ids of the providers in each aggregate, by the aggregate's uuid; 1 round trip.

    SELECT a.uuid, m.resource_provider_id FROM resource_provider_aggregates m
    JOIN placement_aggregates a ON a.id = m.aggregate_id WHERE a.uuid IN (:values)
    """
    rows = reader.read_for(_AGGREGATE_MEMBERS, tables.placement_aggregates.c.uuid, uuids)
    return _group_by_key(rows, uuids)


def read_sharing_anchors(reader: Reader, sharing_ids: Collection[int]) -> Mapping[int, list[int]]:
    """Return, for each sharing provider, the roots of the trees with a provider in one of its aggregates; 1 round trip.

    SELECT DISTINCT shares.resource_provider_id, p.root_provider_id
    FROM resource_provider_aggregates shares
    JOIN resource_provider_aggregates member ON member.aggregate_id = shares.aggregate_id
    JOIN resource_providers p ON p.id = member.resource_provider_id
    WHERE p.root_provider_id IS NOT NULL AND shares.resource_provider_id IN (:values)
    """
    shares, member = (tables.resource_provider_aggregates.alias(name) for name in ("shares", "member"))
    own = reader.providers.c
    statement = (
        select(shares.c.resource_provider_id, own.root_provider_id)
        .distinct()
        .join(member, member.c.aggregate_id == shares.c.aggregate_id)
        .join(reader.providers, own.id == member.c.resource_provider_id)
        .where(own.root_provider_id.is_not(None))
    )
    return _group_by_key(reader.read_for(statement, shares.c.resource_provider_id, sharing_ids), sharing_ids)


_TRAIT_HOLDERS = select(
    tables.resource_provider_traits.c.trait_id, tables.resource_provider_traits.c.resource_provider_id
)
_AGGREGATE_MEMBERS = select(
    tables.placement_aggregates.c.uuid, tables.resource_provider_aggregates.c.resource_provider_id
).join(
    tables.resource_provider_aggregates,
    tables.placement_aggregates.c.id == tables.resource_provider_aggregates.c.aggregate_id,
)


def _group_by_key(pairs: Iterable[tuple[_Key, int]], keys: Iterable[_Key]) -> Mapping[_Key, list[int]]:
    found: dict[_Key, list[int]] = {key: [] for key in keys}
    for key, member in pairs:
        found[key].append(member)
    return found


# The largest number in the columns. No max_unit is larger, so no provider has capacity for more, and SQLite's driver
# would raise OverflowError for a larger one.
_MAX_UNIT = 2**31 - 1

# The slice of a row of `ProvidersWithCapacity` with total, reserved, allocation_ratio, max_unit and used.
AMOUNTS = slice(2, None)


class ProvidersWithCapacity(NamedTuple):
    """The providers that have capacity for an amount of a class."""

    roots: dict[int, int]
    """The root id of each provider, by provider id."""
    rows: Sequence[Any]
    """(provider id, root id, amounts); () if no amounts were read."""


def read_providers_with_capacity(
    reader: Reader, class_id: int, amount: int, *, with_amounts: bool, root_id: int | None
) -> ProvidersWithCapacity:
    """Return the providers that have capacity for *amount* of the class; 1 round trip.

    with_amounts: whether to read more than the ids of the provider and its root. root_id: the root of the only tree
    that matters; None: all trees do.

    SELECT i.resource_provider_id, p.root_provider_id, i.total, i.reserved, i.allocation_ratio, i.max_unit,
           CAST(coalesce(usage.used, 0) AS BIGINT) AS used
    FROM inventories i
    JOIN resource_providers p ON p.id = i.resource_provider_id
    LEFT JOIN (SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations
               WHERE resource_class_id = :class_id GROUP BY resource_provider_id, resource_class_id) usage
           ON usage.resource_provider_id = i.resource_provider_id AND usage.resource_class_id = i.resource_class_id
    WHERE i.resource_class_id = :class_id
      AND coalesce(usage.used, 0) + :amount <= (i.total - i.reserved) * i.allocation_ratio
      AND i.min_unit <= :amount AND i.max_unit >= :amount AND :amount % i.step_size = 0
      AND p.root_provider_id IS NOT NULL  -- or p.root_provider_id = :root_id
    """
    if amount > _MAX_UNIT:
        return ProvidersWithCapacity({}, ())
    statement = _providers_with_capacity(
        reader.providers, reader.totals, reader.divides, with_amounts, root_id is not None
    )
    rows = reader.read(statement, {"class_id": class_id, "amount": amount, "root_id": root_id})
    if not with_amounts:
        return ProvidersWithCapacity(dict(rows), ())
    rows = list(rows)
    return ProvidersWithCapacity({row[0]: row[1] for row in rows}, rows)


@cache
def _providers_with_capacity(
    providers: FromClause, totals: UsageTotals, divides: DivisibilityTest, with_amounts: bool, in_tree: bool
) -> Select[Any]:
    own, root_id = tables.inventories.c, providers.c.root_provider_id
    class_id, amount = bindparam("class_id", type_=Integer), bindparam("amount", type_=Integer)
    usage = totals(class_id)
    _, *amounts = _amounts(usage)
    return (
        select(own.resource_provider_id, root_id, *(amounts if with_amounts else ()))
        .select_from(tables.inventories)
        .join(providers, providers.c.id == own.resource_provider_id)
        .outerjoin(usage, _same_inventory(usage))
        .where(
            own.resource_class_id == class_id,
            func.coalesce(usage.c.used, 0) + amount <= (own.total - own.reserved) * own.allocation_ratio,
            own.min_unit <= amount,
            own.max_unit >= amount,
            divides(own.step_size, amount),
            root_id == bindparam("root_id", type_=Integer) if in_tree else root_id.is_not(None),
        )
    )


SHARING_TRAIT = "MISC_SHARES_VIA_AGGREGATE"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The names and ids of all traits and resource classes."""

    trait_names: dict[int, str]
    trait_ids: dict[str, int]
    class_names: dict[int, str]
    class_ids: dict[str, int]


def read_catalog(reader: Reader) -> Catalog:
    """Read the names and ids of all traits and resource classes; 2 round trips."""
    trait_names, class_names = (dict(reader.read(statement)) for statement in _NAMES)
    return Catalog(
        trait_names,
        dict(zip(trait_names.values(), trait_names, strict=True)),
        class_names,
        dict(zip(class_names.values(), class_names, strict=True)),
    )


_NAMES = [select(table.c.id, table.c.name) for table in (tables.traits, tables.resource_classes)]


def read_root(reader: Reader, uuid: str) -> int | None:
    """Return the id of the root of the provider with this uuid, or None if no tree has such a provider; 1 round trip.

    SELECT root_provider_id FROM resource_providers WHERE uuid = :uuid
    """
    rows = list(reader.read(_select_root(reader.providers), {"uuid": uuid}))
    return rows[0][0] if rows else None


@cache
def _select_root(providers: FromClause) -> Select[Any]:
    return select(providers.c.root_provider_id).where(providers.c.uuid == bindparam("uuid"))


def read_roots(reader: Reader, provider_ids: Collection[int]) -> dict[int, int]:
    """Return the root ids, by provider id, of those providers that are in a tree; 1 round trip.

    SELECT id, root_provider_id FROM resource_providers WHERE root_provider_id IS NOT NULL AND id IN (:values)
    """
    own = reader.providers.c
    statement = select(own.id, own.root_provider_id).where(own.root_provider_id.is_not(None))
    return dict(reader.read_for(statement, own.id, provider_ids))


def read_all_roots(reader: Reader) -> list[int]:
    """Return the ids of all providers that have no parent; 1 round trip.

    SELECT id FROM resource_providers WHERE parent_provider_id IS NULL
    """
    own = tables.resource_providers.c
    statement = select(own.id).where(own.parent_provider_id.is_(None))
    return [key for (key,) in reader.read(statement)]


def read_tree_providers(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Return (id, uuid, parent id, root id) of each provider in the trees; 1 round trip.

    SELECT id, uuid, parent_provider_id, root_provider_id FROM resource_providers
    WHERE root_provider_id IN (:values)
    """
    statement = _select_providers(reader.providers)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


def read_tree_traits(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Return (provider id, trait id) for each trait of each provider in the trees; 1 round trip.

    SELECT h.resource_provider_id, h.trait_id FROM resource_provider_traits h
    JOIN resource_providers p ON p.id = h.resource_provider_id WHERE p.root_provider_id IN (:values)
    """
    statement = _select_traits(reader.providers)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


def read_tree_inventories(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Return the inventories of the trees' providers; 1 round trip.

    A row is (provider id, root id, class id, total, reserved, allocation_ratio, max_unit, used).

    SELECT i.resource_provider_id, p.root_provider_id, i.resource_class_id,
           i.total, i.reserved, i.allocation_ratio, i.max_unit, CAST(coalesce(usage.used, 0) AS BIGINT) AS used
    FROM inventories i
    JOIN resource_providers p ON p.id = i.resource_provider_id
    LEFT JOIN (SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations
               GROUP BY resource_provider_id, resource_class_id) usage
           ON usage.resource_provider_id = i.resource_provider_id AND usage.resource_class_id = i.resource_class_id
    WHERE p.root_provider_id IN (:values)
    """
    statement = _select_inventories(reader.providers, reader.totals)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


def read_tree_capacities(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Return the inventories of the trees' providers as a document shows them; 1 round trip.

    A row is (provider id, class id, total, reserved, allocation_ratio, used), read as by `read_tree_inventories`.
    """
    statement = _select_capacities(reader.providers, reader.totals)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


def read_trees_joined(reader: Reader, root_ids: Collection[int]) -> Iterable[Any]:
    """Return the trees' providers, joined with their traits and inventories; 1 round trip.

    Each provider has a row for each combination of its traits and inventories: (id, uuid, parent id, root id, trait id,
    class id, total, reserved, allocation_ratio, max_unit, used). Columns of a missing trait or inventory are None, but
    for *used*, which is 0.

    SELECT p.id, p.uuid, p.parent_provider_id, p.root_provider_id, h.trait_id, i.resource_class_id,
           i.total, i.reserved, i.allocation_ratio, i.max_unit, CAST(coalesce(usage.used, 0) AS BIGINT) AS used
    FROM resource_providers p
    LEFT JOIN resource_provider_traits h ON h.resource_provider_id = p.id
    LEFT JOIN inventories i ON i.resource_provider_id = p.id
    LEFT JOIN (...) usage
           ON usage.resource_provider_id = i.resource_provider_id AND usage.resource_class_id = i.resource_class_id
    WHERE p.root_provider_id IN (:values)
    """
    statement = _select_joined(reader.providers, reader.totals)
    return reader.read_for(statement, reader.providers.c.root_provider_id, root_ids)


@cache
def _select_providers(providers: FromClause) -> Select[Any]:
    own = providers.c
    return select(own.id, own.uuid, own.parent_provider_id, own.root_provider_id)


@cache
def _select_traits(providers: FromClause) -> Select[Any]:
    holds = tables.resource_provider_traits.c
    return select(holds.resource_provider_id, holds.trait_id).join(
        providers, providers.c.id == holds.resource_provider_id
    )


@cache
def _select_capacities(providers: FromClause, totals: UsageTotals) -> Select[Any]:
    own, usage = tables.inventories.c, totals(None)
    class_id, total, reserved, allocation_ratio, _, used = _amounts(usage)
    return (
        select(own.resource_provider_id, class_id, total, reserved, allocation_ratio, used)
        .join(providers, providers.c.id == own.resource_provider_id)
        .outerjoin(usage, _same_inventory(usage))
    )


@cache
def _select_inventories(providers: FromClause, totals: UsageTotals) -> Select[Any]:
    own, usage = tables.inventories.c, totals(None)
    return (
        select(own.resource_provider_id, providers.c.root_provider_id, *_amounts(usage))
        .join(providers, providers.c.id == own.resource_provider_id)
        .outerjoin(usage, _same_inventory(usage))
    )


@cache
def _select_joined(providers: FromClause, totals: UsageTotals) -> Select[Any]:
    own, held, usage = providers.c, tables.resource_provider_traits, totals(None)
    return (
        select(own.id, own.uuid, own.parent_provider_id, own.root_provider_id, held.c.trait_id, *_amounts(usage))
        .select_from(providers)
        .outerjoin(held, held.c.resource_provider_id == own.id)
        .outerjoin(tables.inventories, tables.inventories.c.resource_provider_id == own.id)
        .outerjoin(usage, _same_inventory(usage))
    )


def _amounts(usage: FromClause) -> tuple[ColumnElement[Any], ...]:
    """Return the columns of an inventory; the last one is the amount in use."""
    own, used = tables.inventories.c, cast(func.coalesce(usage.c.used, 0), BigInteger).label("used")
    return own.resource_class_id, own.total, own.reserved, own.allocation_ratio, own.max_unit, used


def _same_inventory(usage: FromClause) -> ColumnElement[bool]:
    own = tables.inventories.c
    same_provider = usage.c.resource_provider_id == own.resource_provider_id
    return same_provider & (usage.c.resource_class_id == own.resource_class_id)
