"""The database as handlers see it: a snapshot or a single statement to read by, or a transaction that writes.

The main class is `Database`. Nothing is cached between requests: another program may write to the same tables.

A write runs at READ COMMITTED and locks the rows that it decides on (a provider, its parent, a resource class) in the
same statement that reads them. What it reads afterwards is therefore the newest state, and nobody can change it before
the commit, because every writer of a provider's inventories, traits, aggregates and allocations locks the provider
first. SQLite ignores row locks; there the generation in the UPDATE's WHERE keeps a lost update out.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from placebench.reference.api.problems import ConcurrentUpdate

_T = TypeVar("_T")

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.005

# Serialization failure, deadlock, unique violation, foreign key violation. The last two are races as well: a write
# checks first whether the name is taken or the row is there, so only a writer in between brings it here.
_RACES: Final = frozenset({"40001", "40P01", "23505", "23503"})
_RACES_ON_SQLITE: Final = frozenset(
    {
        "SQLITE_BUSY",
        "SQLITE_BUSY_SNAPSHOT",
        "SQLITE_LOCKED",
        "SQLITE_CONSTRAINT_PRIMARYKEY",
        "SQLITE_CONSTRAINT_UNIQUE",
        "SQLITE_CONSTRAINT_FOREIGNKEY",
    }
)

# psycopg2 keeps these on the client and sends them with BEGIN, so the snapshot costs no round trip.
_SNAPSHOT: Final[dict[str, dict[str, Any]]] = {
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    "mysql": {"isolation_level": "REPEATABLE READ"},
    "mariadb": {"isolation_level": "REPEATABLE READ"},
}
_WRITES: Final[dict[str, dict[str, Any]]] = {
    "postgresql": {"isolation_level": "READ COMMITTED"},
    "mysql": {"isolation_level": "READ COMMITTED"},
    "mariadb": {"isolation_level": "READ COMMITTED"},
}


class Database:
    """One engine, used in three ways: `snapshot()` and `one_statement()` to read, `write(work)` to change."""

    def __init__(self, engine: Engine, single: Mapping[str, Any] | None = None) -> None:
        """engine: is not connected to here, so that a server may fork afterwards.

        single: execution options of a request that takes one statement; None: those of a snapshot.
        """
        snapshot = _SNAPSHOT.get(engine.dialect.name, {})
        self._reading = engine.execution_options(**snapshot)
        self._single = engine.execution_options(**(snapshot if single is None else single))
        self._writing = engine.execution_options(**_WRITES.get(engine.dialect.name, {}))
        self._at_once = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._pause = _pause_task if engine.dialect.is_async else time.sleep
        self.engine = engine

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A read-only connection on which every statement sees the state of the first one."""
        return self._reading.connect()

    def one_statement(self) -> AbstractContextManager[Connection]:
        """A connection for a handler that reads by one statement, as the variant's `transaction` wants it."""
        return self._single.connect()

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """What *work* returns, run in one transaction, and run again when another writer came between.

        Raises ConcurrentUpdate after `_ATTEMPTS` attempts; what *work* raises otherwise rolls back and goes through.
        """
        return self._attempt(self._writing.begin, work)

    def write_at_once(self, work: Callable[[Connection], _T]) -> _T:
        """The same for *work* that changes the database in one message, which is a transaction without a BEGIN."""
        return self._attempt(self._at_once.connect, work)

    def _attempt(
        self, connect: Callable[[], AbstractContextManager[Connection]], work: Callable[[Connection], _T]
    ) -> _T:
        for attempt in range(_ATTEMPTS):
            try:
                with connect() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not _is_race(error):
                    raise
            self._pause(_PAUSE_S * attempt)
        raise ConcurrentUpdate(f"other writers came between {_ATTEMPTS} times: read the generation again and retry")


def _pause_task(seconds: float) -> None:
    """Let the event loop serve other requests meanwhile."""
    await_only(asyncio.sleep(seconds))


def _is_race(error: DBAPIError) -> bool:
    """Whether the database refused a statement only because another transaction was at the same rows."""
    original = error.orig
    # psycopg2 calls it pgcode, psycopg 3 sqlstate.
    if getattr(original, "pgcode", getattr(original, "sqlstate", None)) in _RACES:
        return True
    return getattr(original, "sqlite_errorname", None) in _RACES_ON_SQLITE
