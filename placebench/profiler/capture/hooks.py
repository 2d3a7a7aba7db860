"""The profiler's listeners on SQLAlchemy events, and the wait for a pooled connection, which no event brackets."""

import functools
import gc
import logging
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.engine import Connection, Dialect, Engine, ExceptionContext, ExecutionContext
from sqlalchemy.pool import Pool, QueuePool

from placebench.profiler.capture.active_recording import Clock, Tape
from placebench.profiler.capture.auto_explain import arm, disarm, explained
from placebench.profiler.capture.idle_switch import rest_of
from placebench.profiler.capture.pending_statement import Draft, guarded
from placebench.profiler.capture.statement_info import dbapi_of, describe, of_compiled, of_text, raw_draft, unborn
from placebench.profiler.drivers import TimedCursor, WatchedConnection, physical, time_connection, use_timed_classes


class PoolWatch:
    """Times the queues of pools until it is removed.

    waited: called with (seconds, whether a connection came) after each get; must not raise.
    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float], waited: Callable[[float, bool], None]) -> None:
        self._clock = clock
        self._waited = waited
        self._queues: WeakSet[Any] = WeakSet()

    def watch(self, pool: Pool | None) -> None:
        """Time this pool's queue from now on, if it has one; again is harmless, and needed after `engine.dispose`."""
        if isinstance(pool, QueuePool) and pool._pool not in self._queues:
            queue = pool._pool
            self._queues.add(queue)
            # An attribute of the instance hides the class's method, and deleting it brings the method back.
            queue.get = self._timed(queue.get)  # type: ignore[method-assign]

    def remove(self) -> None:
        """The queues as they were."""
        for queue in self._queues:
            del queue.get
        self._queues.clear()

    def _timed(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """The queue's *get*, timed; a time-out that leaves no connection is told too."""

        def timed_get(block: bool = True, timeout: float | None = None) -> Any:
            started = self._clock()
            try:
                entry = get(block, timeout)
            except BaseException:
                self._waited(self._clock() - started, not block)
                raise
            self._waited(self._clock() - started, True)
            return entry

        return timed_get


_LOG = logging.getLogger("placebench.profiler")


def recording(hook: Callable[..., None]) -> Callable[..., None]:
    """*hook* as a listener: called with the running record's tape, not at all without one, and never raising."""

    @functools.wraps(hook)
    def listener(self: "Hooks", *args: Any) -> None:
        tape = self.current.get()
        if tape is None or self.failed:
            return
        try:
            hook(self, tape, *args)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.give_up(error)

    return listener


class Hooks:
    """Installed on one engine, or on all of them, until `remove`; without effect once one of them has failed.

    current: the tape of the record that runs in this thread or task.
    """

    def __init__(self, target: Engine | type[Engine], clock: Clock) -> None:
        self.current: ContextVar[Tape | None] = ContextVar("placebench_tape", default=None)
        self.timed_classes: dict[tuple[type, type], type] = {}
        self.installed = False
        self.failed = False
        self._target = target
        self._rest = rest_of(target)
        self._pools = PoolWatch(clock, self._waited)
        self._wait: ContextVar[float | None] = ContextVar("placebench_wait", default=None)
        self._connecting: ContextVar[Draft | None] = ContextVar("placebench_connecting", default=None)
        self._listeners: dict[str, Callable[..., Any]] = {
            "do_connect": self._do_connect,
            "connect": self._connect,
            "checkout": self._checkout,
            "checkin": self._checkin,
            "engine_connect": self._engine_connect,
            "engine_disposed": self._engine_disposed,
            "begin": self._begin,
            "before_execute": self._before_execute,
            "before_cursor_execute": self._before_cursor_execute,
            "after_cursor_execute": self._after_cursor_execute,
            "handle_error": self._handle_error,
            "commit": self._commit,
            "rollback": self._rollback,
        }

    def install(self) -> None:
        """Listen. Connections that are open already stay of the driver's own class: their fetches are not measured."""
        with self._rest.installing():
            for name, listener in self._listeners.items():
                event.listen(self._target, name, listener)
        gc.callbacks.append(self._collected)
        if isinstance(self._target, Engine):
            self._pools.watch(self._target.pool)
        self.installed = True

    def remove(self) -> None:
        """Stop listening; again is harmless. Open connections keep their timed class, which then only passes on."""
        if not self.installed:
            return
        self.installed = False
        for name, listener in self._listeners.items():
            event.remove(self._target, name, listener)
        gc.callbacks.remove(self._collected)
        self._pools.remove()

    def wake(self) -> None:
        """A record begins: SQLAlchemy is to call the statement hooks."""
        self._rest.wake()

    def rest(self) -> None:
        """A record has ended."""
        self._rest.rest()

    def give_up(self, error: Exception) -> None:
        """Record nothing more because of *error*, and say so once in the log.

        The listeners stay where they are: SQLAlchemy may be walking through them at this moment.
        """
        if not self.failed:
            self.failed = True
            _LOG.warning("the SQL profiler failed and has switched itself off: %r", error, exc_info=error)

    def _tape(self) -> Tape | None:
        """The tape to write on; None if nothing is being recorded."""
        return None if self.failed else self.current.get()

    # What the timed cursors and connections ask for.

    @guarded
    def driver_call(self, cursor: TimedCursor, sql: object) -> Draft | None:
        """The draft of an execute: SQLAlchemy's own, or a new one for a cursor that the application uses by itself."""
        draft = cursor.placebench_draft
        if draft is not None and draft.running:
            draft.hand_over()
            return draft
        tape = self._tape()
        # What runs while connecting is part of the CONNECT.
        if tape is None or self._connecting.get() is not None:
            cursor.placebench_draft = None
        else:
            # Between the pool's queue and its checkout event only the pool's own test of a connection runs.
            cursor.placebench_draft = raw_draft(tape, cursor, sql, checking_out=self._wait.get() is not None)
        return cursor.placebench_draft

    @guarded
    def driver_step(self, connection: WatchedConnection, step: str) -> Draft | None:
        """A new draft of a step; None for the pool's rollback of what is not open, and in a CONNECT."""
        tape = self._tape()
        if tape is None or self._connecting.get() is not None:
            return None
        if step != "PING" and tape.flow(connection).transaction is None and not connection.in_a_transaction():
            return None
        draft = tape.draft(connection, step, step)
        draft.flow.transaction = None
        return draft

    # The pool's and the connection's life.

    @guarded
    def _do_connect(
        self, dialect: Dialect, record: object, _arguments: object, keywords: MutableMapping[str, Any]
    ) -> None:
        # engine_connect, which knows the pool, does not fire while the hooks rest.
        self._pools.watch(getattr(record, "_ConnectionRecord__pool", None))
        use_timed_classes(self, dialect.driver, keywords)
        tape = self._tape()
        if tape is not None:
            self._connecting.set(tape.draft(None, "CONNECT", "CONNECT"))

    @guarded
    def _connect(self, dbapi_connection: object, _record: object) -> None:
        time_connection(self, dbapi_connection)

    @guarded
    def _checkin(self, dbapi_connection: object, _record: object) -> None:
        connection = physical(dbapi_connection)
        if not isinstance(connection, WatchedConnection):
            return
        feed = getattr(connection, "__dict__", {}).get("placebench_plans")  # asking for it would make it
        if feed is not None and feed.armed and not connection.in_a_transaction():
            with self._unwatched():
                disarm(feed, dbapi_connection)

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Around statements of the profiler's own."""
        watched = self.current.get()
        self.current.set(None)
        try:
            yield
        finally:
            self.current.set(watched)

    def _ask_for_plans(self, tape: Tape, dbapi_connection: object) -> None:
        """Have this connection send its plans to *tape*, or note there why it does not."""
        flow = tape.flow(dbapi_connection)
        if flow.feed is not None and flow.feed.armed:
            return
        connection = physical(dbapi_connection)
        feed = connection.placebench_plans if isinstance(connection, WatchedConnection) else None
        if not isinstance(connection, WatchedConnection) or feed is None:
            tape.note(
                "no plans: only PostgreSQL by psycopg2 or psycopg 3 sends them, on connections made after SqlProfiler"
            )
        elif feed.refusal is None and not feed.armed and connection.in_a_transaction():
            tape.note("no plans for a transaction that had begun before the recording")
        else:
            started = tape.clock()
            if not feed.armed and feed.refusal is None:
                with self._unwatched():
                    arm(feed, dbapi_connection)
            if feed.refusal is None:
                flow.feed, flow.quiet = feed, False
            else:
                tape.note(feed.refusal)
            flow.postpone(tape.clock() - started)

    def _explain(self, draft: Draft, dbapi_connection: object, statement: str, parameters: object) -> None:
        """Ask for the estimated plan of a statement that has just run."""
        connection = physical(dbapi_connection)
        if isinstance(connection, WatchedConnection) and connection.placebench_plans is not None:
            with self._unwatched():
                draft.plan_text = explained(dbapi_connection, statement, parameters)

    @recording
    def _checkout(self, tape: Tape, dbapi_connection: object, _record: object, _proxy: object) -> None:
        connecting, wait_s = self._connecting.get(), self._wait.get()
        if connecting is not None:
            connecting.leave_execute(None)
            self._connecting.set(None)
        if wait_s is not None:
            flow = tape.flow(dbapi_connection)
            flow.pool_wait_s = wait_s
            flow.measured_s += wait_s
            self._wait.set(None)

    @guarded
    def _engine_connect(self, connection: Connection) -> None:
        self._pools.watch(connection.engine.pool)

    @guarded
    def _engine_disposed(self, engine: Engine) -> None:
        self._pools.watch(engine.pool)

    @recording
    def _waited(self, tape: Tape, seconds: float, came: bool) -> None:
        if came:
            self._wait.set((self._wait.get() or 0.0) + seconds)
            return
        draft = tape.draft(None, "POOL TIMEOUT", "POOL TIMEOUT")
        draft.started -= seconds
        draft.entered = draft.started
        draft.leave_execute(None)

    # Transactions.

    @recording
    def _begin(self, tape: Tape, connection: Connection) -> None:
        dbapi_connection = dbapi_of(connection)
        flow = tape.flow(dbapi_connection)
        if getattr(dbapi_connection, "autocommit", False) is True:
            flow.transaction = None
            return
        tape.begun += 1
        flow.transaction = tape.begun
        tape.draft(dbapi_connection, "BEGIN", "BEGIN")

    def _commit(self, connection: Connection) -> None:
        self._ended(connection, "COMMIT")

    def _rollback(self, connection: Connection) -> None:
        self._ended(connection, "ROLLBACK")

    @recording
    def _ended(self, tape: Tape, connection: Connection, step: str) -> None:
        """The event comes before the driver's call and nothing comes after it: only a timed connection can time it."""
        dbapi_connection = dbapi_of(connection)
        if dbapi_connection is not None and not isinstance(physical(dbapi_connection), WatchedConnection):
            tape.draft(dbapi_connection, step, step).flow.transaction = None

    # Statements.

    # These three run for every statement: the guard is written out in them, which saves a call each.

    def _before_execute(self, connection: Connection, *_statement: object) -> None:
        tape = self.current.get()
        if tape is None or self.failed:
            return
        try:
            # The attribute behind `Connection.connection`, which connects anew where there is none.
            fairy = connection._dbapi_connection
            if fairy is not None:
                flow = tape.flow(fairy.dbapi_connection)
                flow.compiling.append((tape.clock(), flow.measured_s))
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.give_up(error)

    def _before_cursor_execute(
        self,
        connection: Connection,
        cursor: object,
        statement: str,
        parameters: object,
        context: ExecutionContext,
        _executemany: bool,
    ) -> None:
        tape = self.current.get()
        if tape is None or self.failed:
            return
        try:
            dbapi_connection = connection.connection.dbapi_connection
            if tape.options.mode == "plans":
                self._ask_for_plans(tape, dbapi_connection)
            compiled = context.compiled
            known = of_text(statement) if compiled is None else of_compiled(compiled, statement)
            draft = tape.draft(dbapi_connection, statement, known.step)
            describe(draft, known, context, statement, parameters)
            tape.running[id(context)] = draft
            timed = cursor if isinstance(cursor, TimedCursor) else getattr(cursor, "_cursor", None)
            if isinstance(timed, TimedCursor):
                timed.placebench_draft = draft
            else:
                draft.hand_over()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.give_up(error)

    def _after_cursor_execute(
        self,
        connection: Connection,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: ExecutionContext,
        executemany: bool,
    ) -> None:
        tape = self.current.get()
        if tape is None or self.failed:
            return
        try:
            draft = tape.running.pop(id(context), None)
            if draft is None:
                return
            if draft.execute_s is None:
                draft.leave_execute(None)
            draft.running = False
            draft.count(cursor.rowcount)
            if tape.options.explain and draft.flow.feed is None and draft.step is None:
                first = parameters[0] if executemany and isinstance(parameters, list) else parameters
                self._explain(draft, connection.connection.dbapi_connection, statement, first)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.give_up(error)

    @recording
    def _handle_error(self, tape: Tape, failure: ExceptionContext) -> None:
        error, context = failure.original_exception, failure.execution_context
        if failure.connection is None:
            self._connect_failed(error)
        elif context is None:
            # A COMMIT that fails has no statement; its own step has noted the error.
            if failure.statement is not None:
                unborn(tape, failure.connection, failure.statement).failed(error)
        elif (draft := tape.running.pop(id(context), None)) is not None:
            if draft.execute_s is None:
                draft.leave_execute(None)
            draft.running = False
            draft.failed(error)
        # Else it is the error of a fetch, which its cursor has noted, or of a statement older than the record.

    def _connect_failed(self, error: BaseException) -> None:
        """The connection that is being made will not come."""
        connecting = self._connecting.get()
        if connecting is not None:
            connecting.leave_execute(None)
            connecting.failed(error)
            self._connecting.set(None)

    # The garbage collector.

    @recording
    def _collected(self, tape: Tape, phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            tape.gc_started = tape.clock()
        elif tape.gc_started is not None:
            now = tape.clock()
            tape.gc_s += now - tape.gc_started
            tape.gc_collections += 1
            tape.leaf(tape.gc_started, now, f"garbage collection, generation {details['generation']}", "gc")
            tape.gc_started = None
