"""Time inside sqlite3, which takes the class of its connection at connect: `time_sqlite`."""

import sqlite3
from collections.abc import MutableMapping
from typing import Any, ClassVar

from placebench.profiler.drivers.base import CallRecorder, DriverConnection, TimedCursor, timed_class


def time_sqlite(recorder: CallRecorder, arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of connect so that the connection is timed."""
    users = arguments.get("factory") or sqlite3.Connection
    if isinstance(users, type):
        made = timed_class(_SqliteConnection, users, recorder)
        made.placebench_cursor = timed_class(TimedCursor, sqlite3.Cursor, recorder)
        arguments["factory"] = made


class _SqliteConnection(DriverConnection[Any]):
    """In sqlite3 the connection, not the connect function, chooses the class of a cursor."""

    in_transaction: bool
    placebench_cursor: ClassVar[type]

    def in_a_transaction(self) -> bool:
        """Whether sqlite3 has begun a transaction, which it does before the first write."""
        return self.in_transaction

    def cursor(self, factory: Any = None) -> Any:
        """A timed cursor, of the class *factory* if it is given."""
        cursor = (
            self.placebench_cursor if factory is None else timed_class(TimedCursor, factory, self.placebench_recorder)
        )
        return super().cursor(cursor)  # type: ignore[misc]
