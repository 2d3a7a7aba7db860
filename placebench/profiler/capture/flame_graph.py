"""A flame graph of Python and SQL: samples of Python's stacks, with each statement as a leaf on the frame that ran it.

The main class is `FlameGraphRecorder`: the samples of one record, by a profile function or by a sampling thread
(`_start_sampler`), and its SQL intervals, which `capture.timeline` puts together at the end.
"""

import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Literal, Protocol, TypeVar

from placebench.profiler.capture.call_sites import CallSites, application_frame
from placebench.profiler.capture.options import CLOCK_TICK_S, Clock, inside_event_loop, inside_greenlets
from placebench.profiler.capture.sampling_thread import ThreadSamples, profile_function_defect, thread_interval_s
from placebench.profiler.capture.stack import (
    Frames,
    Stacks,
    awaiting_frames,
    frames_of,
    leaf,
    once_each,
    root_of_thread,
)
from placebench.profiler.capture.timeline import (
    FULL_NOTE,
    OVERLAP_NOTE,
    SHARED_NOTE,
    HasPlan,
    RecordedStatement,
    Sample,
    StackInterval,
    application_records,
    call_site_stack,
    innermost,
    make_session,
    notes_on_waits,
    rooted,
    timeline,
    with_collections,
    with_plans,
    with_short_calls,
)
from placebench.profiler.model.session import FlameSession
from placebench.profiler.model.statement import Caller

_T = TypeVar("_T")
_MAX_INTERVALS = 100_000
_MAX_CALLS = 10_000
"""Maximum number of calls in other threads that are sampled; beyond that their time is where they are awaited."""
_SHARED_INTERVAL_S = 0.005
_MAX_SHORT_COLLECTION_S = 0.001
"""Shorter garbage collections are on the stack that was sampled: to read their own costs as much as they do."""

_NotedInterval = tuple[float, float, Frames, Callable[[], str], str, HasPlan | None]
"""An interval as it was noted: start, end, frames, text and kind of its leaf, statement. Frames are named later."""


class _SampleSource(Protocol):
    """Samples the stack of the thread that creates it.

    interval_s: the time between samples, if Python allows it. holds: whether a sample also describes the time after it;
    a sample taken when a function returns does not.
    """

    interval_s: float
    holds: bool

    def samples(self) -> list[Sample]:
        """Stop sampling, and return the samples in order of time."""


def _start_sampler(mode: str, clock: Clock, report_failure: Callable[[Exception], None]) -> _SampleSource:
    """Start the sampler of this thread for a mode with a flame graph.

    A sampling thread is used in mode "sampled", if a profile function can crash this version of Python, and in an
    event loop that has a profile function already: two of them would each take a sample whenever a task resumes.
    Greenlets are sampled by a profile function unless it can crash.
    """
    interval_s = thread_interval_s(mode)
    # A sampling thread would be a greenlet itself, and see this greenlet only while it waits.
    if inside_greenlets() and not profile_function_defect():
        interval_s = None
    if interval_s is not None:
        return ThreadSamples(clock, interval_s, report_failure)
    from placebench.profiler.capture.profile_function import Sampler, is_sampled

    if inside_event_loop() and not inside_greenlets() and is_sampled():
        return ThreadSamples(clock, _SHARED_INTERVAL_S, report_failure)
    return Sampler(clock, report_failure)


class _WorkerCall:
    """A call in another thread than that of the record, and its samples once it has ended."""

    def __init__(self, started: float, samples: ThreadSamples) -> None:
        self.started, self.ended = started, started
        self.taken: list[Sample] = []
        self._samples: ThreadSamples | None = samples

    def end(self, now: float) -> None:
        """Stop sampling; idempotent."""
        samples, self._samples = self._samples, None
        if samples is not None:
            self.ended = now
            self.taken = [each for each in samples.samples() if self.started <= each[0] < now]


