"""Statements and transactions of SQLAlchemy's engines: `StatementHooks`.

While something is recorded, connections report their executes, and dialects call the hooks instead of their own
`do_execute`, `do_begin` and so on (`engine.DialectTimer`).
"""

import functools
import sys
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import sqlalchemy
from sqlalchemy import Column, MetaData, Table, event
from sqlalchemy.engine import Connection, Engine, interfaces
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql import visitors

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.call_sites import find_callers
from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.capture.driver_recorder import MAX_PARAMETERS_LENGTH, DriverRecorder, locate, while_recording
from placebench.profiler.capture.pending_statement import KeyColumn, PendingStatement, guarded
from placebench.profiler.capture.statement_comments import current_comment
from placebench.profiler.capture.timed_cursor import TimedConnection, TimedCursor
from placebench.profiler.drivers.engine import (
    RAW_CONNECTION,
    DialectTimer,
    Execution,
    leave_executes,
    raw_connection,
    time_executes,
    watch_connections,
)
from placebench.profiler.drivers.fetch_timer import time_fetches
from placebench.profiler.model.statement import OrmLoad
from placebench.profiler.model.statement_facts import StatementFacts, statement_facts

# SQLAlchemy 1.4.0 has these names of 2.0 or of a late patch release of 1.4 under another name, or not at all.
_CACHE_HIT: Any = DefaultDialect.CACHE_HIT
_NO_DIALECT_SUPPORT: Any = getattr(DefaultDialect, "NO_DIALECT_SUPPORT", "not in 1.4.0")
_INSERTMANYVALUES: Any = getattr(getattr(interfaces, "ExecuteStyle", None), "INSERTMANYVALUES", "not before 2.0")


