"""The SELECTs that fill a picture: one function, one query. The key piece is `Trees`, which says of which trees.

PostgreSQL encodes by dictionary: one row for each distinct inventory, amount in use, trait or aggregate, with the ids
of all providers that have it as one value. Ids are four bytes each (`int4send`), which Python unpacks 5000 to a
tenth of a millisecond; as rows they would cost a hundred times that. `having` is the WHERE that `Trees.having` makes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from placebench.reference.store.candidate_queries import SHARING_TRAIT

Row = Any

FEW: Final = 1_000  # providers that are named one by one
ROOTED: Final = "root_provider_id IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Trees:
    """Which trees to read, as a condition on resource_providers: "" for all."""

    condition: str = ""

    @classmethod
    def of(cls, root_ids: Collection[int]) -> "Trees":
        """The trees of these roots, by index."""
        return cls(f"root_provider_id = ANY ('{{{','.join(map(str, root_ids))}}}')")

    @classmethod
    def after(cls, root_id: int, count: int) -> "Trees":
        """So many trees, the next ones by the ids of their roots."""
        roots = f"{ROOTED} AND parent_provider_id IS NULL AND id > {root_id} ORDER BY id LIMIT {count}"
        return cls(f"root_provider_id IN (SELECT id FROM resource_providers WHERE {roots})")

    @classmethod
    def between(cls, first: int, last: int) -> "Trees":
        """The trees whose roots have these ids and those between."""
        return cls(f"root_provider_id BETWEEN {first} AND {last}")

    def providers(self) -> str:
        """The WHERE of a query on providers; one without a root is in no tree."""
        return f"WHERE {self.condition or ROOTED}"

    def having(self, provider_ids: Collection[int]) -> str:
        """The WHERE of a query on a table that names providers: those of the trees, which are these.

        A list of a few is planned in less time than subqueries, and planning is most of what a few trees cost.
        """
        if not self.condition:
            return ""
        if len(provider_ids) <= FEW:
            return f"WHERE resource_provider_id = ANY ('{{{','.join(map(str, provider_ids))}}}')"
        return f"WHERE resource_provider_id IN (SELECT id FROM resource_providers WHERE {self.condition})"


def providers(connection: Connection, trees: Trees) -> Row:
    """Ids, the ids of parents (-1 for none) and uuids, tree by tree, the root first; 1 round trip, 1 row.

    SELECT string_agg(int4send(id), ''), string_agg(int4send(coalesce(parent_provider_id, -1)), ''),
           string_agg(uuid, '","')
    FROM (SELECT id, parent_provider_id, uuid FROM resource_providers WHERE root_provider_id IS NOT NULL
          ORDER BY root_provider_id, parent_provider_id NULLS FIRST, id) AS sorted
    """
    return _rows(
        connection,
        f"""
        SELECT string_agg(int4send(id), ''), string_agg(int4send(coalesce(parent_provider_id, -1)), ''),
               string_agg(uuid, '","')
        FROM (SELECT id, parent_provider_id, uuid FROM resource_providers {trees.providers()}
              ORDER BY root_provider_id, parent_provider_id NULLS FIRST, id) AS sorted
        """,
    )[0]


def inventories(connection: Connection, having: str) -> list[Row]:
    """(class id, name, total, reserved, ratio, min, max, step, provider ids) of each distinct inventory; 1 round trip.

    SELECT c.id, c.name, total, reserved, allocation_ratio, min_unit, max_unit, step_size, holders
    FROM (SELECT resource_class_id, total, reserved, allocation_ratio, min_unit, max_unit, step_size,
                 string_agg(int4send(resource_provider_id), '') AS holders
          FROM inventories GROUP BY 1, 2, 3, 4, 5, 6, 7) AS i JOIN resource_classes c ON c.id = resource_class_id
    """
    return _rows(
        connection,
        f"""
        SELECT c.id, c.name, total, reserved, allocation_ratio, min_unit, max_unit, step_size, holders
        FROM (SELECT resource_class_id, total, reserved, allocation_ratio, min_unit, max_unit, step_size,
                     string_agg(int4send(resource_provider_id), '') AS holders
              FROM inventories {having} GROUP BY 1, 2, 3, 4, 5, 6, 7) AS i
        JOIN resource_classes c ON c.id = resource_class_id
        """,
    )


def usages(connection: Connection, having: str) -> list[Row]:
    """(class id, amount in use, provider ids) of each class and amount; 1 round trip.

    SELECT resource_class_id, used, string_agg(int4send(resource_provider_id), '')
    FROM (SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations GROUP BY 1, 2) AS usage
    GROUP BY 1, 2
    """
    return _rows(
        connection,
        f"""
        SELECT resource_class_id, used, string_agg(int4send(resource_provider_id), '')
        FROM (SELECT resource_provider_id, resource_class_id, sum(used) AS used
              FROM allocations {having} GROUP BY 1, 2) AS usage
        GROUP BY 1, 2
        """,
    )


def held_traits(connection: Connection, having: str) -> list[Row]:
    """(name, provider ids) of each trait that a provider of the trees holds; 1 round trip.

    SELECT t.name, h.holders
    FROM (SELECT trait_id, string_agg(int4send(resource_provider_id), '') AS holders
          FROM resource_provider_traits GROUP BY 1) AS h JOIN traits t ON t.id = h.trait_id
    """
    return _rows(
        connection,
        f"""
        SELECT t.name, h.holders
        FROM (SELECT trait_id, string_agg(int4send(resource_provider_id), '') AS holders
              FROM resource_provider_traits {having} GROUP BY 1) AS h JOIN traits t ON t.id = h.trait_id
        """,
    )


def aggregates(connection: Connection, having: str) -> list[Row]:
    """(uuid, provider ids) of each aggregate that a provider of the trees is in; 1 round trip.

    SELECT a.uuid, m.members
    FROM (SELECT aggregate_id, string_agg(int4send(resource_provider_id), '') AS members
          FROM resource_provider_aggregates GROUP BY 1) AS m JOIN placement_aggregates a ON a.id = m.aggregate_id
    """
    return _rows(
        connection,
        f"""
        SELECT a.uuid, m.members
        FROM (SELECT aggregate_id, string_agg(int4send(resource_provider_id), '') AS members
              FROM resource_provider_aggregates {having} GROUP BY 1) AS m
        JOIN placement_aggregates a ON a.id = m.aggregate_id
        """,
    )


def largest_id(connection: Connection) -> int:
    """Of all providers, 0 if there is none; 1 round trip: SELECT max(id) FROM resource_providers"""
    return _rows(connection, "SELECT max(id) FROM resource_providers")[0][0] or 0


def roots_sharing(connection: Connection) -> list[int]:
    """The roots of the trees that have a sharing provider; 1 round trip.

    SELECT DISTINCT root_provider_id FROM resource_providers
    WHERE root_provider_id IS NOT NULL AND id IN (SELECT resource_provider_id FROM resource_provider_traits
                 WHERE trait_id = (SELECT id FROM traits WHERE name = 'MISC_SHARES_VIA_AGGREGATE'))
    """
    trait = f"SELECT id FROM traits WHERE name = '{SHARING_TRAIT}'"
    holders = f"SELECT resource_provider_id FROM resource_provider_traits WHERE trait_id = ({trait})"
    where = f"{ROOTED} AND id IN ({holders})"
    return [
        row[0] for row in _rows(connection, f"SELECT DISTINCT root_provider_id FROM resource_providers WHERE {where}")
    ]


def existing(connection: Connection, table: str, names: Collection[str]) -> list[str]:
    """Those of the names that are in the table; 1 round trip: SELECT name FROM traits WHERE name = ANY (:names)"""
    statement = text(f"SELECT name FROM {table} WHERE name = ANY (:names)")
    return [row.name for row in connection.execute(statement, {"names": list(names)})]


def every_name(connection: Connection, table: str) -> list[str]:
    """All that are in the table; 1 round trip: SELECT name FROM traits"""
    return [row[0] for row in _rows(connection, f"SELECT name FROM {table}")]


def roots_above(connection: Connection, uuids: Collection[str]) -> list[Row]:
    """(uuid, root id) of the providers of these uuids.

    1 round trip: SELECT uuid, root_provider_id FROM resource_providers WHERE uuid = ANY (:uuids)
    """
    statement = text("SELECT uuid, root_provider_id FROM resource_providers WHERE uuid = ANY (:uuids)")
    return [tuple(row) for row in connection.execute(statement, {"uuids": list(uuids)})]


def _rows(connection: Connection, statement: str) -> list[Row]:
    """What the driver hands out, without SQLAlchemy's own rows around it."""
    return list(connection.exec_driver_sql(statement).cursor.fetchall())
