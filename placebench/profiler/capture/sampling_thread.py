"""Samples of a thread's stack that another thread takes: for servers under load, and if no profile function may run.

The main class is `ThreadSamples`. One sampling thread serves all flame graphs of a process, so that many requests at
once cost as little as one, and a request shorter than the interval is as likely to be sampled as any other stretch of
time.

A sample is taken when the GIL lets the sampling thread run: at the next call into C that releases the lock, or when
Python's switch interval is over. With the default of 5 ms, code that runs up to 5 ms before such a call is never seen,
and the call in its place. So the switch interval is shorter while something is sampled (`_SwitchInterval`).

At the end of that interval the sampled thread hands the GIL over where Python checks for requests: when a function
begins, when a generator goes on after `yield`, when a loop jumps back, and after a call into C. There is no check where
a coroutine goes on after `await` or a generator after `yield from`. The request came at some moment since the check
before: `frames_before_check` returns what ran then.
"""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate, chain, count, repeat, takewhile
from opcode import opmap
from operator import attrgetter, call, methodcaller
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from weakref import WeakValueDictionary

from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.stack import Frames, Stacks, root_of_thread
from placebench.profiler.capture.waiting_tasks import IdleEventLoop
from placebench.profiler.model.session import pyinstrument_defect

_MAX_SAMPLES = 20_000
_IDLE_S = 1.0
"""The thread ends after this time without a flame graph: starting one takes longer than a fast request."""
_MAX_CPU_SHARE = 0.03
"""The share of one processor that reading stacks may take: if it takes more, the thread reads them less often.

A stack takes some 0.02 to 0.1 ms to read, so that of one thread never takes as much. Waits for the GIL are not counted:
samples would be rarer after long calls into C, which are sampled when they end, and the shares of frames would shift.
"""
_NEWEST_SAMPLE_SHARE = 0.1
"""The weight of a new sample in the mean CPU time per sample, from which the pause follows."""


def profile_function_defect(version: tuple[int, ...] | None = None) -> str | None:
    """Return why no profile function samples on this *version* of Python, by default in this process; None if it can.

    Up to 3.11.2 a generator that resumes under any profile function, even an empty one, leaves the height of its stack
    set. The garbage collector then visits freed objects, and the process dies by SIGSEGV, mostly with several threads:
    https://github.com/python/cpython/issues/101975
    """
    known = version or sys.version_info[:3]
    if known < (3, 11, 3):
        return f"Python {'.'.join(map(str, known))} can crash under a profile function (gh-101975, repaired in 3.11.3)"
    return None if version else pyinstrument_defect()


INTERVAL_S = 0.010
_STAND_IN_INTERVAL_S = 0.005


def thread_interval_s(mode: str, version: tuple[int, ...] | None = None) -> float | None:
    """Return the interval of the sampling thread in a mode with a flame graph; None if a profile function samples."""
    if mode == "sampled":
        return INTERVAL_S
    return _STAND_IN_INTERVAL_S if profile_function_defect(version) else None


class ThreadSamples:
    """Samples the thread that creates it until `samples` is called; failures go to *report_failure*.

    root: the frame above its stacks (default: that of the thread).
    """

    holds = True

    def __init__(
        self, clock: Clock, interval_s: float, report_failure: Callable[[Exception], None], *, root: str | None = None
    ) -> None:
        self.interval_s = interval_s
        self.report_failure = report_failure
        self.thread_id: int = threading.get_ident()
        self._clock = clock
        self._stacks = Stacks(root or root_of_thread())
        self._samples: list[tuple[float, Frames, str | None]] = []
        self._thread = _thread()
        self._thread.add(self)

    def add(self, frames: Frames, last: str | None = None) -> None:
        """Add a sample, with *last* below it; only every other sample of a long record is kept.

        The sampling thread calls it.
        """
        if len(self._samples) >= _MAX_SAMPLES:
            self._samples[:] = self._samples[1::2]
        self._samples.append((self._clock(), frames, last))

    def samples(self) -> list[tuple[float, list[str]]]:
        """Stop, and return each sample's time and stack, in order of time; any thread may call it."""
        self._thread.remove(self)
        return [
            (taken, stack if last is None else [*stack, last])
            for taken, frames, last in list(self._samples)
            for stack in [self._stacks(frames_before_check(frames))]
        ]


