"""The recording while it runs, which the hooks and the timed cursors write into.

The main class is `ActiveRecording`. Each record has its own, held in a ContextVar, so that requests in different
threads, tasks and greenlets never mix. Its memory is bounded: statements beyond `max_statements` are counted, not kept.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast
from weakref import WeakKeyDictionary, WeakSet, ref

from placebench import units
from placebench.profiler.capture.account import row_breach
from placebench.profiler.capture.connection_state import (
    ConnectionState,
    database_address,
    database_identity,
    driver_connection,
    meter_of,
)
from placebench.profiler.capture.loop_origins import LoopOrigins
from placebench.profiler.capture.options import Clock, Clocks, Options, shares_thread
from placebench.profiler.capture.pending_statement import PendingStatement, RecordingContext, guarded
from placebench.profiler.model.loop_block import LoopBlock
from placebench.profiler.model.recording_data import RecordingData, Unkept
from placebench.profiler.model.statement import (
    Checkout,
    DatabaseAddress,
    RecordedRequest,
    Span,
    Statement,
    UnkeptStatements,
)

_MAX_UNKEPT_PLACES = 1_000
_LOG = logging.getLogger("placebench.profiler")

if TYPE_CHECKING:
    from placebench.profiler.capture.external_flame_graph import ExternalFlameGraph
    from placebench.profiler.capture.flame_graph import FlameGraphRecorder


class UnitOfWork(Protocol):
    """A request, task or other work whose recording is stored when it ends; no method raises."""

    @property
    def recording(self) -> "ActiveRecording | None":
        """The recording while it runs."""

    def begin_caused(self, name: str, kind: str = "background", *, keep_empty: bool = True) -> "UnitOfWork | None":
        """Begin a unit of work that this one caused, and make it the current one; None if it is not recorded.

        keep_empty: whether to store its recording if it has no statement.
        """

    def end(self, error: BaseException | None = None) -> None:
        """Store the recording; idempotent."""


class HeldLoop(Protocol):
    """A stretch in which a recording held its event loop; it is open while others may still go on late."""

    is_open: bool

    def to_block(self, origin: float) -> LoopBlock:
        """Return it with its time relative to *origin*, the start of the recording."""


class ActiveRecording(RecordingContext):
    """Everything that one record has seen so far; times are readings of the recording's clock."""

    overhead_s: float
    around: "ActiveRecording | None" = None
    """The recording inside of which this one began."""
    unit: UnitOfWork | None = None
    """The unit of work whose recording this is; it stays when the recording has ended, as the cause of others."""
    borrows_flame_graph = False
    """Whether the flame graph is that of the recording around this one."""

    def __init__(
        self,
        name: str,
        options: Options,
        clocks: Clocks,
        report_failure: Callable[[Exception], None],
        flame_graph: "FlameGraphRecorder | ExternalFlameGraph | None" = None,
    ) -> None:
        super().__init__(options, clocks.elapsed_safely(self._clock_failed), report_failure, flame_graph)
        self.name = name
        self.kind = "request"
        self.route: str | None = None
        self.status: int | None = None
        self.identifier = self.cause = ""
        self.statements: list[PendingStatement] = []
        self.steps: list[PendingStatement] = []
        self.spans: list[tuple[str, float, float]] = []
        self.checkouts: list[PendingCheckout] = []
        self.blocks: list[HeldLoop] = []
        self.transaction_count = 0
        self._connection_count = 0
        self.dropped: int = 0
        self.unkept: Unkept = Unkept()
        self._unkept: WeakSet[_UnkeptStatement] = WeakSet()
        self._unkept_places: dict[tuple[object, ...], UnkeptStatements] = {}
        self._unkept_rows: int = 0
        self._gone_s: float = 0.0
        self._gone_rows: int = 0
        self.gc_s: float = 0.0
        self.gc_collections: int = 0
        self.gc_started: float | None = None
        self.breaches: list[str] = []
        self.error: str | None = None
        self.missed = 0
        self.started_unseen: Counter[str] = Counter()
        """The child processes and sub-interpreters that were started, whose statements are not seen."""
        self.failed_hooks: set[str] = set()
        self.ended: bool = False
        self.plan_setup_s: float = 0.0
        self._clock_works = True
        self._connections: dict[int, ConnectionState] = {}
        self.known_state: Callable[[int], ConnectionState | None] = self._connections.get
        # By the id of the driver's connection; None is for statements and steps without a connection.
        self._states: dict[int | None, ConnectionState] = {}
        self._engines: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._kept: dict[int, object] = {}
        self._cpu = clocks.cpu
        self.shares_cpu_time: bool = False
        self.thread: int = threading.get_ident()
        self.inherited_by_threads: bool = False
        self._process = os.getpid()
        # The process's time is read first here and last at the end: it is never less than that of its threads.
        self.process_clock: Clock = clocks.process
        self.measures_process: bool = clocks.cpu is time.process_time
        self.process_started_s: float = clocks.process()
        # A process's CPU time is the program's, whatever shares a thread in it.
        self._shares_thread = shares_thread if not self.measures_process else bool
        self._cpu_started = None if self._shares_thread() else self._cpu()
        self.started: float = self.clock()
        self.started_unix_s: float = time.time()
        self.elapsed_s: float = 0.0
        self.cpu_s: float | None = None

    def begin_inside(self, around: "ActiveRecording") -> None:
        """Note that this recording begins inside of another one, whose flame graph gets its statements too."""
        self.around = around
        if around.around is not None and around.around.ended:
            around.around = None
        if self.flame_graph is None and around.flame_graph is not None:
            self.flame_graph, self.borrows_flame_graph = around.flame_graph, True

    def add_leaf(
        self,
        started: float,
        ended: float,
        label: Callable[[], str],
        kind: str,
        pending: PendingStatement | None = None,
    ) -> None:
        """Add an interval to the flame graph of this recording, and to those of the recordings around it."""
        try:
            if self.flame_graph is not None:
                self.flame_graph.add(started, ended, label, kind, pending)
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            self.report_failure(error)
        around = self.around
        while around is not None and around.flame_graph is self.flame_graph:
            around = around.around
        if around is not None:
            around.add_leaf(started, ended, label, kind, pending)

    def _clock_failed(self, error: Exception) -> None:
        """Report that the clock has failed; the recording's times are then unknown."""
        self._clock_works = False
        self.report_failure(error)

    def end(self) -> None:
        """Take the final times; must be called before the profiler does any work of its own."""
        self.elapsed_s = self.clock() - self.started
        self.ended = True
        # The CPU time of another thread, or of a forked process, says nothing about this record.
        is_own = (threading.get_ident(), os.getpid()) == (self.thread, self._process) and not self.shares_cpu_time
        if self._cpu_started is not None and is_own and not self._shares_thread():
            self.cpu_s = self._cpu() - self._cpu_started

    def connection_state(self, dbapi_connection: object) -> ConnectionState:
        """Return the state of a driver's connection; None stands for statements without a connection.

        States are found by the id of the connection, and are dropped with it: the next connection may get the same id.
        """
        try:
            return self._connections[id(dbapi_connection)]
        except KeyError:
            return self._new_state(dbapi_connection)

    def _new_state(self, dbapi_connection: object) -> ConnectionState:
        if self.inherited_by_threads and threading.get_ident() != self.thread:
            self.note(
                "statements of other threads are in the recording: on this Python they inherit its context "
                "(thread_inherit_context), on others they are missed"
            )
        connection = driver_connection(dbapi_connection)
        if connection is not dbapi_connection:
            state = self.connection_state(connection)
        else:
            state = ConnectionState(meter_of(connection) if self.options.counts_bytes else None)
            if connection is not None:
                self._connection_count += 1
                state.number, state.database = self._connection_count, database_address(connection)
                state.identity = database_identity(connection, state.database, state.number)
            self._states[None if connection is None else id(connection)] = state
        key = id(dbapi_connection)
        if dbapi_connection is not None:
            recording = ref(self)

            def forget(_gone: object) -> None:
                # The time of the connection stays: with NullPool there is a connection for each checkout.
                if (alive := recording()) is not None:
                    alive._connections.pop(key, None)
                    alive._kept.pop(key, None)
                    if (gone := alive._states.pop(key, None)) is not None:
                        alive._gone_s += gone.measured_s
                        alive._gone_rows += gone.row_count

            try:
                self._kept[key] = ref(dbapi_connection, forget)
            except TypeError:  # an object without weak references stays until the recording has ended
                self._kept[key] = dbapi_connection
        return self._connections.setdefault(key, state)

    def engine_number(self, dialect: Any) -> int:
        """Return the number of the engine with this dialect in this recording, from 1 on."""
        return self._engines.setdefault(dialect, len(self._engines) + 1)

    def start_statement(self, dbapi_connection: object, sql: str, step: str | None = None) -> PendingStatement:
        """Start a statement, or a transaction step if *step* is given, on a connection; keep it if there is space."""
        pending = PendingStatement(self, self.connection_state(dbapi_connection), sql, step)
        self.keep(pending)
        return pending

    def keep(self, pending: PendingStatement) -> None:
        """Keep a statement or step that has begun, or only count it if the recording is full."""
        kept = self.statements
        if pending.step is not None:
            kept = self.steps
            self.duplicates.end_writes(pending.connection, pending.step)
        if len(kept) < self.options.max_statements:
            kept.append(pending)
        else:
            self.dropped += 1
            pending.__class__ = _UnkeptStatement
            self._unkept.add(cast(_UnkeptStatement, pending))

    @guarded
    def add_unkept(self, pending: PendingStatement) -> None:
        """Add the figures of a statement or step that is not kept to the sums."""
        self._unkept_rows += pending.fetched_rows or 0
        if pending.step is None:
            pending.plan_text = None  # reading it would take longer than all the rest
            statement = pending.to_statement(self.started)
            counts = ("row_count", "round_trips", "bytes_sent", "bytes_received")
            sums: dict[str, Any] = {
                "uncounted": int(statement.is_uncounted),
                "unknown_round_trips": int(statement.has_unknown_round_trips),
            }
            for name in (*counts, "compile_s", "pool_wait_s", "execute_s", "fetch_s"):
                sums[name] = getattr(statement, name)
            self.unkept.add(Unkept(statements=1, **sums))
            self._add_to_place(statement)
            return
        step = pending.to_transaction(self.started)
        times: dict[str, Any] = {"connect_s" if step.kind == "CONNECT" else "transactions_s": step.elapsed_s}
        unknown = int(step.has_unknown_round_trips)
        self.unkept.add(Unkept(round_trips=step.round_trips, unknown_round_trips=unknown, **times))

    def _add_to_place(self, statement: Statement) -> None:
        """Count a statement that is not kept under the place where it ran, unless there are too many places."""
        key = statement.fingerprint, statement.caller, statement.outer_caller, statement.database_number
        place = self._unkept_places.get(key)
        if place is None:
            if len(self._unkept_places) >= _MAX_UNKEPT_PLACES:
                return
            place = self._unkept_places[key] = UnkeptStatements(statement)
        place.add(statement)

    def start_checkout(self, requested: float | None, pending: int, pool: Any) -> "PendingCheckout":
        """Start a checkout of *pool* that was requested at *requested*; keep it unless the recording is full."""
        checkout = PendingCheckout(self.clock, requested, pending, pool)
        if len(self.checkouts) < self.options.max_statements:
            self.checkouts.append(checkout)
        return checkout

    def add_span(self, label: str, started: float) -> None:
        """Keep a span that the user began at *started* and that ends now, unless the recording is full."""
        if len(self.spans) < self.options.max_statements:
            self.spans.append((label, started, self.clock()))
        else:
            self.dropped += 1

    def sql_s(self) -> float:
        """Return the seconds charged to statements and transaction steps, dropped ones included."""
        states, gone_s, _ = self._all_states()
        return gone_s + sum(state.measured_s for state in states.values())

    def fetched_rows(self) -> int:
        """Return the rows that were fetched, as the statements and steps have counted them, dropped ones included."""
        kept = sum([each.fetched_rows or 0 for each in self.statements])
        return kept + sum([each.fetched_rows or 0 for each in self.steps]) + self._unkept_rows

    def handed_out_rows(self) -> int:
        """Return the rows that were fetched, as their connections have counted them."""
        states, _, gone_rows = self._all_states()
        return gone_rows + sum(state.row_count for state in states.values())

    def add_plan_setup(self, seconds: float) -> None:
        """Charge the time that switching plans on or off took to the profiler."""
        self.plan_setup_s += seconds
        self.overhead_s += seconds

    def _all_states(self) -> tuple[dict[int | None, ConnectionState], float, int]:
        """Return the states of the connections that are there, and the seconds and rows of those that are gone.

        They belong together, although the garbage collector may drop connections at any time. In Python 3.11 a
        collection inside `dict.copy()`, or between the pairs of `list(items())`, breaks these.
        """
        while True:
            gone = self._gone_s, self._gone_rows
            states = {key: state for key in list(self._states) if (state := self._states.get(key)) is not None}
            if gone == (self._gone_s, self._gone_rows):
                return states, *gone

    def _open_transactions(self) -> list[int]:
        """Return the numbers of the transactions that the driver has open now; a closed connection has none.

        A connection on which a statement still runs is in its transaction. It is not asked: sqlite3 would wait for the
        statement with the GIL held, for ever if that calls a function in Python.
        """
        found = []
        running = {id(each.connection) for each in self.statements if each.execute_s is None and each.error is None}
        for key, state in self._all_states()[0].items():
            kept = None if key is None else self._kept.get(key)
            connection: Any = kept() if isinstance(kept, ref) else kept
            closed = getattr(connection, "closed", False) or not getattr(connection, "open", True)
            if state.transaction is None or closed or not hasattr(connection, "in_a_transaction"):
                continue
            try:
                if id(state) in running or connection.in_a_transaction():
                    found.append(state.transaction)
            except Exception as error:  # noqa: BLE001  the driver's error for a connection that it has closed
                _LOG.debug("a connection does not tell whether it is in a transaction", exc_info=error)
        return found

    def _overlapping(self) -> bool:
        """Return whether the driver executed two statements at the same time, which takes two connections."""
        every = [each for each in (*self.statements, *self.steps) if each.execute_s is not None]
        if len({id(each.connection) for each in every}) < 2:
            return False
        latest = float("-inf")
        for each in sorted(every, key=lambda each: each.started):
            if each.started < latest:
                return True
            latest = max(latest, each.started + (each.execute_s or 0.0))
        return False

    def fill(self, recording: RecordingData, *, measured: bool) -> None:
        """Write everything seen into *recording*; *measured* is False if the hooks were off."""
        recording.elapsed_s, recording.cpu_s = self.elapsed_s, self.cpu_s
        recording.kind, recording.route, recording.status = self.kind, self.route, self.status
        recording.started_at, recording.identifier, recording.cause = self.started_unix_s, self.identifier, self.cause
        if measured and self._clock_works:
            recording.sql_s, recording.gc_s, recording.gc_collections = self.sql_s(), self.gc_s, self.gc_collections
            recording.overhead_s = self.overhead_s
        # A statement that was prepared and never executed is a step.
        steps = sorted((*self.steps, *(each for each in self.statements if each.step)), key=lambda each: each.started)
        kept = [pending for pending in self.statements if not pending.step]
        self.origins = LoopOrigins()  # the rows that it has kept may be large
        recording.statements = [pending.to_statement(self.started) for pending in kept]
        recording.transactions = [pending.to_transaction(self.started) for pending in steps]
        recording.spans = [Span(label, start - self.started, end - start) for label, start, end in self.spans]
        recording.loop_blocks = self.loop_blocks()
        recording.checkouts = tuple(pending.to_checkout(self.started) for pending in self.checkouts)
        recording.timeline = (RecordedRequest(self.name, self.started_unix_s, self.elapsed_s),)
        for unkept in list(self._unkept):
            unkept.add_to_sums()
        if self.dropped:
            limit = units.count(self.options.max_statements)
            self.note(
                f"{units.count(self.dropped)} statements, steps and spans beyond the limit of {limit} are in the sums "
                "and in the findings n+1 and duplicate alone: the list of statements and the other findings are those "
                "of the first ones"
            )
        recording.dropped, recording.unkept = self.dropped, replace(self.unkept)
        recording.unkept_places = places = tuple(replace(place) for place in list(self._unkept_places.values()))
        if unplaced := recording.unkept.statements - sum(place.count for place in places):
            limit = units.count(_MAX_UNKEPT_PLACES)
            self.note(f"{units.numbered(unplaced, 'statement')} at more than {limit} places are in no finding")
        recording.error = self.error
        if late := sum(pending.awaits_plan for pending in self.statements):
            self.note(f"no plans of {units.numbered(late, 'statement')}: the transaction went on after the recording")
        if several := sum(pending.holds_several() for pending in self.statements):
            self.note(f"{units.numbered(several, 'text')} with several statements: each is counted as one statement")
        running = sum([each.execute_s is None and each.error is None for each in recording.statements])
        if running:
            what = "their times and rows are" if running > 1 else "its time and rows are"
            self.note(f"{units.numbered(running, 'statement')} still ran when the recording ended: {what} not in it")
        uncounted = sum([each.is_uncounted and each.execute_s is not None for each in recording.statements])
        if uncounted := uncounted + recording.unkept.uncounted:
            self.note(
                f"the rows of {units.numbered(uncounted, 'statement')} are not measured: "
                "the driver did not report them, and no fetch was seen"
            )
        for what, count in self.started_unseen.items():
            started = f"1 {what} was started; its"
            if count > 1:
                started = f"{units.count(count)} {what}{'es' if what.endswith('s') else 's'} were started; their"
            self.note(f"{started} statements are not in this recording")
        recording.open_transactions = tuple((1, number) for number in self._open_transactions())
        if recording.open_transactions:
            opened = units.numbered(len(recording.open_transactions), "transaction")
            self.note(f"{opened} still open at the end of the recording: its COMMIT or ROLLBACK is not in it")
        recording.missed = self.missed
        recording.overlapping = self._overlapping()
        recording.plan_setup_s = self.plan_setup_s
        recording.failed_hooks = tuple(sorted(self.failed_hooks))
        if (breach := row_breach(recording.statements, kept, self) or self.row_breach) is not None:
            self.breaches.append(breach)
            recording.statements = [replace(each, row_count=None) for each in recording.statements]
            recording.unkept.row_count, recording.unkept.uncounted = None, recording.unkept.statements
        recording.breaches = tuple(self.breaches)
        recording.notes = (*recording.gaps, *self.notes)

    def loop_blocks(self) -> tuple[LoopBlock, ...]:
        """Return the stretches in which this recording held its event loop, as far as they are known now."""
        return tuple(block.to_block(self.started) for block in self.blocks)

    @guarded
    def absorb(self, inner: "ActiveRecording") -> None:
        """Add everything that *inner*, a record inside of this one, has seen.

        From now on its connections are those of this record: what is still fetched there is in the sums of both.
        """
        states: dict[int, ConnectionState] = {}
        own_states, gone_s, gone_rows = inner._all_states()
        for number, state in own_states.items():
            kept = None if number is None else inner._kept.get(number)
            connection: Any = kept() if isinstance(kept, ref) else kept
            if number is None or connection is not None:
                own_state = states[id(state)] = self.connection_state(connection)
                own_state.measured_s += state.measured_s
                own_state.row_count += state.row_count
            else:
                self._gone_s += state.measured_s
                self._gone_rows += state.row_count
        self._gone_s += gone_s
        self._gone_rows += gone_rows
        self._unkept_rows += inner._unkept_rows
        for pending in (*inner.statements, *inner.steps):
            pending.connection = states.get(id(pending.connection), pending.connection)
        limit = self.options.max_statements
        for own, theirs in ((self.statements, inner.statements), (self.steps, inner.steps)):
            free = max(0, limit - len(own))
            own.extend(theirs[:free])
            self.dropped += len(theirs[free:])
            for pending in theirs[free:]:
                self.add_unkept(pending)
        self.dropped += max(0, len(self.spans) + len(inner.spans) - limit)
        self.spans.extend(inner.spans[: max(0, limit - len(self.spans))])
        self.checkouts.extend(inner.checkouts[: max(0, limit - len(self.checkouts))])
        self.dropped += inner.dropped
        self.unkept.add(inner.unkept)
        for key, place in list(inner._unkept_places.items()):
            if (own_place := self._unkept_places.get(key)) is not None:
                own_place.add_all(place)
            elif len(self._unkept_places) < _MAX_UNKEPT_PLACES:
                self._unkept_places[key] = replace(place)
        self.blocks.extend(inner.blocks)
        self.note(*inner.notes)
        self.started_unseen += inner.started_unseen
        self.failed_hooks |= inner.failed_hooks
        self.plan_setup_s += inner.plan_setup_s
        self.gc_s += inner.gc_s
        self.overhead_s += inner.overhead_s
        self.gc_collections += inner.gc_collections
        self.breaches += [each for each in inner.breaches if each not in self.breaches]


