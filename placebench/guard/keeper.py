"""The side of placebench: a `Keeper` holds the pipes to one shepherd, and with them a folder and a child.

Every keeper that is open at the end of the interpreter is closed there. A process forked from this one lets go of the
pipes at once: it must neither keep a child alive nor stop it.
"""

import atexit
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from placebench.errors import PlacebenchError
from placebench.guard.shepherd import free_segment, remove, wait_readable

_SHEPHERD = Path(__file__).with_name("shepherd.py")
_START_LIMIT_S = 60.0
_SLICE_S = 0.2
_open_keepers: list["Keeper"] = []


class Keeper:
    """One shepherd: runs one child at a time and removes *folder* at the end, whatever happens to this process.

    folder: made when it is missing, with mode 0700; None for no folder.
    pipes: stdin and stdout of the (then only) child are pipes to this process.
    Raises PlacebenchError when the folder cannot be made.
    """

    def __init__(self, folder: Path | None = None, *, pipes: bool = False) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._last: int | None = None
        self._data: str | None = None
        self._endings: dict[int, int] = {}
        self._process, self._control, self._report = _start_shepherd(folder, pipes=pipes)
        _open_keepers.append(self)
        try:
            self._receive("ready")
        except BaseException:
            self.close()
            raise

    @property
    def stdin(self) -> IO[str] | None:
        """The pipe into the child, line-buffered UTF-8 text; None without pipes."""
        return self._process.stdin

    @property
    def stdout(self) -> IO[str] | None:
        """The pipe out of the child, UTF-8 text; None without pipes."""
        return self._process.stdout

    def run(self, order: dict[str, Any]) -> int:
        """Start the program of *order* (ChildSpec.order), after the end of the one before; returns its process id.

        Raises PlacebenchError with the system's reason when it cannot be started.
        """
        if self._last is not None:
            self.wait(self._last)
        self._data = order["data"]
        self._tell(run=order)
        self._last = pid = int(self._receive("pid")["pid"])
        self._endings.pop(pid, None)
        return pid

    def poll(self, pid: int) -> int | None:
        """How the child *pid* ended (negative: the signal), or None while it runs."""
        with self._lock:
            while pid not in self._endings and self._readable(0.0):
                report = self._read_report() or {"ended": pid, "returncode": -signal.SIGKILL}
                self._endings[report["ended"]] = report["returncode"]
        return self._endings.get(pid)

    def wait(self, pid: int, timeout_s: float | None = None) -> int:
        """Wait for the end of the child *pid* and return how it ended; raises TimeoutError after *timeout_s*."""
        deadline = time.monotonic() + (float("inf") if timeout_s is None else timeout_s)
        while (returncode := self.poll(pid)) is None:
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                raise TimeoutError(f"still running after {timeout_s} s")
            self._readable(min(rest_s, _SLICE_S))
        return returncode

    def stop(self, pid: int, grace_s: float) -> int:
        """Ask the child *pid* to end, end it by force after *grace_s*; returns how it ended."""
        if self.poll(pid) is None:
            self._tell(stop=grace_s)
        return self.wait(pid)

    def kill(self, pid: int) -> None:
        """End the child *pid* and its process group at once."""
        if self.poll(pid) is None:
            self._tell(kill=True)

    def close(self) -> None:
        """Let go of the shepherd and wait until child and folder are gone; safe to call again, also after Ctrl-C."""
        self._control.close()
        self._process.wait()
        if not self._report.closed:
            if self._last is not None:
                self.poll(self._last)
            self._report.close()
        for pipe in (self._process.stdin, self._process.stdout):
            _close_quietly(pipe)
        if self._process.returncode:  # somebody killed the shepherd, and the child followed it
            free_segment(self._data)
            if self._folder is not None:
                remove(self._folder)
        if self in _open_keepers:
            _open_keepers.remove(self)

    def disown(self) -> None:
        """Let go of the shepherd without waiting: what a forked process does."""
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _tell(self, **order: Any) -> None:
        with suppress(BrokenPipeError):  # the shepherd was killed: what follows reads so from the report pipe
            self._control.write(json.dumps(order).encode() + b"\n")

    def _receive(self, key: str) -> dict[str, Any]:
        answered = self._readable(_START_LIMIT_S)
        report = self._read_report() if answered else {"error": f"no answer in {_START_LIMIT_S} s"}
        if key not in report:
            raise PlacebenchError(report.get("error", "the process that guards it was killed"))
        return report

    def _readable(self, timeout_s: float) -> bool:
        return bool(wait_readable(self._report.fileno(), timeout_s=timeout_s))

    def _read_report(self) -> dict[str, Any]:
        line = self._report.readline()
        return json.loads(line) if line else {}


def fresh_folder(prefix: str, parent: Path | None = None) -> Path:
    """The path of a folder that nobody has, in *parent* or the folder for temporary files; nothing is made.

    A `Keeper` makes it and removes it: one that was made before could stay when this process is killed in between.
    """
    return (parent or Path(tempfile.gettempdir())) / f"{prefix}{secrets.token_hex(8)}"


def _start_shepherd(folder: Path | None, *, pipes: bool) -> tuple[subprocess.Popen[str], IO[bytes], IO[bytes]]:
    control, orders = os.pipe()
    reports, report = os.pipe()
    arguments = [str(control), str(report), *([str(folder)] if folder else [])]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_SHEPHERD), *arguments],
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else subprocess.DEVNULL,
            pass_fds=(control, report),
            start_new_session=True,
            encoding="utf-8",
            bufsize=1,
        )
    except BaseException:  # Ctrl-C too: it may be there already, and ends when it is let go of
        os.close(orders)
        os.close(reports)
        raise
    finally:
        os.close(control)
        os.close(report)
    return process, os.fdopen(orders, "wb", buffering=0), os.fdopen(reports, "rb", buffering=0)


def _close_quietly(pipe: IO[str] | None) -> None:
    """Close a pipe to a child that is gone: what it never read is lost."""
    if pipe is not None:
        with suppress(BrokenPipeError):
            pipe.close()


def _close_all() -> None:
    for keeper in list(_open_keepers):
        keeper.disown()
    for keeper in list(_open_keepers):
        keeper.close()


def _disown_all() -> None:
    for keeper in _open_keepers:
        keeper.disown()
    _open_keepers.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_disown_all)