_RESUME, _SEND = opmap["RESUME"], opmap["SEND"]
_AT_START, _AFTER_YIELD, _AWAITS, _ELSEWHERE = range(4)
_PLACE_OF_RESUME = 3
"""The bits of the argument of RESUME that say after what a function goes on."""


@lru_cache(maxsize=20_000)
def _kind(code: CodeType, instruction: int) -> int:
    """Return what a frame does at its instruction; the code's instructions are copied to read one."""
    if instruction < 0:
        return _AT_START
    operation, argument = code.co_code[instruction : instruction + 2]
    if operation == _RESUME:
        place = argument & _PLACE_OF_RESUME
        return (_AT_START, _AFTER_YIELD, _AWAITS, _AWAITS)[place]
    return _AWAITS if operation == _SEND else _ELSEWHERE


_TURNS = count()


def frames_before_check(frames: Frames) -> Frames:
    """Return the frames that ran before the check at which *frames*, innermost first, were sampled.

    A function at its start is left out. If a generator goes on after a `yield`, the thread came down to it through the
    generators and coroutines that await each other, and had come up through them when it yielded. Samples take turns
    among them and the caller, with two turns for the generator itself, which also runs between its own checks.
    """
    if len(frames) < 4:
        return frames
    kind = _kind(*frames[:2])
    if kind == _AT_START:
        return frames[2:]
    if kind != _AFTER_YIELD:
        return frames
    depth = 1
    while 2 * depth + 2 < len(frames) and _kind(*frames[2 * depth : 2 * depth + 2]) == _AWAITS:
        depth += 1
    return frames[2 * max(0, next(_TURNS) % (depth + 2) - 1) :]


class _SamplingThread:
    """A thread that takes the samples of all flame graphs that were added; no call waits until one is taken."""

    def __init__(self) -> None:
        # Weakly: a request that never ends is not sampled for ever.
        self._sampled: WeakValueDictionary[int, ThreadSamples] = WeakValueDictionary()
        self._running = threading.Lock()
        self._switch_interval = _SwitchInterval(self._sampled)
        self._idle_loop = IdleEventLoop()

    def add(self, samples: ThreadSamples) -> None:
        self._sampled[id(samples)] = samples
        self._switch_interval.update()
        self._start(samples.interval_s)

    def remove(self, samples: ThreadSamples) -> None:
        self._sampled.pop(id(samples), None)
        self._switch_interval.update()

    def _start(self, interval_s: float) -> None:
        if self._running.acquire(blocking=False):
            threading.Thread(target=self._run, args=(interval_s,), name="placebench-sampler", daemon=True).start()

    def _run(self, interval_s: float) -> None:
        # Linux may end a wait, that for the lock too, 50 µs late, which is longer than our switch interval.
        with suppress(OSError):
            Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text("1")
        self._switch_interval.watch_collections()
        idle_s, sample_cpu_s, uneven = 0.0, 0.0, Random(0)
        while idle_s < _IDLE_S:
            began, cpu_s = time.perf_counter(), time.thread_time()
            pause_s = max(interval_s, sample_cpu_s / _MAX_CPU_SHARE)
            # At even times all samples of a program that repeats something at their rate would be at one place of it.
            time.sleep(pause_s * uneven.uniform(0.5, 1.5))  # and wait for the GIL
            self._switch_interval.lengthen()
            waited_s, waited_cpu_s = time.perf_counter() - began, time.thread_time()
            self._switch_interval.adapt(waited_cpu_s - cpu_s, waited_s)
            wanted_s = self._sample()
            interval_s, idle_s = (wanted_s, 0.0) if wanted_s else (interval_s, idle_s + pause_s)
            sample_cpu_s += (time.thread_time() - waited_cpu_s - sample_cpu_s) * _NEWEST_SAMPLE_SHARE
            self._switch_interval.update()
        with suppress(ValueError):  # the application may have emptied the list
            gc.callbacks.remove(self._switch_interval.collected)
        self._running.release()
        if self._sampled:  # one was added after the last sample
            self._start(interval_s)

    def _sample(self) -> float | None:
        """Take a sample of each thread; return the shortest interval requested, None if no thread is sampled."""
        sampled = [samples for reference in self._sampled.valuerefs() if (samples := reference()) is not None]
        try:
            stacks = read_stacks({each.thread_id for each in sampled}, self._idle_loop) if sampled else {}
            for each in sampled:
                frames, last = stacks[each.thread_id]
                if frames:
                    each.add(frames, last)
        except Exception as error:  # noqa: BLE001  flame graphs of other profilers need the thread
            for each in sampled:
                each.report_failure(error)
        return min((each.interval_s for each in sampled), default=None)


