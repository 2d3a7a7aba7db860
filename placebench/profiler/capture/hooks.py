"""The profiler's listeners on SQLAlchemy's events: `Hooks`, installed on one engine or on all of them.

Statements come from `before_cursor_execute`; their times in the driver from the timed cursors that `do_connect` and
`connect` hand to the driver, because SQLAlchemy has no event for a fetch, nor for the end of a COMMIT.
"""

import gc
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Column, Table, event
from sqlalchemy.engine import Connection, Dialect, Engine, ExceptionContext, ExecutionContext, interfaces
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.pool import Pool

from placebench.profiler.capture.active_recording import ActiveRecording, PendingCheckout
from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.capture.driver_hooks import DriverPatches, adopt_connection, use_timed_classes
from placebench.profiler.capture.driver_recorder import LONGEST_PARAMETERS, DriverRecorder, locate, while_recording
from placebench.profiler.capture.engine import (
    FlatListener,
    PoolRequest,
    PoolTimer,
    flatten_listeners,
    idle_switch_of,
    raw_connection,
)
from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.pending_statement import NO_COUNT, KeyColumn, PendingStatement, guarded
from placebench.profiler.capture.stack import find_callers
from placebench.profiler.capture.statement_comments import current_comment
from placebench.profiler.drivers.base import TimedConnection, TimedCursor
from placebench.profiler.model.fingerprint import fingerprint, statement_kind, transaction_step, written_table
from placebench.profiler.model.statement import DatabaseAddress

# What SQLAlchemy 2.0 or a late patch release of 1.4 has under another name, or not at all, in 1.4.0.
_CACHE_HIT: Any = DefaultDialect.CACHE_HIT
_INSERTMANYVALUES: Any = getattr(getattr(interfaces, "ExecuteStyle", None), "INSERTMANYVALUES", "not before 2.0")


