"""The process that ends a command if placebench is killed: `python -I -S guard.py PID`.

The first line on stdin is the mark that the environment of the command's processes has. A second line means that the
command has ended by itself. If stdin ends without it, placebench was killed: the command and all processes with the
mark get SIGTERM, and after a while SIGKILL. It imports only the standard library.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_GRACE_S = 2.5
_POLL_S = 0.05


def _marked(mark: bytes) -> set[int]:
    """Return the processes whose environment has the mark; none where /proc is not there."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found - {os.getpid()}


def _end(pid: int, mark: bytes) -> None:
    """End the command *pid* and all marked processes, within some three seconds."""
    until = time.monotonic() + _GRACE_S
    number = signal.SIGTERM
    told: set[int] = set()
    # The parent of the command is gone: its id may be reused as soon as it has ended. With /proc the mark tells.
    has_marks = Path("/proc/self/environ").exists()
    while left := _marked(mark) or (set() if has_marks or pid in told else {pid}):
        if time.monotonic() > until:
            number = signal.SIGKILL
        for each in left if number == signal.SIGKILL else left - told:
            with suppress(OSError):
                os.kill(each, number)
        told |= left
        if number == signal.SIGKILL:
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    lines = sys.stdin.buffer
    sent = lines.readline().strip()
    if not lines.readline():
        _end(int(sys.argv[1]), sent)
