"""Samples of a thread's stack that another thread takes: for servers under load, and where no profile function may run.

The main class is `ThreadSamples`. One sampling thread serves all flame graphs of a process, so that many requests at
once cost as little as one, and a request shorter than the interval is as likely to be sampled as any other stretch of
time. A sample is taken when Python's lock lets the thread run: where Python computes later than the interval says, and
more often where a call into C gives the lock away.
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
"""The thread ends after so many seconds without a flame graph: starting one takes longer than a fast request."""


def profile_function_defect(version: tuple[int, ...] = sys.version_info[:3]) -> str | None:
    """Why no profile function may be installed on a Python of this version; None where it may.

    Up to 3.11.2 a generator that resumes under any profile function, even an empty one, leaves the height of its stack
    set, and the garbage collector then visits objects that are freed (gh-101975): the process dies by SIGSEGV, mostly
    with several threads.
    """
    if version >= (3, 11, 3):
        return None
    return f"Python {'.'.join(map(str, version))} can crash under a profile function (gh-101975, repaired in 3.11.3)"


def thread_interval_s(mode: str, version: tuple[int, ...] = sys.version_info[:3]) -> float | None:
    """How often a sampling thread samples in a mode that has a flame graph; None where a profile function samples."""
    if mode == "sampled":
        return 0.020
    return 0.005 if profile_function_defect(version) else None


class ThreadSamples:
    """Samples the thread that makes it, until `samples`; *report_failure* is called for a failure."""

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
        """A sample; called by the sampling thread. Of a long record only every other sample is kept."""
        if len(self._samples) >= _MAX_SAMPLES:
            self._samples[:] = self._samples[1::2]
        self._samples.append((self._clock(), frames))

    def samples(self) -> list[tuple[float, list[str]]]:
        """End; each sample's reading of the clock and its stack, in order of time. For any thread."""
        self._thread.remove(self)
        return [(taken, self._stacks(frames)) for taken, frames in list(self._samples)]


class _SamplingThread:
    """Samples the threads of all flame graphs that were added to it, while there are any; nothing waits for a lock."""

    def __init__(self) -> None:
        # Weakly: a request that never ends is not sampled for ever.
        self._sampled: WeakValueDictionary[int, ThreadSamples] = WeakValueDictionary()
        self._running = threading.Lock()

    def add(self, samples: ThreadSamples) -> None:
        """Begin to sample its thread."""
        self._sampled[id(samples)] = samples
        self._start(samples.interval_s)

    def remove(self, samples: ThreadSamples) -> None:
        """End it."""
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
        """Take a sample of each thread; the shortest interval that one wants, None where there is none."""
        sampled = [samples for reference in self._sampled.valuerefs() if (samples := reference()) is not None]
        try:
            stacks = read_stacks({each.thread_id for each in sampled}) if sampled else {}
            for each in sampled:
                if stacks[each.thread_id]:
                    each.add(stacks[each.thread_id])
        except Exception as error:  # noqa: BLE001  the thread goes on for the flame graphs of other profilers
            for each in sampled:
                each.report_failure(error)
        return min((each.interval_s for each in sampled), default=None)


_THREADS: dict[int, _SamplingThread] = {}


def _thread() -> _SamplingThread:
    """This process's sampling thread; a forked process has not that of its parent."""
    return _THREADS.setdefault(os.getpid(), _SamplingThread())


def read_stacks(thread_ids: Iterable[int]) -> dict[int, Frames]:
    """The stack of each of these threads, read while the garbage collector is off; empty for a thread that has ended.

    On Python 3.11 a collection may begin wherever an object is made. Inside of `sys._current_frames` it can deadlock
    the process (gh-106883). While `f_back` makes the frame object of another thread's frame, a collection can let that
    thread go on, and what is in the frame's place by then is taken for it, or overwritten. The garbage collector is
    switched on again only where it was on; one instruction reads its state and switches it off, so that no thread gets
    between.
    """
    was_enabled, _ = map(call, (gc.isenabled, gc.disable))
    try:
        current = sys._current_frames()
        return {each: frames_of(current.get(each)) for each in thread_ids}
    finally:
        if was_enabled:
            gc.enable()
