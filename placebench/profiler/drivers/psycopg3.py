"""Time inside psycopg 3, sync and async: its connections get timed classes once they are made.

psycopg 3 takes its cursor classes as attributes of the connection, and its connections are plain Python objects whose
class can be replaced. The main function is `time_psycopg`, called from the `connect` event: a class of the user is
subclassed, never replaced, and listeners of the application to `do_connect` work as before.
"""

import itertools
import marshal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import Any
from weakref import ref

from placebench.profiler.capture.auto_explain import DelayedPlanFeed
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
    TwoPhaseConnection,
    count_sets,
    has_no_sets,
    timed_class,
)

_END = object()
_TUPLES_OK = 2  # psycopg.pq.ExecStatus.TUPLES_OK
_IDLE, _ACTIVE = 0, 1  # of psycopg.pq.TransactionStatus


class _PsycopgCursor(NetworkCursor):
    """A cursor of psycopg 3, which sends BEGIN before a transaction, and an executemany through a pipeline."""

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
        """Keep the next query, which psycopg does not keep if it is prepared."""
        convert = self._convert_query

        def convert_and_keep(*args: Any) -> Any:
            self.placebench_query = convert(*args)
            return self.placebench_query

        self._convert_query = convert_and_keep

    def sent(self) -> bytes | None:
        """Return the text and the adapted values of the last query; None if it was not kept."""
        vars(self).pop("_convert_query", None)
        query = vars(self).pop("placebench_query", None)
        return None if query is None else marshal.dumps((query.query, tuple(query.params or ())), 2)

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        if self.placebench_recorder.current.get() is None:
            return super().execute(sql, *args, **kwargs)
        prepared = self._prepared()
        try:
            return super().execute(sql, *args, **kwargs)
        finally:
            self._add_prepared(prepared)
            self._await_results()

    def _await_results(self) -> None:
        """Note that a statement in a pipeline gets its result later, together with those of other statements."""
        pending = self.placebench_pending
        if self.connection.pgconn.pipeline_status and pending is not None:
            pending.round_trips = None
            if pending.total_rows is None:
                self.placebench_awaited.append(pending)

    def _check_results(self, results: list[Any]) -> None:
        """Give the rows or the error of several results, or of a pipeline, to their statement."""
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
        """The statements of a pipeline that have no results yet."""
        return deque()

    def _prepared(self) -> int:
        """Return the number of statements that psycopg has prepared by itself, as it does on their sixth execution."""
        return int(self.connection._prepared._prepared_idx)

    def _add_prepared(self, before: int) -> None:
        """Count a round trip for each new prepared statement, unless in a pipeline."""
        pending, new = self.placebench_pending, self._prepared() - before
        if new and pending is not None and not self.connection.pgconn.pipeline_status:
            pending.round_trips = (pending.round_trips or 0) + new

    def trips_of_execute(self) -> int:
        """Return the round trips of the statement, a server-side cursor's description and BEGIN; 0 in a pipeline."""
        connection = self.connection
        if connection.pgconn.pipeline_status:
            return 0
        begins = connection.pgconn.transaction_status == _IDLE and not connection.autocommit
        return 1 + begins + self.is_server_side()

    def trips_of_executemany(self, _parameters: Any) -> int | None:
        """Return 1: the sets are sent without waiting. None in a pipeline, where responses come together."""
        return None if self.connection.pgconn.pipeline_status else 1

    def stream(self, query: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Call the driver's stream and time it: the first row comes with the execution."""
        rows = super().stream(query, *args, **kwargs)  # type: ignore[misc]
        try:
            with self.timing(query, self.trips_of_execute(), *args):
                first = next(rows, _END)
            pending = self.placebench_pending
            if first is _END:
                _note_no_rows(pending)
            elif pending is None:
                yield first
                yield from rows
            else:
                pending.begin_stream()
                yield from self._timed_rows(itertools.chain((first,), rows), pending)
                pending.end_stream()
        finally:
            rows.close()

    def scroll(self, *args: Any, **kwargs: Any) -> Any:
        """Scroll: by a MOVE for a server-side cursor, which is timed, else among the rows that have come."""
        if self.is_server_side():
            with self.timing_fetch():
                return super().scroll(*args, **kwargs)  # type: ignore[misc]
        before = self.rownumber or 0
        super().scroll(*args, **kwargs)  # type: ignore[misc]
        self.rewind(before - (self.rownumber or 0))
        return None

    def trips_of_row(self, count: int) -> int:
        """Return 1 if the next row needs another page of a server-side cursor, which psycopg 3.3 reads page by page."""
        if not self.is_server_side() or not hasattr(self, "_page_pos"):
            return super().trips_of_row(count)
        page = self._iter_rows
        return int(page is None or self._page_pos >= len(page) >= self.itersize)

    def is_server_side(self) -> bool:
        return bool(getattr(self, "name", ""))

    @contextmanager
    def copy(self, statement: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Run a COPY of psycopg, and time it from its first to its last byte."""
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
        prepared = self._prepared()
        try:
            with self.timing(sql, self.trips_of_execute(), *args):
                return await super(TimedCursor, self).execute(sql, *args, **kwargs)  # type: ignore[misc]
        finally:
            self._add_prepared(prepared)
            self._await_results()
            self._count_rows()

    async def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's executemany and time it; without parameter sets it sends no statement."""
        if has_no_sets(parameters):
            self.placebench_pending = None
            return await super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        with self.timing(sql, self.trips_of_executemany(parameters), parameters, executions=count_sets(parameters)):
            result = await super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        self._count_rows()
        return result

    async def fetchone(self) -> Any:
        with self.timing_fetch() as fetch:
            return fetch.row(await super(TimedCursor, self).fetchone())  # type: ignore[misc]

    async def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        with self.timing_fetch() as fetch:
            return fetch.rows(await super(TimedCursor, self).fetchmany(*args, **kwargs))  # type: ignore[misc]

    async def fetchall(self) -> Any:
        with self.timing_fetch() as fetch:
            return fetch.rows(await super(TimedCursor, self).fetchall())  # type: ignore[misc]

    async def scroll(self, *args: Any, **kwargs: Any) -> None:
        """Scroll: by a MOVE for a server-side cursor, which is timed, else among the rows that have come."""
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
        return await self._timed_async_row(self.placebench__anext__)

    async def stream(self, query: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """Call the driver's stream and time it: the first row comes with the execution."""
        rows = super(_PsycopgCursor, self).stream(query, *args, **kwargs)  # type: ignore[misc]
        try:
            with self.timing(query, self.trips_of_execute(), *args):
                first = await anext(rows, _END)
            pending = self.placebench_pending
            if first is _END:
                _note_no_rows(pending)
                return
            if pending is not None:
                pending.add_rows(1)
                pending.iterated = 1
                pending.begin_stream()
            yield first
            with suppress(StopAsyncIteration):
                while True:
                    yield await self._timed_async_row(rows.__anext__)
            if pending is not None:
                pending.end_stream()
        finally:
            await rows.aclose()

    async def _timed_async_rows(self, rows: AsyncIterator[Any]) -> AsyncIterator[Any]:
        with suppress(StopAsyncIteration):
            while True:
                yield await self._timed_async_row(rows.__anext__)

    async def _timed_async_row(self, fetch: Callable[[], Awaitable[Any]]) -> Any:
        """Await *fetch* for the next row of an iteration, timed; raises StopAsyncIteration after the last row."""
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
        """Call the driver's close, and time it if it takes a round trip."""
        with self.timing_close():
            await super(NetworkCursor, self).close()  # type: ignore[misc]

    @asynccontextmanager
    async def copy(self, statement: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        """Run a COPY of psycopg, and time it from its first to its last byte."""
        with self.timing(statement, self.trips_of_copy(statement)):
            async with super(NetworkCursor, self).copy(statement, *args, **kwargs) as copy:  # type: ignore[misc]
                yield copy
        self._count_rows()


class _PsycopgConnection(TwoPhaseConnection[Any]):
    """The part that sync and async connections share: the state of the transaction, the socket and the plans."""

    fileno: Callable[[], int]
    pgconn: Any
    autocommit: bool
    _prepared: Any
    add_notice_handler: Callable[[Callable[[Any], None]], None]

    @cached_property
    def placebench_meter(self) -> SocketMeter | None:
        """The meter of this connection's bytes; None if they cannot be measured."""
        return socket_meter(self.fileno(), encrypted=bool(self.pgconn.ssl_in_use))

    @cached_property
    def placebench_plans(self) -> DelayedPlanFeed:
        """The feed of the plans in the server's notices."""
        connection = ref(self)
        feed = DelayedPlanFeed(lambda: (alive := connection()) is not None and alive.in_a_transaction())

        def offer(diagnostic: Any) -> None:
            feed.offer(diagnostic.message_primary or "")

        self.add_notice_handler(offer)
        return feed

    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Any:
        """Return a transaction block of psycopg, whose steps are timed."""
        block = super().transaction(savepoint_name, force_rollback)  # type: ignore[misc]
        return _TimedTransaction(self, block, savepoint_name, force_rollback)

    def in_a_transaction(self) -> bool:
        return bool(self.pgconn.transaction_status != _IDLE)

    def begins(self, sql: str) -> bool:  # noqa: ARG002  whatever it is
        """Return whether a statement will run in a transaction; one that is still in a pipeline has begun none."""
        return not self.autocommit or self.pgconn.transaction_status not in (_IDLE, _ACTIVE)

    def timing_step(self, step: str, trips: int | None = None) -> TimedCall:
        """Time a step; in a pipeline, where it waits for others' responses or for none, its round trips are unknown."""
        return super().timing_step(step, None if self.pgconn.pipeline_status else trips)

    def trips_of_step(self, step: str) -> int | None:
        """Return the round trips of a step: 0 outside a transaction, 2 if a ROLLBACK drops prepared statements."""
        if self.pgconn.pipeline_status:
            return None
        if not self.in_a_transaction():
            return 0
        return 2 if step == "ROLLBACK" and self._prepared._names else 1


class _TransactionSteps:
    """The steps of psycopg's `transaction()` block, which is a transaction, or a savepoint inside of one."""

    def __init__(self, connection: Any, block: Any, name: str | None, force_rollback: bool) -> None:
        self._connection = connection
        self._block = block
        self._is_named = bool(name)
        self._is_rolled_back = force_rollback
        self._is_outer = False

    def entering(self) -> Any:
        """Return the timed step that begins the block; BEGIN, and SAVEPOINT for a name, are a round trip each."""
        self._is_outer = not self._connection.in_a_transaction()
        step = "BEGIN" if self._is_outer else "SAVEPOINT"
        return self._connection.timing_step(step, 1 + (self._is_outer and self._is_named))

    def leaving(self, kind: type[BaseException] | None) -> Any:
        """Return the timed step that ends the block: COMMIT, RELEASE, ROLLBACK or ROLLBACK TO."""
        if kind is None and not self._is_rolled_back:
            return self._connection.timing_step("COMMIT" if self._is_outer else "RELEASE", 1)
        trips = (self._connection.trips_of_step("ROLLBACK") or 0) + (not self._is_outer)
        return self._connection.timing_step("ROLLBACK" if self._is_outer else "ROLLBACK TO", trips)


class _TimedTransaction(_TransactionSteps):
    """A timed `transaction()` block of a sync connection."""

    def __enter__(self) -> Any:
        with self.entering():
            return self._block.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        with self.leaving(kind):
            return self._block.__exit__(kind, error, traceback)


class _TimedAsyncTransaction(_TransactionSteps):
    """A timed `transaction()` block of an async connection."""

    async def __aenter__(self) -> Any:
        with self.entering():
            return await self._block.__aenter__()

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        with self.leaving(kind):
            return await self._block.__aexit__(kind, error, traceback)


class _PsycopgAsyncConnection(_PsycopgConnection):
    """A timed async connection, whose COMMIT and ROLLBACK are awaited."""

    def transaction(self, savepoint_name: str | None = None, force_rollback: bool = False) -> Any:
        """Return a transaction block of psycopg, whose steps are timed."""
        block = super(_PsycopgConnection, self).transaction(savepoint_name, force_rollback)  # type: ignore[misc]
        return _TimedAsyncTransaction(self, block, savepoint_name, force_rollback)

    async def commit(self) -> None:  # type: ignore[override]
        with self.timing_step("COMMIT"):
            await super(DriverConnection, self).commit()  # type: ignore[misc]

    async def rollback(self) -> None:  # type: ignore[override]
        with self.timing_step("ROLLBACK"):
            await super(DriverConnection, self).rollback()  # type: ignore[misc]

    async def tpc_begin(self, xid: Any) -> None:  # type: ignore[override]
        """Call the driver's tpc_begin, which sends BEGIN, and time it."""
        with self.timing_step("BEGIN", 1):
            await super(TwoPhaseConnection, self).tpc_begin(xid)  # type: ignore[misc]

    async def tpc_prepare(self) -> None:  # type: ignore[override]
        with self.timing_step("PREPARE", 1):
            await super(TwoPhaseConnection, self).tpc_prepare()  # type: ignore[misc]

    async def tpc_commit(self, *xid: Any) -> None:  # type: ignore[override]
        """Call the driver's tpc_commit and time it; with *xid* it commits a transaction of any session."""
        with self.timing_step("COMMIT PREPARED" if xid else "COMMIT", 1):
            await super(TwoPhaseConnection, self).tpc_commit(*xid)  # type: ignore[misc]

    async def tpc_rollback(self, *xid: Any) -> None:  # type: ignore[override]
        """Call the driver's tpc_rollback and time it; with *xid* it ends a prepared transaction of any session."""
        with self.timing_step("ROLLBACK PREPARED" if xid else "ROLLBACK", 1):
            await super(TwoPhaseConnection, self).tpc_rollback(*xid)  # type: ignore[misc]


def time_psycopg(recorder: CallRecorder, connection: Any, *, awaited: bool) -> None:
    """Give a new psycopg 3 connection its timed classes."""
    own, cursor = (_PsycopgAsyncConnection, _PsycopgAsyncCursor) if awaited else (_PsycopgConnection, _PsycopgCursor)
    connection.__class__ = timed_class(own, type(connection), recorder)
    connection.cursor_factory = timed_class(cursor, connection.cursor_factory, recorder)
    connection.server_cursor_factory = timed_class(cursor, connection.server_cursor_factory, recorder)


def patch_psycopg(recorder: CallRecorder, replace: Replace) -> None:
    """Have psycopg 3 make timed connections, sync and async."""
    import psycopg

    _time_direct_cursors()

    def time_connect(owner: Any) -> None:
        @replace(owner, "connect")
        def timed_connect(*args: Any, **kwargs: Any) -> Any:
            with recorder.connecting_step():
                connection = timed_connect.__wrapped__(*args, **kwargs)
            recorder.change(time_psycopg, connection, awaited=False)
            return connection

    @replace(psycopg.AsyncConnection, "connect")
    async def timed_connect_async(*args: Any, **kwargs: Any) -> Any:
        with recorder.connecting_step():
            connection = await timed_connect_async.__wrapped__(*args, **kwargs)
        recorder.change(time_psycopg, connection, awaited=True)
        return connection

    time_connect(psycopg.Connection)
    time_connect(psycopg)  # its function was bound to the class before that was changed


def patch_psycopg_pool(recorder: CallRecorder, replace: Replace) -> None:
    """Have the pools of psycopg 3 report how long the application waits for a connection.

    The pools' own workers, which connect for example, belong to no recording, and their statements are not
    counted as missed.
    """
    from psycopg_pool import AsyncConnectionPool, ConnectionPool, pool, pool_async

    @replace(ConnectionPool, "getconn")
    def timed_getconn(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.waiting_for_pool() as came:
            connection = timed_getconn.__wrapped__(self, *args, **kwargs)
            came(connection)
        return connection

    @replace(AsyncConnectionPool, "getconn")
    async def timed_getconn_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.waiting_for_pool() as came:
            connection = await timed_getconn_async.__wrapped__(self, *args, **kwargs)
            came(connection)
        return connection

    @replace(pool.MaintenanceTask, "run")
    def run_unrecorded(*args: Any, **kwargs: Any) -> Any:
        token = recorder.unprofiled.set(True)
        try:
            return run_unrecorded.__wrapped__(*args, **kwargs)
        finally:
            recorder.unprofiled.reset(token)

    @replace(pool_async.MaintenanceTask, "run")
    async def run_unrecorded_async(*args: Any, **kwargs: Any) -> Any:
        token = recorder.unprofiled.set(True)
        try:
            return await run_unrecorded_async.__wrapped__(*args, **kwargs)
        finally:
            recorder.unprofiled.reset(token)


def _time_direct_cursors() -> None:
    """Have the cursor classes of psycopg make timed cursors if the application calls them itself, as Django does.

    This is never undone, since a class whose `__new__` was deleted refuses arguments. Other connections stay untimed.
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
    """Note that a stream has ended before its first row."""
    if pending is not None:
        pending.fetched_rows = 0
