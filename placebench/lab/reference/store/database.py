"""The database as handlers see it: a snapshot or a single statement to read by, or a transaction that writes.

The main class is `Database`. Nothing is cached between requests: another program may write to the same tables.

A write runs at READ COMMITTED and locks the rows that it decides on (a provider, its parent, a resource class) in the
same statement that reads them. What it reads afterwards is therefore the newest state, and nobody can change it before
the commit, because every writer of a provider's inventories, traits, aggregates and allocations locks the provider
first. SQLite ignores row locks; there the generation in the UPDATE's WHERE keeps a lost update out.

A connection that the server has closed is replaced before it is used. One that is lost later fails its transaction,
which is repeated once if it cannot have been committed.
"""

import asyncio
import select
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only

from placebench.lab.reference.domain.problems import ConcurrentUpdate, ServiceUnavailable

_T = TypeVar("_T")

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.005

# Serialization failure, deadlock, lock timeout, unique violation, foreign key violation. The last two are races as
# well: a write checks first whether the name is taken or the row is there, so only a writer in between brings it here.
_RACES: Final = frozenset({"40001", "40P01", "55P03", "23505", "23503"})
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

# Of MariaDB: record changed since the snapshot, duplicate key, lock wait timeout, deadlock, foreign key violations.
_RACES_ON_MARIADB: Final = frozenset({1020, 1062, 1205, 1213, 1451, 1452})

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
    """One engine, used in two ways: `snapshot()` and its like to read, `write(work)` to change.

    `read_at_once` and `write_at_once` send one message, which is a transaction without BEGIN and COMMIT.
    """

    position: str | None = None
    """Where the last write of this request ended in PostgreSQL's log; None: nothing was written, or nobody needs it."""

    def __init__(self, engine: Engine, single: Mapping[str, Any] | None = None) -> None:
        """engine: is not connected to here, so that a server may fork afterwards.

        single: execution options of a request that takes one statement; None: those of a snapshot.
        """
        snapshot = _SNAPSHOT.get(engine.dialect.name, {})
        self._reading = engine.execution_options(**snapshot)
        self._single = engine.execution_options(**(snapshot if single is None else single))
        self._writing = engine.execution_options(**_WRITES.get(engine.dialect.name, {}))
        self.takes_messages = engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg2"
        """Whether several statements with values can be sent in one message."""
        self._pause = _pause_task if engine.dialect.is_async else time.sleep
        self.engine = engine
        if not event.contains(engine, "checkout", _replace_closed_connection):
            event.listen(engine, "checkout", _replace_closed_connection)

    def for_request(self, _after: str | None) -> "Database":
        """Return what serves one request, which has to see the log up to this position: one database always does."""
        return self

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A read-only connection on which every statement sees the state of the first one."""
        return _connect(self._reading)

    def primary_snapshot(self) -> AbstractContextManager[Connection]:
        """Return a snapshot of the database that is written to."""
        return _connect(self._reading)

    def one_statement(self) -> AbstractContextManager[Connection]:
        """A connection for a handler that reads by one statement, as the variant's `transaction` wants it."""
        return _connect(self._single)

    def read_at_once(self) -> AbstractContextManager[Connection]:
        """A connection for a single SELECT, which sees one state by itself; 1 round trip where psycopg2 is the driver.

        Elsewhere a snapshot.
        """
        return self._autocommit() if self.takes_messages else self.primary_snapshot()

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """What *work* returns, run in one transaction, and run again when another writer came between.

        It is also run again, once, if the connection is lost before COMMIT is sent.
        Raises ConcurrentUpdate after `_ATTEMPTS` attempts; what *work* raises otherwise rolls back and goes through.
        """
        return self._attempt(self._transaction, work)

    def write_at_once(self, work: Callable[[Connection], _T]) -> _T:
        """Run *work*, which changes the database in one message, as `write` does; for databases that take messages.

        It is not run again if the connection is lost: the message may have been carried out.
        """
        return self._attempt(self._autocommit, work)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with _connect(self._writing) as connection, connection.begin():
            yield connection

    @contextmanager
    def _autocommit(self) -> Iterator[Connection]:
        """A connection of psycopg2 in autocommit.

        SQLAlchemy's isolation_level="AUTOCOMMIT" costs two round trips more, at the end: psycopg2 resets the session's
        isolation level and read-only mode unless its own are the defaults.
        """
        with _connect(self.engine) as connection:
            driver: Any = connection.connection.dbapi_connection
            driver.set_session(isolation_level="DEFAULT", readonly="DEFAULT")
            driver.autocommit = True
            try:
                yield connection
            finally:
                if not driver.closed:
                    driver.autocommit = False

    def _attempt(
        self, connect: Callable[[], AbstractContextManager[Connection]], work: Callable[[Connection], _T]
    ) -> _T:
        may_repeat_lost = connect == self._transaction
        for attempt in range(_ATTEMPTS):
            is_done = False
            try:
                with connect() as connection:
                    result = work(connection)
                    is_done = True
                return result
            except DBAPIError as error:
                if error.connection_invalidated:
                    if is_done or not may_repeat_lost:
                        raise
                    may_repeat_lost = False
                elif not _is_race(error):
                    raise
            self._pause(_PAUSE_S * attempt)
        raise ConcurrentUpdate(f"other writers came between {_ATTEMPTS} times: read the generation again and retry")