class Hooks(DriverRecorder):
    """Installed on one engine, or on all of them and on the drivers, until `remove`."""

    def __init__(self, target: Engine | type[Engine], clock: Clock, *, whole_process: bool = False) -> None:
        super().__init__(whole_process=whole_process)
        self.installed: bool = False
        self._is_commenting = False
        self.patches: DriverPatches | None = None if isinstance(target, Engine) else DriverPatches(self)
        self._target = target
        self._idle_switch = idle_switch_of(target)
        self._pools = PoolTimer(clock, self._waited)
        self._databases: WeakKeyDictionary[Pool, DatabaseAddress | None] = WeakKeyDictionary()
        self._checkouts: WeakKeyDictionary[Any, PendingCheckout] = WeakKeyDictionary()  # by the pool's record of it
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

    @property
    def sources(self) -> str:
        """What statements are looked for."""
        return "one engine of SQLAlchemy" if self.patches is None else f"SQLAlchemy and {self.patches}"

    def install(self) -> None:
        """Listen. Connections that are open already stay of the driver's own class: their fetches are not measured."""
        with self._idle_switch.installing():
            for name, listener in self._listeners.items():
                # What returns nothing SQLAlchemy wraps into one more function, which every statement would call.
                returns = {"retval": True} if name in ("before_execute", "before_cursor_execute") else {}
                event.listen(self._target, name, listener, **returns)
        gc.callbacks.append(self.garbage_collected)
        if isinstance(self._target, Engine):
            self._pools.time(self._target.pool)
        if self.patches is not None:
            self.patches.install()
        self.installed = True

    def comment_statements(self) -> None:
        """Put the comment of what runs behind each statement, recorded or not; again is harmless.

        By events of the dialect: a listener of the engine's would wake our other ones, which cost 6 µs per statement.
        """
        if self._is_commenting:
            return
        self._is_commenting = True
        for name, listener in _COMMENTING.items():
            event.listen(self._target, name, listener)

    def remove(self) -> None:
        """Stop listening; again is harmless. Open connections keep their timed class, which then only passes on."""
        if not self.installed:
            return
        self.installed = False
        if self._is_commenting:
            self._is_commenting = False
            for name, listener in _COMMENTING.items():
                if event.contains(self._target, name, listener):  # another profiler of the same may have ended
                    event.remove(self._target, name, listener)
        for name, listener in self._listeners.items():
            event.remove(self._target, name, listener)
        gc.callbacks.remove(self.garbage_collected)
        self._pools.remove()
        if self.patches is not None:
            self.patches.remove()

    def recording_started(self, recording: ActiveRecording) -> None:
        """SQLAlchemy is to call the statement hooks."""
        super().recording_started(recording)
        self._idle_switch.recording_started()

    def recording_ended(self, recording: ActiveRecording) -> None:
        """It need not call them any more, unless another recording runs."""
        super().recording_ended(recording)
        self._idle_switch.recording_ended()

    # The pool's and the connection's life.

    @guarded
    def _do_connect(
        self, dialect: Dialect, record: object, _arguments: object, keywords: MutableMapping[str, Any]
    ) -> None:
        # engine_connect, which knows the pool, does not fire while nothing is recorded.
        self._pools.time(getattr(record, "_ConnectionRecord__pool", None))
        use_timed_classes(self, dialect.driver, keywords)
        recording = self.active_recording()
        if recording is not None:
            self.connecting.set(recording.start_statement(None, "CONNECT", "CONNECT"))

    @guarded
    def _connect(self, dbapi_connection: object, _record: object) -> None:
        adopt_connection(self, dbapi_connection)

    @guarded
    def _checkin(self, dbapi_connection: object, record: Any) -> None:
        if (checkout := self._checkouts.pop(record, None)) is not None:
            checkout.end()
        self.stop_plans(dbapi_connection)

    @while_recording
    def _checkout(self, recording: ActiveRecording, dbapi_connection: object, record: Any, proxy: Any) -> None:
        connecting, request = self.connecting.get(), self.pool_request.get()
        if connecting is not None:
            connecting.leave_execute(None)
            self.connecting.set(None)
        state = recording.connection_state(dbapi_connection)
        if connecting is not None:
            connecting.connection = state
        requested, pending = None if connecting is None else connecting.started, 0
        if request is not None:
            requested, pending = request.started, request.pending
            state.pool_wait_s = request.seconds
            state.measured_s += request.seconds
            self.pool_request.set(None)
        checkout = recording.start_checkout(requested, pending, proxy._pool)
        checkout.database = self._databases[proxy._pool] = state.database
        checkout.create_s = None if connecting is None else connecting.execute_s
        self._checkouts[record] = checkout

    @guarded
    def _engine_connect(self, connection: Connection, *_branch: object) -> None:  # a second argument in 1.4
        self._pools.time(connection.engine.pool)

    @guarded
    def _engine_disposed(self, engine: Engine) -> None:
        self._pools.time(engine.pool)

    @while_recording
    def _waited(self, recording: ActiveRecording, request: PoolRequest) -> None:
        if request.came:
            earlier: PoolRequest | None = self.pool_request.get()
            if earlier is not None:  # a get that led to a connection which was not made after all
                request = request._replace(started=earlier.started, seconds=earlier.seconds + request.seconds)
            self.pool_request.set(request)
            return
        pending = recording.start_statement(None, "POOL TIMEOUT", "POOL TIMEOUT")
        pending.started -= request.seconds
        pending.entered = pending.started
        pending.leave_execute(None)
        pool = request.pool()
        checkout = recording.start_checkout(request.started, request.pending, pool)
        checkout.database = None if pool is None else self._databases.get(pool)
        checkout.timed_out = True

    # Transactions.

    @while_recording
    def _begin(self, recording: ActiveRecording, connection: Connection) -> None:
        dbapi_connection = _dbapi_connection(connection)
        state = recording.connection_state(dbapi_connection)
        if getattr(dbapi_connection, "autocommit", False) is True:
            state.transaction = None
            return
        recording.transaction_count += 1
        state.transaction = recording.transaction_count
        recording.start_statement(dbapi_connection, "BEGIN", "BEGIN")

    def _commit(self, connection: Connection) -> None:
        self._ended(connection, "COMMIT")

    def _rollback(self, connection: Connection) -> None:
        self._ended(connection, "ROLLBACK")

    @while_recording
    def _ended(self, recording: ActiveRecording, connection: Connection, step: str) -> None:
        """The event comes before the driver's call and nothing comes after it: only a timed connection can time it."""
        dbapi_connection = _dbapi_connection(connection)
        if dbapi_connection is not None and not isinstance(driver_connection(dbapi_connection), TimedConnection):
            recording.start_statement(dbapi_connection, step, step).connection.transaction = None

    # Statements.

    # These three run for every statement, and a call costs as much as what it does: the guard, and what most statements
    # need, is written out in them.

    def _before_execute(
        self, connection: Connection, statement: Any, sets: Any, parameters: Any, _options: object
    ) -> tuple[Any, Any, Any]:
        recording = self.current.get()
        if recording is not None and not recording.ended:
            try:
                if type(connection.dispatch.before_execute) is not FlatListener:
                    flatten_listeners(connection)
                # The attribute behind `Connection.connection`, which connects anew where there is none.
                fairy = connection._dbapi_connection
                if fairy is not None:
                    dbapi_connection = raw_connection(fairy)
                    state = recording.known_state(id(dbapi_connection)) or recording.connection_state(dbapi_connection)
                    state.compilations.append((recording.clock(), state.measured_s))
            except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
                self.report_failure(error)
        return statement, sets, parameters

    def _before_cursor_execute(
        self,
        connection: Connection,
        cursor: object,
        statement: str,
        parameters: object,
        context: ExecutionContext,
        _executemany: bool,
    ) -> tuple[str, Any]:
        recording = self.current.get()
        try:
            timed = cursor if isinstance(cursor, TimedCursor) else _timed_below(cursor)
            if recording is None or recording.ended:
                if timed is None:  # else its cursor counts it
                    self.count_missed()
                return statement, parameters
            dbapi_connection = raw_connection(connection._dbapi_connection or connection.connection)
            if recording.options.mode == "plans":
                self.request_plans(recording, dbapi_connection)
            state = recording.known_state(id(dbapi_connection)) or recording.connection_state(dbapi_connection)
            info = getattr(context.compiled, "placebench_info", None) or _info_of(context.compiled, statement)
            pending = recording.start_on(state, statement, info.step)
            recording.executing[id(context)] = pending
            if timed is not None:
                timed.placebench_pending = pending
            _describe(pending, info, context, statement, parameters)
            if timed is None:
                pending.hand_over()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)
        return statement, parameters

    def _after_cursor_execute(
        self,
        connection: Connection,
        cursor: Any,
        statement: str,
        parameters: Any,
        context: ExecutionContext,
        executemany: bool,
    ) -> None:
        recording = self.current.get()
        if recording is None:
            return
        try:
            pending = recording.executing.pop(id(context), None)
            if pending is None:
                return
            if pending.execute_s is None:
                pending.leave_execute(None)
            pending.executing = False
            rows = cursor.rowcount
            if rows is not None and 0 <= rows < NO_COUNT:
                pending.row_count = rows
            if recording.options.explain and pending.connection.plans is None and pending.step is None:
                first = parameters[0] if executemany and isinstance(parameters, list) else parameters
                self.explain(pending, raw_connection(connection.connection), statement, first)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)

    @while_recording
    def _handle_error(self, recording: ActiveRecording, failure: ExceptionContext) -> None:
        error, context = failure.original_exception, failure.execution_context
        if failure.connection is None:
            self._connect_failed(error)
        elif context is None:
            # A COMMIT that fails has no statement; its own step has noted the error.
            if failure.statement is not None:
                _failed_before_cursor(recording, failure.connection, failure.statement).set_error(error)
        elif (pending := recording.executing.pop(id(context), None)) is not None:
            if pending.execute_s is None:
                pending.leave_execute(None)
            pending.executing = False
            pending.set_error(error)
        # Else it is the error of a fetch, which its cursor has noted, or of a statement older than the record.

    def _connect_failed(self, error: BaseException) -> None:
        """The connection that is being made will not come."""
        connecting = self.connecting.get()
        if connecting is not None:
            connecting.leave_execute(None)
            connecting.set_error(error)
            self.connecting.set(None)


