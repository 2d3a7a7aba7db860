"""A flame graph whose samples another process takes, joined with the statements by thread and time.

The main class is `ExternalFlameGraph`. While the recording runs it keeps only the times of statements, fetches and
garbage collections, which are exact. When the samples have come, each of these intervals gets the stack that was
sampled in it or next to it, cut at its call site. Each thread has its own time line, so time is conserved. The stacks
of the recording's thread add up to the elapsed time. Those of another thread that ran its statements add up to the time
from the first to the last of them, or from the thread's start to its end if it started during the recording.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from math import nextafter
from types import FrameType
from typing import Literal, NamedTuple

from placebench.errors import ProfilerError
from placebench.profiler.capture.external_sampler import (
    INTERVAL_S,
    StackChange,
    StackChanges,
    external_sampler,
    frame_name,
)
from placebench.profiler.capture.options import Clock, inside_event_loop
from placebench.profiler.capture.stack import (
    CELL_FILES,
    PROFILER_FOLDER,
    Stacks,
    application_frame,
    frames_of,
    leaf,
    root_of_thread,
)
from placebench.profiler.capture.timeline import (
    SHARED_NOTE,
    StackInterval,
    StackTime,
    common_frames,
    innermost,
    make_session,
    notes_on_waits,
    rooted,
    timeline,
    without_profiler,
)
from placebench.profiler.model.session import FlameSession
from placebench.profiler.model.statement import Caller

_MAX_INTERVALS = 100_000
_SAMPLER = f"\x00{PROFILER_FOLDER}/capture/external_sampler.py\x00"
_DRIVERS = f"\x00{PROFILER_FOLDER}/drivers/"


class CalledInterval(NamedTuple):
    """An interval of a thread with its own leaf, and the call sites of its statement, if it has one."""

    started: float
    ended: float
    leaf: str
    caller: Caller | None
    outer_caller: Caller | None


class ExternalFlameGraph:
    """The flame graph of a record that begins in this thread.

    Raises ProfilerError if no other process can sample this one, or if *clock* is not that of py-spy.
    """

    is_external: Literal[True] = True

    def __init__(self, clock: Clock, caller: FrameType | None, report_failure: Callable[[Exception], None]) -> None:
        if clock is not time.perf_counter:
            raise ProfilerError("the recording's clock is not time.perf_counter")
        self._report_failure = report_failure
        self._thread = threading.get_ident()
        self._roots = {self._thread: root_of_thread()}
        self._noted: list[tuple[int, float, float, Callable[[], str], str]] = []
        self._segments: list[StackChanges] = []
        self._use: Callable[[FlameSession], None] | None = None
        self._span = (0.0, 0.0)
        shared = (SHARED_NOTE,) if inside_event_loop() else ()
        self.notes: tuple[str, ...] = (
            f"Python's time is sampled by py-spy, every {INTERVAL_S * 1e3:g} ms; statements and collections are exact",
            *shared,
        )
        external_sampler().add(self)
        self._above = Stacks(self._roots[self._thread])(frames_of(application_frame(caller)))
        self._cpu_started = time.process_time()
        self._cpu_s = 0.0

    def add(self, started: float, ended: float, label: Callable[[], str], kind: str, _statement: object = None) -> None:
        """Add an interval of the running thread, unless the flame graph is full.

        label: returns the interval's text when the flame graph ends; for a statement, a method of the statement.
        """
        thread = threading.get_ident()
        if thread not in self._roots:
            self._roots[thread] = root_of_thread()
        if len(self._noted) < _MAX_INTERVALS:
            self._noted.append((thread, started, ended, label, kind))

    def end(self, started: float, ended: float) -> None:
        """Note that the record ran from *started* to *ended*."""
        self._span = started, ended
        self._cpu_s = time.process_time() - self._cpu_started
        if len(self._roots) > 1:
            self.notes = (*self.notes, f"the flame graph adds up the time of {len(self._roots)} threads")

    def stop(self, started: float, ended: float) -> FlameSession:
        """Wait for the samples, and return the session from *started* to *ended*."""
        self.end(started, ended)
        external_sampler().end(self, wait=True)
        session = self._session()
        self.notes = (*self.notes, *notes_on_waits(session.frame_records, holds=True))
        if not session.sample_count:
            self.notes = (
                *self.notes,
                "py-spy took no sample: it was killed, the record was too short, or the machine too busy",
            )
        return session

    def hand_to(self, use: Callable[[FlameSession], None]) -> None:
        """Call *use* with the session, in another thread, when the samples have come."""
        self._use = use
        external_sampler().end(self, wait=False)

    def take(self, changes: StackChanges, *, is_last: bool) -> None:
        """Add the stacks of one segment; *is_last* says that no other segment will come."""
        self._segments.append(changes)
        if is_last and self._use is not None:
            try:
                self._use(self._session())
            except Exception as error:  # noqa: BLE001  the other flame graphs get their samples all the same
                self._report_failure(error)

    def _session(self) -> FlameSession:
        """Return a session of the time lines of all threads, one after the other."""
        lines = [self._line(thread) for thread in self._roots]
        records = []
        for sampled, seconds in (record for line in lines for record in line.records()):
            stack = sampled
            while stack and _DRIVERS in stack[-1]:  # a timed cursor calls its driver: the time is its caller's
                stack = stack[:-1]
            records.append((without_profiler(stack), seconds))
        return make_session(
            records,
            self._above,
            sum(line.ended - line.started for line in lines),
            samples=sum(line.sample_count for line in lines),
            interval_s=INTERVAL_S,
            cpu_s=self._cpu_s,
        )

    def _line(self, thread: int) -> "TimeLine":
        """Return the part of a thread's time that belongs to the record."""
        changes = [change for segment in self._segments for change in segment.get(thread, ())]
        intervals = []
        for noted, began, ended, label, kind in list(self._noted):
            if noted == thread:
                owner = getattr(label, "__self__", None)
                callers = getattr(owner, "caller", None), getattr(owner, "outer_caller", None)
                intervals.append(CalledInterval(began, ended, leaf(label(), kind), *callers))
        started, ended = self._span
        above = self._above if thread == self._thread else [self._roots[thread]]
        if thread != self._thread:
            times = [time for each in intervals for time in (each.started, each.ended)]
            if changes and changes[0].at > started:
                times += [changes[0].at, max((change.at for change in changes if change.stack), default=started)]
            started, ended = max(started, min(times)), min(ended, max(times))
        return TimeLine(started, max(started, ended), above, intervals, changes)