class StatementHooks(DriverRecorder):
    """Records the statements and transaction steps of one engine (*target*), or of all."""

    def __init__(self, target: Engine | type[Engine], *, whole_process: bool = False) -> None:
        super().__init__(whole_process=whole_process)
        self._target = target
        self._is_commenting = False
        self._engines: WeakSet[Engine] = WeakSet()
        self._connections: WeakSet[Connection] = WeakSet()
        self._dialects: WeakKeyDictionary[Any, DialectTimer] = WeakKeyDictionary()
        self._switching = threading.RLock()  # the garbage collector may end a recording
        self._replacements: dict[str, Callable[..., Any]] = {
            "do_begin": self._record_begin,
            "do_commit": functools.partial(self._timed_end, "COMMIT"),
            "do_rollback": functools.partial(self._timed_end, "ROLLBACK"),
            "do_execute": self._timed_execute,
            "do_executemany": self._timed_execute,
            "do_execute_no_params": self._timed_execute_no_params,
        }

    def comment_statements(self) -> None:
        """Append the current comment (route and function) to each statement, recorded or not; idempotent."""
        if not self._is_commenting:
            self._is_commenting = True
            for name, listener in _COMMENTING.items():
                event.listen(self._target, name, listener)

    def stop_commenting(self) -> None:
        """Stop appending comments to statements; idempotent."""
        if self._is_commenting:
            self._is_commenting = False
            for name, listener in _COMMENTING.items():
                if event.contains(self._target, name, listener):  # another profiler of the same may have ended
                    event.remove(self._target, name, listener)

    # When something is recorded.

    def recording_started(self, recording: ActiveRecording) -> None:
        """Start timing on all known connections and dialects."""
        with self._switching:
            if self.installed and not self.running:
                for connection in self._connections:
                    time_executes(connection, self)
                for timer in self._dialects.values():
                    timer.add(self._replacements)
            super().recording_started(recording)

    def recording_ended(self, recording: ActiveRecording) -> None:
        """Stop timing unless another recording is still running."""
        with self._switching:
            super().recording_ended(recording)
            if not self.running:
                self.stop_timing()

    def stop_timing(self) -> None:
        """Let connections and dialects call their own methods again."""
        with self._switching:
            for connection in self._connections:
                leave_executes(connection)
            for timer in self._dialects.values():
                timer.discard(self._replacements)

    @guarded
    def connection_made(self, connection: Connection) -> None:
        """Time the executes of a new connection whenever something is recorded."""
        with self._switching:
            self._connections.add(connection)
            if self.running:
                time_executes(connection, self)

    def add_dialect(self, dialect: Any) -> None:
        """Time the calls of this dialect whenever something is recorded."""
        if dialect in self._dialects or not hasattr(dialect, "do_execute"):  # a pool without an engine has another
            return
        with self._switching:
            timer = self._dialects[dialect] = DialectTimer.of(dialect)
            if self.running:
                timer.add(self._replacements)

    def pending_connect(self, recording: ActiveRecording, dbapi_connection: object) -> PendingStatement | None:
        """Return the pending CONNECT that this connection belongs to, if any; discard one that never completed."""
        connecting = self.connecting.get()
        if connecting is None:
            return None
        made = connecting.dbapi_connection
        is_known = made is None and recording.known_state(id(dbapi_connection)) is not None
        if connecting.recording is recording and (made is None or made is dbapi_connection) and not is_known:
            return connecting
        self.connecting.set(None)
        return None

    # Transactions.

    def _record_begin(self, begin: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a dialect's *do_begin* that records a BEGIN; most drivers send it with the first statement."""

        def recorded(fairy: Any) -> None:
            self._begin(fairy)
            return begin(fairy)

        return recorded

    @while_recording
    def _begin(self, recording: ActiveRecording, fairy: Any) -> None:
        dbapi_connection = getattr(fairy, RAW_CONNECTION, fairy)
        if self.pending_connect(recording, dbapi_connection) is not None:
            return
        state = recording.connection_state(dbapi_connection)
        if getattr(dbapi_connection, "autocommit", False) is True:
            state.transaction = None
            return
        connection = driver_connection(dbapi_connection)
        if state.transaction is not None and isinstance(connection, TimedConnection) and connection.in_a_transaction():
            return  # a listener of the application has begun it with a cursor of the driver
        recording.transaction_count += 1
        state.transaction = recording.transaction_count
        if getattr(connection, "in_transaction", False) is True:
            # SQLAlchemy's recipe for SQLite: a listener to "begin", which is called before this, has sent the BEGIN.
            last = next((step for step in reversed(recording.steps) if step.connection is state), None)
            if last is not None and last.step == "BEGIN" and last.number is None:
                last.number = state.transaction
                return
        recording.start_statement(dbapi_connection, "BEGIN", "BEGIN")

    def _timed_end(self, step: str, end: Callable[[Any], None]) -> Callable[[Any], None]:
        """Return a dialect's *do_commit* or *do_rollback* for drivers whose connections do not time it themselves."""

        def timed(fairy: Any) -> Any:
            pending = self._end_transaction(step, fairy)
            return end(fairy) if pending is None else _run(pending, functools.partial(end, fairy))

        return timed

    @guarded
    def _end_transaction(self, step: str, fairy: Any) -> PendingStatement | None:
        recording = self.active_recording()
        if recording is None:
            return None
        dbapi_connection = getattr(fairy, RAW_CONNECTION, fairy)  # in SQLAlchemy 1.4 it may be the driver's own
        if self.pending_connect(recording, dbapi_connection) is not None:
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
        """Return a dialect's *do_execute* or *do_executemany* that records its statement."""
        current, connecting, start = self.current, self.connecting, self._start_execute
        is_default = getattr(execute, "__func__", None) is DefaultDialect.do_execute

        def timed(cursor: Any, statement: str, parameters: Any, context: Any = None) -> Any:
            recording = current.get()
            if recording is not None and recording.ended:
                recording = self.recording_of_work()
            if recording is None:
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
        fairy = context.root_connection._dbapi_connection
        return self.pending_connect(recording, getattr(fairy, RAW_CONNECTION, fairy)) is not None

    def _timed_execute_no_params(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dialect's *do_execute_no_params* that records its statement."""
        timed = self._timed_execute(lambda cursor, statement, _, context: execute(cursor, statement, context))
        return lambda cursor, statement, context=None: timed(cursor, statement, (), context)

    def _start_execute(
        self, recording: ActiveRecording, cursor: Any, statement: str, parameters: Any, context: Any
    ) -> PendingStatement | None:
        """Begin a statement with what SQLAlchemy knows about it; None if its timed cursor will end it.

        It runs for every statement, and calls cost as much as their work: the common case uses no helpers.
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
            info = getattr(compiled, "placebench_info", None) or (
                _statement_info(compiled, statement, context.dialect.name)
            )
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
            schemas = context.execution_options.get("schema_translate_map")
            if schemas:
                pending.identity = pending.identity, frozenset(schemas.items())
            if mode != "light":
                _describe(pending, info, statement, parameters, timed)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self.report_failure(error)
        return pending if timed is None or recording.options.explain else None

    def _execution_of(
        self, recording: ActiveRecording, connection: Any, execution: Execution | None
    ) -> Execution | None:
        """Return the running call of this connection's execute; None if the connection is timed only from now on."""
        while execution is not None and execution.recording is not recording:  # another profiler's
            execution = execution.outer
        if execution is None and connection not in self._connections:
            # Made before the profiler, or by an engine with execution options, which names a class of its own.
            self.connection_made(connection)
            self._engines.add(connection.engine)
            watch_connections(connection.engine, self)
        return execution

    def _request_plans(self, recording: ActiveRecording, dbapi_connection: Any, execution: Execution | None) -> None:
        """Have the connection send its plans, without charging that time to the compilation."""
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
        self._note_rows_and_plan(pending, context, statement, parameters)
        return result

    @guarded
    def _note_rows_and_plan(self, pending: PendingStatement, context: Any, statement: str, parameters: Any) -> None:
        """Note the rows of a statement, and have it explained if that was requested and no actual plan came."""
        if _timed_cursor(context.cursor) is None:
            time_fetches(context, pending)
        else:
            pending.set_row_count(context.cursor.rowcount)
        if pending.recording.options.explain and pending.connection.plans is None and pending.step is None:
            first = parameters[0] if context.executemany and isinstance(parameters, list) else parameters
            self.explain(pending, raw_connection(context.root_connection._dbapi_connection), statement, first)

    @guarded
    def execute_failed(self, connection: Any, execution: Execution, error: BaseException) -> None:
        """Record the error of an execute, which may have raised before it had a cursor."""
        recording, pending = execution.recording, execution.pending
        if recording.ended:
            return
        original = getattr(error, "orig", None) or error
        if pending is None:
            sql = getattr(error, "statement", None)  # SQLAlchemy's errors have it once the statement is compiled
            target = self._target
            if sql is None or (isinstance(target, Engine) and connection.engine.dialect is not target.dialect):
                return
            pending = recording.start_statement(_dbapi_connection(connection), sql)
            execution.start(pending, sql, connection._dbapi_connection)
            locate(pending, sql, connection.dialect.name)
            pending.set_error(original)
        elif pending.executing:
            if pending.execute_s is None:
                pending.execute_returned(None)
            if pending.error is None:
                pending.set_error(original)


def _run(pending: PendingStatement, call: Callable[[], Any]) -> Any:
    """Run *call* of the driver, and record its time and error in *pending*."""
    pending.first_driver_call()
    try:
        return call()
    except BaseException as error:
        pending.set_error(error)
        raise
    finally:
        if pending.execute_s is None:
            pending.execute_returned(None)


def _commented(method: str) -> Callable[..., bool]:
    """Return a listener that executes a statement with the current comment.

    Without a comment it returns False, so that SQLAlchemy executes the statement.
    """

    def execute(cursor: Any, statement: str, *rest: Any) -> bool:
        comment, context = current_comment(), rest[-1]
        if comment:
            getattr(context.dialect, method)(cursor, statement + comment, *rest)
        return bool(comment)

    return execute


_COMMENTING = {name: _commented(name) for name in ("do_execute", "do_executemany", "do_execute_no_params")}


def _timed_cursor(cursor: Any) -> TimedCursor | None:
    """Return the timed cursor that *cursor* is, or that it wraps as SQLAlchemy's adapter; None if it is neither."""
    return next((each for each in (cursor, getattr(cursor, "_cursor", None)) if isinstance(each, TimedCursor)), None)


class _StatementInfo(NamedTuple):
    """Facts shared by every execution of a statement.

    dialect: the name of SQLAlchemy's dialect. step: the kind of transaction step; None for a statement.
    writes: whether it may change what a read finds. tables: relations that are tables, by their definition.
    key: where the primary key is in its rows. load: the relationship that the ORM loads by it.
    """

    fingerprint: str
    dialect: str
    step: str | None
    facts: StatementFacts
    writes: bool = False
    tables: frozenset[str] = frozenset()
    key: KeyColumn | None = None
    load: OrmLoad | None = None


def _statement_info(compiled: Any, statement: str, dialect: str) -> _StatementInfo:
    """Return the info of *statement*, cached on *compiled*; computed anew for plain text (*compiled* is None)."""
    if compiled is None:
        return _info_of_text(statement, dialect)
    # The template: its IN lists are not expanded, and no other listener has rewritten it.
    template = compiled.string or statement
    key, load = _key_column(compiled), _relationship_load(compiled)
    info = _info_of_text(template, dialect)
    tables = frozenset() if info.writes else _known_tables(compiled, info.facts.relations)
    compiled.placebench_info = info._replace(key=key, load=load, tables=tables)
    return compiled.placebench_info  # type: ignore[no-any-return]


def _info_of_text(statement: str, dialect: str) -> _StatementInfo:
    facts = statement_facts(statement, dialect)
    writes = facts.step is None and facts.kind != "read"
    return _StatementInfo(facts.fingerprint, dialect, facts.step, facts, writes)


def _known_tables(compiled: Any, relations: frozenset[str]) -> frozenset[str]:
    """Return those of the relations that are tables by definition, in the metadata of the statement's first table.

    An ORM may compile a statement anew each time, with thousands of values: the search ends at the first table.
    """
    statement = getattr(compiled.compile_state, "statement", compiled.statement)
    for element in islice(visitors.iterate(statement), _MAX_ELEMENTS):
        table = element if isinstance(element, Table) else getattr(element, "table", None)
        if isinstance(table, Table):
            return relations & _tables_by_definition(table.metadata)
    return frozenset()


_MAX_ELEMENTS = 100
_TABLES: WeakKeyDictionary[MetaData, tuple[int, frozenset[str]]] = WeakKeyDictionary()
"""Of each metadata how many tables it had, and what `_tables_by_definition` returned."""


def _tables_by_definition(metadata: MetaData) -> frozenset[str]:
    """Return the names of what cannot be a view, which has no keys, indexes or defaults."""
    count, names = _TABLES.get(metadata, (0, frozenset()))
    if count == len(metadata.tables):
        return names
    tables = list(metadata.tables.values())
    referenced = {key.target_fullname.rpartition(".")[0] for table in tables for key in table.foreign_keys}
    names = frozenset(
        table.name.lower()
        for table in tables
        if not table.info.get("is_view")
        and (
            table.fullname in referenced
            or table.foreign_keys
            or table.indexes
            or len(table.constraints) > 1
            or any(each.default is not None or each.server_default is not None for each in table.columns)
        )
    )
    _TABLES[metadata] = len(tables), names
    return names


def _key_column(compiled: Any) -> KeyColumn | None:
    """Return the first result column that is a table's whole primary key; these columns are private to SQLAlchemy.

    If three or more are, the positions of the others are returned with it.
    """
    found: list[tuple[str, int]] = []
    for position, column in enumerate(getattr(compiled, "_result_columns", None) or ()):  # DDL has none
        # Behind labels and aliases is the column of the table. The objects of a column are a plain tuple in 1.4.
        bases = (base for item in column[2] for base in getattr(item, "base_columns", ()))
        tables = (base.table for base in bases if isinstance(base, Column) and base.primary_key)
        name = next((each.fullname for each in tables if isinstance(each, Table) and len(each.primary_key) == 1), None)
        if name is not None:
            found.append((name, position))
    if not found:
        return None
    others = tuple(position for _, position in found[1:])
    return KeyColumn(*found[0], others if len(others) > 1 else ())


def _relationship_load(compiled: Any) -> OrmLoad | None:
    """Return the last relationship on the path that the ORM loads by this statement; the path is private to the ORM."""
    options = getattr(compiled.compile_state, "compile_options", None)
    path = getattr(getattr(options, "_current_path", None), "path", ())
    if not path:
        return None
    from sqlalchemy.orm import RelationshipProperty  # an application without the ORM need not load it

    relationships = [step for step in path if isinstance(step, RelationshipProperty)]
    if not relationships:
        return None
    last = relationships[-1]
    orm = "sqlmodel" if type(last.parent.class_).__module__.startswith("sqlmodel.") else "sqlalchemy"
    kind = "many" if last.uselist else "one"
    return OrmLoad(orm, ".".join(sqlalchemy.__version__.split(".")[:2]), str(last), kind)


def _dbapi_connection(connection: Connection) -> object | None:
    """Return the driver's connection behind SQLAlchemy's; None if it has none now, since none is made here."""
    return None if connection.closed or connection.invalidated else raw_connection(connection.connection)


def _is_cached(recording: ActiveRecording, pending: PendingStatement, compiled: Any, context: Any) -> bool | None:
    """Return whether SQLAlchemy had the compiled form in its cache, and note the engine of a miss.

    None: it did not look, because the statement is plain text or the dialect does not support the cache, as DuckDB's.
    """
    lookup = getattr(context, "cache_hit", None)
    if compiled is None or lookup is _NO_DIALECT_SUPPORT:
        return None
    if lookup is _CACHE_HIT:
        return True
    pending.engine = recording.engine_number(context.dialect)
    return False


def _count_batches(pending: PendingStatement, context: Any) -> None:
    """Number the statements of an INSERT of many values; only the first one was looked up in the cache."""
    if getattr(context, "execute_style", None) is _INSERTMANYVALUES:
        pending.batch = context.placebench_batch = getattr(context, "placebench_batch", 0) + 1
        if pending.batch > 1:
            pending.cache_hit = None


def _describe(
    pending: PendingStatement, info: _StatementInfo, statement: str, parameters: object, cursor: TimedCursor | None
) -> None:
    """Fill in the facts that all modes but light note before a statement runs."""
    recording = pending.recording
    flame_graph = recording.flame_graph
    if flame_graph is None or flame_graph.is_external or info.dialect == "sqlite":
        # The six frames above are three of ours and at least three of SQLAlchemy's: the walk need not read them.
        pending.caller, pending.outer_caller = find_callers(sys._getframe(6), recording.application)
    else:
        # One walk for the call site and for the leaf: SQLite's statements are mostly too short to have one.
        found = flame_graph.call_sites.find(sys._getframe(3), recording.application)
        pending.frames, (pending.caller, pending.outer_caller) = found
    if info.load is not None:
        pending.relationship, pending.load = info.load.relation, info.load
    if info.step is None:
        recording.duplicates.tables |= info.tables
        pending.compare(statement, parameters, info.facts, cursor)
    pending.key = info.key
    if recording.options.parameters:
        pending.parameters = repr(parameters)[:MAX_PARAMETERS_LENGTH]
