"""The thread of an event loop: what runs in it now, the stretches that took long, and who had to wait for them.

The main class is `LoopThread`. `LoopWatch` tells it when something begins and ends to run on the loop, and lets another
thread look at what has run for long (`LoopThread.look`), to find the line of a computation.
"""

import socket
import struct
import sys
import threading
import time
from asyncio import base_events, events
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.call_sites import Callers, find_callers
from placebench.profiler.capture.sampling_thread import without_collector
from placebench.profiler.model.loop_block import BlockCause, LateRequest, LoopBlock
from placebench.profiler.model.session import gil_is_off

MIN_BLOCK_S = 0.050
"""Shorter stretches are not noted: an event loop is there to run something."""
_MAX_LATE = 100
_MAX_BLOCKS = 1_000
_MAX_LOOKS = 1_000
_MIN_LATE_S = 0.001
NOT_LATE = float("inf")
_MAX_UNKNOWN_TURN = 3
_RUN_ONCE = base_events.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]


class _Load(NamedTuple):
    """The processor's time that this thread, its process, and others while this thread was ready have taken."""

    elapsed_s: float
    thread_cpu_s: float
    process_cpu_s: float
    queued_s: float


class PendingBlock:
    """A stretch that a recording held the loop, until all who waited for it have gone on."""

    def __init__(self, recording: ActiveRecording, started: float, ended: float, loop: str) -> None:
        self.recording = recording
        self.started = started
        self.ended = ended
        self.is_open = True
        self._loop = loop
        self._late: list[tuple[ActiveRecording | str, float, bool]] = []
        self._cause: BlockCause = "call"
        self._cause_s = 0.0
        self._sql: str | None = None
        self._fingerprint: str | None = None
        self._callers: Callers = (None, None)

    def find_cause(self, looks: "list[Callers]") -> None:
        """Find what took the largest part: a statement, a step or a wait of the recording, or else what *looks* saw."""
        has_lines = self.recording.options.mode != "light"
        seen = Counter(looks).most_common(1) if has_lines else []
        self._callers = seen[0][0] if seen else (None, None)
        if self._callers[0] is not None and self._callers[0].file.startswith("<frozen "):  # an import of a library
            self._callers = (None, None)
        parts: dict[tuple[object, ...], list[Any]] = {}
        functions = {caller[::2] for callers in looks for caller in callers if caller is not None}
        began_here = (
            takewhile(lambda pending: pending.started >= self.started, reversed(kept))
            for kept in (self.recording.statements, self.recording.steps)
        )
        for pending in chain.from_iterable(began_here):
            wait_s = pending.pool_wait_s or 0.0
            if pending.execute_s is None or pending.started > self.ended:
                continue
            if functions and pending.caller is not None and pending.caller[::2] not in functions:
                continue  # another thread ran it
            cause = "statement" if pending.step is None else "transaction step"
            place = pending.fingerprint, pending.step, pending.caller, pending.outer_caller
            if pending.started - wait_s >= self.started and wait_s:
                parts.setdefault(("connection-pool wait", *place), [0.0, pending])[0] += wait_s
            seconds = pending.execute_s + (pending.fetch_s or 0.0)
            parts.setdefault((cause, *place), [0.0, pending])[0] += seconds
        length_s = self.ended - self.started
        if not parts or sum(seconds for seconds, _ in parts.values()) < length_s / 2:
            self._cause_s = length_s - sum(seconds for seconds, _ in parts.values())
            return
        (cause, *_), (self._cause_s, pending) = max(parts.items(), key=lambda part: part[1][0])  # type: ignore[assignment]
        if pending.step == "POOL TIMEOUT":
            cause = "connection-pool wait"
        self._cause = cause  # type: ignore[assignment]
        self._sql, self._fingerprint = pending.leaf_text(), pending.fingerprint or None
        if pending.caller is not None:
            self._callers = pending.caller, pending.outer_caller

    @property
    def is_call(self) -> bool:
        """Whether the application's own code took the time, rather than a statement, a transaction step or a pool."""
        return self._cause == "call"

    def add_late(self, who: ActiveRecording | str, seconds: float, *, is_exact: bool) -> None:
        """Note who went on late."""
        if len(self._late) < _MAX_LATE:
            most_s = seconds if is_exact else min(seconds, self.ended - self.started)
            self._late.append((who, most_s, is_exact))

    def to_block(self, origin: float) -> LoopBlock:
        """Return the block with its time relative to *origin*, the start of the recording."""
        late = [
            LateRequest(who if isinstance(who, str) else who.name, seconds, is_exact)
            for who, seconds, is_exact in sorted(self._late, key=lambda each: -each[1])
        ]
        return LoopBlock(
            started_s=self.started - origin,
            elapsed_s=self.ended - self.started,
            loop=self._loop,
            cause=self._cause,
            cause_s=self._cause_s,
            sql=self._sql,
            fingerprint=self._fingerprint,
            caller=self._callers[0],
            outer_caller=self._callers[1],
            late=tuple(late),
        )


