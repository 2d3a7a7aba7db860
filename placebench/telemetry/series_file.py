"""One append-only telemetry file of whole lines, and patterns that group many URL paths into few series."""

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
_MAX_STATEMENT = 1000
# Rows wait in memory for the next beat. At this number a request writes them, since our thread may not get to run.
_MAX_WAITING = 4096

_LOG = logging.getLogger("placebench.telemetry")
_CLEAN = str.maketrans({",": ";", "\n": " ", "\r": " ", '"': "'", "\0": " "})
_MAX_FIELD = 200
_READINGS = 10


def clean(text: str) -> str:
    """Return *text* as a field of a line: no comma, quote or line end, at most 200 characters."""
    return text.translate(_CLEAN)[:_MAX_FIELD]


def statement_line(fingerprint: str, sql: str) -> str:
    """Return the line with the text of the statements of this fingerprint; a process writes it once."""
    return f"s,{fingerprint},{json.dumps(' '.join(sql.split())[:_MAX_STATEMENT])}\n"


class SeriesFile:
    """The file at *path*, made when the first rows are written; threads may share it.

    wall_zero_s: seconds since the epoch minus time.perf_counter.
    """

    def __init__(self, path: Path, head: dict[str, Any]) -> None:
        self.path = path
        # Read both clocks several times and keep the closest pair, since the process may be paused in between
        readings = []
        for _ in range(_READINGS):
            before_s, wall_s, after_s = time.perf_counter(), time.time(), time.perf_counter()
            readings.append((after_s - before_s, wall_s - (before_s + after_s) / 2))
        self.wall_zero_s: float = min(readings)[1]
        self._head = {"format_version": FORMAT_VERSION, **head}
        # A deque, because append and popleft of two threads need no lock. It holds strings, because the garbage
        # collector does not visit strings.
        self._rows: deque[str] = deque()
        self._file = -1
        self._written = 0
        self.failed: bool = False

    def add(self, lines: str) -> None:
        """Keep whole lines for the next flush, unless the file has failed."""
        if not self.failed:
            self._rows.append(lines)
            if len(self._rows) >= _MAX_WAITING:
                self.flush()

    def flush(self) -> None:
        """Write the waiting rows; never raises: a failure switches the file off and is logged once."""
        rows, lines = self._rows, []
        with suppress(IndexError):  # another thread took the last one
            while rows:
                lines.append(rows.popleft())
        if lines and not self.failed:
            self._try_to_write("".join(lines))

    def close(self) -> None:
        """Flush and close the file; later rows open it again."""
        self.flush()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _try_to_write(self, text: str) -> None:
        try:
            if self._file < 0:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                self._written = os.fstat(self._file).st_size
                if not self._written:
                    self._write(f"h,{json.dumps(self._head)}\n")
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

    def _write(self, text: str) -> None:
        """Write the whole text or none of it, so that a disk that becomes full leaves no partial line."""
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
_MAX_PATTERNS = 200
_MAX_REMEMBERED = 2000
_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SEGMENT = re.compile(
    r"(?<=/)(?:[0-9]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?=[0-9a-fA-F]*[0-9])[0-9a-fA-F]{16,})(?=/|$)"
)


def bounded_verb(verb: str) -> str:
    """Return the verb, or one word for all unknown verbs, because a client may send any word."""
    return verb if verb in _VERBS else _OTHER


class PathPatterns:
    """The path patterns of one process: numbers, UUIDs and hashes become `<id>`; at most 200, all others are one."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._patterns: set[str] = set()

    def of(self, path: str) -> str:
        """Return the pattern of *path*, for a line of telemetry."""
        pattern = self._known.get(path)
        if pattern is None:
            pattern = clean(_SEGMENT.sub("<id>", path)) or "/"
            if pattern not in self._patterns and len(self._patterns) >= _MAX_PATTERNS:
                pattern = _OTHER
            else:
                self._patterns.add(pattern)
            if len(self._known) < _MAX_REMEMBERED:
                self._known[path] = pattern
        return pattern
