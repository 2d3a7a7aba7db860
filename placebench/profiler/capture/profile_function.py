"""Samples of a thread's stack by its own profile function, pyinstrument's: `Sampler`.

Samples cost a fiftieth of pyinstrument's own, so that they are taken four times as often. pyinstrument names each frame
and its class when it takes a sample, which takes 0.5 ms for the sixty frames of an ORM below a web framework: as long
as a statement. Here a sample keeps code and instruction, and frames are named at the end. The sampling is private to
pyinstrument (`StackSampler._sample`); if another profiler runs on the same thread too, the samples are pyinstrument's
own.

Nothing but `capture.flame_graph` imports this module, and only for a flame graph that it samples: pyinstrument has a C
module, which may be missing (`sampling_thread.profile_function_defect`).
"""

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, Literal, cast

import pyinstrument
from pyinstrument import stack_sampler
from pyinstrument.low_level.stat_profile import setstatprofile

from placebench.profiler.capture.options import Clock, inside_greenlets, shares_thread
from placebench.profiler.capture.stack import (
    Frames,
    Stacks,
    awaiting_frames,
    frames_of,
    root_of_thread,
    running_greenlet,
)
from placebench.profiler.capture.timeline import BUILT_IN, Sample
from placebench.profiler.capture.waiting_tasks import IdleEventLoop
from placebench.profiler.model.session import whole_frames

_SAMPLE_INTERVAL_S = 0.00025
_MAX_SAMPLES = 40_000


def is_sampled() -> bool:
    """Return whether a profile function of pyinstrument samples this thread already."""
    known = getattr(stack_sampler.thread_locals, "stack_sampler", None)
    return known is not None and bool(known.subscribers)


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
        self.greenlet: Any = running_greenlet() if self._in_greenlets else None
        self.interval_s = interval_s
        self.report_failure = report_failure
        self._stacks = Stacks(root_of_thread())
        known = getattr(stack_sampler.thread_locals, "stack_sampler", None)
        if known is None or (type(known) is stack_sampler.StackSampler and not known.subscribers):
            known = _StackSampler()
            if self._in_greenlets:  # a thread has one profile function, but each greenlet may have its thread_locals
                known = _SHARED_BY_GREENLETS.setdefault(threading.get_native_id(), known)
            stack_sampler.thread_locals.stack_sampler = known
        # The same moment by both clocks, from which the first sample is measured.
        self._started, self.sampled_from = clock(), time.perf_counter()
        known.last_profile_time = known.last_profile_time or self.sampled_from
        self.start()

    def samples(self) -> list[Sample]:
        """Stop, and return each sample's time and stack in order of time; only the sampled thread may call it."""
        taken, found = self._started, []
        for sample, seconds in cast("list[tuple[Any, float]]", self.stop().frame_records):
            taken += seconds
            if isinstance(sample, list):  # pyinstrument's own
                stack = whole_frames(sample)
            else:
                frames, last = sample
                stack = self._stacks(frames)
                if last is not None:
                    stack = [*stack, last]
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


_ACTIVE: ContextVar[Any] = stack_sampler.active_profiler_context_var


def _greenlet_of(target: Any) -> Any:
    """Return the greenlet that a sampler with this target samples; None if it samples a thread or a task."""
    return getattr(getattr(target, "__self__", None), "greenlet", None)


_SHARED_BY_GREENLETS: dict[int, "_StackSampler"] = {}
"""The sampler that all greenlets of a thread share, by the native id of the thread."""


class _StackSampler(stack_sampler.StackSampler):
    """Takes the samples for the samplers of one thread.

    pyinstrument lets one sampler run per context. Greenlets may have more: a sampler that starts
    inside another one of its greenlet follows the state of that one, and a sampler in a copied context owns the context
    until it ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._idle_loop = IdleEventLoop()
        self._followed: dict[Any, Any] = {}
        self._replaced: dict[Any, Any] = {}

    def subscribe(self, target: Any, *, use_async_context: bool, **options: Any) -> None:
        """Add a sampler or another profiler of pyinstrument's."""
        greenlet, outer = _greenlet_of(target), _ACTIVE.get() if use_async_context else None
        if greenlet is None or outer is None:
            super().subscribe(target, use_async_context=use_async_context, **options)
        elif _greenlet_of(outer) is greenlet and any(each.target == outer for each in self.subscribers):
            super().subscribe(target, use_async_context=False, **options)
            self.subscribers[-1].async_state = stack_sampler.AsyncState("in_context")
            self._followed[target] = outer
        else:
            _ACTIVE.set(None)
            super().subscribe(target, use_async_context=True, **options)
            self._replaced[target] = outer

    def unsubscribe(self, target: Any) -> None:
        """Remove a sampler or another profiler of pyinstrument's."""
        super().unsubscribe(target)
        self._followed.pop(target, None)
        if (outer := self._replaced.pop(target, None)) is not None:
            _ACTIVE.set(outer)

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
            if event == "context_changed":
                states = {each.target: each.async_state for each in self.subscribers}
                for each in self.subscribers:
                    if (outer := self._followed.get(each.target)) in states:
                        each.async_state = states[outer]
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
