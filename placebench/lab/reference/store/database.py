"""The handlers' interface to the database: snapshots and single statements for reads, transactions for writes.

The main class is `Database`. It caches nothing between requests, since other programs may write to the same tables.

A write runs at READ COMMITTED and locks the rows on which it depends (a provider, its parent, a resource class) in the
same statement that reads them. So later statements read the newest state, and no other writer can change that before
the commit, because every writer of a provider's inventories, traits, aggregates and allocations locks the provider
first. SQLite ignores row locks; there the generation in the WHERE of the UPDATE prevents lost updates.

A connection that the server has closed is replaced before use. If a connection is lost during a transaction, the
transaction fails, and is repeated once if it cannot have been committed; if it can, CommitUnconfirmed is raised.
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

from placebench.lab.reference.domain.problems import CommitUnconfirmed, ConcurrentUpdate, ServiceUnavailable

_T = TypeVar("_T")

_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.005

# Serialization failure, deadlock, lock timeout, unique violation, foreign key violation. The last two are races too:
# a write first checks that the name is free or the row exists, so only another writer in between can cause them.
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

# MariaDB: record changed since the snapshot, duplicate key, lock wait timeout, deadlock, foreign key violations.
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

# A generic plan is forced because planning costs four times as much as a short statement. Sequential scans are disabled
# because the plan is made at the first EXECUTE, perhaps for empty tables, which it would later still read as a whole.
GENERIC_PLAN: Final = "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off;"
"""What a message begins with that executes prepared statements."""
PREPARED: Final = "placebench: prepared statements"
"""The key of `Connection.info` with the names of statements that the session has; DEALLOCATE ALL removes them."""


class Database:
    """A database with one engine: `snapshot` and similar methods for reads, `write` for changes.

    `read_at_once` and `write_at_once` send one message, which is a transaction without BEGIN and COMMIT.
    """

    position: str | None = None
    """The WAL position after this request's last write; None without a write or without replicas."""

    def __init__(self, engine: Engine, single: Mapping[str, Any] | None = None) -> None:
        """engine: does not connect here, so that a server can fork afterwards.

        single: execution options of a read of one statement; None: those of a snapshot.
        """
        snapshot = _SNAPSHOT.get(engine.dialect.name, {})
        self._reading = engine.execution_options(**snapshot)
        self._single = engine.execution_options(**(snapshot if single is None else single))
        self._writing = engine.execution_options(**_WRITES.get(engine.dialect.name, {}))
        self.takes_messages = engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg2"
        """Whether the driver can send several statements with parameters in one message."""
        self._pause = _pause_task if engine.dialect.is_async else time.sleep
        self.engine = engine
        if not event.contains(engine, "checkout", _replace_closed_connection):
            event.listen(engine, "checkout", _replace_closed_connection)

    def for_request(self, _after: str | None) -> "Database":
        """Return the database for one request that must see the log up to a position: this one always shows all."""
        return self

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Return a read-only connection on which all statements see the same state as the first one."""
        return _connect(self._reading)

    def primary_snapshot(self) -> AbstractContextManager[Connection]:
        """Return a snapshot of the primary, even if there are replicas."""
        return _connect(self._reading)

    def one_statement(self) -> AbstractContextManager[Connection]:
        """Return a connection for a read of one statement, with the options of the variant's `transaction`."""
        return _connect(self._single)

    def read_at_once(self) -> AbstractContextManager[Connection]:
        """Return a connection for a single SELECT: in autocommit with psycopg2 (1 round trip), else a snapshot."""
        return self._autocommit() if self.takes_messages else self.primary_snapshot()

    def primary_at_once(self) -> AbstractContextManager[Connection]:
        """Return a connection to the primary in autocommit; the database must have `takes_messages`."""
        return self._autocommit()

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Run *work* in one transaction and return its result; repeat both after a conflict with another writer.

        They are also repeated, once, if the connection is lost before COMMIT is sent. Raises ConcurrentUpdate after
        `_ATTEMPTS` attempts, and CommitUnconfirmed if the connection is lost after COMMIT was sent. Any other exception
        of *work* rolls the transaction back and is raised.
        """
        return self._attempt(self._transaction, work)

    def write_at_once(self, work: Callable[[Connection], _T]) -> _T:
        """Run *work*, which changes the database with one message; repeat it after a conflict as `write` does.

        The database must have `takes_messages`. Raises CommitUnconfirmed if the connection is lost, since the message
        may have been executed.
        """
        return self._attempt(self._autocommit, work)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with _connect(self._writing) as connection, connection.begin():
            yield connection

    @contextmanager
    def _autocommit(self) -> Iterator[Connection]:
        """Yield a connection of psycopg2 in autocommit.

        SQLAlchemy's isolation_level="AUTOCOMMIT" costs two more round trips at the end, when psycopg2 resets the
        session's isolation level and read-only mode. With the defaults set here it does not reset them.
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
        is_transaction, was_lost = connect == self._transaction, False
        for attempt in range(_ATTEMPTS):
            is_done = False
            try:
                with connect() as connection:
                    result = work(connection)
                    is_done = True
                return result
            except DBAPIError as error:
                if error.connection_invalidated:
                    if is_done or not is_transaction:
                        raise CommitUnconfirmed(
                            "the connection to the database was lost before it confirmed the change: it may or may not"
                            " be stored; read it before you send it again"
                        ) from error
                    if was_lost:
                        raise
                    was_lost = True
                elif not _is_race(error):
                    raise
            self._pause(_PAUSE_S * attempt)
        raise ConcurrentUpdate(f"other writers came between {_ATTEMPTS} times: read the generation again and retry")


