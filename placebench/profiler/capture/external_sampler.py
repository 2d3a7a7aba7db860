"""Samples of every thread's stack that another process takes: py-spy, which reads this process's memory.

The main class is `ExternalSampler`, one per process. Its thread runs py-spy while flame graphs need samples, and gives
them the stacks (`capture.external_flame_graph`). The Chrome trace is py-spy's only format with times, and is written
when py-spy ends: so py-spy runs in segments. Its times count from a moment that it does not report. Each segment
therefore begins with marks, calls of known depth at known times: the one seen soonest gives the difference of the
clocks.

With `--nonblocking`, py-spy never pauses the process: the sampled threads run at full speed.
"""

import atexit
import ctypes
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from placebench.errors import ProfilerError
from placebench.profiler.capture.stack import frame_name
from placebench.profiler.model.files import with_slashes

INTERVAL_S = 0.005
_START_S = 10.0
_SEGMENT_S = 2.0
"""The time after which flame graphs that nobody waits for get their samples."""
_MAX_SEGMENT_S = 30.0
_MARKS = 10
_MARK_S = INTERVAL_S + 0.0007
"""Seconds per mark, more than between two samples: each mark is seen, each at a different time after its beginning."""
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61

_NEXT_EVENT = '},{"args":'
_PART_SIZE = 50_000

Stack = tuple[str, ...]
"""Frames in pyinstrument's form, the outermost one first."""


class StackChange(NamedTuple):
    """The stack of a thread from this reading of time.perf_counter on; empty once the thread has ended."""

    at: float
    stack: Stack


StackChanges = dict[int, list[StackChange]]
"""The stacks of each thread (`threading.get_ident`) in order of time."""


class _NeedsSamples(Protocol):
    """A flame graph that gets samples; its method must not raise."""

    def take(self, changes: StackChanges, *, is_last: bool) -> None:
        """Take the stacks of one segment; *is_last* says that no other segment will come."""


