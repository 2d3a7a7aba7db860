"""A flame graph of Python and SQL: samples of Python's stacks, with each statement as a leaf on the frame that ran it.

The main class is `FlameGraphRecorder`: the samples of one record, by a profile function or by a sampling thread
(`_start_sampler`), and its SQL intervals, which `capture.timeline` puts together at the end.

`Sampler` is pyinstrument's, with samples that cost a fiftieth, so that it takes them four times as often. pyinstrument
names each frame and its class when it takes a sample, which takes 0.5 ms for the sixty frames of an ORM below a web
framework: as long as a statement. Here a sample keeps code and instruction, and frames are named at the end. The
sampling is private to pyinstrument (`StackSampler._sample`); if another profiler runs on the same thread too, the
samples are pyinstrument's own.
"""

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, Protocol, cast

import pyinstrument
from pyinstrument import stack_sampler
from pyinstrument.low_level.stat_profile import setstatprofile
from pyinstrument.session import Session

from placebench.profiler.capture.options import Clock, inside_event_loop, inside_greenlets, shares_thread
from placebench.profiler.capture.sampling_thread import ThreadSamples, profile_function_defect, thread_interval_s
from placebench.profiler.capture.stack import (
    Frames,
    IdleEventLoop,
    Stacks,
    application_frame,
    awaiting_frames,
    frames_of,
    leaf,
    root_of_thread,
)
from placebench.profiler.capture.timeline import (
    BUILT_IN,
    SHARED_NOTE,
    HasPlan,
    Sample,
    StackInterval,
    innermost,
    make_session,
    notes_on_waits,
    rooted,
    timeline,
    with_plans,
    without_profiler,
)

_MAX_INTERVALS = 100_000
_SAMPLE_INTERVAL_S = 0.00025
_SHARED_INTERVAL_S = 0.005
_MAX_SAMPLES = 40_000

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
    """Samples the thread that creates it until `stop` is called."""

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
        self, started: float, ended: float, label: Callable[[], str], kind: str, statement: HasPlan | None = None
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


def _notes(mode: str, source: _SampleSource) -> tuple[str, ...]:
    """Return notes on a flame graph whose samples a sampling thread takes, or would take without greenlets."""
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


class Sampler(pyinstrument.Profiler):
    """Samples the thread or task that creates it; failures go to *report_failure*."""

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

    def samples(self) -> list[Sample]:
        """Stop, and return each sample's time and stack in order of time; only the sampled thread may call it."""
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
"""The sampler that all greenlets of a thread share, by the native id of the thread."""


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
        """Note that a profiler was added or removed; a profiler of a task needs the context from now on."""
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
                last = f"{arg.__qualname__}{BUILT_IN}0"
                wait = self._idle_loop.stack(frame, frames, seconds)
            for sampler, subscriber in zip(samplers, self.subscribers, strict=True):
                state = subscriber.async_state
                own_seconds = min(seconds, now - sampler.sampled_from)  # it may have come after the last sample
                sampler.add(*(wait if wait and state is None else (frames, last)), own_seconds, state)
            self.last_profile_time = now
        except Exception as error:  # noqa: BLE001  called inside of the application's own calls
            for sampler in samplers:
                sampler.report_failure(error)