class ReplicatedDatabase(Database):
    """A primary for writes and replicas for reads, with one engine each.

    A request that follows a write of the same client names the WAL position that it must see (`for_request`). Its reads
    wait until the replica has applied the log up to there, or use the primary if that takes longer than `_PATIENCE_S`.
    """

    def __init__(self, engine: Engine, readers: Engine, single: Mapping[str, Any] | None = None) -> None:
        """engine: the engine of the primary. readers: the engine of the replicas. single: as in `Database`."""
        super().__init__(engine, single)
        self._replicas = Database(readers, single)
        self._after: str | None = None

    def for_request(self, after: str | None) -> "ReplicatedDatabase":
        """Return a copy for one request. after: the WAL position that reads must see; None: any state suffices."""
        own = copy(self)
        own._after = after
        return own

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Yield a snapshot of a replica that has applied the log up to the request's position, else of the primary."""
        with self._replicas.snapshot() as connection:
            if self._is_applied(connection):
                yield connection
                return
        with super().snapshot() as connection:
            yield connection

    def read_at_once(self) -> AbstractContextManager[Connection]:
        """Return a snapshot, of a replica if possible."""
        return self.snapshot()

    @contextmanager
    def one_statement(self) -> Iterator[Connection]:
        """Yield a connection for one statement, to a replica that is up to date enough, else to the primary."""
        with self._replicas.one_statement() as connection:
            if self._is_applied(connection):
                yield connection
                return
        with super().one_statement() as connection:
            yield connection

    def write(self, work: Callable[[Connection], _T]) -> _T:
        """Write on the primary as `Database.write` does, and store `position`; one more round trip."""
        return self._with_position(super().write(work))

    def write_at_once(self, work: Callable[[Connection], _T]) -> _T:
        """Write on the primary as `Database.write_at_once` does, and store `position`; one more round trip."""
        return self._with_position(super().write_at_once(work))

    def _with_position(self, result: _T) -> _T:
        """Store the WAL position after the write and return *result*; raise CommitUnconfirmed if it cannot be read.

        All that is committed has been flushed to the log, since a commit waits for that (synchronous_commit).

        SELECT pg_current_wal_flush_lsn()
        """
        try:
            with super().read_at_once() as connection:
                self.position = connection.scalar(_FLUSHED)
        except (DBAPIError, ServiceUnavailable) as error:
            raise CommitUnconfirmed(
                "the change was committed, but the connection to the primary was lost before its WAL position was read:"
                " read it before you send it again"
            ) from error
        return result

    def _is_applied(self, connection: Connection) -> bool:
        """Wait up to `_PATIENCE_S` for the connection's server to apply the log up to `_after`; return whether it has.

        A primary always has. The connection is in autocommit meanwhile, so that no snapshot is taken; then its options
        are restored.
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
    """Sleep while the event loop serves other requests."""
    await_only(asyncio.sleep(seconds))


def _connect(engine: Engine) -> Connection:
    """Return a connection; raise ServiceUnavailable if the database accepts none (nothing was sent then)."""
    try:
        return engine.connect()
    except (SQLAlchemyError, OSError, engine.dialect.loaded_dbapi.Error) as error:
        raise ServiceUnavailable("the database accepts no connection: try again later") from error


def _replace_closed_connection(dbapi_connection: Any, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Raise DisconnectionError for a connection that the server has closed, so that the pool makes a new one.

    A server that ends a session sends a message, closes the socket, or both. An idle connection's socket is readable
    then, which can be checked without a round trip. If the socket is readable, `SELECT 1` is executed, since the server
    may have sent something else, such as a changed parameter.
    """
    driver: Any = record.driver_connection
    try:
        if hasattr(driver, "is_closed"):  # asyncpg, whose socket the event loop reads
            if driver.is_closed():
                raise DisconnectionError("the server has closed the connection")
            return
        socket = driver if hasattr(driver, "fileno") else getattr(driver, "_sock", None)  # PyMySQL has no public name
        if socket is None:  # SQLite, or a driver that does not expose its socket
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
    except Exception as error:  # drivers raise their own exceptions: a connection that fails is replaced
        raise DisconnectionError(" ".join(str(error).split())) from error


def _is_race(error: DBAPIError) -> bool:
    """Return whether a statement failed only because of a concurrent transaction on the same rows."""
    original = error.orig
    # psycopg2 calls it pgcode, psycopg 3 sqlstate.
    if getattr(original, "pgcode", getattr(original, "sqlstate", None)) in _RACES:
        return True
    if getattr(original, "sqlite_errorname", None) in _RACES_ON_SQLITE:
        return True
    # PyMySQL and mysqlclient give MariaDB's number before its text.
    return original is not None and bool(original.args) and original.args[0] in _RACES_ON_MARIADB
