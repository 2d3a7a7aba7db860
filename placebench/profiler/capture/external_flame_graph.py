"""A flame graph whose samples another process takes, joined with the statements by thread and time.

The main class is `ExternalFlameGraph`. While the recording runs it keeps only the times of statements, fetches and
garbage collections, which are exact. When the samples have come, each of these intervals gets the stack that was
sampled in it or next to it, cut at its call site. Each thread has its own time line, so time is conserved. The stacks
of the recording's thread add up to the elapsed time. Those of another thread that ran its statements add up to the time
from the first to the last of them, or from the thread's start to its end if it started during the recording.
"""

import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from math import nextafter
from types import FrameType
from typing import Literal, NamedTuple

from placebench.errors import ProfilerError
from placebench.profiler.capture.call_sites import PROFILER_FOLDER, TEMPLATE, application_frame
from placebench.profiler.capture.external_sampler import (
    INTERVAL_S,
    StackChange,
    StackChanges,
    external_sampler,
)
from placebench.profiler.capture.options import CLOCK_TICK_S, Clock, inside_event_loop
from placebench.profiler.capture.stack import Stacks, frame_name, frames_of, leaf, root_of_thread
from placebench.profiler.capture.timeline import (
    FULL_NOTE,
    OVERLAP_NOTE,
    SHARED_NOTE,
    RecordedStatement,
    StackInterval,
    StackTime,
    common_frames,
    cut_at,
    innermost,
    make_session,
    notes_on_waits,
    rooted,
    timeline,
    with_short_calls,
    without_profiler,
)
from placebench.profiler.model.session import FlameSession, frame_identifier
from placebench.profiler.model.statement import Caller

_MAX_INTERVALS = 100_000
_SAMPLER = f"\x00{PROFILER_FOLDER}/capture/external_sampler.py\x00"
_DRIVERS = f"\x00{PROFILER_FOLDER}/drivers/"


class CalledInterval(NamedTuple):
    """An interval of a thread with its own leaf, and the call sites of its statement *owner*, if it has one."""

    started: float
    ended: float
    leaf: str
    caller: Caller | None
    outer_caller: Caller | None
    owner: object = None


