"""Time inside asyncpg, by the adapters that SQLAlchemy puts around its connections: `time_asyncpg`.

The adapters look like a driver's own classes, and their calls return when the response is there; asyncpg itself has no
cursors. All rows come with the execute, unless the cursor is a server-side one.
"""

from typing import Any

from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.drivers.asyncpg_protocol import restore_protocol
from placebench.profiler.drivers.base import (
    AdaptedConnection,
    CallRecorder,
    NetworkCursor,
    TimedCursor,
    time_adapter,
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
        known = (self._adapt_connection._prepared_statement_cache or {}).get(self._sent(operation, parameters))
        self.placebench_prepared = known is not None and known[2] > self._invalidate_schema_cache_asof
        return super().execute(operation, parameters)

    def _sent(self, operation: Any, parameters: Any) -> Any:
        """The text that asyncpg will get: in SQLAlchemy 1.4 the adapter numbers the parameters."""
        number = getattr(self, "_parameter_placeholders", None)
        return operation if number is None or parameters is None else operation % number(parameters)

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


class _AsyncpgConnection(AdaptedConnection):
    """The adapter of a connection, which tells whether it has sent a BEGIN."""

    __slots__ = ()
    _connection: Any
    _transaction: Any
    autocommit: bool

    @property
    def placebench_meter(self) -> SocketMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        transport = self._connection._transport
        encrypted = transport.get_extra_info("ssl_object") is not None
        return socket_meter(transport.get_extra_info("socket").fileno(), encrypted=encrypted)

    def ping(self) -> None:
        """The adapter's ping of the pool, timed; late releases of SQLAlchemy give it a transaction of its own."""
        begins = hasattr(self, "_async_ping") and not self.in_a_transaction() and not self.autocommit
        with self.timing_step("PING", 3 if begins else 1):
            super().ping()  # type: ignore[misc]

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return self._transaction is not None

    def trips_of_step(self, _step: str) -> int:
        """COMMIT and ROLLBACK are sent only if a transaction is open."""
        return 1 if self.in_a_transaction() else 0


def time_asyncpg(recorder: CallRecorder, connection: Any) -> None:
    """Give SQLAlchemy's adapter of an asyncpg connection, just made, its timed classes instead of a timed protocol."""
    restore_protocol(connection._connection)
    time_adapter(recorder, connection, "asyncpg", (_AsyncpgConnection, _AsyncpgCursor, _AsyncpgStream))