class LateHandles:
    """Tells since when the callbacks were ready that a loop of asyncio runs after a block.

    What was scheduled before the block has waited for all of it; what the holder of the loop has scheduled has not. A
    timer knows when it was due, and Linux when the last data came to a TCP socket. What a callback schedules was ready
    when that callback was. Of other events, it is only known that they came during the block.
    """

    def __init__(self, loop: Any, started: float, scheduled_before: int | None) -> None:
        self._loop = loop
        if scheduled_before is None:
            turn: Any = sys._getframe(1)
            while turn is not None and turn.f_code is not _RUN_ONCE:
                turn = turn.f_back
            # How many were ready before this turn, and have not run.
            scheduled_before = 0 if turn is None else turn.f_locals["ntodo"] - turn.f_locals["i"] - 1
        self._ready: dict[int, float | None] = {
            id(handle): started if number < scheduled_before else NOT_LATE for number, handle in enumerate(loop._ready)
        }
        self._transports: set[int] = set()

    def ready(self, handle: Any, now: float, turn: int) -> float | None:
        """Return when *handle* was ready, which runs now; None if that is not known, NOT_LATE if after the block."""
        if isinstance(handle, events.TimerHandle) and not handle.cancelled():
            due: float = now - (self._loop.time() - handle.when())
            return due
        if id(handle) in self._ready:
            return self._ready.pop(id(handle))
        owner = getattr(handle._callback, "__self__", None)
        age_s = _data_age_s(getattr(owner, "_sock", None))
        if age_s is not None:
            return now - age_s
        return None if turn <= 1 or id(owner) in self._transports else NOT_LATE

    def has_run(self, ready: float | None, scheduled: int) -> None:
        """Note what a callback has scheduled that was *ready* then; *scheduled* is how much was before it ran."""
        for handle in islice(self._loop._ready, scheduled, None):
            self._ready[id(handle)] = ready
            owner = getattr(handle._callback, "__self__", None)
            if ready != NOT_LATE and hasattr(owner, "_sock"):
                self._transports.add(id(owner))


def woken_task(handle: Any) -> str | None:
    """Return the name of the coroutine that a timer of asyncio wakes; None for another callback."""
    if not isinstance(handle, events.TimerHandle):
        return None
    arguments: Any = handle._args
    woken = getattr(arguments[0], "_callbacks", None) if arguments else None
    tasks: list[Any] = [getattr(callback, "__self__", None) for callback, _ in woken or ()]
    coroutine = next((task.get_coro() for task in tasks if hasattr(task, "get_coro")), None)
    name: str | None = getattr(coroutine, "__qualname__", None)
    return name


