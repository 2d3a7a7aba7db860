"""Samples of a thread's stack that another thread takes: for servers under load, and where no profile function may run.

The main class is `ThreadSamples`. One sampling thread serves all flame graphs of a process that want the same interval,
so that many requests at once cost as little as one, and a request shorter than the interval is as likely to be sampled
as any other stretch of time. A sample is taken when Python's lock lets the thread run: later than the interval says
where Python computes, and more often where a call into C gives the lock away.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from operator import call
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

from placebench.profiler.stacks import Frames, Stacks, frames_of, root_of_thread
from placebench.profiler.tape import Clock

_MOST_SAMPLES = 20_000
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
    """How often a sampling thread samples in a mode that has a flame; None where a profile function samples."""
    if mode == "sampled":
        return 0.020
    return 0.005 if profile_function_defect(version) else None


class ThreadSamples:
    """Samples the thread that makes it, until `samples`; a failure is told to *give_up*."""

    holds = True

    def __init__(self, clock: Clock, interval_s: float, give_up: Callable[[Exception], None]) -> None:
        self.interval_s = interval_s
        self.give_up = give_up
        self.thread_id = threading.get_ident()
        self._clock = clock
        self._stacks = Stacks(root_of_thread())
        self._samples: list[tuple[float, Frames]] = []
        self._thread = _thread(interval_s)
        self._thread.add(self)

    def add(self, frames: Frames) -> None:
        """A sample; called by the sampling thread. Of a long record only every other sample is kept."""
        if len(self._samples) >= _MOST_SAMPLES:
            self._samples[:] = self._samples[1::2]
        self._samples.append((self._clock(), frames))

    def samples(self) -> list[tuple[float, list[str]]]:
        """End; each sample's reading of the clock and its stack, in order of time. For any thread."""
        self._thread.remove(self)
        return [(taken, self._stacks(frames)) for taken, frames in list(self._samples)]


class _SamplingThread:
    """Samples the threads of all flame graphs that were added to it, while there are any; nothing waits for a lock."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        # Weakly: a request that never ends is not sampled for ever.
        self._watched: WeakValueDictionary[int, ThreadSamples] = WeakValueDictionary()
        self._running = threading.Lock()

    def add(self, samples: ThreadSamples) -> None:
        """Begin to sample its thread."""
        self._watched[id(samples)] = samples
        self._start()

    def remove(self, samples: ThreadSamples) -> None:
        """End it."""
        self._watched.pop(id(samples), None)

    def _start(self) -> None:
        if self._running.acquire(blocking=False):
            name = f"placebench-sampler-{self._interval_s:g}s"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        idle = 0
        while idle * self._interval_s < _IDLE_S:
            time.sleep(self._interval_s)
            idle = 0 if self._sample() else idle + 1
        self._running.release()
        if self._watched:  # one was added after the last look
            self._start()

    def _sample(self) -> bool:
        """Take a sample of each thread, if there are any; in here, so that no frame is held, with its variables."""
        watched = [samples for reference in self._watched.valuerefs() if (samples := reference()) is not None]
        try:
            current = current_frames() if watched else {}
            frames = {each: frames_of(current.get(each)) for each in {samples.thread_id for samples in watched}}
            for samples in watched:
                if frames[samples.thread_id]:
                    samples.add(frames[samples.thread_id])
        except Exception as error:  # noqa: BLE001  the thread goes on for the flame graphs of other profilers
            for samples in watched:
                samples.give_up(error)
        return bool(watched)


_THREADS: dict[tuple[int, float], _SamplingThread] = {}


def _thread(interval_s: float) -> _SamplingThread:
    """This process's sampling thread for that interval; a forked process has none of its parent's."""
    return _THREADS.setdefault((os.getpid(), interval_s), _SamplingThread(interval_s))


def current_frames() -> dict[int, FrameType]:
    """The running frame of each thread, read while the garbage collector is off.

    On Python 3.11 a collection inside of `sys._current_frames` can deadlock the process (gh-106883). One instruction
    makes the three calls: no other thread runs in between, and the collector is switched on again only where it was.
    """
    done: list[Any] = []
    try:
        done.extend(map(call, (gc.isenabled, gc.disable, sys._current_frames)))
    finally:
        if done[:1] == [True]:
            gc.enable()
    frames: dict[int, FrameType] = done[2]
    return frames
