"""Time inside psycopg 3, sync and async: its connections are given timed classes once they are made.

psycopg 3 takes its cursor classes as attributes of the connection, and its connections are plain Python objects whose
class can be replaced. The main function is `time_psycopg`, called from the `connect` event: a class that the user chose
is subclassed, never replaced, and whatever the application does in `do_connect` stays its own.
"""

import functools
import itertools
import marshal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import Any
from weakref import ref

from placebench.profiler.capture.auto_explain import DelayedPlanFeed, PlanFeed
from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.timed_cursor import (
    CallRecorder,
    DriverConnection,
    NetworkCursor,
    Replace,
    TimedCall,
    TimedConnection,
    TimedCursor,
    count_sets,
    has_no_sets,
    timed_class,
)

_END = object()
_TUPLES_OK = 2  # psycopg.pq.ExecStatus.TUPLES_OK
_IDLE = 0  # psycopg.pq.TransactionStatus.IDLE


class _PsycopgCursor(NetworkCursor):
    """psycopg 3 sends a BEGIN of its own before a transaction, and an executemany through a pipeline."""

    placebench_dialect = "postgresql"

    connection: Any
    name: str
    itersize: int
    rownumber: int | None
    _convert_query: Callable[..., Any]
    _iter_rows: list[Any] | None
    _page_pos: int
    placebench_query: Any

    def will_be_asked(self) -> None:
        """Keep the next query, which psycopg itself does not keep where the server has it prepared."""
        convert = self._convert_query

        def convert_and_keep(*args: Any) -> Any:
            self.placebench_query = convert(*args)
            return self.placebench_query

        self._convert_query = convert_and_keep

    def sent(self) -> bytes | None:
        """The text, and the values as they were adapted."""
        vars(self).pop("_convert_query", None)
        query = vars(self).pop("placebench_query", None)
        return None if query is None else marshal.dumps((query.query, tuple(query.params or ())), 2)

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed."""
        if self.placebench_recorder.current.get() is None:
            return super().execute(sql, *args, **kwargs)
        prepared = self._prepared()
        try:
            return super().execute(sql, *args, **kwargs)
        finally:
            self._add_prepared(prepared)
            self._await_results()

    def _await_results(self) -> None:
        """In a pipeline its result, or its error, comes later, and whoever waits for it gets those of others too."""
        pending = self.placebench_pending
        if self.connection.pgconn.pipeline_status and pending is not None:
            pending.round_trips = None
            if pending.total_rows is None:
                self.placebench_awaited.append(pending)

    def _check_results(self, results: list[Any]) -> None:
        """Give the rows, or the error, of several results or of a pipeline to the statement that they are of."""
        pipelined = bool(self.connection.pgconn.pipeline_status)
        if len(results) == 1 and not pipelined:
            super()._check_results(results)  # type: ignore[misc]
            return
        pending = self.placebench_awaited.popleft() if self.placebench_awaited else self.placebench_pending
        try:
            super()._check_results(results)  # type: ignore[misc]
        except Exception as error:
            if pending is not None and pipelined:
                error.placebench_statement = pending  # type: ignore[attr-defined]
                pending.set_error(error)
            raise
        if pending is not None:
            counts = (each.ntuples if each.status == _TUPLES_OK else each.command_tuples or 0 for each in results)
            pending.add_results(sum(counts))

    @cached_property
    def placebench_awaited(self) -> deque[PendingStatement]:
        """The statements of a pipeline whose results have not come yet."""
        return deque()

    def _prepared(self) -> int:
        """Statements that psycopg has prepared by itself, on their sixth execution: only its own counter shows that."""
        return int(self.connection._prepared._prepared_idx)

    def _add_prepared(self, before: int) -> None:
        """To prepare a statement is a round trip of its own, unless in a pipeline."""
        pending, new = self.placebench_pending, self._prepared() - before
        if new and pending is not None and not self.connection.pgconn.pipeline_status:
            pending.round_trips = (pending.round_trips or 0) + new

    def trips_of_execute(self) -> int:
        """The statement, what a server-side cursor is described by, and BEGIN; in a pipeline the execute waits not."""
        connection = self.connection
        if connection.pgconn.pipeline_status:
            return 0
        begins = connection.pgconn.transaction_status == _IDLE and not connection.autocommit
        return 1 + begins + self.is_server_side()

    def trips_of_executemany(self, _parameters: Any) -> int | None:
        """They are sent without waiting; the responses come together, in a pipeline with those of others."""
        return None if self.connection.pgconn.pipeline_status else 1

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """The driver's stream, timed: the first row comes with the execution."""
        rows = super().stream(query, *args, **kwargs)  # type: ignore[misc]
        with self.timing(query, self.trips_of_execute(), *args):
            first = next(rows, _END)
        pending = self.placebench_pending
        if first is _END:
            _note_no_rows(pending)
            return
        rows = itertools.chain((first,), rows)
        yield from rows if pending is None else self._timed_rows(rows, pending)

    def scroll(self, *args: Any, **kwargs: Any) -> Any:
        """The driver's scroll: a MOVE on a server, or among the rows that have come."""
        if self.is_server_side():
            with self.timing_fetch():
                return super().scroll(*args, **kwargs)  # type: ignore[misc]
        before = self.rownumber or 0
        super().scroll(*args, **kwargs)  # type: ignore[misc]
        self.rewind(before - (self.rownumber or 0))
        return None

    def trips_of_row(self, count: int) -> int:
        """A server-side cursor asks for a page, which psycopg 3.3 keeps, when it has none or a full one is read."""
        if not self.is_server_side() or not hasattr(self, "_page_pos"):
            return super().trips_of_row(count)
        page = self._iter_rows
        return int(page is None or self._page_pos >= len(page) >= self.itersize)

    def is_server_side(self) -> bool:
        """Whether this is a server-side cursor."""
        return bool(getattr(self, "name", ""))

    @contextmanager
    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """A COPY of psycopg's, from its first to its last byte."""
        with self.timing(statement, self.trips_of_copy(statement)), super().copy(statement, *args, **kwargs) as copy:  # type: ignore[misc]
            yield copy
        self._count_rows()

    def _count_rows(self) -> None:
        if self.placebench_pending is not None:
            self.placebench_pending.set_row_count(self.rowcount)


