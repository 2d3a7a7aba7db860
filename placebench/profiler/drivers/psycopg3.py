"""Time inside psycopg 3, sync and async: its connections are given timed classes once they are made.

psycopg 3 takes its cursor classes as attributes of the connection, and its connections are plain Python objects whose
class can be replaced. The main function is `time_psycopg`, called from the `connect` event: a class that the user chose
is subclassed, never replaced, and whatever the application does in `do_connect` stays its own.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property
from typing import Any
from weakref import ref

from placebench.profiler.capture.auto_explain import DelayedPlanFeed, PlanFeed
from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.drivers.base import (
    CallRecorder,
    DriverConnection,
    NetworkCursor,
    TimedCursor,
    count_sets,
    timed_class,
)

_IDLE = 0  # psycopg.pq.TransactionStatus.IDLE


class _PsycopgCursor(NetworkCursor):
    """psycopg 3 sends a BEGIN of its own before a transaction, and an executemany through a pipeline."""

    connection: Any
    name: str

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed."""
        if self.placebench_recorder.current.get() is None:
            return super().execute(sql, *args, **kwargs)
        prepared = self._prepared()
        try:
            return super().execute(sql, *args, **kwargs)
        finally:
            self._add_prepared(prepared)

    def _prepared(self) -> int:
        """Statements that psycopg has prepared by itself, on their sixth execution: only its own counter shows that."""
        return int(self.connection._prepared._prepared_idx)

    def _add_prepared(self, before: int) -> None:
        """To prepare a statement is a round trip of its own, unless in a pipeline."""
        pending, new = self.placebench_pending, self._prepared() - before
        if new and pending is not None and not self.connection.pgconn.pipeline_status:
            pending.round_trips = (pending.round_trips or 0) + new

    def trips_of_execute(self) -> int:
        """The statement, what a server-side cursor is described by, and BEGIN; in a pipeline nobody waits."""
        connection = self.connection
        if connection.pgconn.pipeline_status:
            return 0
        begins = connection.pgconn.transaction_status == _IDLE and not connection.autocommit
        return 1 + begins + self.is_server_side()

    def trips_of_executemany(self, _parameters: Any) -> int:
        """They are sent without waiting; the responses come together."""
        return 1

    def is_server_side(self) -> bool:
        """Whether this is a server-side cursor."""
        return bool(getattr(self, "name", ""))

    @contextmanager
    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """A COPY of psycopg's, from its first to its last byte."""
        with self.timing(statement, self.trips_of_copy(statement)), super().copy(statement, *args, **kwargs) as copy:  # type: ignore[misc]
            yield copy


class _PsycopgAsyncCursor(_PsycopgCursor):
    """A client-side or server-side cursor of an async connection: each of its calls is awaited."""

    async def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed."""
        prepared = self._prepared()
        try:
            with self.timing(sql, self.trips_of_execute()):
                return await super(TimedCursor, self).execute(sql, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._add_prepared(prepared)

    async def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's executemany, timed."""
        with self.timing(sql, self.trips_of_executemany(parameters), executions=count_sets(parameters)):
            return await super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]

    async def fetchone(self) -> Any:
        """The driver's fetchone, timed."""
        with self.timing_fetch() as fetch:
            return fetch.row(await super(TimedCursor, self).fetchone())  # type: ignore[misc]

    async def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The driver's fetchmany, timed."""
        with self.timing_fetch() as fetch:
            return fetch.rows(await super(TimedCursor, self).fetchmany(*args, **kwargs))  # type: ignore[misc]

    async def fetchall(self) -> Any:
        """The driver's fetchall, timed."""
        with self.timing_fetch() as fetch:
            return fetch.rows(await super(TimedCursor, self).fetchall())  # type: ignore[misc]

    async def close(self) -> None:
        """The driver's close, timed if it takes a round trip."""
        with self.timing_close():
            await super(NetworkCursor, self).close()  # type: ignore[misc]

    @asynccontextmanager
    async def copy(self, statement: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """A COPY of psycopg's, from its first to its last byte."""
        with self.timing(statement, self.trips_of_copy(statement)):
            async with super(NetworkCursor, self).copy(statement, *args, **kwargs) as copy:  # type: ignore[misc]
                yield copy


class _PsycopgConnection(DriverConnection[Any]):
    """What sync and async connections share: whether a transaction is open, and the socket."""

    fileno: Callable[[], int]
    pgconn: Any
    _prepared: Any
    add_notice_handler: Callable[[Callable[[Any], None]], None]

    @cached_property
    def placebench_meter(self) -> SocketMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        return socket_meter(self.fileno(), encrypted=bool(self.pgconn.ssl_in_use))

    @cached_property
    def placebench_plans(self) -> DelayedPlanFeed:
        """What the server says of its plans."""
        connection = ref(self)
        feed = DelayedPlanFeed(lambda: (alive := connection()) is not None and alive.in_a_transaction())
        self.add_notice_handler(lambda diagnostic: _offer(feed, diagnostic.message_primary))
        return feed

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return bool(self.pgconn.transaction_status != _IDLE)

    def trips_of_step(self, step: str) -> int:
        """COMMIT and ROLLBACK are sent only if a transaction is open; after a rollback psycopg prepares anew."""
        if not self.in_a_transaction():
            return 0
        return 2 if step == "ROLLBACK" and self._prepared._names else 1


class _PsycopgAsyncConnection(_PsycopgConnection):
    """A connection whose COMMIT and ROLLBACK are awaited."""

    async def commit(self) -> None:  # type: ignore[override]
        """The driver's commit, timed."""
        with self.timing_step("COMMIT"):
            await super(DriverConnection, self).commit()  # type: ignore[misc]

    async def rollback(self) -> None:  # type: ignore[override]
        """The driver's rollback, timed."""
        with self.timing_step("ROLLBACK"):
            await super(DriverConnection, self).rollback()  # type: ignore[misc]


def time_psycopg(recorder: CallRecorder, connection: Any, *, awaited: bool) -> None:
    """Give a psycopg 3 connection, just made, its timed classes."""
    own, cursor = (_PsycopgAsyncConnection, _PsycopgAsyncCursor) if awaited else (_PsycopgConnection, _PsycopgCursor)
    connection.__class__ = timed_class(own, type(connection), recorder)
    connection.cursor_factory = timed_class(cursor, connection.cursor_factory, recorder)
    connection.server_cursor_factory = timed_class(cursor, connection.server_cursor_factory, recorder)


def _offer(feed: PlanFeed, message: str | None) -> None:
    """Hand on a notice of the server's."""
    feed.offer(message or "")
