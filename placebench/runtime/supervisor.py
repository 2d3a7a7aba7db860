"""Start every child process, and end it when the parent dies, whatever the cause.

`ChildSpec` describes a program, `start_child` starts it, `Child` is the running program. A `Supervisor` holds the pipes
to one shepherd process (`shepherd.py`), which removes the child and its folder at most 5 s after the parent is gone.
`ChildLog` reads the log of a child since its start.
"""

import atexit
import json
import os
import re
import resource
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from placebench.errors import PlacebenchError
from placebench.runtime.shepherd import free_shared_memory, remove_folder, wait_readable

_SHEPHERD = Path(__file__).with_name("shepherd.py")
_START_LIMIT_S = 60.0
_SLICE_S = 0.2
_open_supervisors: list["Supervisor"] = []
ended_cpu_s: defaultdict[str, float] = defaultdict(float)
"""CPU seconds of the children that have ended, including their shepherds, by `ChildSpec.name`."""
_closing = threading.RLock()
"""Held while one shepherd ends, whose CPU is that by which the sum of all ended children grows meanwhile."""


class Supervisor:
    """One shepherd: runs one child at a time and removes *folder* at the end, whatever happens to this process.

    folder: made with mode 0700; it must not exist, because it may be somebody else's; None for no folder.
    pipes: whether stdin and stdout of the (then only) child are pipes to this process.
    Raises PlacebenchError if the folder exists or cannot be made.
    """

    def __init__(self, folder: Path | None = None, *, pipes: bool = False) -> None:
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self._last: int | None = None
        self._name = ""
        self._data: str | None = None
        self._endings: dict[int, int] = {}
        self._cpu_s = 0.0
        self._process, self._control, self._report = _start_shepherd(pipes=pipes)
        _open_supervisors.append(self)
        try:
            self._send(begin=None if folder is None else str(folder))
            self._receive("ready")
            self._folder = folder
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the shepherd."""
        return self._process.pid

    @property
    def program_cpu_s(self) -> float:
        """CPU seconds of the program that ended last and of the processes that it waited for, to the microsecond."""
        return self._cpu_s

    @property
    def stdin(self) -> IO[str] | None:
        """The pipe into the child, line-buffered UTF-8 text; None without pipes."""
        return self._process.stdin

    @property
    def stdout(self) -> IO[str] | None:
        """The pipe out of the child, UTF-8 text; None without pipes."""
        return self._process.stdout

    def run(self, order: dict[str, Any]) -> int:
        """Start the program of *order* (`ChildSpec.order`) once the previous one has ended; return its process id.

        Raises PlacebenchError with the system's reason if the program cannot be started.
        """
        if self._last is not None:
            self.wait(self._last)
        self._name, self._data = order["name"], order["data"]
        self._send(run=order)
        self._last = pid = int(self._receive("pid")["pid"])
        self._endings.pop(pid, None)
        return pid

    def poll(self, pid: int) -> int | None:
        """Return the exit code of the child *pid* (negative: the signal that ended it), or None while it runs."""
        with self._lock:
            while pid not in self._endings and self._readable(0.0):
                report = self._read_report() or {"ended": pid, "returncode": -signal.SIGKILL}
                self._endings[report["ended"]], self._cpu_s = report["returncode"], report.get("cpu_s", 0.0)
        return self._endings.get(pid)

    def wait(self, pid: int, timeout_s: float | None = None) -> int:
        """Wait for the end of the child *pid* and return its exit code; raises TimeoutError after *timeout_s*."""
        deadline = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        while (returncode := self.poll(pid)) is None:
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                raise TimeoutError(f"still running after {timeout_s} s")
            self._readable(min(rest_s, _SLICE_S))
        return returncode

    def stop(self, pid: int, grace_s: float) -> int:
        """Let the child *pid* end cleanly, and kill it after *grace_s*; returns its exit code."""
        if self.poll(pid) is None:
            self._send(stop=grace_s)
        return self.wait(pid)

    def kill(self, pid: int) -> None:
        """Kill the child *pid* and its process group at once."""
        if self.poll(pid) is None:
            self._send(kill=True)

    def close(self) -> None:
        """Release the shepherd and wait until child and folder are gone; idempotent, also after Ctrl-C."""
        self._control.close()
        with _closing:
            before_s = _ended_children_cpu_s()
            self._process.wait()
            ended_cpu_s[self._name] += _ended_children_cpu_s() - before_s
        if not self._report.closed:
            if self._last is not None:
                self.poll(self._last)
            self._report.close()
        for pipe in (self._process.stdin, self._process.stdout):
            # Close a pipe to a child that is gone; data that the child never read is lost
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        if self._process.returncode:  # somebody killed the shepherd, and the child followed it
            free_shared_memory(self._data)
            if self._folder is not None:
                remove_folder(self._folder)
        if self in _open_supervisors:
            _open_supervisors.remove(self)

    def disown(self) -> None:
        """Release the shepherd without waiting, as a forked process does."""
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, **order: Any) -> None:
        with suppress(BrokenPipeError):  # the shepherd was killed, as the next read of the report pipe shows
            self._control.write(json.dumps(order).encode() + b"\n")

    def _receive(self, key: str) -> dict[str, Any]:
        answered = self._readable(_START_LIMIT_S)
        report = self._read_report() if answered else {"error": f"no response in {_START_LIMIT_S} s"}
        if key not in report:
            raise PlacebenchError(report.get("error", "the process that guards it was killed"))
        return report

    def _readable(self, timeout_s: float) -> bool:
        return bool(wait_readable(self._report.fileno(), timeout_s=timeout_s))

    def _read_report(self) -> dict[str, Any]:
        line = self._report.readline()
        return json.loads(line) if line else {}


def new_scratch_path(prefix: str, parent: Path | None = None) -> Path:
    """Return the path of a new folder in *parent* or the folder for temporary files, without making it.

    A `Supervisor` makes and removes the folder; one made earlier could stay if this process is killed in between. The
    name must be kept secret until then (not on a command line, for example), or another user can take it.
    Raises PlacebenchError if every user could replace folders in the folder for temporary files.
    """
    return (parent or safe_parent(Path(tempfile.gettempdir()))) / f"{prefix}{secrets.token_hex(8)}"


def safe_parent(folder: Path) -> Path:
    """Return *folder* with its links resolved; raises PlacebenchError if every user could replace files in it."""
    folder = folder.resolve()
    for step in (folder, *folder.parents):
        mode = step.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise PlacebenchError(
                f"every user can replace what is in {step} (its mode is {stat.S_IMODE(mode):04o}): expected the sticky "
                f"bit on a folder for temporary files; chmod +t {step}, or set TMPDIR to another folder"
            )
    return folder


def _start_shepherd(*, pipes: bool) -> tuple[subprocess.Popen[str], IO[bytes], IO[bytes]]:
    control, orders = os.pipe()
    reports, report = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SHEPHERD), str(control), str(report)],
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else subprocess.DEVNULL,
            pass_fds=(control, report),
            start_new_session=True,
            encoding="utf-8",
            bufsize=1,
        )
    except BaseException:  # Ctrl-C too: the shepherd may be running already, and ends when its pipe closes
        os.close(orders)
        os.close(reports)
        raise
    finally:
        os.close(control)
        os.close(report)
    return process, os.fdopen(orders, "wb", buffering=0), os.fdopen(reports, "rb", buffering=0)


def _ended_children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _close_all() -> None:
    for supervisor in list(_open_supervisors):
        supervisor.disown()
    for supervisor in list(_open_supervisors):
        supervisor.close()


def _disown_all() -> None:
    for supervisor in _open_supervisors:
        supervisor.disown()
    _open_supervisors.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)


@dataclass(frozen=True)
class ChildSpec:
    """A program to run, and how to end it."""

    name: str
    """The name for messages, such as "uwsgi", "PostgreSQL" or "locust"."""
    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    """The whole environment; None for this process's environment."""
    cwd: Path | None = None
    log: Path | None = None
    """The file to which stdout and stderr are appended; None to discard them."""
    user: tuple[int, int] | None = None
    """The uid and gid to run as (for root only); None for this process's own."""
    stop_signal: int = signal.SIGTERM
    """The signal that ends the program cleanly; it is sent to the program only, not to its process group."""
    grace_s: float = 10.0
    """Seconds that the clean end may take; then SIGQUIT is sent, and 0.8 s later SIGKILL to the process group."""
    remove: Path | None = None
    """A folder that is made for the child and removed with it."""
    pipes: bool = False
    """Whether stdin and stdout of the child are pipes; then only stderr goes to the log."""
    data: Path | None = None
    """The data folder of a PostgreSQL program; if that is killed, its shared memory is removed too."""
    adopts: bool = False
    """Whether daemons that the program starts stay below its shepherd, which counts their CPU and ends them with it."""

    def order(self) -> dict[str, Any]:
        """Return the order for the shepherd, as JSON values."""
        return {
            "name": self.name,
            "argv": list(map(str, self.argv)),
            "env": None if self.env is None else dict(self.env),
            "cwd": None if self.cwd is None else str(self.cwd),
            "log": None if self.log is None else str(self.log),
            "user": self.user,
            "stop_signal": int(self.stop_signal),
            "pipes": self.pipes,
            "data": None if self.data is None else str(self.data),
            "adopts": self.adopts,
        }


