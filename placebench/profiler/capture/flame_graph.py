"""A flame graph of Python and SQL: samples of Python's stacks, with each statement as a leaf on the frame that ran it.

The main class is `FlameGraphRecorder`: the samples of one record, by a profile function or by a sampling thread
(`_start_sampler`), and its SQL intervals. The intervals have their own stacks and are exact; `timeline` gives the time
between them to the samples. The profiler's frames are removed; their time is a leaf of its own.

`Sampler` is pyinstrument's, with samples that cost a fiftieth, so that it takes them four times as often. pyinstrument
names each frame and its class when it takes a sample, which takes 0.5 ms for the sixty frames of an ORM below a web
framework: as long as a statement. Here a sample keeps code and instruction, and frames are named at the end. The
sampling is private to pyinstrument (`StackSampler._sample`); if another profiler runs on the same thread too, the
samples are pyinstrument's own.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile
from operator import eq
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Protocol, cast

import pyinstrument
from pyinstrument import stack_sampler
from pyinstrument.frame_info import frame_info_get_identifier
from pyinstrument.low_level.stat_profile import setstatprofile
from pyinstrument.session import Session

from placebench.profiler.capture.options import Clock, inside_event_loop, inside_greenlets, shares_thread
from placebench.profiler.capture.sampling_thread import ThreadSamples, profile_function_defect, thread_interval_s
from placebench.profiler.capture.stack import (
    PROFILER_FOLDER,
    Frames,
    IdleEventLoop,
    Stacks,
    application_frame,
    awaiting_frames,
    frames_of,
    is_application_file,
    leaf,
    root_of_thread,
)
from placebench.profiler.model.plan import PlanNode

_MAX_INTERVALS = 100_000
_SAMPLE_INTERVAL_S = 0.00025
_SHARED_INTERVAL_S = 0.005
_MAX_SAMPLES = 40_000
_NOTED_WAITS = 0.05
SHARED_NOTE = "its thread's other tasks are in the flame graph too, and its waits are below the event loop"

StackTime = tuple[list[str], float]
"""A stack and its seconds."""
_Sample = tuple[float, list[str]]
"""A reading of the clock and the stack that ran then."""


class _Planned(Protocol):
    """A statement that the server may have sent a plan for."""

    def plan(self) -> PlanNode | None:
        """Return the plan; None if there is none."""


@dataclass(frozen=True, slots=True)
class StackInterval:
    """An interval with its own leaf: a statement, a fetch, a COMMIT, a garbage collection.

    statement: the statement whose plan belongs below. owner: the statement of an execute or a fetch.
    leaves: how many frames at the end of the stack are not Python: the statement's leaf and the nodes of its plan.
    """

    started: float
    ended: float
    stack: list[str]
    statement: _Planned | None = None
    leaves: int = 1
    owner: object = None

    @property
    def frames(self) -> list[str]:
        """The Python frames above the interval's leaves."""
        return self.stack[: len(self.stack) - self.leaves]


_NotedInterval = tuple[float, float, Frames, Callable[[], str], str, _Planned | None]
"""An interval as it was noted: start, end, frames, text and kind of its leaf, statement. Frames are named later."""


class _SampleSource(Protocol):
    """Samples the stack of the thread that makes it.

    interval_s: the time between samples, if Python allows it. holds: whether a sample also describes the time after it;
    one that is taken when a function returns does not.
    """

    interval_s: float
    holds: bool

    def samples(self) -> list[_Sample]:
        """Stop, and return the samples in order of time."""


def _start_sampler(mode: str, clock: Clock, report_failure: Callable[[Exception], None]) -> _SampleSource:
    """Start the sampler of this thread for a mode with a flame graph.

    It is no profile function if Python can crash of one. Nor is it a second profile function in an event loop: each of
    them would take a sample whenever a task is continued.
    """
    interval_s = thread_interval_s(mode)
    known = getattr(stack_sampler.thread_locals, "stack_sampler", None)
    # A sampling thread would be a greenlet itself, and see this greenlet only while it waits.
    if inside_greenlets() and not profile_function_defect():
        interval_s = None
    elif interval_s is None and inside_event_loop() and known is not None and known.subscribers:
        return ThreadSamples(clock, _SHARED_INTERVAL_S, report_failure)
    if interval_s is None:
        return Sampler(clock, report_failure)
    return ThreadSamples(clock, interval_s, report_failure)