class ExternalFlameGraph:
    """The flame graph of a record that begins in this thread.

    is_exact: whether each statement's leaves must be all of its execute and fetch; known when the samples have come.
    others_s: the time of threads beside that of the recording.
    Raises ProfilerError if no other process can sample this one, or if *clock* is not that of py-spy.
    """

    is_external: Literal[True] = True
    is_exact = False
    others_s = 0.0

    def __init__(self, clock: Clock, caller: FrameType | None, report_failure: Callable[[Exception], None]) -> None:
        if clock is not time.perf_counter:
            raise ProfilerError("the recording's clock is not time.perf_counter, which py-spy's samples are timed by")
        self._report_failure = report_failure
        self._thread = threading.get_ident()
        self._roots = {self._thread: root_of_thread()}
        self._noted: list[tuple[int, float, float, Callable[[], str], str]] = []
        self._segments: list[StackChanges] = []
        self._use: Callable[[FlameSession], None] | None = None
        self._span = (0.0, 0.0)
        self._statements: Sequence[RecordedStatement] = ()
        in_loop = inside_event_loop()
        self._may_switch = in_loop or not sys.modules.keys().isdisjoint(("gevent", "eventlet"))
        shared = (f"{SHARED_NOTE}, and its waits are below the event loop",) if in_loop else ()
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

    def end(self, started: float, ended: float, statements: Sequence[RecordedStatement] = ()) -> None:
        """Note that the record ran from *started* to *ended*, and its *statements* and transaction steps."""
        self._span, self._statements = (started, ended), statements
        self._cpu_s = time.process_time() - self._cpu_started
        if len(self._roots) > 1:
            self.notes = (*self.notes, f"the flame graph adds up the time of {len(self._roots)} threads")

    def stop(self, started: float, ended: float, statements: Sequence[RecordedStatement] = ()) -> FlameSession:
        """Wait for the samples, and return the session from *started* to *ended*; *statements* are as for `end`."""
        self.end(started, ended, statements)
        external_sampler().end(self, wait=True)
        session = self._session()
        self.notes = (*self.notes, *notes_on_waits(session.frame_records, is_external=True))
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
        in_order = [record for line in lines for record in line.records()]
        overlaps = any(line.overlaps for line in lines)
        is_full = len(self._noted) >= _MAX_INTERVALS
        self.notes += (OVERLAP_NOTE,) * overlaps + (FULL_NOTE.format(_MAX_INTERVALS),) * is_full
        self.is_exact = not overlaps and not is_full
        self.others_s = sum(line.ended - line.started for line in lines[1:])
        for sampled, seconds in in_order:
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
        read = [change for segment in self._segments for change in segment.get(thread, ())]
        is_alone = thread == self._thread and not self._may_switch and len(self._above) > 1
        changes = with_outer_frames(read, frame_identifier(self._above[1]) if is_alone else None)
        intervals = []
        for noted, began, ended, label, kind in list(self._noted):
            if noted == thread:
                owner = getattr(label, "__self__", None)
                callers = getattr(owner, "caller", None), getattr(owner, "outer_caller", None)
                intervals.append(CalledInterval(began, ended, leaf(label(), kind), *callers, owner))
        started, ended = self._span
        above = self._above if thread == self._thread else [self._roots[thread]]
        if thread != self._thread:
            times = [time for each in intervals for time in (each.started, each.ended)]
            if changes and changes[0].at > started:
                times += [changes[0].at, max((change.at for change in changes if change.stack), default=started)]
            started, ended = max(started, min(times)), min(ended, max(times))
        short = list(self._short_calls(thread))
        latest = ended if thread == self._thread else self._span[1]
        return TimeLine(started, max(started, ended), above, intervals, changes, short=short, latest=latest)

    def _short_calls(self, thread: int) -> Iterator[CalledInterval]:
        """Yield the sum of each statement's calls that were too short to be noted, from the statement's start on.

        They are in the thread of the statement's first call that was noted, or else in that of the recording.
        """
        noted_s: dict[object, float] = {}
        threads: dict[object, int] = {}
        for by, began, ended, label, _ in list(self._noted):
            owner = getattr(label, "__self__", None)
            noted_s[owner] = noted_s.get(owner, 0.0) + ended - began
            threads.setdefault(owner, by)
        for pending in sorted(self._statements, key=lambda each: each.started):
            if threads.get(pending, self._thread) == thread:
                seconds = (pending.execute_s or 0.0) + (pending.fetch_s or 0.0) - noted_s.get(pending, 0.0)
                if seconds > CLOCK_TICK_S:
                    text = leaf(pending.leaf_text(), "sql")
                    callers = pending.caller, pending.outer_caller
                    yield CalledInterval(pending.started, pending.started + seconds, text, *callers, pending)


def with_outer_frames(changes: Sequence[StackChange], root: str | None = None) -> list[StackChange]:
    """Return a thread's stacks with the outer frames of those that changed while py-spy read them.

    py-spy follows the stack from the innermost frame outwards, and ends where a frame has returned meanwhile: such a
    stack begins with a frame that is an inner one elsewhere. It gets the frames above that one in the nearest stack in
    time which has it. Another stack that does not begin with *root* becomes empty: its time goes to the frames that the
    stacks before and after it share. root: identifies the thread's outermost frame; None if stacks begin with
    others too, as those of greenlets do.
    """
    inner = {frame for _, stack in changes for frame in stack[1:]}
    whole: dict[str, list[int]] = {}
    for number, (_, stack) in enumerate(changes):
        if stack and stack[0] not in inner:
            for frame in set(stack[1:]):
                whole.setdefault(frame, []).append(number)
    completed = []
    for number, (at, read) in enumerate(changes):
        stack = read
        if stack and (having := whole.get(stack[0])):
            after = bisect_right(having, number)
            nearest = min(having[max(0, after - 1) : after + 1], key=lambda each: abs(changes[each].at - at))
            outer = changes[nearest].stack
            stack = (*outer[: outer.index(stack[0], 1)], *stack)
        elif root is not None and stack and frame_identifier(stack[0]) != root:
            stack = ()
        completed.append(StackChange(at, stack))
    return completed


