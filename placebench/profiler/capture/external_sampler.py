"""Samples of every thread's stack that another process takes: py-spy, which reads this one's memory while it runs.

The main class is `ExternalSampler`, one for a process: a thread of it runs py-spy while flame graphs need samples, and
hands them what py-spy has seen (`capture.external_flame_graph`). py-spy's Chrome trace is its only format with times,
and it writes it when it ends: so it runs in segments. Its times count from a moment that it keeps to itself, so each
segment begins with marks: calls of known depth at known times, of which the one that was seen soonest gives the
difference of the clocks.

With `--nonblocking`, py-spy never pauses the process: the sampled threads run at full speed.
"""

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from placebench.errors import ProfilerError

INTERVAL_S = 0.005
_START_S = 10.0
_SEGMENT_S = 2.0
"""How long flame graphs that nobody waits for are collected before they get their samples."""
_MAX_SEGMENT_S = 30.0
_MARKS = 10
_MARK_S = INTERVAL_S + 0.0007
"""Longer than the time between two samples: each mark is seen, and each at another distance from its beginning."""
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61

_NEXT_EVENT = '},{"args":'
_PART_SIZE = 50_000

Stack = tuple[str, ...]
"""Frames in pyinstrument's form, the outermost one first."""


class StackChange(NamedTuple):
    """From this reading of time.perf_counter on, a thread has this stack; of a thread that has ended it is empty."""

    at: float
    stack: Stack


StackChanges = dict[int, list[StackChange]]
"""By the identifier of the thread (`threading.get_ident`): its stacks in order of time."""


class _NeedsSamples(Protocol):
    """A flame graph that gets samples; it must not raise."""

    def take(self, changes: StackChanges, *, is_last: bool) -> None:
        """What was seen in one segment; *is_last*: nothing else will come."""


