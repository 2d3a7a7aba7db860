"""The live side of a recording: what the hooks write while it runs.

The key piece is `Tape`. Each record has its own, reached by a ContextVar, so that requests in different threads, tasks
and greenlets never mix. Its memory is bounded: after so many statements the next ones are counted, not kept.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placebench.profiler.capture.pending_statement import Draft, Flow, Repetition
from placebench.profiler.drivers import physical
from placebench.profiler.model.recording import Recording
from placebench.profiler.model.statement import Span

if TYPE_CHECKING:
    from placebench.profiler.capture.flame import Flame

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Options:
    """What a recording is asked for.

    mode: "light" (times, rows, fingerprints), "full" (call sites and bytes too), "flame" (Python's stacks too) or
        "plans" (the plans of PostgreSQL too); "sampled" is full with an estimated flame.
    explain: in mode "plans", ask EXPLAIN for an estimated plan where the server does not send the actual one.
    parameters: keep bound values, literals and messages of errors; they may be secrets.
    max_statements: how many statements, and how many transaction steps, are kept; the others are counted.
    """

    mode: str = "full"
    parameters: bool = False
    max_statements: int = 10_000
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Clocks:
    """Where time comes from: elapsed time, and the CPU time of the running thread; seconds."""

    elapsed: Clock = time.perf_counter
    cpu: Clock = time.thread_time


class Tape:
    """Everything one record has seen so far, in stamps of its clock."""

    def __init__(
        self,
        name: str,
        options: Options,
        clocks: Clocks,
        give_up: Callable[[Exception], None],
        flame: "Flame | None" = None,
    ) -> None:
        self.name = name
        self.options = options
        self.clock = clocks.elapsed if clocks.elapsed is time.perf_counter else steady(clocks.elapsed, give_up)
        self.give_up = give_up
        self.statements: list[Draft] = []
        self.steps: list[Draft] = []
        self.spans: list[tuple[str, float, float]] = []
        self.running: dict[int, Draft] = {}
        self.begun = 0
        self.dropped = 0
        self.gc_s = 0.0
        self.own_s = 0.0
        self.gc_collections = 0
        self.gc_started: float | None = None
        self.error: str | None = None
        self.notes: list[str] = []
        self.repetition = Repetition()
        self.flame = flame
        self._flows: dict[int, Flow] = {}
        self._cpu = clocks.cpu
        self._thread = threading.get_ident()
        self._cpu_started = None if inside_event_loop() else self._cpu()
        self.started = self.clock()
        self.elapsed_s = 0.0
        self.cpu_s: float | None = None

    def note(self, remark: str) -> None:
        """Say once what this recording could not measure."""
        if remark not in self.notes:
            self.notes.append(remark)

    def note_all(self, remarks: Iterable[str]) -> None:
        """Each of them, once."""
        for remark in remarks:
            self.note(remark)

    def leaf(self, started: float, ended: float, label: str, kind: str, draft: Draft | None = None) -> None:
        """Put something on the frame that runs now, if this record is a flame; below it the plan of *draft*."""
        try:
            if self.flame is not None:
                self.flame.add(started, ended, label, kind, draft)
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            self.give_up(error)

    def end(self) -> None:
        """Take the final times; has to come before any work of the profiler's own."""
        self.elapsed_s = self.clock() - self.started
        # Another thread's CPU time says nothing about this record.
        if self._cpu_started is not None and threading.get_ident() == self._thread:
            self.cpu_s = self._cpu() - self._cpu_started

    def flow(self, dbapi_connection: object) -> Flow:
        """The flow of a driver's connection (None: of what has no connection).

        Found by id, so that nothing keeps a connection alive; an id used again finds an idle flow, which is harmless.
        """
        key = id(dbapi_connection)
        try:
            return self._flows[key]
        except KeyError:
            connection = physical(dbapi_connection)
            if connection is not dbapi_connection:
                return self._flows.setdefault(key, self.flow(connection))
            metered = self.options.mode != "light"
            meter = getattr(connection, "placebench_meter", None) if metered else None
            return self._flows.setdefault(key, Flow(meter))

    def draft(self, dbapi_connection: object, sql: str, step: str | None = None) -> Draft:
        """A new draft on that connection, kept unless the recording is full."""
        draft = Draft(self, self.flow(dbapi_connection), sql, step)
        kept = self.statements if step is None else self.steps
        if len(kept) < self.options.max_statements:
            kept.append(draft)
        else:
            self.dropped += 1
        return draft

    def span(self, label: str, started: float) -> None:
        """Keep a span of the user's that ends now, unless the recording is full."""
        if len(self.spans) < self.options.max_statements:
            self.spans.append((label, started, self.clock()))
        else:
            self.dropped += 1

    def sql_s(self) -> float:
        """Seconds charged to statements and transaction steps, dropped ones included."""
        # An async connection has two names: SQLAlchemy's adapter and the driver's own.
        return sum(flow.measured_s for flow in {id(flow): flow for flow in self._flows.values()}.values())

    def fill(self, recording: Recording, *, measured: bool) -> None:
        """Write what was seen into *recording*; *measured* is False if the hooks were off."""
        recording.elapsed_s, recording.cpu_s = self.elapsed_s, self.cpu_s
        if measured:
            recording.sql_s, recording.gc_s, recording.gc_collections = self.sql_s(), self.gc_s, self.gc_collections
            recording.own_s = self.own_s
        recording.statements = [draft.statement(self.started) for draft in self.statements]
        recording.transactions = [draft.transaction(self.started) for draft in self.steps]
        recording.spans = [Span(label, start - self.started, end - start) for label, start, end in self.spans]
        recording.dropped = self.dropped
        recording.error = self.error
        recording.notes = tuple(self.notes)

    def absorb(self, inner: "Tape") -> None:
        """Take over what a record inside of this one has seen."""
        limit = self.options.max_statements
        for own, theirs in ((self.statements, inner.statements), (self.steps, inner.steps)):
            room = max(0, limit - len(own))
            own.extend(theirs[:room])
            self.dropped += len(theirs[room:])
        self.spans.extend(inner.spans)
        self.dropped += inner.dropped
        self.note_all(inner.notes)
        self.gc_s += inner.gc_s
        self.own_s += inner.own_s
        self.gc_collections += inner.gc_collections
        self.flow(None).measured_s += inner.sql_s()


def steady(clock: Clock, give_up: Callable[[Exception], None]) -> Clock:
    """*clock* without its failures: it stands still instead, and *give_up* is told."""
    last = 0.0

    def never_raises() -> float:
        nonlocal last
        try:
            last = clock()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            give_up(error)
        return last

    return never_raises


def inside_event_loop() -> bool:
    """Whether this thread runs an event loop, whose tasks share its CPU time."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