class TimeLine:
    """The time of one thread from *started* to *ended*.

    above: the frames above all of its stacks. samples: each sampled stack twice, at its beginning and at its end.
    short: sums of calls whose times are not known, each placed between the intervals from its start on.
    latest: the line ends at this time at the latest: it becomes longer for such calls after the last interval.
    overlaps: the intervals that took time from others, or that ended after the line; known with the records.
    """

    def __init__(
        self,
        started: float,
        ended: float,
        above: list[str],
        intervals: Sequence[CalledInterval],
        changes: Sequence[StackChange],
        interval_s: float = INTERVAL_S,
        short: Sequence[CalledInterval] = (),
        latest: float = 0.0,
    ) -> None:
        self.started = started
        self.ended = ended
        self._above = above
        self._intervals = intervals
        self._short = short
        self._latest = latest
        self.overlaps: list[StackInterval] = []
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
        found = (cut_at(stack, caller, outer) for caller, outer in callers if caller for stack in self._stacks)
        return sum(each is not None for each in found)

    def records(self) -> list[StackTime]:
        """Return the stacks of this thread with their seconds, in order of time."""
        placed, short = (
            [
                StackInterval(each.started, each.ended, [*self._stack_of(each), each.leaf], owner=each.owner)
                for each in intervals
            ]
            for intervals in (self._intervals, self._short)
        )
        whole = StackInterval(self.started, max(self.ended, self._latest), self._above, leaves=0)
        self.overlaps = [each for each in placed if each.ended > self.ended + CLOCK_TICK_S]
        in_order = list(innermost(placed, self.overlaps))
        filled = list(with_short_calls(in_order, short, whole, self.overlaps))
        if short:
            self.ended = max(self.ended, min(filled[-1].ended, self._latest))
        return timeline(self.samples, iter(filled), whole._replace(ended=self.ended), holds=True)

    def _stack_of(self, interval: CalledInterval) -> list[str]:
        """Return an interval's stack down to its call site, from a sample inside of it, next to it, or elsewhere."""
        after = bisect_right(self._times, interval.started)
        inside = [stack for taken, stack in self.samples[after : after + 1] if taken <= interval.ended]
        beside = [stack for _, stack in self.samples[max(0, after - 1) : after + 1]]
        between = inside[0] if inside else common_frames(*beside) if len(beside) == 2 else self._above
        caller, outer = interval.caller, interval.outer_caller
        if caller is not None and caller.function == TEMPLATE and outer is not None:
            caller, outer = outer, None  # a line of a template has no frame that py-spy sees
        if caller is None:
            return between
        for stack in (*inside, *beside):
            if (found := cut_at(stack, caller, outer)) is not None:
                self._known.setdefault((caller, outer), found)
                return found
        if (caller, outer) not in self._known:
            elsewhere = (cut_at(stack, caller, outer) for stack in self._stacks)
            made = [frame_name(each.function, each.file, each.line) for each in (outer, caller) if each is not None]
            self._known[caller, outer] = next((each for each in elsewhere if each is not None), [*self._above, *made])
        return self._known[caller, outer]

    @cached_property
    def _times(self) -> list[float]:
        return [taken for taken, _ in self.samples]

    @cached_property
    def _stacks(self) -> list[list[str]]:
        return [list(stack) for stack in dict.fromkeys(tuple(stack) for _, stack in self.samples)]
