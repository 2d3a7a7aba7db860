"""The recording while it runs: what the hooks and the timed cursors write into.

The main class is `ActiveRecording`. Each record has its own, reached by a ContextVar, so that requests in different
threads, tasks and greenlets never mix. Its memory is bounded: after so many statements the next ones are counted, not
kept.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from placebench.profiler.capture.connection_state import ConnectionState, driver_connection
from placebench.profiler.capture.options import Clocks, Options, inside_event_loop
from placebench.profiler.capture.pending_statement import PendingStatement, RecordingContext
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Span

if TYPE_CHECKING:
    from placebench.profiler.capture.flame_graph import FlameGraphRecorder


class ActiveRecording(RecordingContext):
    """Everything one record has seen so far, in stamps of its clock."""

    def __init__(
        self,
        name: str,
        options: Options,
        clocks: Clocks,
        give_up: Callable[[Exception], None],
        flame_graph: "FlameGraphRecorder | None" = None,
    ) -> None:
        super().__init__(options, clocks.elapsed_safely(give_up), give_up, flame_graph)
        self.name = name
        self.statements: list[PendingStatement] = []
        self.steps: list[PendingStatement] = []
        self.spans: list[tuple[str, float, float]] = []
        self.executing: dict[int, PendingStatement] = {}
        self.transaction_count = 0
        self.dropped = 0
        self.gc_s = 0.0
        self.gc_collections = 0
        self.gc_started: float | None = None
        self.error: str | None = None
        self._connections: dict[int, ConnectionState] = {}
        self._cpu = clocks.cpu
        self._thread = threading.get_ident()
        self._cpu_started = None if inside_event_loop() else self._cpu()
        self.started = self.clock()
        self.elapsed_s = 0.0
        self.cpu_s: float | None = None

    def end(self) -> None:
        """Take the final times; has to come before any work of the profiler's own."""
        self.elapsed_s = self.clock() - self.started
        # Another thread's CPU time says nothing about this record.
        if self._cpu_started is not None and threading.get_ident() == self._thread:
            self.cpu_s = self._cpu() - self._cpu_started

    def connection_state(self, dbapi_connection: object) -> ConnectionState:
        """The state of a driver's connection (None: of what has no connection).

        Found by id, so that nothing keeps a connection alive; an id used again finds an idle state, which is harmless.
        """
        key = id(dbapi_connection)
        try:
            return self._connections[key]
        except KeyError:
            connection = driver_connection(dbapi_connection)
            if connection is not dbapi_connection:
                return self._connections.setdefault(key, self.connection_state(connection))
            metered = self.options.mode != "light"
            meter = getattr(connection, "placebench_meter", None) if metered else None
            return self._connections.setdefault(key, ConnectionState(meter))

    def start_statement(self, dbapi_connection: object, sql: str, step: str | None = None) -> PendingStatement:
        """A new statement, or with *step* a transaction step, on that connection; kept unless the recording is full."""
        pending = PendingStatement(self, self.connection_state(dbapi_connection), sql, step)
        kept = self.statements if step is None else self.steps
        if len(kept) < self.options.max_statements:
            kept.append(pending)
        else:
            self.dropped += 1
        return pending

    def add_span(self, label: str, started: float) -> None:
        """Keep a span of the user's that ends now, unless the recording is full."""
        if len(self.spans) < self.options.max_statements:
            self.spans.append((label, started, self.clock()))
        else:
            self.dropped += 1

    def sql_s(self) -> float:
        """Seconds charged to statements and transaction steps, dropped ones included."""
        # An async connection has two names: SQLAlchemy's adapter and the driver's own.
        return sum(state.measured_s for state in {id(state): state for state in self._connections.values()}.values())

    def fill(self, recording: RecordingData, *, measured: bool) -> None:
        """Write what was seen into *recording*; *measured* is False if the hooks were off."""
        recording.elapsed_s, recording.cpu_s = self.elapsed_s, self.cpu_s
        if measured:
            recording.sql_s, recording.gc_s, recording.gc_collections = self.sql_s(), self.gc_s, self.gc_collections
            recording.overhead_s = self.overhead_s
        recording.statements = [pending.to_statement(self.started) for pending in self.statements]
        recording.transactions = [pending.to_transaction(self.started) for pending in self.steps]
        recording.spans = [Span(label, start - self.started, end - start) for label, start, end in self.spans]
        recording.dropped = self.dropped
        recording.error = self.error
        recording.notes = tuple(self.notes)

    def absorb(self, inner: "ActiveRecording") -> None:
        """Take over what a record inside of this one has seen."""
        limit = self.options.max_statements
        for own, theirs in ((self.statements, inner.statements), (self.steps, inner.steps)):
            free = max(0, limit - len(own))
            own.extend(theirs[:free])
            self.dropped += len(theirs[free:])
        self.spans.extend(inner.spans)
        self.dropped += inner.dropped
        self.note(*inner.notes)
        self.gc_s += inner.gc_s
        self.overhead_s += inner.overhead_s
        self.gc_collections += inner.gc_collections
        self.connection_state(None).measured_s += inner.sql_s()