class FlameGraphRecorder:
    """Samples the thread that makes it until `stop`."""

    is_external: Literal[False] = False

    def __init__(
        self, mode: str, clock: Clock, caller: FrameType | None, report_failure: Callable[[Exception], None]
    ) -> None:
        self._noted: list[_NotedInterval] = []
        self._stacks = Stacks(root_of_thread())
        self._above = self._stacks(frames_of(application_frame(caller)))
        self._cpu_started = time.process_time()
        self._source = _start_sampler(mode, clock, report_failure)
        self.notes: tuple[str, ...] = _notes(mode, self._source)

    def add(
        self, started: float, ended: float, label: Callable[[], str], kind: str, statement: _Planned | None = None
    ) -> None:
        """Add an interval of the running frame, unless the flame graph is full.

        Its stack includes the profiler's own frames, which `without_profiler` removes at the end.
        """
        if len(self._noted) < _MAX_INTERVALS:
            frames = frames_of(sys._getframe(2))
            frames += awaiting_frames()
            self._noted.append((started, ended, frames, label, kind, statement))

    def stop(self, started: float, ended: float) -> Session:
        """Return the session from *started* to *ended*; must be called by the thread that made the recorder."""
        samples = [(taken, rooted(stack, self._above)) for taken, stack in self._source.samples()]
        intervals = innermost(with_plans(self._intervals()))
        whole = StackInterval(started, ended, self._above, leaves=0)
        records = timeline(samples, intervals, whole, holds=self._source.holds)
        records = [(without_profiler(stack), seconds) for stack, seconds in records]
        self.notes = (*self.notes, *notes_on_waits(records, holds=self._source.holds))
        return make_session(
            records,
            self._above,
            ended - started,
            samples=len(samples),
            interval_s=self._source.interval_s,
            cpu_s=time.process_time() - self._cpu_started,
        )

    def _intervals(self) -> list[StackInterval]:
        return [
            StackInterval(
                started,
                ended,
                [*self._stacks(frames), leaf(label(), kind)],
                statement,
                owner=getattr(label, "__self__", None),
            )
            for started, ended, frames, label, kind, statement in self._noted
        ]


def make_session(
    records: list[StackTime], above: list[str], duration_s: float, *, samples: int, interval_s: float, cpu_s: float
) -> Session:
    """Return the session of a record that ends now; *above* is the stack that the record began at."""
    return Session(
        frame_records=records,
        start_time=time.time() - duration_s,
        duration=duration_s,
        min_interval=interval_s,
        max_interval=interval_s,
        sample_count=samples,
        start_call_stack=above,
        target_description="one record",
        cpu_time=cpu_s,
        sys_path=sys.path,
        sys_prefixes=Session.current_sys_prefixes(),
    )


def _notes(mode: str, source: _SampleSource) -> tuple[str, ...]:
    """Notes on a flame graph whose samples a sampling thread takes, or would take without greenlets."""
    if isinstance(source, Sampler):
        instead = "greenlets share a thread: a profile function takes the samples"
        return (instead,) if mode == "sampled" else ()
    reason = profile_function_defect() or "another flame graph was recorded on this event loop at the same time"
    why = "" if mode == "sampled" else f"{reason}: "
    exact = "statements and collections are exact"
    if profile_function_defect() and why:
        exact += "; the mode external (pip install 'placebench[sampler]') samples from outside of the process"
    every = f"{source.interval_s * 1e3:g} ms"
    shared = (SHARED_NOTE,) if inside_event_loop() else ()
    return (
        f"{why}Python's time is estimated by a sampling thread, every {every}; {exact}",
        *shared,
    )