class _UnkeptStatement(PendingStatement):
    """A statement beyond the limit: once no code can execute or fetch it any more, only its figures stay."""

    summed = False

    def add_to_sums(self) -> None:
        """Add the measurements of this statement to the sums, once."""
        if not self.summed:
            self.summed = True
            cast(ActiveRecording, self.recording).add_unkept(self)

    def __del__(self) -> None:
        self.add_to_sums()


class PendingCheckout:
    """A connection from its checkout until it is returned; *pool* is SQLAlchemy's pool, or None for another one.

    database: the address that names the pool if it has no name of its own.
    """

    database: DatabaseAddress | None = None
    create_s: float | None = None
    timed_out = False
    _returned: float | None = None

    def __init__(self, clock: Clock, requested: float | None, pending: int, pool: Any) -> None:
        self._clock = clock
        self._came = clock()
        self._requested = requested
        self._pending = pending
        self._name: str | None = getattr(pool, "logging_name", None)
        # Only a pool with a queue counts them.
        has_queue = hasattr(pool, "_max_overflow")
        self._used: int | None = pool.checkedout() if has_queue else None
        self._idle: int | None = pool.checkedin() if has_queue else None
        self._size: int | None = pool.size() if has_queue else None
        has_limit = has_queue and pool._max_overflow >= 0
        self._limit: int | None = pool.size() + pool._max_overflow if has_limit else None

    def end(self) -> None:
        """Record that the connection is returned to its pool now."""
        self._returned = self._clock()

    def to_checkout(self, origin: float) -> Checkout:
        """Return the checkout with its time relative to *origin*, the start of the recording."""
        came = self._came
        return Checkout(
            pool=self._name or str(self.database or "unknown"),
            started_s=(came if self._requested is None else self._requested) - origin,
            wait_s=None if self._requested is None else came - self._requested,
            create_s=self.create_s,
            use_s=None if self._returned is None else self._returned - came,
            pending=self._pending,
            used=self._used,
            idle=self._idle,
            size=self._size,
            limit=self._limit,
            timed_out=self.timed_out,
        )


