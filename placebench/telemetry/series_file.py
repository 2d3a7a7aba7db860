"""One append-only telemetry file of whole lines, and paths as patterns so that many URLs are few series."""

import json
import logging
import os
import re
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

FORMAT_VERSION = 1
REQUEST_LINE = "q,%.6f,%s,%s,%s,%s,%.7f,%s,%s\n"
DURATION_LINE = "d,%.6f,%s,%s,%s,%s,%s,%s,%.7f\n"
FIGURE_LINE = "r,%.6f,%s,%s\n"
# Rows wait in memory for the next beat; where no thread of ours can run, a request writes them when they are so many.
_MAX_WAITING = 4096

_LOG = logging.getLogger("placebench.telemetry")
_CLEAN = str.maketrans({",": ";", "\n": " ", "\r": " ", '"': "'", "\0": " "})
_LONGEST_FIELD = 200
_READINGS = 10


def clean(text: str) -> str:
    """*text* as a field of a line: no comma, quote or line end, cut after 200 characters."""
    return text.translate(_CLEAN)[:_LONGEST_FIELD]


def _wall_zero_s() -> float:
    """Of several readings of both clocks the closest one: a process that is paused in between would be off by that."""
    readings = []
    for _ in range(_READINGS):
        before_s, wall_s, after_s = time.perf_counter(), time.time(), time.perf_counter()
        readings.append((after_s - before_s, wall_s - (before_s + after_s) / 2))
    return min(readings)[1]


class SeriesFile:
    """The file at *path*, made when the first rows are written; threads may share it.

    wall_zero_s: what to add to a reading of time.perf_counter to have seconds since the epoch.
    """

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        self.wall_zero_s: float = _wall_zero_s()
        self._head = {"format_version": FORMAT_VERSION, **head}
        # A deque, because append and popleft of two threads need no lock.
        # Of strings, because the garbage collector does not look at those.
        self._rows: deque[str] = deque()
        self._file = -1
        self._written = 0
        self.failed: bool = False

    def add(self, lines: str) -> None:
        """Keep whole lines for the next flush; forgotten once the file has failed."""
        if not self.failed:
            self._rows.append(lines)
            if len(self._rows) >= _MAX_WAITING:
                self.flush()

    def flush(self) -> None:
        """Write the rows that wait; never raises: a failure switches the file off and says so once, in the log."""
        rows, lines = self._rows, []
        with suppress(IndexError):  # another thread took the last one
            while rows:
                lines.append(rows.popleft())
        if lines and not self.failed:
            self._try_to_write("".join(lines))

    def close(self) -> None:
        """Flush, and let go of the file; rows that come later open it again."""
        self.flush()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _try_to_write(self, text: str) -> None:
        try:
            if self._file < 0:
                self._open()
            self._write(text)
        except OSError as error:
            self.failed = True
            self._rows.clear()
            _LOG.warning(
                "placebench: telemetry of process %d is off, the service goes on: %s: %s: free some space or name "
                "another folder, and start again",
                os.getpid(),
                self.path,
                error.strerror,
            )

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._written = os.fstat(self._file).st_size
        if not self._written:
            self._write(f"h,{json.dumps(self._head)}\n")

    def _write(self, text: str) -> None:
        """All of it, or none: a disk that fills in the middle of a line does not keep half of it."""
        left = memoryview(text.encode("utf-8", errors="replace"))
        whole = self._written + len(left)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._written)
            raise
        self._written = whole


_OTHER = "(other)"
_MOST_PATTERNS = 200
_MOST_REMEMBERED = 2000
_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SEGMENT = re.compile(
    r"(?<=/)(?:[0-9]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,})(?=/|$)"
)


def bounded_verb(verb: str) -> str:
    """The verb, or one word for all that HTTP does not know: a client may send any."""
    return verb if verb in _VERBS else _OTHER


class PathPatterns:
    """Patterns of one process: numbers, UUIDs and hashes are `<id>`, and after 200 patterns all others are one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._patterns: set[str] = set()

    def of(self, path: str) -> str:
        """The pattern of *path*, for a line of telemetry."""
        known = self._known.get(path)
        if known is None:
            known = self._new(path)
            if len(self._known) < _MOST_REMEMBERED:
                self._known[path] = known
        return known

    def _new(self, path: str) -> str:
        pattern = clean(_SEGMENT.sub("<id>", path)) or "/"
        if pattern not in self._patterns:
            if len(self._patterns) >= _MOST_PATTERNS:
                return _OTHER
            self._patterns.add(pattern)
        return pattern