def _data_age_s(sock: Any) -> float | None:
    """Return how long ago the last data came to a TCP socket; None if the kernel does not tell."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
        # struct tcp_info of linux/tcp.h: tcpi_rto, which is never 0, and tcpi_last_data_recv, in milliseconds.
        (rto,), (age_ms,) = struct.unpack_from("=I", info, 8), struct.unpack_from("=I", info, 52)
    except (AttributeError, OSError, struct.error):
        return None
    return age_ms * 1e-3 if rto else None


class LoopThread:
    """One thread that runs an event loop, or greenlets.

    started: when that which runs now began, 0 while the loop waits. stretch: start and end of the last long one.
    is_late: whether others may still go on that had to wait for it. turn: the number of the loop's turn since then.
    ready: meanwhile, when that which runs now was ready to run; None if this is not known, NOT_LATE if it was later.
    """

    ready: float | None = None
    late_handles: LateHandles | None = None

    def __init__(self, identifier: int, loop: str, clock: Callable[[], float], late: set["LoopThread"]) -> None:
        self.identifier = identifier
        self.loop = loop
        self.clock = clock
        self.started = 0.0
        self.is_late = False
        self.turn = 0
        self._late = late
        self._steps: dict[float, float | None] = {}
        self._native = threading.get_native_id()
        self._ended_inside: tuple[float, list[PendingBlock]] = (0.0, [])
        self._looks: tuple[float, list[Callers]] = (0.0, [])
        self._places: list[tuple[object, int]] = []
        self._first: _Load | None = None
        self.stretch = (0.0, 0.0)
        self._open: list[PendingBlock] = []
        self._went_on: set[int] = set()
        self._waiting: list[Callable[[], None]] = []

    def look(self, application: tuple[str, ...]) -> None:
        """Note the lines that run now, and what the processor does; another thread calls this."""
        started = self.started
        if self._looks[0] != started:
            self._looks, self._places, self._first = (started, []), [], self._load(is_own=False)
        if gil_is_off():  # its stack cannot be read
            return
        with without_collector():
            frame = sys._current_frames().get(self.identifier)
            if frame is not None and self.started == started and len(self._places) < _MAX_LOOKS:
                self._places.append((frame.f_code, frame.f_lasti))
                self._looks[1].append(find_callers(frame, application))

    def recording_ended(self, recording: ActiveRecording) -> None:
        """Note a block in a recording that ends now, before the stretch does that holds the loop."""
        began = max(self.started, recording.started)
        if self.started and recording.started + recording.elapsed_s - began >= MIN_BLOCK_S:
            if self._ended_inside[0] != self.started:
                self.serve()
                self._ended_inside = self.started, []
            self._add(recording, began, recording.started + recording.elapsed_s, self._ended_inside[1])

    def stretch_ended(self, recording: ActiveRecording | None) -> bool:
        """Note the end of a stretch of 50 ms or more that held the loop; return whether recordings held it.

        recording: that of the task or greenlet at the end of the stretch. Others may have ended before.
        """
        now, started = self.clock(), self.started
        if self._ended_inside[0] != started:
            self.serve()
            self._ended_inside = started, []
        blocks = self._ended_inside[1]
        if recording is not None and not recording.ended and now - max(started, recording.started) >= MIN_BLOCK_S:
            self._add(recording, max(started, recording.started), now, blocks)
        self.stretch, self._open = (started, now), blocks
        if not blocks:
            return False
        self._went_on = {id(block.recording) for block in blocks}
        self._steps.clear()
        self.turn, self.ready, self.late_handles = 0, NOT_LATE, None
        self.is_late = True
        self._late.add(self)
        return True

    def _add(self, recording: ActiveRecording, started: float, ended: float, blocks: list[PendingBlock]) -> None:
        block = PendingBlock(recording, started, ended, self.loop)
        block.find_cause(self._looks[1] if self._looks[0] == self.started else [])
        own_s = ended - started - (self._waited_for_processor_s() if block.is_call else 0.0)
        if own_s >= MIN_BLOCK_S and len(recording.blocks) < _MAX_BLOCKS:
            recording.blocks.append(block)
            blocks.append(block)

    def _waited_for_processor_s(self) -> float:
        """Return the seconds of the stretch in which the thread wanted to run, but had no processor or not the GIL."""
        first = self._first
        if first is None or self._looks[0] != self.started:
            return 0.0
        last = self._load(is_own=True)
        elapsed_s, own_s, process_s, queued_s = (after - before for before, after in zip(first, last, strict=True))
        is_stuck = len(self._places) > 2 and len(set(self._places)) == 1  # in one call, such as time.sleep
        # Other threads may compute without the GIL: they have kept this one from nothing while it ran.
        others_s = 0.0 if is_stuck else max(0.0, process_s - own_s)
        return max(0.0, min(queued_s + others_s, elapsed_s - own_s))

    def _load(self, *, is_own: bool) -> _Load:
        cpu_s = 0.0
        if is_own:
            cpu_s = time.thread_time()
        elif hasattr(time, "pthread_getcpuclockid"):
            cpu_s = time.clock_gettime(time.pthread_getcpuclockid(self.identifier))
        queued_s = 0.0
        with suppress(OSError, IndexError, ValueError):
            queued_s = int(Path(f"/proc/self/task/{self._native}/schedstat").read_bytes().split()[1]) * 1e-9
        return _Load(time.perf_counter(), cpu_s, time.process_time(), queued_s)

    def goes_on(self, recording: ActiveRecording | None, task: str | None = None) -> None:
        """Note that a recording goes on or begins, or a *task* of the one that held the loop; see `ready`."""
        ready = self.ready
        if recording is None or recording.ended or ready == NOT_LATE:
            return
        started, ended = self.stretch
        is_own = id(recording) in self._went_on
        if (is_own and (task is None or ready is None)) or (not is_own and recording.kind == "program"):
            return
        if not is_own:
            self._went_on.add(id(recording))
        since = started if ready is None else max(started, ready)
        if recording.started < ended:
            since = max(since, recording.started)
        if ended - since < _MIN_LATE_S:
            return
        for block in self._open:
            if not is_own:
                block.add_late(recording, ended - since, is_exact=ready is not None)
            elif block.recording is recording:
                block.add_late(f"task {task}", ended - since, is_exact=True)

    def step_goes_on(self, recording: ActiveRecording | None, scheduled_by: float) -> None:
        """Note that a step of a task begins on a loop that keeps its own callbacks.

        scheduled_by: when the step began that has scheduled this one; 0 if the loop has, for data or a timer.
        """
        started, ended = self.stretch
        if not scheduled_by:
            self.ready = None if self.turn <= _MAX_UNKNOWN_TURN else NOT_LATE
        elif scheduled_by < started:
            self.ready = started
        else:
            self.ready = NOT_LATE if scheduled_by <= ended else self._steps.get(scheduled_by, NOT_LATE)
        self._steps[self.started] = self.ready
        self.goes_on(recording)

    def after_serving(self, action: Callable[[], None]) -> None:
        """Call *action* when those who had to wait have gone on."""
        self._waiting.append(action)

    def serve(self, stretch: tuple[float, float] | None = None) -> None:
        """End the time after a blocked stretch in which waiting tasks go on late; idempotent.

        stretch: the blocked stretch that is meant; nothing is done if the loop was blocked again since.
        """
        if stretch is not None and stretch != self.stretch:
            return
        blocks, self._open, self.is_late = self._open, [], False
        self._late.discard(self)
        for block in blocks:
            block.is_open = False
        actions, self._waiting = self._waiting, []
        for action in actions:
            action()