def notes_on_waits(records: Sequence[StackTime], *, holds: bool) -> list[str]:
    """Return notes on event loops whose waits take 5 % of the time or more, and are not at the lines that await.

    A profile function puts the waits of asyncio's own loop at the lines that await (`IdleEventLoop`); samples that hold
    until the next one (*holds*) stay below the selector.
    """
    waits_s: dict[str, float] = {}
    for stack, seconds in records:
        python = [frame.split("\x00") for frame in stack[-3:] if _BUILT_IN not in frame and frame.count("\x00") > 1]
        name, file = python[-1][:2] if python else ("", "")
        if name == "select" and file.endswith("/selectors.py") and python[-2:][0][0] == "_run_once" and holds:
            loop = "asyncio"
        elif name == "get_events" and "/trio/_core/_io_" in file:
            loop = "trio"
        elif name == "run" and file.endswith("/asyncio/runners.py") and "uvloop" in sys.modules:
            loop = "uvloop"  # it has no frames of its own
        else:
            continue
        waits_s[loop] = waits_s.get(loop, 0.0) + seconds
    least_s = sum(seconds for _, seconds in records) * _NOTED_WAITS
    return [
        f"waits of {loop}'s event loop are below the loop in the flame graph, not at the lines that await"
        for loop, seconds in waits_s.items()
        if seconds > least_s
    ]


def rooted(stack: list[str], above: list[str]) -> list[str]:
    """Return *stack*, below *above* if it begins elsewhere: a sampled greenlet lacks the frames that await it."""
    return stack if len(common_frames(stack[:2], above[:2])) == 2 else [*above, *stack[1:]]


def timeline(
    samples: Sequence[_Sample], intervals: Iterator[StackInterval], whole: StackInterval, *, holds: bool
) -> list[StackTime]:
    """Return the time of *whole* as stacks with seconds, in order: those of the intervals, with samples in between.

    samples: in order of time; samples inside of an interval are left out. intervals: disjoint, in order of time.
    A sample stands for the time since the sample or interval before it, and if it *holds*, for the time after it too.
    The rest of the time before an interval goes to the Python frames that ran on both sides of the gap, or to the stack
    that was sampled on both sides. It never goes to a leaf: a statement has only its own execute and fetch.
    """
    records: list[StackTime] = []
    at, before = whole.started, whole.stack
    seen: list[str] = []
    left: StackInterval | None = None
    waiting = iter([*samples, (float("inf"), whole.stack)])
    taken, stack = next(waiting)
    for interval in (*intervals, replace(whole, started=whole.ended)):
        sampled = False
        begin = min(interval.started, whole.ended)
        while taken <= max(at, begin):
            if taken > at:
                records.append((stack, taken - at))
                at, before, sampled = taken, stack, holds and not _in_profiler(stack)
                # A sample inside of the profiler's call of the driver says nothing about the time after that call.
                left = StackInterval(taken, taken, stack, leaves=0) if holds and not sampled else None
            seen = stack
            taken, stack = next(waiting)
        if begin > at:
            here = before
            if not sampled:
                here = _between(left, interval) if left else common_frames(before, interval.frames)
                if holds and seen == stack and _is_below(stack, here) and not _in_profiler(stack):
                    here = stack
            records.append((here if len(here) >= len(whole.stack) else whole.stack, begin - at))
            at = begin
        if min(interval.ended, whole.ended) > at:
            records.append((interval.stack, min(interval.ended, whole.ended) - at))
            at, left = min(interval.ended, whole.ended), interval
    return records


def _between(left: StackInterval, entered: StackInterval) -> list[str]:
    """The frames that ran from the end of one interval to the beginning of the next, as far as is known.

    Both are calls into the driver: between two statements the program has left at least the frames of libraries that
    lead to it, even where the two stacks are equal, as they are in a loop.
    """
    common = list(takewhile(lambda frame: _OURS not in frame, common_frames(left.frames, entered.frames)))
    if left.owner is not None and left.owner is entered.owner:
        return common
    depth = next((depth for depth in range(len(common), 1, -1) if _is_application(common[depth - 1])), len(common))
    return common[:depth]


def _in_profiler(stack: Sequence[str]) -> bool:
    return any(_OURS in frame for frame in stack)


@lru_cache(maxsize=4096)
def _is_application(frame: str) -> bool:
    return is_application_file(frame.partition("\x00")[2].partition("\x00")[0])


