"""Time inside aiosqlite: with SQLAlchemy's adapters (`time_aiosqlite`) and without them (`patch_aiosqlite`).

Calls of aiosqlite run in a thread of its own and return when the thread has done them. The times of an adapter include
the switches between threads, and all rows come with the execute, unless the cursor is server-side. Without SQLAlchemy
the times are those of sqlite3 in that thread.
"""

import functools
import sys
from contextvars import copy_context
from typing import Any

from placebench.profiler.capture.call_sites import awaiting_callers, find_callers
from placebench.profiler.capture.loop_origins import awaiting_chunk, awaiting_load
from placebench.profiler.capture.orm_frames import is_first_chunk, orm_load
from placebench.profiler.capture.timed_cursor import AdaptedConnection, CallRecorder, Replace, TimedCursor, time_adapter
from placebench.profiler.drivers.sqlite import time_sqlite

_ADAPTER = "sqlalchemy.dialects.sqlite.aiosqlite"


class _AiosqliteCursor(TimedCursor):
    """SQLAlchemy's adapter of an aiosqlite cursor, timed."""

    placebench_dialect = "sqlite"

    _adapt_connection: Any

    @property
    def connection(self) -> Any:
        """The adapter that made this cursor."""
        return self._adapt_connection


class _AiosqliteConnection(AdaptedConnection):
    """SQLAlchemy's adapter of an aiosqlite connection, timed."""

    __slots__ = ()
    _connection: Any

    def in_a_transaction(self) -> bool:
        """Return whether sqlite3 has begun a transaction, which it does before the first write."""
        return bool(self._connection.in_transaction)


def time_aiosqlite(recorder: CallRecorder, connection: Any) -> None:
    """Give SQLAlchemy's adapter of a new aiosqlite connection its timed classes."""
    time_adapter(recorder, connection, "aiosqlite", (_AiosqliteConnection, _AiosqliteCursor, _AiosqliteCursor))


def patch_aiosqlite(recorder: CallRecorder, replace: Replace) -> None:
    """Have aiosqlite make timed connections, whose thread works in the context of its caller."""
    import aiosqlite

    def time_connect(owner: Any) -> None:
        @replace(owner, "connect")
        def timed_connect(*args: Any, **kwargs: Any) -> Any:
            if sys._getframe(1).f_globals.get("__name__") != _ADAPTER:
                recorder.change(time_sqlite, kwargs)
            return timed_connect.__wrapped__(*args, **kwargs)

    @replace(aiosqlite.Connection, "_execute")
    async def execute_in_context(self: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
        recording = recorder.current.get()
        if recording is not None and recording.options.mode != "light":
            context = copy_context()
            context.run(awaiting_callers.set, find_callers(sys._getframe(1), recording.application))
            context.run(awaiting_load.set, orm_load(sys._getframe(1)))
            context.run(awaiting_chunk.set, is_first_chunk(sys._getframe(1)))
            call = functools.partial(context.run, call)
        elif recording is not None or recorder.running:
            call = functools.partial(copy_context().run, call)
        return await execute_in_context.__wrapped__(self, call, *args, **kwargs)

    for module in (aiosqlite, aiosqlite.core):
        time_connect(module)