class TimeLine:
    """The time of one thread from *started* to *ended*.

    above: the frames above all of its stacks. samples: each sampled stack twice, at its beginning and at its end.
    """

    def __init__(
        self,
        started: float,
        ended: float,
        above: list[str],
        intervals: Sequence[CalledInterval],
        changes: Sequence[StackChange],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.started = started
        self.ended = ended
        self._above = above
        self._intervals = intervals
        self._interval_s = interval_s
        self.samples: list[tuple[float, list[str]]] = []
        for (at, stack), (until, _) in pairwise([*changes, StackChange(ended + interval_s, ())]):
            # A change was seen half of the time between two samples after it, on average.
            begin, end = nextafter(max(started, at - interval_s / 2), ended), min(ended, until - interval_s / 2)
            if stack and begin < end and not any(_SAMPLER in frame for frame in stack):
                whole = rooted([above[0], *stack], above)
                self.samples += [(begin, whole), (end, whole)]
        self._known: dict[tuple[Caller | None, Caller | None], list[str]] = {}

    @property
    def sample_count(self) -> int:
        """The number of samples that the changes stand for."""
        return round((sum(self._times[1::2]) - sum(self._times[::2])) / self._interval_s)

    @property
    def matched_count(self) -> int:
        """The number of the intervals' call sites that were sampled in this thread."""
        callers = {(each.caller, each.outer_caller) for each in self._intervals}
        found = (_cut(stack, caller, outer) for caller, outer in callers if caller for stack in self._stacks)
        return sum(each is not None for each in found)

    def records(self) -> list[StackTime]:
        """Return the stacks of this thread with their seconds, in order of time."""
        placed = [
            StackInterval(each.started, each.ended, [*self._stack_of(each), each.leaf]) for each in self._intervals
        ]
        whole = StackInterval(self.started, self.ended, self._above, leaves=0)
        return timeline(self.samples, innermost(placed), whole, holds=True)

    def _stack_of(self, interval: CalledInterval) -> list[str]:
        """Return an interval's stack down to its call site, from a sample inside of it, next to it, or elsewhere."""
        after = bisect_right(self._times, interval.started)
        inside = [stack for taken, stack in self.samples[after : after + 1] if taken <= interval.ended]
        beside = [stack for _, stack in self.samples[max(0, after - 1) : after + 1]]
        between = inside[0] if inside else common_frames(*beside) if len(beside) == 2 else self._above
        caller, outer = interval.caller, interval.outer_caller
        if caller is None:
            return between
        for stack in (*inside, *beside):
            if (found := _cut(stack, caller, outer)) is not None:
                self._known.setdefault((caller, outer), found)
                return found
        if (caller, outer) not in self._known:
            elsewhere = (_cut(stack, caller, outer) for stack in self._stacks)
            made = [frame_name(each.function, each.file, each.line) for each in (outer, caller) if each is not None]
            self._known[caller, outer] = next((each for each in elsewhere if each is not None), [*self._above, *made])
        return self._known[caller, outer]

    @cached_property
    def _times(self) -> list[float]:
        return [taken for taken, _ in self.samples]

    @cached_property
    def _stacks(self) -> list[list[str]]:
        """The distinct stacks that were sampled."""
        return [list(stack) for stack in dict.fromkeys(tuple(stack) for _, stack in self.samples)]


def _cut(stack: list[str], caller: Caller, outer: Caller | None) -> list[str] | None:
    """Return *stack* down to the call site; None if the stack does not contain it."""
    depth = _depth(stack, caller)
    if not depth or (outer is not None and not _depth(stack[:depth], outer)):
        return None
    return stack[:depth]


def _depth(stack: list[str], place: Caller) -> int:
    """Return the depth of the innermost frame of the function at *place*; 0 if there is none."""
    start = f"{place.function.rpartition('.')[2]}\x00{CELL_FILES.get(place.file, place.file)}\x00"
    return next((depth for depth in range(len(stack), 0, -1) if stack[depth - 1].startswith(start)), 0)
