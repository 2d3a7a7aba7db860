"""Which providers have room for an amount of a resource class."""

from functools import cache
from typing import Any

from sqlalchemy import BigInteger, FromClause, Integer, Select, bindparam, cast, func, select

from placebench import tables
from placebench.reference.lookups.reader import Reader, TotalsWay

# The largest number that the columns hold. No max_unit lies above it, so nobody has room for more;
# asked nevertheless, SQLite's driver raises OverflowError.
MAX_UNIT = 2**31 - 1

Room = dict[int, Any]

# The part of a room's row that says how much there is: total, reserved, allocation_ratio, max_unit, used.
AMOUNTS = slice(2, None)


def providers_with_room(reader: Reader, class_id: int, amount: int) -> Room:
    """The providers that can give *amount* of the class, by id, each with the row that says so; 1 round trip.

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
      AND p.root_provider_id IS NOT NULL
    """
    if amount > MAX_UNIT:
        return {}
    statement = _providers_with_room(reader.providers, reader.totals)
    rows = reader.read(statement, {"class_id": class_id, "amount": amount})
    return {row[0]: row for row in rows}


@cache
def _providers_with_room(providers: FromClause, totals: TotalsWay) -> Select[Any]:
    stock = tables.inventories.c
    class_id, amount = bindparam("class_id", type_=Integer), bindparam("amount", type_=Integer)
    usage = totals(class_id)
    used = func.coalesce(usage.c.used, 0)
    same_provider = usage.c.resource_provider_id == stock.resource_provider_id
    return (
        select(
            stock.resource_provider_id,
            providers.c.root_provider_id,
            stock.total,
            stock.reserved,
            stock.allocation_ratio,
            stock.max_unit,
            cast(used, BigInteger).label("used"),
        )
        .join(providers, providers.c.id == stock.resource_provider_id)
        .outerjoin(usage, same_provider & (usage.c.resource_class_id == stock.resource_class_id))
        .where(
            stock.resource_class_id == class_id,
            used + amount <= (stock.total - stock.reserved) * stock.allocation_ratio,
            stock.min_unit <= amount,
            stock.max_unit >= amount,
            amount % stock.step_size == 0,
            providers.c.root_provider_id.is_not(None),
        )
    )