class ReplicatedDatabase(Database):
    """A primary that is written to and replicas that are read from, by two engines.

    A read that follows a write of the same client says up to where the log has to be applied (`for_request`). It waits
    for that on its replica, and goes to the primary where the replica is not there within `_PATIENCE_S`.
    """

    def __init__(self, engine: Engine, readers: Engine, single: Mapping[str, Any] | None = None) -> None:
        """engine: of the primary. readers: of the replicas."""
        super().__init__(engine, single)
        self._replicas = Database(readers, single)
        self._after: str | None = None

    def for_request(self, after: str | None) -> "ReplicatedDatabase":
        """Return one with a position of its own. after: as `position` gives it; None: any state will do."""
        own = copy(self)
        own._after = after
        return own

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A snapshot of a replica that has applied the log so far, or of the primary."""
        with self._replicas.snapshot() as connection:
            if self._is_applied(connection):
                yield connection
                return
        with super().snapshot() as connection:
            yield connection

    def read_at_once(self) -> AbstractContextManager[Connection]:
        """A snapshot."""
        return self.snapshot()

    @contextmanager
    def one_statement(self) -> Iterator[Connection]:
        """A connection for one statement, to a replica if it has applied the log that far, else to the primary."""
        with self._replicas.one_statement() as connection:
            if self._is_applied(connection):
                yield connection
                return
        with super().one_statement() as connection:
            yield connection

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Write on the primary, and keep the position; one round trip more."""
        return self._with_position(super().write(work))

    def write_at_once(self, work: Callable[[Connection], _T]) -> _T:
        """Write on the primary in one message, and keep the position; one round trip more."""
        return self._with_position(super().write_at_once(work))

    def _with_position(self, result: _T) -> _T:
        """Everything committed until now was flushed up to here: a commit waits for that (synchronous_commit).

        SELECT pg_current_wal_flush_lsn()
        """
        with super().read_at_once() as connection:
            self.position = connection.scalar(_FLUSHED)
        return result

    def _is_applied(self, connection: Connection) -> bool:
        """Wait until the server of this connection has applied the log up to `after`; a primary has.

        In autocommit, so that the snapshot is taken later; the connection then has its own options again.
        """
        if self._after is None:
            return True
        options = connection.get_execution_options()
        own = {name: options.get(name, default) for name, default in _TRANSACTION.items()}
        connection.execution_options(isolation_level="AUTOCOMMIT", postgresql_readonly=False)
        give_up_at = time.monotonic() + _PATIENCE_S
        while not (applied := bool(connection.scalar(_APPLIED, {"position": self._after}))):
            if time.monotonic() > give_up_at:
                break
            self._pause(_POLL_S)
        connection.rollback()
        connection.execution_options(**own)
        return applied


_PATIENCE_S: Final = 1.0
_POLL_S: Final = 0.002
_TRANSACTION: Final = {"isolation_level": "READ COMMITTED", "postgresql_readonly": False}
_FLUSHED: Final = text("SELECT pg_current_wal_flush_lsn()::text")
_APPLIED: Final = text(
    "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= CAST(CAST(:position AS text) AS pg_lsn)"
)


def _pause_task(seconds: float) -> None:
    """Let the event loop serve other requests meanwhile."""
    await_only(asyncio.sleep(seconds))


def _connect(engine: Engine) -> Connection:
    """Raises ServiceUnavailable if the database accepts no connection; nothing was sent then."""
    try:
        return engine.connect()
    except (SQLAlchemyError, OSError, engine.dialect.loaded_dbapi.Error) as error:
        raise ServiceUnavailable("the database accepts no connection: try again later") from error


def _replace_closed_connection(dbapi_connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Raises DisconnectionError for a connection that the server has closed, so that the pool connects anew.

    A server that ends a session sends a message, closes the socket, or both, and the socket of an idle connection is
    then readable, which takes no round trip to find out. It may also have sent something else, such as a parameter
    that was changed: a statement decides.
    """
    driver: Any = record.driver_connection
    try:
        if hasattr(driver, "is_closed"):  # asyncpg, whose event loop reads what comes
            if driver.is_closed():
                raise DisconnectionError("the server has closed the connection")
            return
        socket = driver if hasattr(driver, "fileno") else getattr(driver, "_sock", None)  # PyMySQL has no other way
        if socket is None:  # SQLite, or a driver that does not show it
            return
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        if not poll.poll(0):
            return
        cursor = dbapi_connection.cursor()
        cursor.execute("SELECT 1")
        cursor.close()
        dbapi_connection.rollback()
    except DisconnectionError:
        raise
    except Exception as error:  # each driver has its own: what cannot be used is replaced
        raise DisconnectionError(" ".join(str(error).split())) from error


def _is_race(error: DBAPIError) -> bool:
    """Whether the database refused a statement only because another transaction was at the same rows."""
    original = error.orig
    # psycopg2 calls it pgcode, psycopg 3 sqlstate.
    if getattr(original, "pgcode", getattr(original, "sqlstate", None)) in _RACES:
        return True
    if getattr(original, "sqlite_errorname", None) in _RACES_ON_SQLITE:
        return True
    # PyMySQL and mysqlclient give MariaDB's number before its text.
    return original is not None and bool(original.args) and original.args[0] in _RACES_ON_MARIADB