def with_plans(intervals: Sequence[StackInterval]) -> list[StackInterval]:
    """Return the intervals, with those of a planned statement cut into plan nodes below the node that reads their rows.

    A node gets its self time; time that the plan does not explain (parsing, planning, network) stays on the statement.
    Parallel workers may make a plan longer than its statement: it is then shortened to fit.
    """
    by_statement: dict[int, list[StackInterval]] = {}
    for each in intervals:
        by_statement.setdefault(id(each.statement), []).append(each)
    cut: list[StackInterval] = []
    for group in by_statement.values():
        statement, length = group[0].statement, sum(each.ended - each.started for each in group)
        plan = None if statement is None else statement.plan()
        for each in group:
            cut.extend([each] if plan is None else _nodes(each, plan, length))
    return cut


def _nodes(interval: StackInterval, plan: PlanNode, length: float) -> Iterator[StackInterval]:
    """Cut one interval of a statement into its plan's nodes; all intervals of the statement take *length* seconds."""
    stacks: list[tuple[list[str], float]] = []
    path: list[str] = []
    for depth, node in plan.walk():
        path[depth:] = [leaf(node.title, "plan")]
        stacks.append(([*interval.stack, *path], node.self_s or 0.0))
    planned = sum(seconds for _, seconds in stacks)
    scale = (interval.ended - interval.started) / max(length, planned) if planned else 0.0
    at = interval.ended - planned * scale
    yield replace(interval, ended=at)
    for stack, seconds in stacks:
        leaves = interval.leaves + len(stack) - len(interval.stack)
        yield replace(interval, started=at, ended=at + seconds * scale, stack=stack, leaves=leaves)
        at += seconds * scale


_OURS = f"\x00{PROFILER_FOLDER}"
_SAMPLERS = f"\x00{Path(pyinstrument.__file__).parent}"
_BUILT_IN = "\x00<built-in>\x00"
_OVERHEAD = leaf("profiler overhead", "profiler")


def without_profiler(stack: Sequence[str]) -> list[str]:
    """Return the stack without the profiler's and pyinstrument's frames; a leaf replaces them if they were on top.

    A built-in called by a timed cursor is the driver, one called by pyinstrument is profiler overhead.
    """
    python = next((frame for frame in reversed(stack) if _BUILT_IN not in frame), "")
    working = _SAMPLERS in python or (bool(stack) and _OURS in stack[-1])
    kept = [frame for frame in stack if _OURS not in frame and _SAMPLERS not in frame]
    while working and kept and _BUILT_IN in kept[-1]:
        kept.pop()
    return [*kept, _OVERHEAD] if working else kept


