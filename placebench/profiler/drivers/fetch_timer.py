"""The cursors of drivers for which placebench has no hooks, as SQLAlchemy's results read them: `FetchTimer`."""

from collections.abc import Iterator
from typing import Any

from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.timed_cursor import TimedFetch
from placebench.profiler.model.statement_facts import statement_facts

_HOOKED = frozenset({"aiosqlite", "asyncpg", "mysqldb", "psycopg", "psycopg2", "psycopg_async", "pymysql", "pysqlite"})
"""SQLAlchemy's names of the drivers whose cursors are timed by themselves."""


class FetchTimer:
    """Stands for the cursor of one executed statement: times its fetches, and counts the rows that they return.

    All else is the cursor's own. Round trips are not known.
    """

    __slots__ = ("_cursor", "_pending")

    def __init__(self, cursor: Any, pending: PendingStatement) -> None:
        object.__setattr__(self, "_cursor", cursor)
        object.__setattr__(self, "_pending", pending)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._cursor, name, value)

    def __iter__(self) -> Iterator[Any]:
        while (row := self.fetchone()) is not None:
            yield row

    def fetchone(self) -> Any:
        """Call the driver's fetchone and time it."""
        with TimedFetch(self._pending, _unknown) as fetch:
            return fetch.row(self._cursor.fetchone())

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's fetchmany and time it."""
        with TimedFetch(self._pending, _unknown) as fetch:
            return fetch.rows(self._cursor.fetchmany(*args, **kwargs))

    def fetchall(self) -> Any:
        """Call the driver's fetchall and time it."""
        with TimedFetch(self._pending, _unknown) as fetch:
            return fetch.rows(self._cursor.fetchall())


def _unknown() -> None:
    return None


def time_fetches(context: Any, pending: PendingStatement) -> None:
    """Note the rows of a context that has just been executed, and time what will be read from its cursor.

    The driver's own count of rows holds for a write, and where SQLAlchemy has read the rows already. For a read, some
    drivers (oracledb) count what was fetched until then, and some count nothing: the rows that are fetched are counted.
    """
    cursor = context.cursor
    is_read = False
    if context.dialect.driver not in _HOOKED and not context.executemany and cursor.description is not None:
        context.cursor = FetchTimer(cursor._cursor if isinstance(cursor, FetchTimer) else cursor, pending)
        is_read = statement_facts(pending.sql, pending.dialect).kind == "read"
    if is_read:
        pending.fetched_rows = 0
    else:
        pending.set_row_count(getattr(cursor, "rowcount", None))