class _PySpy:
    """py-spy on this process until `stop`. Raises ProfilerError if it is not there, or may or can not read it."""

    def __init__(self) -> None:
        program = find_py_spy()
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115  without a name: nothing is left of it
        try:
            self._process = self._start(program)
        except BaseException:
            self._trace.close()
            raise

    def _start(self, program: str) -> "subprocess.Popen[bytes]":
        """Py-spy, which takes samples already."""
        output = f"/proc/self/fd/{self._trace.fileno()}"
        command = [program, "record", "--pid", str(os.getpid()), "--format", "chrometrace", "--output", output]
        options = ["--rate", f"{1 / INTERVAL_S:g}", "--nonblocking", "--idle", "--function", "--full-filenames"]
        process = subprocess.Popen(
            # It waits for a line: by then this process has permitted it to read its memory.
            ["/bin/sh", "-c", 'read -r _ && exec "$0" "$@"', *command, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._trace.fileno(),),
            start_new_session=True,  # an interrupt from the terminal is for the program
        )
        assert process.stdin is not None
        assert process.stdout is not None
        _permit_reading(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        said = process.stdout.readline()
        if b"Sampling process" not in said:
            rest, _ = process.communicate()
            raise ProfilerError(_refusal((said + rest).decode(errors="replace")))
        return process

    def stop(self, marks: list[float]) -> StackChanges:
        """End it; what it has seen, which is nothing if it was killed.

        marks: when they were made by the thread that calls this.
        """
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        _permit_reading(0)
        with self._trace:
            self._trace.seek(0)
            changes = read_chrome_trace(self._trace.read().decode()) if self._process.returncode == 0 else {}
        offset = _clock_difference(changes.pop(threading.get_ident(), []), marks)
        if offset is None:
            return {}
        return {thread: [StackChange(at - offset, stack) for at, stack in every] for thread, every in changes.items()}


def find_py_spy() -> str:
    """The program of this environment, or else of the PATH. Raises ProfilerError if there is none."""
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = str(beside) if beside.exists() else which("py-spy")
    if found is None:
        raise ProfilerError("py-spy is not installed: pip install 'placebench[sampler]'")
    return found


def _permit_reading(pid: int) -> None:
    """Let that process read this one's memory where only a parent may (Yama's ptrace_scope 1); 0: nobody any more."""
    if _YAMA.exists():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


_REFUSALS = ("ermission", "not permitted", "process executable name")
"""What py-spy says where /proc hides a process that runs."""


def _refusal(said: str) -> str:
    """Why py-spy does not sample this process, from what it wrote."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not any(words in said for words in _REFUSALS):
        return f"py-spy cannot sample this Python: {lines[0] if lines else 'it ended at once'}"
    scope = _YAMA.read_text(encoding="ascii").strip() if _YAMA.exists() else "0"
    what = f"kernel.yama.ptrace_scope is {scope}" if scope in "23" else "in a container, add the capability SYS_PTRACE"
    return f"py-spy may not read this process's memory (ptrace is refused): {what}"


def _make_marks() -> list[float]:
    """Calls of depth 1, 2, …, each longer than the time between two samples; when each began."""
    made = []
    for depth in range(1, _MARKS + 1):
        made.append(time.perf_counter())
        _mark(depth)
    return made


def _mark(depth: int) -> None:
    if depth > 1:
        _mark(depth - 1)
    else:
        time.sleep(_MARK_S)


def _clock_difference(own: list[StackChange], marks: list[float]) -> float | None:
    """py-spy's clock less ours, by the mark that it saw soonest after it had begun; None if it saw none."""
    name = f"{_mark.__name__}\x00{__file__}\x00"
    seen: dict[int, float] = {}
    for at, stack in own:
        seen.setdefault(sum(frame.startswith(name) for frame in stack), at)
    return min((seen[depth] - began for depth, began in enumerate(marks, 1) if depth in seen), default=None)


def read_chrome_trace(trace: str) -> StackChanges:
    """The stacks in a Chrome trace that `py-spy record --format chrometrace --function` wrote, by its own clock.

    Raises ProfilerError if it is none.
    """
    changes: StackChanges = {}
    running: dict[int, list[str]] = {}
    try:
        for event in _events(trace):
            stack = running.setdefault(event["tid"], [])
            if event["ph"] == "B":
                stack.append(frame_name(event["name"], event["args"]["filename"], event["args"]["line"]))
            elif stack:
                stack.pop()
            every = changes.setdefault(event["tid"], [])
            if every and every[-1].at == event["ts"] / 1e6:
                every.pop()
            every.append(StackChange(event["ts"] / 1e6, tuple(stack)))
    except (LookupError, TypeError, ValueError) as error:
        raise ProfilerError(f"no Chrome trace of py-spy's: {type(error).__name__}: {error}") from error
    return changes


def _events(trace: str) -> Iterator[dict[str, Any]]:
    """The events, some hundred at a time: to read all at once would hold Python's lock for as long."""
    start, last = trace.index("[") + 1, trace.rindex("]")
    while start < last:
        end = trace.find(_NEXT_EVENT, start + _PART_SIZE) + 1 or last
        yield from json.loads(f"[{trace[start:end]}]")
        start = end + 1


@lru_cache(maxsize=20_000)
def frame_name(qualified_name: str, file: str, first_line: int) -> str:
    """A frame in pyinstrument's form, as `capture.stack.name_frame` writes it."""
    *_, function = qualified_name.rpartition(".")
    owner = qualified_name.rpartition("<locals>.")[2].rpartition(".")[0]
    return f"{function}\x00{file}\x00{first_line}" + (f"\x01c{owner}" if owner else "")


class ExternalSampler:
    """py-spy for the flame graphs of this process, for as long as there are any."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._running: WeakSet[_NeedsSamples] = WeakSet()  # weakly: a request that never ends is not sampled for ever
        self._ended: list[_NeedsSamples] = []
        self._hurry = False
        self._samples = False
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._process = os.getpid()

    def add(self, graph: _NeedsSamples) -> None:
        """Sample for it from now on; some 100 ms where py-spy is not running yet.

        Raises ProfilerError if py-spy is not there, or may or can not read this process.
        """
        with self._condition:
            self._running.add(graph)
            if self._failure is None and self._thread is None:
                self._samples = False
                self._thread = threading.Thread(target=self._run, name="placebench-sampler", daemon=True)
                self._thread.start()
            self._condition.wait_for(lambda: self._samples or self._failure, _START_S)
            if self._failure is not None:
                self._running.discard(graph)
                raise ProfilerError(self._failure)

    def end(self, graph: _NeedsSamples, *, wait: bool) -> None:
        """It needs no more samples, and gets those that it has not got yet: now, or within some seconds."""
        with self._condition:
            self._running.discard(graph)
            self._ended.append(graph)
            self._hurry |= wait
            self._condition.notify_all()
            if wait:
                self._condition.wait_for(lambda: graph not in self._ended, _START_S)

    def close(self) -> None:
        """End py-spy, and hand out samples to what has ended: for the end of the process."""
        if os.getpid() != self._process:
            return
        with self._condition:
            self._running.clear()
            self._hurry = True
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._thread is None, _START_S)

    def _run(self) -> None:
        try:
            while self._run_segment():
                pass
        except (ProfilerError, OSError, ValueError) as error:
            with self._condition:
                self._failure, self._thread = str(error), None
                self._hand_out({})

    def _run_segment(self) -> bool:
        """Run py-spy until somebody needs what it has seen; whether it is needed any more."""
        spy = _PySpy()
        marks = _make_marks()
        with self._condition:
            self._samples = True
            self._condition.notify_all()
            if not self._condition.wait_for(lambda: self._hurry, _SEGMENT_S):
                self._condition.wait_for(lambda: self._hurry or not self._running or self._ended, _MAX_SEGMENT_S)
        changes = spy.stop(marks)
        with self._condition:
            # Where nobody waits, it is a server: another request is likely to come.
            is_needed = bool(self._running or (self._ended and not self._hurry))
            if not is_needed:
                self._thread = None
            self._hand_out(changes)
        return is_needed

    def _hand_out(self, changes: StackChanges) -> None:
        """Give what was seen to all flame graphs."""
        ended, self._ended, self._hurry = self._ended, [], False
        for graph in self._running:
            graph.take(changes, is_last=False)
        for graph in ended:
            graph.take(changes, is_last=True)
        self._condition.notify_all()


_SAMPLERS: dict[int, ExternalSampler] = {}


def external_sampler() -> ExternalSampler:
    """This process's sampler; a forked process has not that of its parent."""
    known = _SAMPLERS.get(os.getpid())
    if known is None:
        known = _SAMPLERS[os.getpid()] = ExternalSampler()
        atexit.register(known.close)
    return known