class FlameGraphRecorder:
    """Samples the thread that creates it until `stop` is called.

    is_exact: whether each statement's leaves must be all of its execute and fetch; known when it has stopped.
    others_s: the time of threads beside that of the recording, which has none here.
    """

    is_external: Literal[False] = False
    is_exact = False
    others_s = 0.0

    def __init__(
        self, mode: str, clock: Clock, caller: FrameType | None, report_failure: Callable[[Exception], None]
    ) -> None:
        self._noted: list[_NotedInterval] = []
        self._short_collections: list[tuple[float, float, str]] = []
        self._thread = threading.get_ident()
        self._has_other_threads = False
        self._calls: list[_WorkerCall] = []
        self._clock, self._report_failure = clock, report_failure
        self._root = root_of_thread()
        self._stacks = Stacks(self._root)
        self.call_sites: CallSites = CallSites()
        self._with_leaf = once_each(lambda frames, text: [*frames, text])
        self._above = self._stacks(frames_of(application_frame(caller)))
        self._cpu_started = time.process_time()
        self._source = _start_sampler(mode, clock, report_failure)
        self.notes: tuple[str, ...] = _notes(mode, self._source)

    def run_in_worker(self, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Make a call in a thread of a pool that the record's own thread waits for, and sample it meanwhile."""
        if threading.get_ident() == self._thread or len(self._calls) >= _MAX_CALLS:
            return call(*args, **kwargs)
        try:
            samples = ThreadSamples(self._clock, _SHARED_INTERVAL_S, self._report_failure, root=self._root)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._report_failure(error)
            return call(*args, **kwargs)
        began = _WorkerCall(self._clock(), samples)
        self._calls.append(began)
        try:
            return call(*args, **kwargs)
        finally:
            try:
                began.end(self._clock())
            except Exception as error:  # noqa: BLE001  as above
                self._report_failure(error)

    def add(
        self, started: float, ended: float, label: Callable[[], str], kind: str, statement: HasPlan | None = None
    ) -> None:
        """Add an interval of the running frame, unless the flame graph is full.

        Its stack includes the profiler's own frames, which `without_profiler` removes at the end.
        """
        if threading.get_ident() != self._thread:
            self._has_other_threads = True
        if kind == "gc" and ended - started < _MAX_SHORT_COLLECTION_S:
            self._short_collections.append((started, ended, leaf(label(), kind)))
        elif len(self._noted) < _MAX_INTERVALS:
            frames = getattr(statement, "frames", None)
            # SQLAlchemy's call of the dialect is above this method, two of the statement, the cursor's and the hook.
            if frames is None or sys._getframe(5).f_code is not frames[0]:
                frames = frames_of(sys._getframe(2))
                frames += awaiting_frames()
            self._noted.append((started, ended, frames, label, kind, statement))

    def stop(self, started: float, ended: float, statements: Sequence[RecordedStatement] = ()) -> FlameSession:
        """Return the session from *started* to *ended*; must be called by the thread that made the recorder.

        statements: those of the recording, and its transaction steps.
        """
        samples = self._samples()
        noted = self._intervals()
        overlaps = [each for each in noted if each.ended > ended + CLOCK_TICK_S]
        intervals = innermost(with_plans(noted), overlaps)
        whole = StackInterval(started, ended, self._above, leaves=0)
        # All of them now: what is noted of other threads from now on belongs to no leaf.
        in_order = with_short_calls(list(intervals), self._short_calls(noted, statements, samples), whole, overlaps)
        stacks = timeline(samples, in_order, whole, holds=self._source.holds)
        if self._short_collections:
            stacks = list(with_collections(stacks, sorted(self._short_collections), started))
        records = application_records(stacks)
        is_full = len(noted) >= _MAX_INTERVALS
        self.is_exact = not (overlaps or is_full or self._has_other_threads)
        self.notes += (OVERLAP_NOTE,) * bool(overlaps) + (FULL_NOTE.format(_MAX_INTERVALS),) * is_full
        self.notes = (*self.notes, *notes_on_waits(records, is_external=False))
        return make_session(
            records,
            self._above,
            ended - started,
            samples=len(samples),
            interval_s=self._source.interval_s,
            cpu_s=time.process_time() - self._cpu_started,
        )

    def _samples(self) -> list[Sample]:
        """Return the samples of the record's thread, and in place of them those of a worker while it makes a call."""
        samples = [(taken, rooted(stack, self._above)) for taken, stack in self._source.samples()]
        for call in self._calls:
            call.end(self._clock())
            times = [taken for taken, _ in samples]
            samples[bisect_left(times, call.started) : bisect_left(times, call.ended)] = call.taken
        return samples

    def _intervals(self) -> list[StackInterval]:
        return [
            StackInterval(
                started,
                ended,
                self._with_leaf(self._stacks(frames), leaf(label(), kind)),
                statement,
                owner=getattr(label, "__self__", None),
            )
            for started, ended, frames, label, kind, statement in list(self._noted)
        ]

    def _short_calls(
        self, noted: Sequence[StackInterval], statements: Sequence[RecordedStatement], samples: Sequence[Sample]
    ) -> list[StackInterval]:
        """Return, for each statement with calls too short to be noted, an interval of their seconds from its start on.

        Its stack is that of the statement's own leaf, or of another call at the same place, or it is the application's
        lines below what was sampled before and after it.
        """
        noted_s: dict[object, float] = {}
        stacks: dict[object, list[str]] = {}
        frames_at: dict[tuple[Caller | None, Caller | None], list[str]] = {}
        for each in noted:
            owner: Any = each.owner
            if owner is not None:
                noted_s[owner] = noted_s.get(owner, 0.0) + each.ended - each.started
                stacks.setdefault(owner, each.stack)
                if (place := (owner.caller, owner.outer_caller)) not in frames_at:
                    frames_at[place] = each.frames
        times = [taken for taken, _ in samples]
        short = []
        for pending in statements:
            seconds = (pending.execute_s or 0.0) + (pending.fetch_s or 0.0) - noted_s.get(pending, 0.0)
            if seconds <= CLOCK_TICK_S:
                continue
            stack = stacks.get(pending)
            if stack is None:
                place = pending.caller, pending.outer_caller
                frames = frames_at.get(place)
                if frames is None:
                    after = bisect_left(times, pending.started)
                    beside = [sampled for _, sampled in samples[max(0, after - 1) : after + 1]]
                    frames = call_site_stack(*place, beside, self._above)
                    if pending.caller is not None:
                        frames_at[place] = frames
                stack = self._with_leaf(frames, leaf(pending.leaf_text(), "sql"))
            short.append(StackInterval(pending.started, pending.started + seconds, stack, owner=pending))
        return sorted(short, key=lambda each: each.started)


def _notes(mode: str, source: _SampleSource) -> tuple[str, ...]:
    """Return notes on a flame graph whose samples a sampling thread takes, or would take without greenlets."""
    if not source.holds:
        instead = "greenlets share a thread: a profile function takes the samples"
        return (instead,) if mode == "sampled" else ()
    shared = (SHARED_NOTE,) if inside_event_loop() else ()
    if mode == "sampled":  # the page has the number of samples and the margins
        return shared
    defect = profile_function_defect()
    reason = defect or "another flame graph was recorded on this event loop at the same time"
    estimated = f"Python's time is estimated by a sampling thread, every {source.interval_s * 1e3:g} ms"
    note = f"{reason}: {estimated}; statements and collections are exact"
    if defect:
        note += "; the mode external (pip install 'placebench[sampler]') samples from outside of the process"
    return note, *shared
