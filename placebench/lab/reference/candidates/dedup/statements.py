"""The SELECTs that fill a tree index, one per table; `Trees` selects the trees to read.

PostgreSQL sends one row per distinct inventory, trait or aggregate, with the ids of all its providers in one value.
Amounts in use, of which few are equal, come in one value per class. An id is four bytes (`int4send`): Python unpacks
5000 ids in 0.1 ms; as rows they would cost a hundred times that. The argument *having* is a WHERE that `Trees.having`
makes.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, text

from placebench.lab.reference.store.candidate_queries import SHARING_TRAIT

Row = Any

_FEW_PROVIDERS: Final = 1_000  # up to this number, a statement lists the providers' ids
_ROOTED: Final = "root_provider_id IS NOT NULL"
# Whether all statements see exactly one snapshot that lists all running transactions: a standby's does not list them.
_SEES_A_SNAPSHOT: Final = (
    "current_setting('transaction_isolation') = 'repeatable read' AND txid_current_if_assigned() IS NULL "
    "AND NOT pg_is_in_recovery()"
)


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees to read, as an SQL condition on resource_providers: "" for all trees."""

    condition: str = ""
    are_few: bool = False
    """Whether one statement for all tables costs less than one per table."""

    @classmethod
    def of(cls, root_ids: Collection[int]) -> "Trees":
        """Return the trees with these roots, for a read by index."""
        return cls(f"root_provider_id = ANY ({_array(root_ids)})", len(root_ids) <= _FEW_PROVIDERS)

    @classmethod
    def after(cls, start: int, last: int | None, count: int, others: Collection[int] = ()) -> "Trees":
        """Return the next trees in the order of root ids, without *others*, which are read together with the first.

        Args:
            start: The order begins after this id; after the largest id come those up to this one.
            last: The last root id that was read; None for none.
            count: The maximum number of trees, not counting *others*.
            others: Roots of trees that are returned if *last* is None, whatever their ids.
        """
        roots = f"SELECT id FROM resource_providers WHERE {_ROOTED} AND parent_provider_id IS NULL"
        roots += f" AND id <> ALL ({_array(others)})" if others else ""
        if last is not None and last <= start:
            selected = f"({roots} AND id > {last} AND id <= {start} ORDER BY id LIMIT {count})"
        else:
            behind = f"({roots} AND id > {start if last is None else last} ORDER BY id LIMIT {count})"
            before = f"({roots} AND id <= {start} ORDER BY id LIMIT {count})"
            both = f"({behind} UNION ALL {before}) AS next"
            selected = f"(SELECT id FROM {both} ORDER BY id <= {start}, id LIMIT {count})"
        if others and last is None:
            selected = f"({selected} UNION ALL SELECT unnest({_array(others)}))"
        return cls(f"root_provider_id IN {selected}", count + len(others) <= _FEW_PROVIDERS)

    @classmethod
    def between(cls, first: int, last: int) -> "Trees":
        """Return the trees whose root ids are from *first* to *last*, including both."""
        return cls(f"root_provider_id BETWEEN {first} AND {last}")

    def providers(self) -> str:
        """Return what follows FROM in a query on the trees' providers; a provider without a root is in no tree."""
        return f"resource_providers WHERE {self.condition or _ROOTED}"

    def having(self, provider_ids: Collection[int]) -> str:
        """Return the WHERE of a query on a table with a resource_provider_id.

        A short list of ids takes less time to plan than a subquery, and planning is most of the cost of a few trees.
        provider_ids: the ids of all providers of the trees.
        """
        if not self.condition:
            return ""
        if len(provider_ids) <= _FEW_PROVIDERS:
            return f"WHERE resource_provider_id = ANY ({_array(provider_ids)})"
        return f"WHERE resource_provider_id IN (SELECT id FROM resource_providers WHERE {self.condition})"


class ProvidersState(NamedTuple):
    """The state of the database that a transaction sees."""

    largest_id: int
    """The largest id of a provider; 0 if there is none."""
    seen: str | None
    """The snapshot and the server's start time: equal texts mean equal rows. None: the snapshot is not reliable."""


class TableChanges(NamedTuple):
    """How the tables differ from an older snapshot, and what a later comparison needs to know of them."""

    is_plain: bool
    """Whether each table is an ordinary one that every row is stored in, with columns that are as they were."""
    tables: str
    """The ids of the tables: another text means that a name belongs to another table."""
    name_counts: tuple[int, ...]
    new_names: int
    row_counts: tuple[int, ...]
    """The number of rows of providers, inventories, traits, usages and, if they are read, aggregates."""
    provider_ids: frozenset[int]
    """The providers that have a row which the older snapshot may not show."""
    root_ids: frozenset[int | None]
    """The roots of the providers whose own row the older snapshot may not show; None for one without a root."""