class ProcessRecording:
    """Holds the recording of the whole process, in place of a ContextVar for each thread or task."""

    def __init__(self) -> None:
        self._recording: ActiveRecording | None = None

    def get(self) -> ActiveRecording | None:
        """Return the recording that runs; None if there is none."""
        return self._recording

    def within(self, _context: Context) -> ActiveRecording | None:
        """Return the recording that runs, which is that of every task."""
        return self._recording

    def set(self, recording: ActiveRecording | None) -> None:
        """Have every thread and task write into *recording*."""
        self._recording = recording


class ProgramRecording:
    """Holds the recording of each thread or task, and the program's recording for those without their own.

    A thread or greenlet begins with an empty context, whoever starts it.
    """

    def __init__(self) -> None:
        self._own: ContextVar[ActiveRecording | None] = ContextVar("placebench_recording")
        self._programs: ActiveRecording | None = None

    def get(self) -> ActiveRecording | None:
        """Return the recording that runs in this thread or task, or else the program's."""
        return self._own.get(self._programs)

    def within(self, context: Context) -> ActiveRecording | None:
        """Return the recording of the thread or task with this *context*, or else the program's."""
        return context.get(self._own, self._programs)

    def set(self, recording: ActiveRecording | None) -> None:
        """Have this thread or task write into *recording*; the first recording becomes the program's."""
        self._programs = self._programs or recording
        self._own.set(recording)


