"""Time inside aiosqlite, by the adapters that SQLAlchemy puts around its connections: `time_aiosqlite`.

Its calls run in a thread of aiosqlite's own and return when the thread has done them: their times hold the switches
between the threads. All rows come with the execute, unless the cursor is a server-side one.
"""

from typing import Any

from placebench.profiler.drivers.base import AdaptedConnection, CallRecorder, TimedCursor, time_adapter


class _AiosqliteCursor(TimedCursor):
    """The adapter of a cursor."""

    _adapt_connection: Any

    @property
    def connection(self) -> Any:
        """The adapter that made it."""
        return self._adapt_connection


class _AiosqliteConnection(AdaptedConnection):
    """The adapter of a connection."""

    __slots__ = ()
    _connection: Any

    def in_a_transaction(self) -> bool:
        """Whether sqlite3 has begun a transaction, which it does before the first write."""
        return bool(self._connection.in_transaction)


def time_aiosqlite(recorder: CallRecorder, connection: Any) -> None:
    """Give SQLAlchemy's adapter of an aiosqlite connection, just made, its timed classes."""
    time_adapter(recorder, connection, "aiosqlite", (_AiosqliteConnection, _AiosqliteCursor, _AiosqliteCursor))