class TreeRows(NamedTuple):
    """The rows of some trees, as the SELECTs below return them; equal rows mean equal trees."""

    providers: Row
    inventories: list[Row]
    traits: list[Row]
    aggregates: list[Row] | None  # None: they were not read
    usages: list[Row]

    @property
    def provider_count(self) -> int:
        """The number of providers in the trees."""
        return len(self.providers[0] or b"") // 4

    def differ_in_usages_only(self, other: "TreeRows") -> bool:
        """Return whether all rows except the usages are equal; the usages may be equal or not."""
        return self[:-1] == other[:-1]


def select_providers(source: str) -> str:
    """Return the SELECT of ids, parent ids (-1 for none) and uuids of providers, tree by tree, root first; 1 row.

    source: what follows FROM: resource_providers with or without a WHERE, or a part of its rows.
    """
    return f"""
        SELECT string_agg(int4send(id), '') AS ids,
               string_agg(int4send(coalesce(parent_provider_id, -1)), '') AS parents,
               string_agg(uuid, '","') AS uuids
        FROM (SELECT id, parent_provider_id, uuid FROM {source}
              ORDER BY root_provider_id, parent_provider_id NULLS FIRST, id) AS sorted
        """


def select_inventories(having: str) -> str:
    """Return the SELECT of (class id, columns of the inventory, provider ids) for each distinct inventory."""
    return f"""
        SELECT c.id, c.name, total, reserved, allocation_ratio, min_unit, max_unit, step_size, holders
        FROM (SELECT resource_class_id, total, reserved, allocation_ratio, min_unit, max_unit, step_size,
                     string_agg(int4send(resource_provider_id), '') AS holders
              FROM inventories {having} GROUP BY 1, 2, 3, 4, 5, 6, 7) AS i
        JOIN resource_classes c ON c.id = resource_class_id
        """


def select_usages(having: str, *, summed: bool = False) -> str:
    """Return the SELECT of (class id, provider ids, amounts in use of eight bytes, row counts) for each class.

    summed: whether to read placebench_usages, in which triggers sum the allocations.
    """
    sums = f"""SELECT resource_provider_id, resource_class_id, sum(used) AS used, count(*)::integer AS number
              FROM allocations {having} GROUP BY 1, 2"""
    kept = f"SELECT resource_provider_id, resource_class_id, used, 1 AS number FROM placebench_usages {having}"
    return f"""
        SELECT resource_class_id, string_agg(int4send(resource_provider_id), '') AS holders,
               string_agg(int8send(used), '') AS amounts, string_agg(int4send(number), '') AS numbers
        FROM ({kept if summed else sums}) AS usage
        GROUP BY 1
        """


def select_traits(having: str) -> str:
    """Return the SELECT of (name, provider ids) for each trait of a provider of the trees."""
    return f"""
        SELECT t.name, h.holders
        FROM (SELECT trait_id, string_agg(int4send(resource_provider_id), '') AS holders
              FROM resource_provider_traits {having} GROUP BY 1) AS h JOIN traits t ON t.id = h.trait_id
        """


def select_aggregates(having: str) -> str:
    """Return the SELECT of (uuid, provider ids) for each aggregate with a provider of the trees."""
    return f"""
        SELECT a.uuid, m.holders
        FROM (SELECT aggregate_id, string_agg(int4send(resource_provider_id), '') AS holders
              FROM resource_provider_aggregates {having} GROUP BY 1) AS m
        JOIN placement_aggregates a ON a.id = m.aggregate_id
        """


def read_state(connection: Connection) -> ProvidersState:
    """Return the state that the transaction sees; 1 round trip."""
    return ProvidersState(
        *rows_of(
            connection,
            f"""
            SELECT (SELECT coalesce(max(id), 0) FROM resource_providers), CASE WHEN {_SEES_A_SNAPSHOT}
                   THEN concat_ws(' ', txid_current_snapshot(), pg_postmaster_start_time()) END
            """,
        )[0]
    )