class _PySpy:
    """Runs py-spy on this process until `stop`. Raises ProfilerError if it is missing or cannot read the process."""

    def __init__(self) -> None:
        program = find_py_spy()
        self._trace = tempfile.TemporaryFile()  # noqa: SIM115  it has no name: no file stays
        try:
            self._process = self._start(program)
        except BaseException:
            self._trace.close()
            raise

    def _start(self, program: str) -> "subprocess.Popen[bytes]":
        """Start py-spy, and return its process as soon as it takes samples."""
        output = f"/proc/self/fd/{self._trace.fileno()}"
        command = [program, "record", "--pid", str(os.getpid()), "--format", "chrometrace", "--output", output]
        options = ["--rate", f"{1 / INTERVAL_S:g}", "--nonblocking", "--idle", "--function", "--full-filenames"]
        process = subprocess.Popen(
            # The shell waits for a line, which comes after this process has permitted it to read its memory.
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
        """End py-spy, and return the stacks that it has seen; none if it was killed.

        marks: the times at which the calling thread began its marks.
        """
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        _permit_reading(0)
        with self._trace:
            self._trace.seek(0)
            changes = read_chrome_trace(self._trace.read().decode()) if self._process.returncode == 0 else {}
        name = f"{_mark.__name__}\x00{with_slashes(__file__)}\x00"
        seen: dict[int, float] = {}
        for at, stack in changes.pop(threading.get_ident(), []):
            seen.setdefault(sum(frame.startswith(name) for frame in stack), at)
        # The mark that was seen soonest after its beginning gives the difference of the clocks.
        offset = min((seen[depth] - began for depth, began in enumerate(marks, 1) if depth in seen), default=None)
        if offset is None:
            return {}
        return {thread: [StackChange(at - offset, stack) for at, stack in every] for thread, every in changes.items()}


def find_py_spy() -> str:
    """Return the path of py-spy in this environment, or else on the PATH. Raises ProfilerError if there is none.

    Elsewhere than on Linux too: py-spy needs root on macOS, and writes into an open file by way of /proc.
    """
    if sys.platform != "linux":
        raise ProfilerError("py-spy can sample the process that started it only on Linux: use mode sampled")
    beside = Path(sysconfig.get_path("scripts")) / "py-spy"
    found = str(beside) if beside.exists() else which("py-spy")
    if found is None:
        raise ProfilerError("py-spy is not installed: pip install 'placebench[sampler]'")
    return found


def _permit_reading(pid: int) -> None:
    """Let process *pid* read this one's memory if only a parent may (Yama's ptrace_scope 1); 0 ends the permission."""
    if _YAMA.exists():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


_REFUSALS = ("ermission", "not permitted", "process executable name")
"""Parts of py-spy's message if it may not read the process, or if /proc hides it."""


def _refusal(said: str) -> str:
    """Return the reason why py-spy does not sample this process, derived from its output *said*."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not any(words in said for words in _REFUSALS):
        return f"py-spy cannot sample this Python: {lines[0] if lines else 'it ended at once'}"
    scope = _YAMA.read_text(encoding="ascii").strip() if _YAMA.exists() else "0"
    what = f"kernel.yama.ptrace_scope is {scope}" if scope in "23" else "in a container, add the capability SYS_PTRACE"
    return f"py-spy may not read this process's memory (ptrace is refused): {what}"


def _mark(depth: int) -> None:
    if depth > 1:
        _mark(depth - 1)
    else:
        time.sleep(_MARK_S)


def read_chrome_trace(trace: str) -> StackChanges:
    """Return the stacks in a Chrome trace of `py-spy record --format chrometrace --function`, by py-spy's clock.

    Raises ProfilerError if *trace* is not such a trace.
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
    """Yield the events of a trace, parsed some hundred at a time: parsing all at once would hold the GIL too long."""
    start, last = trace.index("[") + 1, trace.rindex("]")
    while start < last:
        end = trace.find(_NEXT_EVENT, start + _PART_SIZE) + 1 or last
        yield from json.loads(f"[{trace[start:end]}]")
        start = end + 1


class ExternalSampler:
    """Runs py-spy for the flame graphs of this process as long as there are any."""

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
        """Sample for *graph* from now on; takes some 100 ms if py-spy is not running yet.

        Raises ProfilerError if py-spy is not installed or cannot read this process.
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
        """Stop sampling for *graph*, and give it its last samples: now if *wait*, else within some seconds."""
        with self._condition:
            self._running.discard(graph)
            self._ended.append(graph)
            self._hurry |= wait
            self._condition.notify_all()
            if wait:
                self._condition.wait_for(lambda: graph not in self._ended, _START_S)

    def close(self) -> None:
        """End py-spy at the end of the process, and give all ended flame graphs their samples."""
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
        """Run py-spy until somebody needs its samples; return whether it is still needed afterwards."""
        spy = _PySpy()
        marks = []
        for depth in range(1, _MARKS + 1):
            marks.append(time.perf_counter())
            _mark(depth)
        with self._condition:
            self._samples = True
            self._condition.notify_all()
            if not self._condition.wait_for(lambda: self._hurry, _SEGMENT_S):
                self._condition.wait_for(lambda: self._hurry or not self._running or self._ended, _MAX_SEGMENT_S)
        changes = spy.stop(marks)
        with self._condition:
            # If nobody waits, this is a server: another request is likely to come.
            is_needed = bool(self._running or (self._ended and not self._hurry))
            if not is_needed:
                self._thread = None
            self._hand_out(changes)
        return is_needed

    def _hand_out(self, changes: StackChanges) -> None:
        """Give the stacks of a segment to all flame graphs, running and ended."""
        ended, self._ended, self._hurry = self._ended, [], False
        for graph in self._running:
            graph.take(changes, is_last=False)
        for graph in ended:
            graph.take(changes, is_last=True)
        self._condition.notify_all()


_SAMPLERS: dict[int, ExternalSampler] = {}


def external_sampler() -> ExternalSampler:
    """Return the sampler of this process; a forked process gets a new one, as it has none of its parent's threads."""
    known = _SAMPLERS.get(os.getpid())
    if known is None:
        known = _SAMPLERS[os.getpid()] = ExternalSampler()
        atexit.register(known.close)
    return known
