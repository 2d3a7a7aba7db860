"""Indexes that a recording's plans lack, proved on a database that the user names as expendable: `prove_indexes`.

A sequential scan with a condition is only a reason to try. What is returned was tried: PostgreSQL planned the statement
without and with the index, which HypoPG imagined, or which was created in a transaction that was rolled back.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from placebench import units
from placebench.errors import ProfilerError
from placebench.profiler.model.plan import read_plan
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.sql_tokens import with_numbered_placeholders
from placebench.profiler.model.statement import Caller, Statement

_COMPARED = re.compile(r'"?([a-z_][\w$]*)"?\)?(?:::[\w ]+)? (=|<=|>=|<|>) (?!\S*\.)', re.IGNORECASE)
_MAX_STATEMENTS = 10
_MAX_COLUMNS = 3
_MAX_COST_SHARE = 0.5
"""The cost with the index is at most this share of the cost without it, or nothing is proposed."""
_MIN_SAVING_SHARE = 0.9
"""Of the cost that the best index saves: an index of fewer columns that saves this much is taken instead."""
_EXECUTIONS = 3
_VERSION_WITH_GENERIC_PLANS = 160_000
_PREPARED = "placebench_index_proof"


@dataclass(frozen=True, slots=True)
class ProvedIndex:
    """An index, with the statement that it helps, and PostgreSQL's figures without and with it.

    cost: total cost of the plan for any value, in the planner's unit. seconds: the median of three executions with a
    value of the table; None if HypoPG imagined the index, or if the statement has more than one value.
    """

    ddl: str
    sql: str
    caller: Caller | None
    cost_before: float
    cost_after: float
    seconds_before: float | None
    seconds_after: float | None
    is_imagined: bool

    def __str__(self) -> str:
        """Return three lines: the index, what it changes, and the statement's place."""
        by = "HypoPG" if self.is_imagined else "created and rolled back"
        figures = f"cost {self.cost_before:,.1f} → {self.cost_after:,.1f}"
        if self.seconds_before is not None and self.seconds_after is not None:
            figures += f", {units.duration(self.seconds_before)} → {units.duration(self.seconds_after)}"
        place = f"\n    {self.caller}" if self.caller is not None else ""
        return f"index: {self.ddl}\n    {figures} ({by}){place}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data for json.dump."""
        return asdict(self)


