"""Optimizations of SQL: binding of lists, rows, roots of trees, usage totals, transactions and indexes."""

from collections import namedtuple
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    CTE,
    BindParameter,
    ColumnElement,
    Connection,
    CursorResult,
    FromClause,
    Integer,
    Select,
    String,
    any_,
    bindparam,
    cast,
    func,
    select,
)

from placebench.lab.inventory.tables import allocations, placebench_usages, resource_providers
from placebench.lab.reference.domain.optimization import OBJECTS, Implementation, Optimization


def _one_parameter_per_value(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """Execute `WHERE column IN (:value_1, :value_2, ...)`, which is compiled anew each time; 1 round trip.

    SQLAlchemy before 1.4 did this for every list. Later versions use one expanding parameter, so this function makes
    one bind parameter per value and turns the cache of compiled statements off.
    """
    parameters: list[BindParameter[Any]] = [bindparam("value", value, unique=True) for value in values]
    return connection.execute(statement.where(column.in_(parameters)), execution_options={"compiled_cache": None})


def _one_expanding_parameter(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """Execute `WHERE column IN (__[POSTCOMPILE_values])`, compiled once and expanded each time; 1 round trip."""
    return connection.execute(_with_list(statement, column), {"values": values})


@lru_cache
def _with_list(statement: Select[Any], column: ColumnElement[Any]) -> Select[Any]:
    return statement.where(column.in_(bindparam("values", expanding=True)))


def _one_array_parameter(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> CursorResult[Any]:
    """Execute `WHERE column = ANY (:values)`, which is compiled once; 1 round trip. Without arrays, expand a parameter.

    Numbers are sent as one text, '{1,2,3}', which PostgreSQL reads faster than the expression ARRAY[1,2,3] that
    psycopg2 writes for a list. MariaDB and SQLite have no arrays.
    """
    if connection.dialect.name != "postgresql":
        return _one_expanding_parameter(connection, statement, column, values)
    sent = f"{{{','.join(map(str, values))}}}" if isinstance(column.type, Integer) else values
    return connection.execute(_with_array(statement, column), {"values": sent})


@lru_cache
def _with_array(statement: Select[Any], column: ColumnElement[Any]) -> Select[Any]:
    kind = ARRAY(column.type)
    if isinstance(column.type, Integer):
        return statement.where(column == any_(cast(bindparam("values", type_=String), kind)))
    return statement.where(column == any_(bindparam("values", type_=kind)))


BINDING = Optimization(
    name="expanding",
    field="binding",
    baseline=Implementation("one_per_value", _one_parameter_per_value),
    alternative=Implementation("any_array", _one_array_parameter),
    further=(Implementation("expanding", _one_expanding_parameter),),
    why="A statement with one parameter per value is compiled again for each request; one whose parameter expands is "
    "compiled once, and its text is made again. An array is one value.",
    source="Placement d4d9457a, 5883c794, f69f5845, 3c102181 (August 2019): one function took half the time.",
    metric="cpu_s",
)


def _has_no_remainder(step_size: ColumnElement[int], amount: ColumnElement[int]) -> ColumnElement[bool]:
    """Return `:amount % step_size = 0`: PostgreSQL has no statistics of it and expects one row in 200 to meet it."""
    return amount % step_size == 0


def is_one_or_has_no_remainder(step_size: ColumnElement[int], amount: ColumnElement[int]) -> ColumnElement[bool]:
    """Return `(step_size = 1 OR :amount % step_size = 0)`; of the first half PostgreSQL can estimate the rows."""
    return (step_size == 1) | (amount % step_size == 0)


ESTIMATE = Optimization(
    name="estimate",
    field="divides",
    baseline=Implementation("remainder", _has_no_remainder),
    alternative=Implementation("one_or_remainder", is_one_or_has_no_remainder),
    why="PostgreSQL expects 5 of 1000 hosts to have an amount that is a multiple of their step size, and fetches "
    "each of the 1000 by index; if it expects all of them, it reads the table of providers once.",
    source="EXPLAIN ANALYZE of the query for providers with capacity: 1.3 to 2.1 ms, and 0.9 to 1.3 ms with the "
    "alternative (1000 hosts, 3 runs each).",
    request="/allocation_candidates?resources=DISK_GB:10,VCPU:1,MEMORY_MB:256",
    metric="cpu_s",
    data="flat-perfload",
    topology="flat-perfload",
)


def rows_as_dicts(result: CursorResult[Any]) -> Iterable[Any]:
    """Return the rows as tuples, each copied into a dict first and then read by name."""
    keys = tuple(result.keys())
    records = [dict(zip(keys, row, strict=True)) for row in result]
    return map(itemgetter(*keys), records) if len(keys) > 1 else [tuple(record.values()) for record in records]


def rows_as_namedtuples(result: CursorResult[Any]) -> Iterable[Any]:
    """Return the rows as instances of a namedtuple class that is made for this result."""
    record = namedtuple("record", tuple(result.keys()))  # type: ignore[misc]
    return [record._make(row) for row in result]


def sqlalchemy_rows(result: CursorResult[Any]) -> Iterable[Any]:
    """Return SQLAlchemy's own rows, which are made in C and unpack like tuples."""
    return result.all()


def driver_rows(result: CursorResult[Any]) -> Iterable[Any]:
    """Return the driver's tuples, without SQLAlchemy's rows around them and without its type conversions."""
    rows: Iterable[Any] = result.cursor.fetchall() if result.cursor is not None else []
    result.close()
    return rows


ROWS = Optimization(
    name="rows",
    field="rows",
    baseline=Implementation("dicts", rows_as_dicts),
    alternative=Implementation("driver", driver_rows),
    further=(Implementation("namedtuples", rows_as_namedtuples), Implementation("sqlalchemy", sqlalchemy_rows)),
    why="A row that is read once needs no second container: a dict per row costs more than fetching the row, and "
    "SQLAlchemy's row is one too.",
    source="Placement copied rows into dicts until 2019 and reads SQLAlchemy's rows since.",
    metric="cpu_s",
)


def _recursive_roots() -> CTE:
    """Return a recursive CTE of providers with their roots; each query that uses the CTE walks all trees.

    Providers below a provider without a root are missing.

    WITH RECURSIVE walked AS (
      SELECT id, uuid, parent_provider_id, id AS root_provider_id FROM resource_providers
      WHERE parent_provider_id IS NULL AND root_provider_id IS NOT NULL
      UNION ALL SELECT child.id, child.uuid, child.parent_provider_id, walked.root_provider_id
      FROM resource_providers child JOIN walked ON child.parent_provider_id = walked.id
      WHERE child.root_provider_id IS NOT NULL)
    """
    own, child = resource_providers.c, resource_providers.alias("child")
    roots = select(own.id, own.uuid, own.parent_provider_id, own.id.label("root_provider_id")).where(
        own.parent_provider_id.is_(None), own.root_provider_id.is_not(None)
    )
    walked = roots.cte("walked", recursive=True)
    below = select(child.c.id, child.c.uuid, child.c.parent_provider_id, walked.c.root_provider_id).join(
        walked, child.c.parent_provider_id == walked.c.id
    )
    return walked.union_all(below.where(child.c.root_provider_id.is_not(None)))


RECURSIVE_ROOTS: Final = _recursive_roots()


ROOTS = Optimization(
    name="roots",
    field="roots",
    baseline=Implementation("denormalised", resource_providers),
    further=(Implementation("recursive", RECURSIVE_ROOTS),),
    why="A column that repeats what the parents say saves the walk, and moving a subtree has to update it.",
    source="Placement keeps root_provider_id in each row since microversion 1.14 (2018).",
    metric="cpu_s",
)


def _summed_totals(class_id: ColumnElement[Any] | None = None) -> FromClause:
    """Return a subquery of the amounts in use by provider and class, or of one class only.

    SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations
    [WHERE resource_class_id = :class_id] GROUP BY resource_provider_id, resource_class_id
    """
    own = allocations.c
    of = own.resource_provider_id, own.resource_class_id
    sums = select(*of, func.sum(own.used).label("used")).group_by(*of)
    return (sums if class_id is None else sums.where(own.resource_class_id == class_id)).subquery("usage")


def read_trigger_totals(_class_id: ColumnElement[Any] | None = None) -> FromClause:
    """Return the table of amounts in use that a trigger on allocations maintains (schema/options/usage_totals.py)."""
    return placebench_usages.alias("usage")


TOTALS = Optimization(
    name="totals",
    field="totals",
    algorithms=(OBJECTS, "dedup"),
    baseline=Implementation("summed", _summed_totals),
    further=(Implementation("by_trigger", read_trigger_totals, revision="usage_totals", postgresql_only=True),),
    why="Reads add up the same allocations again and again; a trigger adds each up once, and slows every claim.",
    source="Placement sums in each request; nova's row of a compute node holds such sums.",
    data="nested-perfload with allocations (`--utilization 0.5`)",
    utilization=0.5,
    metric="cpu_s",
)


_AUTOCOMMIT: Final[dict[str, Any]] = {"isolation_level": "AUTOCOMMIT"}

TRANSACTION = Optimization(
    name="transaction",
    field="transaction",
    baseline=Implementation("snapshot", None),
    further=(Implementation("autocommit", _AUTOCOMMIT),),
    why="BEGIN and ROLLBACK are two of the three round trips of a request with one statement.",
    source="Our count; allocation candidates take 12 statements or more, so there it changes nothing.",
    request="/resource_classes",
    metric="round_trips",
)


INDEXES = Optimization(
    name="indexes",
    field="indexes",
    baseline=Implementation("placement", None),
    further=(Implementation("covering", None, revision="covering_indexes"),),
    why="An index that holds all columns of a query saves the access to the table, and is one more index to write.",
    source="PostgreSQL's index-only scans; Placement makes single columns and keys.",
    metric="cpu_s",
    scope="database",
)
