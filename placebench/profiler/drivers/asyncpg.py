"""Time inside asyncpg, by the adapters that SQLAlchemy puts around its connections: `time_asyncpg`.

The adapters look like a driver's own classes, and their calls return when the response is there; asyncpg itself has no
cursors. All rows come with the execute, unless the cursor is a server-side one.
"""

from typing import Any, ClassVar

from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.drivers.base import (
    CallRecorder,
    NetworkCursor,
    TimedConnection,
    TimedCursor,
    timed_class,
)


class _AsyncpgCursor(NetworkCursor):
    """The adapter sends BEGIN before a transaction, and has each statement prepared once on a connection."""

    _adapt_connection: Any
    _invalidate_schema_cache_asof: float
    server_side: bool
    placebench_prepared = True

    @property
    def connection(self) -> Any:
        """The adapter that made it."""
        return self._adapt_connection

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        """The adapter's execute, timed."""
        # The cache that the adapter will look into; an entry older than a change of the schema does not count.
        known = (self._adapt_connection._prepared_statement_cache or {}).get(operation)
        self.placebench_prepared = known is not None and known[2] > self._invalidate_schema_cache_asof
        return super().execute(operation, parameters)

    def trips_of_execute(self) -> int:
        """The statement, its preparation, and BEGIN."""
        return self.trips_of_executemany(None) + (not self.placebench_prepared)

    def trips_of_executemany(self, _parameters: Any) -> int:
        """All go in one message; whether asyncpg has it prepared before, it does not tell."""
        connection = self._adapt_connection
        return 1 if connection.in_a_transaction() or connection.autocommit else 2

    def is_server_side(self) -> bool:
        """Whether this is a server-side cursor."""
        return self.server_side


class _AsyncpgStream(_AsyncpgCursor):
    """A server-side cursor, which fetches ahead: its round trips are counted where it fetches."""

    _cursor: Any

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        """The adapter's execute, timed."""
        result = super().execute(operation, parameters)
        self._cursor = _Portal(self._cursor)
        return result

    def fetchone(self) -> Any:
        """The adapter's fetchone, timed."""
        with self.timing_fetch() as fetch:
            return fetch.row(super(TimedCursor, self).fetchone())  # type: ignore[misc]

    def trips_of_fetch(self) -> int:
        """Round trips since the last call."""
        return self._cursor.take_trips() if isinstance(self._cursor, _Portal) else 0


class _Portal:
    """asyncpg's cursor with a count of its round trips."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._trips = 0

    async def fetch(self, count: int) -> Any:
        """The next rows; after the last ones there is no round trip."""
        self._trips += not self._cursor._exhausted
        return await self._cursor.fetch(count)

    def take_trips(self) -> int:
        """Round trips since the last call."""
        trips, self._trips = self._trips, 0
        return trips


class _AsyncpgConnection(TimedConnection):
    """The adapter of a connection; without a dict, as the adapters are, so that an object can change its class."""

    __slots__ = ()
    _connection: Any
    _transaction: Any
    autocommit: bool
    _cursor_cls: ClassVar[type]
    _ss_cursor_cls: ClassVar[type]

    @property
    def placebench_meter(self) -> SocketMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        transport = self._connection._transport
        encrypted = transport.get_extra_info("ssl_object") is not None
        return socket_meter(transport.get_extra_info("socket").fileno(), encrypted=encrypted)

    def commit(self) -> None:
        """The adapter's commit, timed."""
        self.placebench_step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """The adapter's rollback, timed."""
        self.placebench_step("ROLLBACK", super().rollback)  # type: ignore[misc]

    def ping(self) -> None:
        """The adapter's ping of the pool, which has a transaction of its own, timed."""
        with self.timing_step("PING", 1 if self.in_a_transaction() or self.autocommit else 3):
            super().ping()  # type: ignore[misc]

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return self._transaction is not None

    def trips_of_step(self, _step: str) -> int:
        """COMMIT and ROLLBACK are sent only if a transaction is open."""
        return 1 if self.in_a_transaction() else 0


def time_asyncpg(recorder: CallRecorder, connection: Any) -> None:
    """Give SQLAlchemy's adapter of an asyncpg connection, just made, its timed classes."""
    made = timed_class(_AsyncpgConnection, type(connection), recorder)
    made._cursor_cls = timed_class(_AsyncpgCursor, connection._cursor_cls, recorder)
    made._ss_cursor_cls = timed_class(_AsyncpgStream, connection._ss_cursor_cls, recorder)
    connection.__class__ = made
