"""Plans of statements that their server did not send: PostgreSQL's, SQLite's and MariaDB's EXPLAIN, `estimate_plans`.

PostgreSQL and SQLite plan a statement for any value, and PostgreSQL for as many rows as it returned. MariaDB plans it
for the values of its parameters, so its general log of the requests, `logged_statements`, has the statements with their
values.
"""

import json
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from placebench.profiler.model.plan import PlanNode, read_plan
from placebench.profiler.model.sql_tokens import with_numbered_placeholders
from placebench.profiler.model.statement import Statement
from placebench.profiler.model.statement_facts import statement_facts

_MAX_ESTIMATED = 100
"""The most distinct statements whose plans EXPLAIN estimates."""
_GENERIC = ("SET LOCAL plan_cache_mode = force_generic_plan", "SET LOCAL statement_timeout = '10s'")
_STEP_OF_SQLITE = re.compile(
    r"(?P<kind>SCAN|SEARCH) (?:TABLE )?(?P<relation>\S+)(?: AS \S+)?"
    r"(?: USING (?:(?:COVERING )?INDEX (?P<name>\S+)|(?P<other>INTEGER PRIMARY KEY|AUTOMATIC.*?INDEX)))?"
)
_LOG = "SELECT argument FROM mysql.general_log WHERE command_type IN ('Query', 'Execute') ORDER BY event_time"


def is_mariadb(url: str) -> bool:
    """Return whether the database at *url* is a MariaDB or MySQL."""
    return url.startswith(("mysql", "mariadb"))


@contextmanager
def logged_statements(url: str) -> Iterator[dict[str, str]]:
    """Yield a dictionary that has the statements of the `with` block at its end: a text with values, by fingerprint.

    It is filled for a MariaDB whose general log placebench may switch on, and stays empty for any other database.
    """
    logged: dict[str, str] = {}
    if not is_mariadb(url):
        yield logged
        return
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        before = connection.exec_driver_sql("SELECT @@GLOBAL.log_output, @@GLOBAL.general_log").one()
        connection.exec_driver_sql("SET GLOBAL log_output = 'TABLE'")
        connection.exec_driver_sql("SET GLOBAL general_log = 1")
        try:
            yield logged
        finally:
            connection.exec_driver_sql(f"SET GLOBAL general_log = {before[1]:d}")
            connection.exec_driver_sql(f"SET GLOBAL log_output = '{before[0]}'")
        for text in connection.exec_driver_sql(_LOG).scalars():
            sql = text.decode(errors="replace") if isinstance(text, bytes) else text
            logged.setdefault(statement_facts(sql, "mysql").fingerprint, sql)
        connection.exec_driver_sql("TRUNCATE mysql.general_log")


def estimate_plans(
    url: str, statements: Collection[Statement], logged: Mapping[str, str]
) -> Iterator[tuple[str, PlanNode]]:
    """Yield the fingerprint and the estimated plan of each statement that the database at *url* can plan.

    logged: the statements with their values, as `logged_statements` yields them.
    """
    chosen = list(statements)[:_MAX_ESTIMATED]
    if not chosen:
        return
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(str(make_url(url).database))) as file:
            for statement in chosen:
                with suppress(sqlite3.Error):
                    yield statement.fingerprint, _plan_of_sqlite(file, statement.sql)
        return
    with suppress(SQLAlchemyError), create_engine(url, poolclass=NullPool).connect() as connection:
        for statement in chosen:
            with suppress(SQLAlchemyError, ValueError):
                if not is_mariadb(url):
                    yield statement.fingerprint, _plan_of_postgresql(connection, statement)
                elif statement.fingerprint in logged:
                    yield statement.fingerprint, _plan_of_mariadb(connection, logged[statement.fingerprint])
            connection.rollback()  # which keeps what is prepared
            if not is_mariadb(url):
                with suppress(SQLAlchemyError):
                    connection.exec_driver_sql("DEALLOCATE ALL")
                connection.rollback()


def _plan_of_postgresql(connection: Any, statement: Statement) -> PlanNode:
    sql, values = with_numbered_placeholders(statement.sql, row_count=statement.row_count)
    given = f"({', '.join(['NULL'] * values)})" if values else ""
    for setting in _GENERIC:
        connection.exec_driver_sql(setting)
    connection.exec_driver_sql(f"PREPARE placebench_plan AS {sql}".replace("%", "%%"))
    explained = f"EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE placebench_plan{given}"
    document = connection.exec_driver_sql(explained).scalar_one()
    return read_plan(document if isinstance(document, str) else json.dumps(document))


def _plan_of_sqlite(file: sqlite3.Connection, text: str) -> PlanNode:
    """Return the plan as a tree below "Query", with SQLite's own words for the kind of each step."""
    sql, values = with_numbered_placeholders(text, "sqlite", mark="?")
    rows = file.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * values).fetchall()

    def below(parent: int) -> tuple[PlanNode, ...]:
        return tuple(step(number, detail) for number, own_parent, _, detail in rows if own_parent == parent)

    def step(number: int, detail: str) -> PlanNode:
        if found := _STEP_OF_SQLITE.match(detail):
            index = found["name"] or found["other"]
            return PlanNode(found["kind"], found["relation"], index, children=below(number))
        return PlanNode(detail, children=below(number))

    return PlanNode("Query", children=below(0))


def _plan_of_mariadb(connection: Any, sql: str) -> PlanNode:
    """Return a step below "Query" for each table, in order; its kind is the access type of EXPLAIN, such as ALL."""
    rows = connection.exec_driver_sql(f"EXPLAIN {sql}".replace("%", "%%")).mappings().all()
    return PlanNode(
        "Query",
        children=tuple(
            PlanNode(row["type"] or row["Extra"] or row["select_type"], row["table"], row["key"]) for row in rows
        ),
    )
