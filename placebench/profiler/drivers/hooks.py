"""The profiler's hooks in SQLAlchemy: `Hooks`, installed on one engine or on all of them.

Connections come from the events of pools and dialects; statements from the dialect's `do_execute`, and their times in
the driver from the timed cursors that `do_connect` and `connect` hand to the driver.
"""

import functools
import gc
import sys
import threading
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Column, Table, event
from sqlalchemy.engine import Connection, Dialect, Engine, interfaces
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.pool import Pool

from placebench.profiler.capture.active_recording import ActiveRecording, PendingCheckout
from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.capture.driver_recorder import LONGEST_PARAMETERS, DriverRecorder, locate, while_recording
from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.pending_statement import KeyColumn, PendingStatement, guarded
from placebench.profiler.capture.stack import find_callers
from placebench.profiler.capture.statement_comments import current_comment
from placebench.profiler.capture.timed_cursor import TimedConnection, TimedCursor
from placebench.profiler.drivers.driver_hooks import DriverPatches, adopt_connection, use_timed_classes
from placebench.profiler.drivers.engine import (
    RAW_CONNECTION,
    DialectTimer,
    Execution,
    PoolRequest,
    PoolTimer,
    classes_of_engines,
    leave_executes,
    raw_connection,
    time_executes,
    unwatch_connections,
    watch_connections,
)
from placebench.profiler.model.fingerprint import statement_facts
from placebench.profiler.model.statement import DatabaseAddress

# What SQLAlchemy 2.0 or a late patch release of 1.4 has under another name, or not at all, in 1.4.0.
_CACHE_HIT: Any = DefaultDialect.CACHE_HIT
_INSERTMANYVALUES: Any = getattr(getattr(interfaces, "ExecuteStyle", None), "INSERTMANYVALUES", "not before 2.0")