def read_changes(connection: Connection, since: int, *, aggregates: bool, summed: bool) -> TableChanges:
    """Return what has changed in the tables since an older snapshot of the same server; 1 round trip.

    Each table is scanned once, which takes a fraction of the time of reading its rows. PostgreSQL stores with each row
    the transaction that wrote it, xmin; age(xmin) counts the transactions since, and is the largest integer for rows
    older than any.

    Args:
        connection: The connection to read from, in a transaction that sees one snapshot.
        since: The oldest transaction that was running in the older snapshot, or the next one: no older one was.
        aggregates: Whether the memberships in aggregates are compared too.
        summed: As in `select_usages`.
    """
    age = f"(SELECT age('{since % 2**32}'::xid))"
    held = _held_tables(aggregates=aggregates, summed=summed)
    named = ["traits", "resource_classes", *(["placement_aggregates"] if aggregates else [])]
    tables = ["resource_providers", *held, *named]
    new = f"FILTER (WHERE age(xmin) <= {age})"
    parts = [
        f"SELECT count(*), array_agg(id) {new}, array_agg(root_provider_id) {new} FROM ONLY resource_providers",
        *(f"SELECT count(*), array_agg(resource_provider_id) {new} FROM ONLY {table}" for table in held),
        *(f"SELECT count(*), count(*) {new} FROM ONLY {table}" for table in named),
    ]
    ids = f"ARRAY[{', '.join(f'{table!r}::regclass' for table in tables)}]::oid[]"
    is_plain = f"""
        (SELECT count(*) = {len(tables)} FROM pg_class
         WHERE oid = ANY ({ids}) AND relkind = 'r' AND relam = (SELECT oid FROM pg_am WHERE amname = 'heap')
           AND NOT relhassubclass AND NOT relrowsecurity AND age(xmin) > {age})
        AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = ANY ({ids}) AND age(xmin) <= {age})"""
    joined = ", ".join(f"({part}) AS part{number}" for number, part in enumerate(parts))
    plain, own, provider_count, provider_ids, root_ids, *others = rows_of(
        connection, f"SELECT {is_plain}, {ids}::text, * FROM {joined}"
    )[0]
    counts, new_ids = others[::2], others[1::2]
    return TableChanges(
        plain,
        own,
        tuple(counts[len(held) :]),
        sum(new_ids[len(held) :]),
        (provider_count, *counts[: len(held)]),
        frozenset(provider_ids or ()).union(*(each or () for each in new_ids[: len(held)])),
        frozenset(root_ids or ()),
    )


def read_row_counts(connection: Connection, place: int, *, summed: bool) -> Row:
    """Return (provider ids, numbers of rows) in the table at this place of `TableChanges.row_counts`; 1 round trip.

    place: from 1, since a provider has one row of its own. summed: as in `select_usages`.
    """
    table = _held_tables(aggregates=True, summed=summed)[place - 1]
    return rows_of(
        connection,
        f"""
        SELECT string_agg(int4send(resource_provider_id), ''), string_agg(int4send(number), '')
        FROM (SELECT resource_provider_id, count(*)::integer AS number FROM {table} GROUP BY 1) AS counted
        """,
    )[0]


def _held_tables(*, aggregates: bool, summed: bool) -> list[str]:
    """Return the tables with a resource_provider_id, in the order of `TableChanges.row_counts`."""
    tables = ["inventories", "resource_provider_traits", "placebench_usages" if summed else "allocations"]
    return [*tables, "resource_provider_aggregates"] if aggregates else tables


def read_sharing_roots(connection: Connection) -> list[int]:
    """Return the roots of the trees that have a sharing provider; 1 round trip."""
    trait = f"SELECT id FROM traits WHERE name = '{SHARING_TRAIT}'"
    holders = f"SELECT resource_provider_id FROM resource_provider_traits WHERE trait_id = ({trait})"
    where = f"{_ROOTED} AND id IN ({holders})"
    return [
        row[0] for row in rows_of(connection, f"SELECT DISTINCT root_provider_id FROM resource_providers WHERE {where}")
    ]


def find_names(connection: Connection, table: str, names: Collection[str]) -> list[str]:
    """Return the names among *names* that the table has; 1 round trip."""
    statement = text(f"SELECT name FROM {table} WHERE name = ANY (:names)")
    return [row.name for row in connection.execute(statement, {"names": list(names)})]


def read_names(connection: Connection, table: str) -> list[str]:
    """Return all names in the table; 1 round trip."""
    return [row[0] for row in rows_of(connection, f"SELECT name FROM {table}")]


def find_roots(connection: Connection, uuids: Collection[str]) -> list[Row]:
    """Return (uuid, root id) of the providers with these uuids.

    1 round trip: SELECT uuid, root_provider_id FROM resource_providers WHERE uuid = ANY (:uuids)
    """
    statement = text("SELECT uuid, root_provider_id FROM resource_providers WHERE uuid = ANY (:uuids)")
    return [tuple(row) for row in connection.execute(statement, {"uuids": list(uuids)})]


def _array(ids: Collection[int]) -> str:
    return f"'{{{','.join(map(str, ids))}}}'::integer[]"


def rows_of(connection: Connection, statement: str) -> list[Row]:
    """Return the driver's rows, without SQLAlchemy's rows around them, and with binary values as bytes."""
    rows = connection.exec_driver_sql(statement).cursor.fetchall()
    return [tuple([bytes(each) if isinstance(each, memoryview) else each for each in row]) for row in rows]