class _PsycopgAsyncCursor(_PsycopgCursor):
    """A client-side or server-side cursor of an async connection: each of its calls is awaited."""

    placebench__anext__: Callable[[], Awaitable[Any]]

    async def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed."""
        prepared = self._prepared()
        try:
            with self.timing(sql, self.trips_of_execute(), *args):
                return await super(TimedCursor, self).execute(sql, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._add_prepared(prepared)
            self._await_results()
            self._count_rows()

    async def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's executemany, timed; without a set of parameters it sends no statement."""
        if has_no_sets(parameters):
            self.placebench_pending = None
            return await super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        with self.timing(sql, self.trips_of_executemany(parameters), parameters, executions=count_sets(parameters)):
            result = await super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        self._count_rows()
        return result

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

    async def scroll(self, *args: Any, **kwargs: Any) -> None:
        """The driver's scroll: a MOVE on a server, or among the rows that have come."""
        if self.is_server_side():
            with self.timing_fetch():
                await super(_PsycopgCursor, self).scroll(*args, **kwargs)  # type: ignore[misc]
            return
        before = self.rownumber or 0
        await super(_PsycopgCursor, self).scroll(*args, **kwargs)  # type: ignore[misc]
        self.rewind(before - (self.rownumber or 0))

    def __aiter__(self) -> AsyncIterator[Any]:
        rows: AsyncIterator[Any] = super(TimedCursor, self).__aiter__()  # type: ignore[misc]
        return rows if hasattr(self, "__anext__") else self._timed_async_rows(rows)

    async def placebench_timed__anext__(self) -> Any:
        """The driver's `__anext__`, timed."""
        return await self._timed_async_row(self.placebench__anext__)

    async def stream(self, query: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """The driver's stream, timed: the first row comes with the execution."""
        rows = super(_PsycopgCursor, self).stream(query, *args, **kwargs)  # type: ignore[misc]
        with self.timing(query, self.trips_of_execute(), *args):
            first = await anext(rows, _END)
        if first is _END:
            _note_no_rows(self.placebench_pending)
            return
        if self.placebench_pending is not None:
            self.placebench_pending.fetched_rows = self.placebench_pending.iterated = 1
        yield first
        async for row in self._timed_async_rows(rows):
            yield row

    async def _timed_async_rows(self, rows: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same *rows*, each of them a fetch."""
        with suppress(StopAsyncIteration):
            while True:
                yield await self._timed_async_row(rows.__anext__)

    async def _timed_async_row(self, fetch: Callable[[], Awaitable[Any]]) -> Any:
        """The next row of an iteration, which *fetch* gets; raises StopAsyncIteration after the last one."""
        pending = self.placebench_pending
        if pending is None:
            return await fetch()
        trips, rows = self.trips_of_row(pending.iterated), list[Any]()
        pending.iterated += 1
        pending.driver_called()
        try:
            rows.append(await fetch())
        except StopAsyncIteration:
            raise
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.fetch_returned(rows, trips)
        return rows[0]

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
        self._count_rows()


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

    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Any:
        """Return a transaction block of psycopg, whose steps are timed."""
        block = super().transaction(savepoint_name, force_rollback)  # type: ignore[misc]
        return _TimedTransaction(self, block, savepoint_name, force_rollback)

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return bool(self.pgconn.transaction_status != _IDLE)

    def timing_step(self, step: str, trips: int | None = None) -> TimedCall:
        """Around a step; in a pipeline it waits for others' responses, or for none."""
        return super().timing_step(step, None if self.pgconn.pipeline_status else trips)

    def trips_of_step(self, step: str) -> int | None:
        """COMMIT and ROLLBACK are sent only if a transaction is open; after a rollback psycopg prepares anew."""
        if self.pgconn.pipeline_status:
            return None
        if not self.in_a_transaction():
            return 0
        return 2 if step == "ROLLBACK" and self._prepared._names else 1


class _TransactionSteps:
    """The steps of psycopg's `transaction()` block: the ends of a savepoint within a transaction, or of one itself."""

    def __init__(self, connection: Any, block: Any, name: str | None, force_rollback: bool) -> None:
        self._connection = connection
        self._block = block
        self._is_named = bool(name)
        self._is_rolled_back = force_rollback
        self._is_outer = False

    def entering(self) -> Any:
        """Around the block's own beginning; BEGIN, and SAVEPOINT if it has a name, are a round trip each."""
        self._is_outer = not self._connection.in_a_transaction()
        step = "BEGIN" if self._is_outer else "SAVEPOINT"
        return self._connection.timing_step(step, 1 + (self._is_outer and self._is_named))

    def leaving(self, kind: type[BaseException] | None) -> Any:
        """Around the block's own end."""
        if kind is None and not self._is_rolled_back:
            return self._connection.timing_step("COMMIT" if self._is_outer else "RELEASE", 1)
        trips = (self._connection.trips_of_step("ROLLBACK") or 0) + (not self._is_outer)
        return self._connection.timing_step("ROLLBACK" if self._is_outer else "ROLLBACK TO", trips)


class _TimedTransaction(_TransactionSteps):
    """A block of a sync connection."""

    def __enter__(self) -> Any:
        with self.entering():
            return self._block.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        with self.leaving(kind):
            return self._block.__exit__(kind, error, traceback)


class _TimedAsyncTransaction(_TransactionSteps):
    """A block of an async connection."""

    async def __aenter__(self) -> Any:
        with self.entering():
            return await self._block.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        with self.leaving(kind):
            return await self._block.__aexit__(kind, error, traceback)


class _PsycopgAsyncConnection(_PsycopgConnection):
    """A connection whose COMMIT and ROLLBACK are awaited."""

    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Any:
        """Return a transaction block of psycopg, whose steps are timed."""
        block = super(_PsycopgConnection, self).transaction(savepoint_name, force_rollback)  # type: ignore[misc]
        return _TimedAsyncTransaction(self, block, savepoint_name, force_rollback)

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


def patch_psycopg(recorder: CallRecorder, replace: Replace) -> None:
    """Have psycopg 3 make timed connections, sync and async."""
    import psycopg

    def time_connect(connect: Any) -> Any:
        @functools.wraps(connect)
        def timed_connect(*args: Any, **kwargs: Any) -> Any:
            with recorder.connecting_step():
                connection = timed_connect.__wrapped__(*args, **kwargs)
            recorder.change(time_psycopg, connection, awaited=False)
            return connection

        return timed_connect

    def time_connect_async(connect: Any) -> Any:
        @functools.wraps(connect)
        async def timed_connect(*args: Any, **kwargs: Any) -> Any:
            with recorder.connecting_step():
                connection = await timed_connect.__wrapped__(*args, **kwargs)
            recorder.change(time_psycopg, connection, awaited=True)
            return connection

        return timed_connect

    _time_direct_cursors()
    replace(psycopg.Connection, "connect", time_connect)
    replace(psycopg.AsyncConnection, "connect", time_connect_async)
    replace(psycopg, "connect", time_connect)  # bound to the class before it was changed


def patch_psycopg_pool(recorder: CallRecorder, replace: Replace) -> None:
    """Have the pools of psycopg 3 report how long they let the application wait for a connection.

    What the pools do in workers of their own, such as connecting, belongs to nobody's recording: none has missed it.
    """
    from psycopg_pool import AsyncConnectionPool, ConnectionPool, pool, pool_async

    def time_getconn(getconn: Any) -> Any:
        @functools.wraps(getconn)
        def timed_getconn(self: Any, *args: Any, **kwargs: Any) -> Any:
            with recorder.waiting_for_pool() as came:
                connection = timed_getconn.__wrapped__(self, *args, **kwargs)
                came(connection)
            return connection

        return timed_getconn

    def time_getconn_async(getconn: Any) -> Any:
        @functools.wraps(getconn)
        async def timed_getconn(self: Any, *args: Any, **kwargs: Any) -> Any:
            with recorder.waiting_for_pool() as came:
                connection = await timed_getconn.__wrapped__(self, *args, **kwargs)
                came(connection)
            return connection

        return timed_getconn

    def leave_unrecorded(run: Any) -> Any:
        @functools.wraps(run)
        def run_unrecorded(*args: Any, **kwargs: Any) -> Any:
            token = recorder.unprofiled.set(True)
            try:
                return run_unrecorded.__wrapped__(*args, **kwargs)
            finally:
                recorder.unprofiled.reset(token)

        return run_unrecorded

    def leave_unrecorded_async(run: Any) -> Any:
        @functools.wraps(run)
        async def run_unrecorded(*args: Any, **kwargs: Any) -> Any:
            token = recorder.unprofiled.set(True)
            try:
                return await run_unrecorded.__wrapped__(*args, **kwargs)
            finally:
                recorder.unprofiled.reset(token)

        return run_unrecorded

    replace(ConnectionPool, "getconn", time_getconn)
    replace(AsyncConnectionPool, "getconn", time_getconn_async)
    replace(pool.MaintenanceTask, "run", leave_unrecorded)
    replace(pool_async.MaintenanceTask, "run", leave_unrecorded_async)


def _time_direct_cursors() -> None:
    """Have cursor classes that are called by the application itself, as by Django, make timed cursors.

    Stays for good, and passes on for other connections: a class whose `__new__` was deleted refuses arguments.
    """
    from psycopg import AsyncConnection
    from psycopg._cursor_base import BaseCursor

    def new(cls: Any, connection: Any, *_args: Any, **_kwargs: Any) -> Any:
        if isinstance(connection, TimedConnection) and not issubclass(cls, TimedCursor):
            mixin = _PsycopgAsyncCursor if isinstance(connection, AsyncConnection) else _PsycopgCursor
            cls = timed_class(mixin, cls, connection.placebench_recorder)
        return object.__new__(cls)

    if "__new__" not in vars(BaseCursor):
        BaseCursor.__new__ = new


def _note_no_rows(pending: PendingStatement | None) -> None:
    """A stream has ended before its first row."""
    if pending is not None:
        pending.fetched_rows = 0


def _offer(feed: PlanFeed, message: str | None) -> None:
    """Hand on a notice of the server's."""
    feed.offer(message or "")