class Hooks(DriverRecorder):
    """Installed on one engine, or on all of them and on the drivers, until `remove`."""

    def __init__(self, target: Engine | type[Engine], clock: Clock, *, whole_process: bool = False) -> None:
        super().__init__(whole_process=whole_process)
        self._is_commenting = False
        self.patches: DriverPatches | None = None if isinstance(target, Engine) else DriverPatches(self)
        self._target = target
        self._pools = PoolTimer(clock, self._waited)
        self._engines: WeakSet[Engine] = WeakSet()
        self._connections: WeakSet[Connection] = WeakSet()
        self._dialects: WeakKeyDictionary[Any, DialectTimer] = WeakKeyDictionary()
        self._switching = threading.RLock()  # the collection of garbage may end a recording
        self._databases: WeakKeyDictionary[Pool, DatabaseAddress | None] = WeakKeyDictionary()
        self._checkouts: WeakKeyDictionary[Any, PendingCheckout] = WeakKeyDictionary()  # by the pool's record of it
        self._listeners: dict[str, Callable[..., Any]] = {
            "do_connect": self._do_connect,
            "connect": self._connect,
            "checkout": self._checkout,
            "checkin": self._checkin,
        }
        self._replacements: dict[str, Callable[..., Any]] = {
            "connect": self._timed_connect,
            "do_begin": self._seen_begin,
            "do_commit": functools.partial(self._timed_end, "COMMIT"),
            "do_rollback": functools.partial(self._timed_end, "ROLLBACK"),
            "do_execute": self._timed_execute,
            "do_executemany": self._timed_execute,
            "do_execute_no_params": self._timed_execute_no_params,
        }

    @property
    def sources(self) -> str:
        """What statements are looked for."""
        return "one engine of SQLAlchemy" if self.patches is None else f"SQLAlchemy and {self.patches}"

    def install(self) -> None:
        """Listen. Connections that are open already stay of the driver's own class: their fetches are not measured."""
        for name, listener in self._listeners.items():
            event.listen(self._target, name, listener)
        gc.callbacks.append(self.garbage_collected)
        for each in classes_of_engines(self._target):
            watch_connections(each, self)
        # Of all engines, those that are there may have connections that are in use already; nobody lists them.
        every = (each for each in gc.get_objects() if issubclass(type(each), Engine))
        for engine in (self._target,) if isinstance(self._target, Engine) else every:
            self._pools.time(engine.pool)
            self._add_dialect(engine.dialect)
        self.installed = True
        if self.patches is not None:
            self.patches.install()

    def comment_statements(self) -> None:
        """Put the comment of what runs behind each statement, recorded or not; again is harmless."""
        if self._is_commenting:
            return
        self._is_commenting = True
        for name, listener in _COMMENTING.items():
            event.listen(self._target, name, listener)

    def remove(self) -> None:
        """Stop listening; again is harmless. Open connections keep their timed classes, which then only pass on."""
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
        for each in (*classes_of_engines(self._target), *self._engines):
            unwatch_connections(each)
        with self._switching:
            self._rest()
        self._pools.remove()
        if self.patches is not None:
            self.patches.remove()

    def recording_started(self, recording: ActiveRecording) -> None:
        """Connections and dialects are to call us."""
        with self._switching:
            if self.installed and not self.running:
                for connection in self._connections:
                    time_executes(connection, self)
                for timer in self._dialects.values():
                    timer.add(self._replacements)
            super().recording_started(recording)

    def recording_ended(self, recording: ActiveRecording) -> None:
        """They need not call us any more, unless another recording runs."""
        with self._switching:
            super().recording_ended(recording)
            if not self.running:
                self._rest()

    def _rest(self) -> None:
        for connection in self._connections:
            leave_executes(connection)
        for timer in self._dialects.values():
            timer.discard(self._replacements)

    @guarded
    def connection_made(self, connection: Connection) -> None:
        """Time its executes whenever something is recorded."""
        with self._switching:
            self._connections.add(connection)
            if self.running:
                time_executes(connection, self)

    def _add_dialect(self, dialect: Any) -> None:
        """Time what this dialect does, from the next recording on or from now on if one runs."""
        if dialect in self._dialects or not hasattr(dialect, "do_execute"):  # a pool without an engine has another
            return
        with self._switching:
            timer = self._dialects[dialect] = DialectTimer.of(dialect)
            if self.running:
                timer.add(self._replacements)

    def _is_ours(self, engine: Engine) -> bool:
        """Whether the profiler is of this engine, or of all."""
        return self.patches is not None or engine.dialect is self._target.dialect

    # The pool's and the connection's life.

    @guarded
    def _do_connect(
        self, dialect: Dialect, record: object, _arguments: object, keywords: MutableMapping[str, Any]
    ) -> None:
        self._pools.time(getattr(record, "_ConnectionRecord__pool", None))
        self._add_dialect(dialect)
        use_timed_classes(self, dialect.driver, keywords)
        recording = self.active_recording()
        if recording is not None:  # it ends with the checkout of the connection
            self.connecting.set(recording.start_statement(None, "CONNECT", "CONNECT"))

    def _timed_connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """A dialect's *connect*, which may fail; a listener of the application's may connect instead of it."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            connecting = self.connecting.get()
            try:
                made = connect(*args, **kwargs)
            except BaseException as error:
                if connecting is not None:
                    connecting.leave_execute(None)
                    connecting.set_error(error)
                    self.connecting.set(None)
                raise
            if connecting is not None:
                connecting.made = made
            return made

        return timed

    @guarded
    def _connect(self, dbapi_connection: object, _record: object) -> None:
        adopt_connection(self, dbapi_connection)
        connecting = self.connecting.get()
        if connecting is not None:
            connecting.made = dbapi_connection

    def _connecting_of(self, recording: ActiveRecording, dbapi_connection: object) -> PendingStatement | None:
        """The CONNECT that what runs on this connection is a part of; one that has come to nothing is forgotten."""
        connecting = self.connecting.get()
        if connecting is None:
            return None
        is_known = connecting.made is None and recording.known_state(id(dbapi_connection)) is not None
        is_its_own = connecting.made is None or connecting.made is dbapi_connection
        if connecting.recording is recording and is_its_own and not is_known:
            return connecting
        self.connecting.set(None)
        return None

    @guarded
    def _checkin(self, dbapi_connection: object, record: Any) -> None:
        if (checkout := self._checkouts.pop(record, None)) is not None:
            checkout.end()
        self.stop_plans(dbapi_connection)

    @guarded
    def _checkout(self, dbapi_connection: object, record: Any, proxy: Any) -> None:
        self._add_dialect(proxy._pool._dialect)
        self._pools.time(proxy._pool)
        recording = self.active_recording()
        if recording is None:
            return
        connecting, request = self._connecting_of(recording, dbapi_connection), self.pool_request.get()
        if connecting is not None:
            connecting.leave_execute(None)
            connecting.made = None  # which a recording does not keep
            self.connecting.set(None)
        state = recording.connection_state(dbapi_connection)
        if connecting is not None:
            connecting.connection = state
        requested, pending = None if connecting is None else connecting.started, 0
        self.pool_request.set(None)
        if request is not None and request.started >= recording.started:  # else it has led to nothing
            requested, pending = request.started, request.pending
            state.pool_wait_s = request.seconds
            state.measured_s += request.seconds
        checkout = recording.start_checkout(requested, pending, proxy._pool)
        checkout.database = self._databases[proxy._pool] = state.database
        checkout.create_s = None if connecting is None else connecting.execute_s
        self._checkouts[record] = checkout

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

    def _seen_begin(self, begin: Callable[[Any], None]) -> Callable[[Any], None]:
        """A dialect's *do_begin* that is a BEGIN; most drivers send it with the first statement."""

        def seen(fairy: Any) -> None:
            self._begin(fairy)
            return begin(fairy)

        return seen

    @while_recording
    def _begin(self, recording: ActiveRecording, fairy: Any) -> None:
        dbapi_connection = getattr(fairy, RAW_CONNECTION, fairy)
        if self._connecting_of(recording, dbapi_connection) is not None:
            return
        state = recording.connection_state(dbapi_connection)
        if getattr(dbapi_connection, "autocommit", False) is True:
            state.transaction = None
            return
        recording.transaction_count += 1
        state.transaction = recording.transaction_count
        if getattr(driver_connection(dbapi_connection), "in_transaction", False) is True:
            # SQLAlchemy's recipe for SQLite: a listener to "begin", which is called before this, has sent the BEGIN.
            last = next((each for each in reversed(recording.steps) if each.connection is state), None)
            if last is not None and last.step == "BEGIN" and last.number is None:
                last.number = state.transaction
                return
        recording.start_statement(dbapi_connection, "BEGIN", "BEGIN")

    def _timed_end(self, step: str, end: Callable[[Any], None]) -> Callable[[Any], None]:
        """A dialect's *do_commit* or *do_rollback* for drivers whose connections do not time it themselves."""

        def timed(fairy: Any) -> Any:
            pending = self._end_transaction(step, fairy)
            return end(fairy) if pending is None else _run(pending, functools.partial(end, fairy))

        return timed

    @guarded
    def _end_transaction(self, step: str, fairy: Any) -> PendingStatement | None:
        recording = self.active_recording()
        if recording is None:
            return None
        dbapi_connection = getattr(fairy, RAW_CONNECTION, fairy)  # SQLAlchemy 1.4 has also the driver's own rolled back
        if self._connecting_of(recording, dbapi_connection) is not None:
            return None
        if isinstance(driver_connection(dbapi_connection), TimedConnection):
            return None
        state = recording.connection_state(dbapi_connection)
        if state.transaction is None:  # the pool's rollback
            return None
        pending = recording.start_statement(dbapi_connection, step, step)
        state.transaction = None
        return pending

    # Statements.

    def _timed_execute(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """A dialect's *do_execute* or *do_executemany* with its statement in the recording that runs."""
        current, connecting, start = self.current, self.connecting, self._start_execute
        is_default = getattr(execute, "__func__", None) is DefaultDialect.do_execute

        def timed(cursor: Any, statement: str, parameters: Any, context: Any = None) -> Any:
            recording = current.get()
            if recording is None or recording.ended:
                if _timed_cursor(cursor) is None:  # else it counts the statement itself
                    self.count_missed()
            elif context is not None and (connecting.get() is None or not self._connects(recording, context)):
                pending = start(recording, cursor, statement, parameters, context)
                if pending is not None:
                    call = functools.partial(execute, cursor, statement, parameters, context)
                    return self._run_statement(pending, call, context, statement, parameters)
            if is_default:
                return cursor.execute(statement, parameters)
            return execute(cursor, statement, parameters, context)

        return timed

    def _connects(self, recording: ActiveRecording, context: Any) -> bool:
        """Whether the statement of this context is a part of a CONNECT."""
        fairy = context.root_connection._dbapi_connection
        return self._connecting_of(recording, getattr(fairy, RAW_CONNECTION, fairy)) is not None

    def _timed_execute_no_params(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """The same of *do_execute_no_params*."""
        timed = self._timed_execute(lambda cursor, statement, _, context: execute(cursor, statement, context))
        return lambda cursor, statement, context=None: timed(cursor, statement, (), context)

    def _start_execute(
        self, recording: ActiveRecording, cursor: Any, statement: str, parameters: Any, context: Any
    ) -> PendingStatement | None:
        """Begin a statement with what SQLAlchemy knows of it; returns it only if it is not its cursor that ends it.

        Runs for every statement, and a call costs as much as what it does: what most statements need is written out.
        """
        pending, timed = None, cursor if isinstance(cursor, TimedCursor) else _timed_cursor(cursor)
        try:
            if self._is_commenting:
                statement = statement.removesuffix(current_comment())
            connection, compiled, mode = context.root_connection, context.compiled, recording.options.mode
            execution = getattr(connection, "placebench_execution", None)
            if execution is None or execution.recording is not recording:
                execution = self._execution_of(recording, connection, execution)
            fairy = connection._dbapi_connection
            dbapi_connection = raw_connection(fairy)
            if mode == "plans":
                self._request_plans(recording, dbapi_connection, execution)
            state = recording.known_state(id(dbapi_connection)) or recording.connection_state(dbapi_connection)
            info = getattr(compiled, "placebench_info", None) or _info_of(compiled, statement, context.dialect.name)
            pending = PendingStatement(recording, state, statement, info.step)
            recording.keep(pending)
            if timed is not None:
                timed.placebench_pending = pending
            pending.fingerprint, pending.dialect = info.fingerprint, info.dialect
            pending.cache_hit = _is_cached(recording, pending, compiled, context)
            if execution is not None:
                execution.start(pending, compiled, fairy)
            if state.pool_wait_s is not None and info.step is None:
                pending.pool_wait_s, state.pool_wait_s = state.pool_wait_s, 0.0  # once: the next statements get 0
            if info.writes:
                _count_batches(pending, context)
            if mode != "light":
                _describe(pending, info, statement, parameters, timed)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)
        return pending if timed is None or recording.options.explain else None

    def _execution_of(
        self, recording: ActiveRecording, connection: Any, execution: Execution | None
    ) -> Execution | None:
        """The call of this connection's execute that runs; None of a connection that is timed only from now on."""
        while execution is not None and execution.recording is not recording:  # another profiler's
            execution = execution.outer
        if execution is None and connection not in self._connections:
            # Made before the profiler, or by an engine with execution options, which names a class of its own.
            self.connection_made(connection)
            self._engines.add(connection.engine)
            watch_connections(connection.engine, self)
        return execution

    def _request_plans(self, recording: ActiveRecording, dbapi_connection: Any, execution: Execution | None) -> None:
        """Have the connection send its plans; what that takes is not the compilation's."""
        before = recording.plan_setup_s
        self.request_plans(recording, dbapi_connection)
        if execution is not None:
            execution.started += recording.plan_setup_s - before

    def _run_statement(
        self, pending: PendingStatement, execute: Callable[[], Any], context: Any, statement: str, parameters: Any
    ) -> Any:
        """Execute a statement that its cursor does not time, or that is to be explained."""
        result = _run(pending, execute)
        pending.executing = False
        self._ended(pending, context, statement, parameters)
        return result

    @guarded
    def _ended(self, pending: PendingStatement, context: Any, statement: str, parameters: Any) -> None:
        """Note its rows, and have it explained if that was asked for and no actual plan came."""
        pending.set_row_count(context.cursor.rowcount)
        if pending.recording.options.explain and pending.connection.plans is None and pending.step is None:
            first = parameters[0] if context.executemany and isinstance(parameters, list) else parameters
            self.explain(pending, raw_connection(context.root_connection._dbapi_connection), statement, first)

    @guarded
    def execute_failed(self, connection: Any, execution: Execution, error: BaseException) -> None:
        """An execute raised, perhaps before it had a cursor."""
        recording, pending = execution.recording, execution.pending
        if recording.ended:
            return
        original = getattr(error, "orig", None) or error
        if pending is None:
            sql = getattr(error, "statement", None)  # of SQLAlchemy's errors, if it came so far
            if sql is None or not self._is_ours(connection.engine):
                return
            pending = recording.start_statement(_dbapi_connection(connection), sql)
            execution.start(pending, sql, connection._dbapi_connection)
            locate(pending, sql, connection.dialect.name)
            pending.set_error(original)
        elif pending.executing:
            if pending.execute_s is None:
                pending.leave_execute(None)
            if pending.error is None:
                pending.set_error(original)


def _run(pending: PendingStatement, call: Callable[[], Any]) -> Any:
    """Run *call* of the driver's, with its time and error in its statement."""
    pending.hand_over()
    try:
        return call()
    except BaseException as error:
        pending.set_error(error)
        raise
    finally:
        if pending.execute_s is None:
            pending.leave_execute(None)


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


def _timed_cursor(cursor: Any) -> TimedCursor | None:
    """A cursor that is timed, or the one that an adapter of SQLAlchemy's stands for."""
    return next((each for each in (cursor, getattr(cursor, "_cursor", None)) if isinstance(each, TimedCursor)), None)


class _StatementInfo(NamedTuple):
    """What all executions have alike.

    dialect: of SQLAlchemy's, that it is in. step: the kind of transaction step; None of a statement. writes: whether it
        may change what a read finds, and then table: the one it changes, if that is known.
    key: where the primary key is in its rows.
    relationship: of the ORM, that it loads.
    """

    fingerprint: str
    dialect: str
    step: str | None
    writes: bool = False
    table: str | None = None
    key: KeyColumn | None = None
    relationship: str | None = None


def _info_of(compiled: Any, statement: str, dialect: str) -> _StatementInfo:
    """Of *statement*, which SQLAlchemy compiled into *compiled*, and keeps there; of text, which is None, anew."""
    if compiled is None:
        return _info_of_text(statement, dialect)
    # The template: its IN lists are not expanded, and no other listener has rewritten it.
    template = compiled.string or statement
    key, relationship = _key_column(compiled), _relationship(compiled)
    compiled.placebench_info = _info_of_text(template, dialect)._replace(key=key, relationship=relationship)
    return compiled.placebench_info  # type: ignore[no-any-return]


def _info_of_text(statement: str, dialect: str) -> _StatementInfo:
    """What is known of text alone."""
    facts = statement_facts(statement, dialect)
    writes = facts.step is None and facts.kind != "read"
    return _StatementInfo(facts.fingerprint, dialect, facts.step, writes, facts.table if writes else None)


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


def _is_cached(recording: ActiveRecording, pending: PendingStatement, compiled: Any, context: Any) -> bool | None:
    """Whether SQLAlchemy had the compiled form, else for which engine it had not; None of text."""
    if compiled is None or getattr(context, "cache_hit", None) is _CACHE_HIT:
        return None if compiled is None else True
    pending.engine = recording.engine_number(context.dialect)
    return False


def _count_batches(pending: PendingStatement, context: Any) -> None:
    """Number the statements of an INSERT of many values, of which only the first one was looked up."""
    if getattr(context, "execute_style", None) is _INSERTMANYVALUES:
        pending.batch = context.placebench_batch = getattr(context, "placebench_batch", 0) + 1
        if pending.batch > 1:
            pending.cache_hit = None


def _describe(
    pending: PendingStatement, info: _StatementInfo, statement: str, parameters: object, cursor: TimedCursor | None
) -> None:
    """Fill in what all modes but light know of a statement before it runs."""
    recording = pending.recording
    # Below are three functions of ours and three or more of SQLAlchemy's.
    pending.caller, pending.outer_caller = find_callers(sys._getframe(6), recording.application)
    if info.writes:
        pending.note_write(statement, info.table)
    elif info.step is None:
        pending.compare(statement, parameters, cursor)
    pending.key = info.key
    pending.relationship = info.relationship
    if recording.options.parameters:
        pending.parameters = repr(parameters)[:LONGEST_PARAMETERS]