def common_frames(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the frames that both stacks begin with, down to the first one that is at different lines."""
    common: list[str] = []
    for frame, of_other in zip(one, other, strict=False):
        if frame_info_get_identifier(frame) != frame_info_get_identifier(of_other):
            break
        common.append(frame)
        if frame != of_other:
            break
    return common


def _is_below(stack: Sequence[str], above: Sequence[str]) -> bool:
    """Whether *stack* begins with the frames *above*, whatever their lines."""
    identifiers = map(frame_info_get_identifier, stack), map(frame_info_get_identifier, above)
    return len(stack) >= len(above) and all(map(eq, *identifiers))


def innermost(intervals: Sequence[StackInterval]) -> Iterator[StackInterval]:
    """Yield disjoint intervals in order of time: where one lies inside of another, the inner one counts."""
    open_intervals: list[StackInterval] = []
    at = float("-inf")
    for interval in [*sorted(intervals, key=lambda interval: (interval.started, -interval.ended)), None]:
        until = float("inf") if interval is None else interval.started
        while open_intervals and open_intervals[-1].ended <= until:
            closed = open_intervals.pop()
            if closed.ended > at:
                yield replace(closed, started=max(at, closed.started))
                at = closed.ended
        if interval is not None:
            if open_intervals and interval.started > max(at, open_intervals[-1].started):
                around = open_intervals[-1]
                yield replace(around, started=max(at, around.started), ended=interval.started)
            at = max(at, interval.started)
            open_intervals.append(interval)


class Sampler(pyinstrument.Profiler):
    """Samples the thread or task that makes it; failures go to *report_failure*."""

    holds = False

    def __init__(
        self, clock: Clock, report_failure: Callable[[Exception], None], *, interval_s: float = _SAMPLE_INTERVAL_S
    ) -> None:
        # "disabled" allows any number of profilers, each on its thread. A task shares its thread with others.
        mode: Literal["enabled", "disabled"] = "enabled" if shares_thread() else "disabled"
        super().__init__(interval=interval_s, async_mode=mode)
        self._in_greenlets = inside_greenlets()
        self.interval_s = interval_s
        self.report_failure = report_failure
        self._stacks = Stacks(root_of_thread())
        known = getattr(stack_sampler.thread_locals, "stack_sampler", None)
        if known is None or (type(known) is stack_sampler.StackSampler and not known.subscribers):
            shared = _StackSampler()
            if self._in_greenlets:  # a thread has one profile function, but each greenlet may have its thread_locals
                shared = _SHARED_BY_GREENLETS.setdefault(threading.get_native_id(), shared)
            stack_sampler.thread_locals.stack_sampler = shared
        self.sampled_from: float = time.perf_counter()
        self.start()
        self._started = clock()

    def samples(self) -> list[_Sample]:
        """Stop, and return each sample's time and stack, in order of time; for the thread that made the sampler."""
        taken, found = self._started, []
        for sample, seconds in cast("list[tuple[Any, float]]", self.stop().frame_records):
            taken += seconds
            stack = sample
            if not isinstance(sample, list):  # ours; else pyinstrument's own
                frames, last = sample
                stack = [*self._stacks(frames), *(() if last is None else (last,))]
            found.append((taken, stack))
        return found

    def add(self, frames: Frames, last: str | None, seconds: float, async_state: Any) -> None:
        """Add a sample, *seconds* after the one before; *last* is a frame below *frames* that is not Python."""
        # The session's own list: the first sample may come while `start` is still running.
        records: list[Any] = self._active_session.frame_records if self._active_session else []
        if len(records) >= _MAX_SAMPLES:  # a long record keeps every other sample, with the time of both
            pairs = zip(records[::2], records[1::2], strict=True)
            records[:] = [(sample, before + seconds) for (_, before), (sample, seconds) in pairs]
        state = None if async_state is None else async_state.state
        if state == "out_of_context_awaited" or (state == "out_of_context_unknown" and self._in_greenlets):
            self._sampler_saw_call_stack([], seconds, async_state)
        else:
            records.append(((frames, last), seconds))


_SHARED_BY_GREENLETS: dict[int, "_StackSampler"] = {}
"""The sampler that all greenlets of a thread share, by the system's number of the thread."""


class _StackSampler(stack_sampler.StackSampler):
    """Takes the samples for the samplers of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._idle_loop = IdleEventLoop()

    def _start_sampling(self, interval: float, use_timing_thread: bool) -> None:
        """Sample without reading the context in each call and return, which only samplers of tasks need."""
        if use_timing_thread or any(each.bound_to_async_context for each in self.subscribers):
            super()._start_sampling(interval, use_timing_thread)
            return
        self.current_sampling_interval = interval
        self.last_profile_time = self.last_profile_time or time.perf_counter()
        setstatprofile(self._sample, interval, timer_type="walltime")

    def _update(self) -> None:
        """Note that a profiler comes or goes; one of a task needs the context from now on."""
        if self.subscribers and self.subscribers[-1].bound_to_async_context:
            self.current_sampling_interval = None
        super()._update()  # type: ignore[no-untyped-call]  # pyinstrument has not typed it

    def _sample(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take a sample for all samplers of the thread; pyinstrument calls it once per interval."""
        samplers: list[Any] = [getattr(each.target, "__self__", None) for each in self.subscribers]
        if event == "context_changed" or not all(isinstance(each, Sampler) for each in samplers):
            super()._sample(frame, event, arg)
            return
        try:
            now = time.perf_counter()
            # A function that is being called has not run yet; a built-in function that returned has.
            frames = frames_of(frame.f_back if event == "call" else frame)
            frames += awaiting_frames()
            seconds = now - self.last_profile_time
            last, wait = None, None
            if event in ("c_return", "c_exception"):
                last = f"{arg.__qualname__}{_BUILT_IN}0"
                wait = self._idle_loop.stack(frame, frames, seconds)
            for sampler, subscriber in zip(samplers, self.subscribers, strict=True):
                state = subscriber.async_state
                own_seconds = min(seconds, now - sampler.sampled_from)  # it may have come after the last sample
                sampler.add(*(wait if wait and state is None else (frames, last)), own_seconds, state)
            self.last_profile_time = now
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            for sampler in samplers:
                sampler.report_failure(error)