class Child:
    """A running program in its own session: Ctrl-C in the terminal does not reach it; the supervisor ends it."""

    def __init__(self, spec: ChildSpec, supervisor: Supervisor, *, owns_supervisor: bool) -> None:
        self.spec = spec
        self._supervisor = supervisor
        self._owns_supervisor = owns_supervisor
        self.pid = _run(spec, supervisor)

    @property
    def guard_pid(self) -> int:
        """The process id of the shepherd: the parent of the program, and of the daemons that it adopts."""
        return self._supervisor.pid

    @property
    def stdin(self) -> IO[str] | None:
        """The pipe into the child, line-buffered UTF-8 text; None without `ChildSpec.pipes`."""
        return self._supervisor.stdin

    @property
    def stdout(self) -> IO[str] | None:
        """The pipe out of the child, UTF-8 text; None without `ChildSpec.pipes`."""
        return self._supervisor.stdout

    def poll(self) -> int | None:
        """Return the exit code of the program (negative: the signal that ended it), or None while it runs."""
        return self._supervisor.poll(self.pid)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the program to end by itself; raises TimeoutError after *timeout_s*."""
        return self._supervisor.wait(self.pid, timeout_s)

    def stop(self) -> int:
        """End the program, remove its folder, wait until both are gone, and return the exit code.

        Idempotent, also after Ctrl-C interrupted the first call.
        """
        returncode = self._supervisor.stop(self.pid, self.spec.grace_s)
        if self._owns_supervisor:
            self._supervisor.close()
        return returncode

    def kill(self) -> None:
        """Send SIGKILL to the program and its process group, without waiting; `stop` must still be called."""
        self._supervisor.kill(self.pid)

    def log_tail(self, lines: int = 10) -> str:
        """Return the last *lines* lines of the log; "" if there is no log (any more)."""
        return tail_file(self.spec.log, lines) if self.spec.log else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_child(spec: ChildSpec, supervisor: Supervisor | None = None) -> Child:
    """Start the program of *spec*, by default under a new supervisor; costs some 40 ms.

    supervisor: an existing supervisor that runs the program as its next one; its folder stays when the program is
    stopped. Raises PlacebenchError if the program is missing or may not be run.
    """
    if supervisor is not None:
        return Child(spec, supervisor, owns_supervisor=False)
    supervisor = Supervisor(spec.remove, pipes=spec.pipes)
    try:
        return Child(spec, supervisor, owns_supervisor=True)
    except BaseException:
        supervisor.close()
        raise


def tail_file(path: Path, lines: int = 10) -> str:
    """Return the last *lines* lines of a text file, "" if it does not exist."""
    if not path.exists():
        return ""
    with path.open(errors="replace") as stream:
        return "".join(deque(stream, maxlen=lines)).rstrip()


_EXCEPTION = r"^(?:\S.*)?\bTraceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(?P<exception>\S.*)"
_CAUSES = (
    re.compile(r"^.*\bPANIC\b.*", re.MULTILINE),
    re.compile(rf"{_EXCEPTION}|^(?:[\w.]*Error\b|.*\b(?:FATAL|CRITICAL)\b).*", re.MULTILINE),
    re.compile(r"^.*\bERROR\b.*", re.MULTILINE),
)
"""Patterns of the line that names a failure, most severe first; a traceback ends with it."""


def log_end(text: str, lines: int = 4) -> str:
    """Return the last *lines* lines of a log on one line, for a message, after the cause of the failure if not in them.

    The cause is the last of its most severe lines, because programs tell more after it: what they end then, advice, or
    the statement that failed.
    """
    last = [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
    end = f"the end of its log: {' | '.join(last) or '(empty)'}"
    found = next(filter(None, (deque(pattern.finditer(text), maxlen=1) for pattern in _CAUSES)), None)
    if found is None:
        return end
    cause = (found[0].groupdict().get("exception") or found[0][0]).strip()
    return end if any(cause in line for line in last) else f"its log has: {cause}; {end}"


def _run(spec: ChildSpec, supervisor: Supervisor) -> int:
    try:
        return supervisor.run(spec.order())
    except PlacebenchError as error:
        raise PlacebenchError(f"cannot start {spec.name} ({spec.argv[0]}): {error}") from error


class ChildLog:
    """A log file to which a child appends; earlier content of the file is kept, but not read.

    The child's shepherd makes the file; its folder must exist by then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._begin = path.stat().st_size if path.exists() else 0

    def text(self) -> str:
        """Return everything that was written to the log since the child's start."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as stream:
            stream.seek(self._begin)
            return stream.read().decode(errors="replace")

    def tail(self, lines: int = 10) -> str:
        """Return the last *lines* lines that are not blank."""
        written = [line.rstrip() for line in self.text().splitlines() if line.strip()]
        return "\n".join(written[-lines:])

    def end(self) -> str:
        """Return the end of the log on one line, for a message, after the cause of the failure if that is earlier."""
        return log_end(self.text())