class _SwitchInterval:
    """Shortens Python's switch interval while something is sampled; it is left alone once the application sets it.

    A thread that waits for the GIL requests it when the switch interval has passed and nobody released the GIL
    meanwhile. An event loop releases it at each call into its selector, every 0.1 ms or less. With a longer interval
    the sampling thread wakes up at each such call, mostly too late; if it succeeds, it sees the selector. In a long
    call into C that keeps the GIL, the sampling thread wakes up once per interval, in vain. So the interval is short
    unless this costs too much CPU, and more than a long one does (`adapt`). A garbage collection keeps the GIL for up
    to some 100 ms: the interval is long meanwhile (`collected`). Threads that compute at the same time take
    turns more often then, which costs six of them a third of their time at 0.1 ms and a tenth at 1 ms. So it is short
    for one thread only.

    sampled: what is sampled now; others may change it.
    """

    def __init__(self, sampled: Sized) -> None:
        self._sampled = sampled
        self._before_s = self._short_s = 0.0
        self._own_s: float | None = None
        self._is_collecting = False
        self._alone_s = _ALONE_S
        self._cpu_shares = {_ALONE_S: 0.0, _BESIDE_ONE_S: 0.0}

    def adapt(self, cpu_s: float, elapsed_s: float) -> None:
        """Choose the interval for one thread: the last wait with the present one took *cpu_s* of CPU in *elapsed_s*.

        The share of an interval that is not in use is forgotten by and by, so that it is tried again.
        """
        if self._own_s is None:  # nothing was sampled
            return
        used, shares = self._alone_s, self._cpu_shares
        shares[used] += (cpu_s / elapsed_s - shares[used]) * _NEWEST_SHARE
        shares[_ALONE_S if used == _BESIDE_ONE_S else _BESIDE_ONE_S] *= _KEPT_SHARE
        is_cheap = shares[_ALONE_S] <= max(_MAX_WAIT_SHARE, shares[_BESIDE_ONE_S])
        self._alone_s = _ALONE_S if is_cheap else _BESIDE_ONE_S

    def lengthen(self) -> None:
        """Let other threads wait quietly while one keeps the GIL that has just got it."""
        with _SWITCHING:
            self._set(self._before_s)

    def watch_collections(self) -> None:
        """Call `collected` from now on; a collection that began before is over, if nobody was told of its end."""
        self._is_collecting = False
        gc.callbacks.append(self.collected)

    def collected(self, phase: str, details: dict[str, int]) -> None:
        """Let the sampling thread wait quietly during a garbage collection."""
        if details["generation"]:  # the youngest takes less time than this
            self._is_collecting = phase == "start"
            if _SWITCHING.acquire(blocking=False):  # else its thread sets the interval now; ours must not wait here
                try:
                    self._set(self._before_s if self._is_collecting else self._short_s)
                finally:
                    _SWITCHING.release()

    def _set(self, interval_s: float) -> None:
        """Set the switch interval if nobody else has set it meanwhile."""
        if self._own_s is not None and sys.getswitchinterval() == self._own_s != interval_s:
            sys.setswitchinterval(interval_s)
            self._own_s = sys.getswitchinterval()

    def update(self) -> None:
        """Shorten the switch interval if something is sampled, else set that of before again; idempotent."""
        with _SWITCHING:
            if self._sampled:
                self._shorten()
            else:
                self.restore()

    def _shorten(self) -> None:
        """Set the switch interval for the present number of threads, unless the application's own is shorter."""
        current_s = sys.getswitchinterval()
        if self._own_s is None:
            self._before_s = current_s
        elif current_s != self._own_s:  # the application has set it meanwhile
            return
        thread_count = threading.active_count() - 1  # without the sampling thread
        wanted_s = self._alone_s if thread_count < 2 else _BESIDE_ONE_S if thread_count == 2 else _AMONG_THREADS_S
        if wanted_s < self._before_s:
            self._own_s, self._short_s = current_s, wanted_s
            if not self._is_collecting:  # the sampling thread can run in a collection's callbacks
                self._set(wanted_s)

    def restore(self) -> None:
        """Set the switch interval of before again, although something may be sampled."""
        own_s, self._own_s = self._own_s, None
        if own_s is not None and sys.getswitchinterval() == own_s:
            sys.setswitchinterval(self._before_s)