_BACKGROUND: Any = object()
"""Stands for the recording of the background, which another one replaces after a fork."""


class BackgroundRecording(ProgramRecording):
    """Holds the recordings of requests, and one for everything that the process does outside of them."""

    def own(self) -> ActiveRecording | None:
        """Return the recording that runs in this thread or task; None if there is only that of the background."""
        own = self._own.get(None)
        return None if own is _BACKGROUND else own

    def get(self) -> ActiveRecording | None:
        """Return the recording that runs in this thread or task, or else that of the background."""
        own = self._own.get(_BACKGROUND)
        return self._programs if own is _BACKGROUND else own

    def within(self, context: Context) -> ActiveRecording | None:
        """Return the recording of the thread or task with this *context*, or else that of the background."""
        own = context.get(self._own, _BACKGROUND)
        return self._programs if own is _BACKGROUND else own

    def set(self, recording: ActiveRecording | None) -> None:
        """Have this thread or task write into *recording*; the background's is that of all without their own."""
        self._own.set(_BACKGROUND if recording is self._programs else recording)

    def replace(self, recording: ActiveRecording) -> ActiveRecording | None:
        """Have threads and tasks without their own recording write into *recording*; return the one before."""
        before, self._programs = self._programs, recording
        return before


CurrentRecording = ContextVar[ActiveRecording | None] | ProcessRecording | ProgramRecording
"""The place where hooks find the running recording."""
