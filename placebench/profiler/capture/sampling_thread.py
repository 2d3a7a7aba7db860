"""Samples of a thread's stack that another thread takes: for servers under load, and if no profile function may run.

The main class is `ThreadSamples`. One sampling thread serves all flame graphs of a process, so that many requests at
once cost as little as one, and a request shorter than the interval is as likely to be sampled as any other stretch of
time. A sample is taken when the GIL lets the sampling thread run: later than the interval says while Python computes,
and more often during a call into C that releases the lock.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from operator import call
from weakref import WeakValueDictionary

from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.stack import Frames, Stacks, frames_of, root_of_thread

_MAX_SAMPLES = 20_000
_IDLE_S = 1.0
"""The thread ends after this time without a flame graph: starting one takes longer than a fast request."""


def profile_function_defect(version: tuple[int, ...] = sys.version_info[:3]) -> str | None:
    """Return why a profile function is unsafe on this version of Python; None if it is safe.

    Up to 3.11.2 a generator that resumes under any profile function, even an empty one, leaves the height of its stack
    set. The garbage collector then visits freed objects, and the process dies by SIGSEGV, mostly with several threads:
    https://github.com/python/cpython/issues/101975
    """
    if version >= (3, 11, 3):
        return None
    return f"Python {'.'.join(map(str, version))} can crash under a profile function (gh-101975, repaired in 3.11.3)"


def thread_interval_s(mode: str, version: tuple[int, ...] = sys.version_info[:3]) -> float | None:
    """Return the interval of the sampling thread in a mode with a flame graph; None if a profile function samples."""
    if mode == "sampled":
        return 0.020
    return 0.005 if profile_function_defect(version) else None


class ThreadSamples:
    """Samples the thread that creates it until `samples` is called; failures go to *report_failure*."""

    holds = True

    def __init__(self, clock: Clock, interval_s: float, report_failure: Callable[[Exception], None]) -> None:
        self.interval_s = interval_s
        self.report_failure = report_failure
        self.thread_id: int = threading.get_ident()
        self._clock = clock
        self._stacks = Stacks(root_of_thread())
        self._samples: list[tuple[float, Frames]] = []
        self._thread = _thread()
        self._thread.add(self)

    def add(self, frames: Frames) -> None:
        """Add a sample; called by the sampling thread. Only every other sample of a long record is kept."""
        if len(self._samples) >= _MAX_SAMPLES:
            self._samples[:] = self._samples[1::2]
        self._samples.append((self._clock(), frames))

    def samples(self) -> list[tuple[float, list[str]]]:
        """Stop, and return each sample's time and stack, in order of time; any thread may call it."""
        self._thread.remove(self)
        return [(taken, self._stacks(frames)) for taken, frames in list(self._samples)]


class _SamplingThread:
    """Samples the threads of all flame graphs that were added; no call waits for a lock."""

    def __init__(self) -> None:
        # Weakly: a request that never ends is not sampled for ever.
        self._sampled: WeakValueDictionary[int, ThreadSamples] = WeakValueDictionary()
        self._running = threading.Lock()

    def add(self, samples: ThreadSamples) -> None:
        """Start sampling the thread of *samples*."""
        self._sampled[id(samples)] = samples
        self._start(samples.interval_s)

    def remove(self, samples: ThreadSamples) -> None:
        """Stop sampling the thread of *samples*."""
        self._sampled.pop(id(samples), None)

    def _start(self, interval_s: float) -> None:
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._run, args=(interval_s,), name="placebench-sampler", daemon=True).start()

    def _run(self, interval_s: float) -> None:
        idle_s = 0.0
        while idle_s < _IDLE_S:
            time.sleep(interval_s)
            wanted_s = self._sample()
            interval_s, idle_s = (wanted_s, 0.0) if wanted_s else (interval_s, idle_s + interval_s)
        self._running.release()
        if self._sampled:  # one was added after the last sample
            self._start(interval_s)

    def _sample(self) -> float | None:
        """Take a sample of each thread; return the shortest interval requested, None if no thread is sampled."""
        sampled = [samples for reference in self._sampled.valuerefs() if (samples := reference()) is not None]
        try:
            stacks = read_stacks({each.thread_id for each in sampled}) if sampled else {}
            for each in sampled:
                if stacks[each.thread_id]:
                    each.add(stacks[each.thread_id])
        except Exception as error:  # noqa: BLE001  flame graphs of other profilers need the thread
            for each in sampled:
                each.report_failure(error)
        return min((each.interval_s for each in sampled), default=None)


_THREADS: dict[int, _SamplingThread] = {}


def _thread() -> _SamplingThread:
    """Return the sampling thread of this process; a forked process has none of its parent's threads."""
    return _THREADS.setdefault(os.getpid(), _SamplingThread())


def read_stacks(thread_ids: Iterable[int]) -> dict[int, Frames]:
    """Return the stack of each of these threads, empty for one that has ended; the garbage collector is off meanwhile.

    On Python 3.11 a collection may begin wherever an object is made. Inside of `sys._current_frames` it can deadlock
    the process (https://github.com/python/cpython/issues/106883). While `f_back` makes the frame object of another
    thread's frame, a collection can let that thread go on: the frame's place then holds something else, which is read
    or overwritten. Garbage collection is switched on again only if it was on. One instruction reads its state and
    switches it off, so that no other thread runs in between.
    """
    was_enabled, _ = map(call, (gc.isenabled, gc.disable))
    try:
        current = sys._current_frames()
        return {each: frames_of(current.get(each)) for each in thread_ids}
    finally:
        if was_enabled:
            gc.enable()