_SWITCHING = threading.RLock()
"""Held while the switch interval is read and set: a thread that lost the GIL in between would undo another's change.

It is reentrant, since the end of a recording can interrupt its holder, as a finalizer or in a signal's handler.
"""
_ALONE_S, _BESIDE_ONE_S, _AMONG_THREADS_S = 0.00002, 0.0001, 0.001
_MAX_WAIT_SHARE, _NEWEST_SHARE, _KEPT_SHARE = 0.02, 0.3, 0.97

_THREADS: dict[int, _SamplingThread] = {}


def _thread() -> _SamplingThread:
    """Return the sampling thread of this process; a forked process has none of its parent's threads."""
    return _THREADS.setdefault(os.getpid(), _SamplingThread())


def _restore_in_child() -> None:
    """Restore the switch interval in a forked process, which has no sampling thread."""
    _SWITCHING.release()
    if (thread := _THREADS.get(os.getppid())) is not None:
        thread._switch_interval.restore()
        with suppress(ValueError):
            gc.callbacks.remove(thread._switch_interval.collected)


if hasattr(os, "register_at_fork"):
    # The child's copy of the lock is free then, and the switch interval is one that was set completely.
    os.register_at_fork(before=_SWITCHING.acquire, after_in_parent=_SWITCHING.release, after_in_child=_restore_in_child)


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector off while the stacks of other threads are read.

    On Python 3.11 a collection may begin wherever an object is made. Inside of `sys._current_frames` it can deadlock
    the process (https://github.com/python/cpython/issues/106883). While `f_back` makes the frame object of another
    thread's frame, a collection can let that thread go on: the frame's place then holds something else, which is read
    or overwritten. Garbage collection is switched on again only if it was on. One instruction reads its state and
    switches it off, so that no other thread runs in between.
    """
    was_enabled, _ = map(call, (gc.isenabled, gc.disable))
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_CODE_INSTRUCTION_CALLER = attrgetter("f_code", "f_lasti", "f_back")


def _rows_of(thread_id: int) -> list[tuple[CodeType, int, FrameType | None]]:
    """Return code, instruction and caller of each frame of a thread, innermost first; empty if it has ended.

    One call into C reads all: between two instructions of Python the sampled thread could take the GIL and run on.
    """
    innermost = map(methodcaller("get", thread_id), map(call, (sys._current_frames,)))
    frames = takewhile(bool, accumulate(chain(innermost, repeat("f_back")), getattr))
    return list(map(_CODE_INSTRUCTION_CALLER, frames))


def read_stacks(thread_ids: Iterable[int], idle_loop: IdleEventLoop) -> dict[int, tuple[Frames, str | None]]:
    """Return the stack of each of these threads, empty for one that has ended, and what is below it.

    A thread whose event loop is idle is at the lines that await.
    """
    with without_collector():
        stacks: dict[int, tuple[Frames, str | None]] = {}
        for each in thread_ids:
            rows = _rows_of(each)
            frames: Frames = [item for code, instruction, _ in rows for item in (code, instruction)]
            stacks[each] = frames, None
            if rows and rows[0][2] is not None:
                with suppress(RuntimeError):  # the loop goes on, and its tasks change
                    stacks[each] = idle_loop.stack(rows[0][2], frames, INTERVAL_S) or stacks[each]
        return stacks