def prove_indexes(recording: RecordingData, url: str) -> tuple[ProvedIndex, ...]:
    """Return the indexes that make statements of *recording* at most half as expensive on the database at *url*.

    The database must be one that may be locked: without HypoPG an index is created, which blocks writes to its table
    until the transaction is rolled back. Raises ProfilerError if it cannot be reached or is not PostgreSQL 16 or later.
    """
    from sqlalchemy import create_engine, exc, make_url
    from sqlalchemy.pool import NullPool

    try:
        parsed = make_url(url)
        # Without a driver in the URL, SQLAlchemy 2.1 takes psycopg, and older versions psycopg2, installed or not.
        driver = next((name for name in ("psycopg2", "psycopg") if find_spec(name) is not None), None)
        if driver is not None and parsed.drivername in {"postgres", "postgresql"}:
            parsed = parsed.set(drivername=f"postgresql+{driver}")
        engine = create_engine(parsed, poolclass=NullPool)
        with engine.connect() as connection:
            if engine.dialect.name != "postgresql":
                raise ProfilerError(
                    f"indexes are proved on PostgreSQL only: expected its URL, saw {engine.dialect.name}"
                )
            version = int(connection.exec_driver_sql("show server_version_num").scalar_one())
            if version < _VERSION_WITH_GENERIC_PLANS:
                raise ProfilerError(f"indexes are proved on PostgreSQL 16 or later: saw version {version // 10_000}")
            connection.rollback()
            found = [_proved(connection, *scan) for scan in _scans(recording)]
    except (exc.SQLAlchemyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ProfilerError(f"--prove-on: the database cannot be used: {reason}") from error
    return tuple({each.ddl: each for each in found if each is not None}.values())


def _scans(recording: RecordingData) -> list[tuple[Statement, str, tuple[str, ...]]]:
    """Return reads that scan a table with a condition, the longest first: each with table and compared columns."""
    longest: dict[tuple[str, str], tuple[Statement, str, tuple[str, ...]]] = {}
    for statement in sorted(recording.statements, key=lambda each: -each.elapsed_s):
        if statement.plan is None or statement.kind != "read":
            continue
        for _, node in statement.plan.walk():
            # The columns that a condition compares with values: first those by equality, then one by order
            found = _COMPARED.findall(node.condition or "")
            equal = dict.fromkeys(name for name, operator in found if operator == "=")
            ordered = [name for name, operator in found if operator != "=" and name not in equal]
            columns = (*equal, *ordered[:1])[:_MAX_COLUMNS]
            if node.kind == "Seq Scan" and node.relation and columns:
                longest.setdefault((statement.fingerprint, node.relation), (statement, node.relation, columns))
    return list(longest.values())[:_MAX_STATEMENTS]


def _proved(connection: Any, statement: Statement, table: str, columns: tuple[str, ...]) -> ProvedIndex | None:
    """Return the best index for a scan; None if no index halves the cost, or if the statement cannot be planned."""
    from sqlalchemy import exc

    sql, values = with_numbered_placeholders(statement.sql, row_count=statement.row_count)
    trials = [columns, *((each,) for each in columns if len(columns) > 1)]
    found: list[ProvedIndex] = []
    for trial in trials:
        try:
            tried = _try(connection, statement, sql, values, table, trial)
        except exc.DBAPIError:  # another schema, or a text that was cut
            tried = None
        finally:
            connection.rollback()
        if tried is not None:
            found.append(tried)
    most = max((each.cost_before - each.cost_after for each in found), default=0.0)
    enough = [each for each in found if each.cost_before - each.cost_after >= most * _MIN_SAVING_SHARE]
    return min(enough, key=lambda each: (each.ddl.count(","), each.cost_after), default=None)


def _try(
    connection: Any, statement: Statement, sql: str, values: int, table: str, columns: Sequence[str]
) -> ProvedIndex | None:
    """Plan the statement without and with one index, in a transaction that the caller rolls back."""
    run = connection.exec_driver_sql
    quote = connection.dialect.identifier_preparer.quote
    ddl = f"CREATE INDEX ON {quote(table)} ({', '.join(map(quote, columns))})"
    run("set local lock_timeout = '5s'")
    run("set local statement_timeout = '60s'")
    imagines = run("select count(*) from pg_extension where extname = 'hypopg'").scalar_one() == 1
    value = None
    if values == 1 and len(columns) == 1 and not imagines:
        column = quote(columns[0])
        value = run(
            f"select quote_literal({column}::text) from {quote(table)} where {column} is not null "
            f"offset (select count(*) / 2 from {quote(table)} where {column} is not null) limit 1"
        ).scalar()
    before = _cost(run, sql)
    seconds_before = _seconds(run, sql, value)
    if imagines:
        index = run("select indexname from hypopg_create_index(%s)", (ddl,)).scalar_one()
    else:
        index = "placebench_proof_index"
        run(ddl.replace("INDEX ON", f"INDEX {index} ON"))
    try:
        after = _cost(run, sql, index)
        seconds_after = _seconds(run, sql, value)
    finally:
        if imagines:
            run("select hypopg_reset()")
    if before is None or after is None or after > before * _MAX_COST_SHARE:
        return None
    return ProvedIndex(
        ddl, statement.sql, statement.caller, before, after, seconds_before, seconds_after, is_imagined=imagines
    )


def _cost(run: Any, sql: str, index: str | None = None) -> float | None:
    """Return the cost of the plan for any value; None if *index* is given and the plan does not use it."""
    document = run(f"explain (generic_plan, format json) {sql}".replace("%", "%%")).scalar_one()
    plan = read_plan(document if isinstance(document, str) else json.dumps(document))
    if plan is None or (index is not None and not any(node.index == index for _, node in plan.walk())):
        return None
    return plan.cost


def _seconds(run: Any, sql: str, value: str | None) -> float | None:
    """Return the median time of three executions with *value*; None without one."""
    if value is None:
        return None
    run(f"prepare {_PREPARED} as {sql}".replace("%", "%%"))
    try:
        explain = f"explain (analyze, timing off, format json) execute {_PREPARED}({value})".replace("%", "%%")
        documents = [run(explain).scalar_one() for _ in range(_EXECUTIONS)]
    finally:
        run(f"deallocate {_PREPARED}")
    plain = [json.loads(each) if isinstance(each, str) else each for each in documents]
    return float(sorted(each[0]["Execution Time"] for each in plain)[_EXECUTIONS // 2]) / 1000