def _execute_commented(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute the statement with the comment of what runs in this thread or task; whether it has one."""
    comment = current_comment()
    if comment:
        context.dialect.do_execute(cursor, statement + comment, parameters, context)
    return bool(comment)


def _executemany_commented(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    comment = current_comment()
    if comment:
        context.dialect.do_executemany(cursor, statement + comment, parameters, context)
    return bool(comment)


def _execute_no_params_commented(cursor: Any, statement: str, context: Any) -> bool:
    comment = current_comment()
    if comment:
        context.dialect.do_execute_no_params(cursor, statement + comment, context)
    return bool(comment)


_COMMENTING: dict[str, Callable[..., bool]] = {
    "do_execute": _execute_commented,
    "do_executemany": _executemany_commented,
    "do_execute_no_params": _execute_no_params_commented,
}


def _timed_below(cursor: object) -> TimedCursor | None:
    """The timed cursor that an adapter of SQLAlchemy's stands for."""
    inner = getattr(cursor, "_cursor", None)
    return inner if isinstance(inner, TimedCursor) else None


class _StatementInfo(NamedTuple):
    """What all executions have alike.

    step: the kind of transaction step; None of a statement. writes: whether it may change what a read finds, and then
        table: the one it changes, if that is known. key: where the primary key is in its rows.
    relationship: of the ORM, that it loads.
    """

    fingerprint: str
    step: str | None
    writes: bool = False
    table: str | None = None
    key: KeyColumn | None = None
    relationship: str | None = None


def _info_of(compiled: Any, statement: str) -> _StatementInfo:
    """Of *statement*, which SQLAlchemy compiled into *compiled*, and keeps there; of text, which is None, anew."""
    if compiled is None:
        return _info_of_text(statement)
    # The template: its IN lists are not expanded, and no other listener has rewritten it.
    template = compiled.string or statement
    key, relationship = _key_column(compiled), _relationship(compiled)
    compiled.placebench_info = _info_of_text(template)._replace(key=key, relationship=relationship)
    return compiled.placebench_info  # type: ignore[no-any-return]


def _info_of_text(statement: str) -> _StatementInfo:
    """Of text; the fingerprints of the last 256 texts are remembered."""
    step = transaction_step(statement)
    writes = step is None and statement_kind(statement) != "read"
    return _StatementInfo(fingerprint(statement), step, writes, written_table(statement) if writes else None)


def _key_column(compiled: Any) -> KeyColumn | None:
    """Look through the columns of the result, which SQLAlchemy keeps to itself, for a table's whole primary key."""
    for position, column in enumerate(getattr(compiled, "_result_columns", None) or ()):  # None of DDL
        for item in column[2]:  # its objects: a plain tuple in 1.4
            # Behind labels and aliases is the column of the table.
            for base in getattr(item, "base_columns", ()):
                table = base.table if isinstance(base, Column) and base.primary_key else None
                if isinstance(table, Table) and len(table.primary_key) == 1:
                    return KeyColumn(table.fullname, position)
    return None


def _relationship(compiled: Any) -> str | None:
    """The last relationship on the path by which the ORM came to this statement; the path is private to it."""
    options = getattr(compiled.compile_state, "compile_options", None)
    path = getattr(getattr(options, "_current_path", None), "path", ())
    if not path:
        return None
    from sqlalchemy.orm import RelationshipProperty  # an application without the ORM need not load it

    relationships = [str(step) for step in path if isinstance(step, RelationshipProperty)]
    return relationships[-1] if relationships else None


def _dbapi_connection(connection: Connection) -> object | None:
    """The driver's connection behind SQLAlchemy's; None if it has none now, and none is made here."""
    return None if connection.closed or connection.invalidated else raw_connection(connection.connection)


def _describe(
    pending: PendingStatement, info: _StatementInfo, context: Any, statement: str, parameters: object
) -> None:
    """Fill in what SQLAlchemy knows of a statement before it runs; *context* is its ExecutionContext."""
    recording, state = pending.recording, pending.connection
    pending.fingerprint = info.fingerprint
    if state.pool_wait_s is not None and info.step is None:
        pending.pool_wait_s, state.pool_wait_s = state.pool_wait_s, 0.0  # once: the next statements get 0
    if context.compiled is None:
        pending.compile_s = 0.0
    else:
        pending.compile_s = state.end_compilation(pending.started)
        pending.cache_hit = getattr(context, "cache_hit", None) is _CACHE_HIT
    if info.writes and getattr(context, "execute_style", None) is _INSERTMANYVALUES:
        pending.batch = context.placebench_batch = getattr(context, "placebench_batch", 0) + 1
        if pending.batch > 1:
            pending.cache_hit = None
    if recording.options.mode == "light":
        return
    pending.caller, pending.outer_caller = find_callers(sys._getframe(2), recording.application)
    if info.writes:
        recording.duplicates.add_write(info.table)
        pending.repeated = False
    elif info.step is None:
        pending.repeated = recording.duplicates.is_repeated(statement, parameters)
    pending.key = info.key
    pending.relationship = info.relationship
    if recording.options.parameters:
        pending.parameters = repr(parameters)[:LONGEST_PARAMETERS]


def _failed_before_cursor(recording: ActiveRecording, connection: Connection, sql: str) -> PendingStatement:
    """A statement that failed before it had a cursor: by a wrong parameter, for example."""
    pending = recording.start_statement(_dbapi_connection(connection), sql)
    pending.compile_s = pending.connection.end_compilation(pending.started)
    locate(pending, sql)
    return pending
