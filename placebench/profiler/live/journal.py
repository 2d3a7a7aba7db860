"""The recordings of running programs, newest last, with sums by route and by statement: `Journal`.

A row in memory stands for each recording. The recordings themselves are compressed files in a private temporary folder.
Both are bounded: beyond a number of recordings, or of bytes, the oldest are dropped. The sums go back to the start.
"""

import errno
import json
import os
import re
import shutil
import tempfile
import threading
import time
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from placebench.errors import ProfilerError
from placebench.paths import make_ignored_folder
from placebench.plain_text import printable
from placebench.profiler.analysis.findings import Limits
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.session import FlameSession
from placebench.profiler.model.shortened_sql import shortened
from placebench.profiler.model.statement import Caller, Statement
from placebench.profiler.recording import Recording

MAX_ROWS = 1_000
"""Rows in one update."""
_MAX_ROUTES = 500
_MAX_STATEMENTS = 1_000
_MAX_STATEMENTS_OF_ROW = 50
_MAX_PLACES = 20
_MAX_TIMES = 2_000
_MAX_TREND = 60
_MAX_NAME = 300
_MAX_SQL = 400
_SEGMENTS = 16
_OTHER = "other"
_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Update:
    """The changes of a journal since a reader last looked.

    rows: a JSON array for each new recording, in the order of arrival. statements: number and text of the statements
        that are new to the reader. last: the number of the newest recording. oldest: that of the oldest one that is
        not kept. clears: how often the journal was cleared. kept: the numbers of the recordings to keep.
    """

    rows: list[str]
    statements: list[tuple[int, str]]
    last: int
    oldest: int
    clears: int
    kept: tuple[int, ...]


@dataclass(slots=True)
class _Entry:
    number: int
    row: str
    segment: int
    offset: int
    length: int


@dataclass(slots=True)
class _Route:
    """The sums of the recordings of one kind and name. times: the seconds of the last ones, in a ring."""

    name: str
    kind: str
    count: int = 0
    errors: int = 0
    statements: int = 0
    elapsed_s: float = 0.0
    sql_s: float = 0.0
    times: "array[float]" = field(default_factory=lambda: array("d"))
    trend_step_s: float = 1.0
    trend: list[list[float]] = field(default_factory=list)

    def add(self, elapsed_s: float, since_start_s: float) -> None:
        """Add a recording of *elapsed_s* that began *since_start_s* after the first one of the journal."""
        if len(self.times) < _MAX_TIMES:
            self.times.append(elapsed_s)
        else:
            self.times[self.count % _MAX_TIMES] = elapsed_s
        self.count += 1
        self.elapsed_s += elapsed_s
        since_start_s = max(0.0, since_start_s)
        while since_start_s >= self.trend_step_s * _MAX_TREND:
            self.trend_step_s *= 2
            pairs = zip(self.trend[::2], [*self.trend[1::2], [0, 0.0]], strict=False)
            self.trend = [[first[0] + second[0], first[1] + second[1]] for first, second in pairs]
        index = int(since_start_s / self.trend_step_s)
        while len(self.trend) <= index:
            self.trend.append([0, 0.0])
        self.trend[index][0] += 1
        self.trend[index][1] += elapsed_s

    def to_json(self) -> dict[str, Any]:
        """Return the sums, with percentiles of the last times, and the trend as [seconds since the start, mean]."""
        ordered = sorted(self.times)
        return {
            "name": self.name,
            "kind": self.kind,
            "count": self.count,
            "errors": self.errors,
            "p50_s": _percentile(ordered, 0.50),
            "p95_s": _percentile(ordered, 0.95),
            "p99_s": _percentile(ordered, 0.99),
            "total_s": self.elapsed_s,
            "sql_s": self.sql_s,
            "statements": self.statements / self.count,
            "trend": [[i * self.trend_step_s, total / n] for i, (n, total) in enumerate(self.trend) if n],
        }


@dataclass(slots=True)
class _StatementSums:
    """The sums of the executions of one fingerprint."""

    sql: str
    count: int = 0
    errors: int = 0
    elapsed_s: float = 0.0
    rows: int | None = None
    routes: Counter[str] = field(default_factory=Counter)
    callers: Counter[Caller | str] = field(default_factory=Counter)

    def add(self, count: int, statement: Statement, elapsed_s: float, route: str) -> None:
        self.count += count
        self.elapsed_s += elapsed_s
        self.errors += statement.error is not None
        if statement.row_count is not None and count == 1:
            self.rows = (self.rows or 0) + statement.row_count
        _count_bounded(self.routes, route, count)
        if statement.caller is not None:
            _count_bounded(self.callers, statement.caller, count)

    def to_json(self, number: int) -> dict[str, Any]:
        """Return the sums, with the number of executions for each route and each caller."""
        return {
            "number": number,
            "sql": self.sql,
            "count": self.count,
            "errors": self.errors,
            "total_s": self.elapsed_s,
            "rows": self.rows,
            "routes": self.routes.most_common(),
            "callers": [(printable(str(caller)), count) for caller, count in self.callers.most_common()],
        }


class Journal:
    """A bounded store of recordings; threads may share it.

    count, max_bytes: the number of recordings, and the bytes of their files, beyond which the oldest are dropped.
    folder: where `keep` saves recordings; it is made when it is first needed.
    """

    def __init__(self, *, count: int = 10_000, max_bytes: int = 2**28, folder: Path = Path("profile")) -> None:
        self.count: int = count
        self.folder: Path = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._private = Path(tempfile.mkdtemp(prefix="placebench-live-"))
        self._pid = os.getpid()
        self._segments: deque[tuple[int, int]] = deque()  # number, bytes
        self._last = 0
        self._clears = 0
        self._closed = False
        self._kept: dict[int, tuple[str, Path]] = {}
        self._start_anew()

    def _start_anew(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._routes: dict[tuple[str, str], _Route] = {}
        self._statements: dict[str, int] = {}
        self._sums: list[_StatementSums] = []
        self._started: float | None = None

    def add(self, pid: int, recording: Recording) -> None:
        """Add the recording of a request, task or other unit of work that process *pid* has made."""
        findings: list[str] = list(dict.fromkeys(finding.kind for finding in recording.findings(_LIMITS)))
        if recording.gaps:
            findings.append("incomplete")
        try:
            document = msgspec.json.encode(recording)
        except UnicodeEncodeError:  # a surrogate in the text of a statement, which json writes as an escape
            session = None if recording.session is None else recording.session.to_json()
            document = json.dumps({**recording.to_json(), "session": session}).encode()
        stored = zlib.compress(document, 1)
        started = recording.timeline[0].started_unix_s if recording.timeline else time.time()
        started = recording.started_at or started
        elapsed_s = recording.elapsed_s / recording.requests
        name = recording.name
        if recording.kind == "request" and recording.route is not None and recording.route not in name:
            name = f"{name.partition(' ')[0]} {recording.route}"
        name = printable(name[:_MAX_NAME])
        with self._lock:
            if self._closed:
                return
            self._last += 1
            self._started = started if self._started is None else self._started
            route = self._route(recording.kind, name)
            route.add(elapsed_s, started - self._started)
            route.errors += recording.error is not None or (recording.status or 0) >= 500
            route.statements += recording.statement_count
            route.sql_s += recording.sql_s or 0.0
            numbers = self._add_statements(recording, route.name)
            row = [
                self._last,
                round(started, 3),
                recording.kind,
                name,
                recording.status,
                round(elapsed_s, 7),
                None if recording.sql_s is None else round(recording.sql_s / recording.requests, 7),
                recording.statement_count,
                recording.row_count,
                findings,
                pid,
                None if recording.error is None else printable(recording.error[:_MAX_NAME]),
                numbers,
                recording.identifier,
                recording.cause,
            ]
            try:
                segment, offset = self._store(stored)
            except OSError:  # a full disk, or too large; the row and the sums stay
                segment, offset, stored = self._segments[-1][0], 0, b""
            self._entries.append(_Entry(self._last, json.dumps(row), segment, offset, len(stored)))
            while len(self._entries) > self.count:
                self._entries.popleft()
            while self._segments and (not self._entries or self._segments[0][0] < self._entries[0].segment):
                self._drop_segment()

    def since(self, number: int, statements: int) -> Update:
        """Return what came after recording *number*, for a reader who knows the first *statements* statements.

        A reader who is more than `MAX_ROWS` recordings behind calls again.
        """
        with self._lock:
            found: list[_Entry] = []
            for entry in reversed(self._entries):
                if entry.number <= number:
                    break
                found.append(entry)
            found = found[::-1][:MAX_ROWS]
            rows = [entry.row for entry in found]
            oldest = self._entries[0].number if self._entries else self._last + 1
            if number == 0:
                rows[:0] = [row for kept, (row, _) in self._kept.items() if kept < oldest]
            texts = [(i, self._sums[i].sql) for i in range(statements, len(self._sums))]
            last = found[-1].number if found else self._last
            return Update(rows, texts, last, oldest, self._clears, tuple(self._kept))

    def load(self, number: int) -> Recording:
        """Return a recording. Raises ProfilerError if it was dropped, or never was there."""
        with self._lock:
            if number in self._kept:
                return Recording.load(self._kept[number][1])
            first = self._entries[0].number if self._entries else 0
            index = number - first
            if not 0 <= index < len(self._entries):
                raise ProfilerError(f"recording {number} is not here: it was dropped for newer ones, or cleared")
            entry = self._entries[index]
            try:
                with self._path(entry.segment).open("rb") as file:
                    file.seek(entry.offset)
                    document = json.loads(zlib.decompress(file.read(entry.length)))
            except (OSError, zlib.error) as error:
                raise ProfilerError(f"recording {number} could not be stored in {self._private}: {error}") from error
        recording = Recording.from_json({**document, "format_version": 2}, source=f"recording {number}")
        if document["session"] is not None:
            recording.session = FlameSession.from_json(document["session"])
        return recording

    def keep(self, number: int) -> Path:
        """Save a recording into the folder, where neither a bound nor `clear` deletes it; return the file's path.

        Raises ProfilerError if the recording is not here, or if it cannot be saved.
        """
        with self._lock:
            if number in self._kept:
                return self._kept[number][1]
        recording = self.load(number)
        words = re.sub(r"[^A-Za-z0-9]+", "-", recording.name).strip("-")[:60] or "recording"
        try:
            make_ignored_folder(self.folder, error=ProfilerError)
            at = 1
            while (path := self.folder / f"{words}-{at}.recording.json").exists():
                at += 1
            recording.save(path)
        except OSError as error:
            raise ProfilerError(f"folder {self.folder} for recordings cannot be written: {error.strerror}") from error
        with self._lock:
            entry = next((each for each in self._entries if each.number == number), None)
            if entry is not None:
                self._kept[number] = entry.row, path
        return path

    def clear(self) -> None:
        """Drop all recordings but the kept ones, and all sums."""
        with self._lock:
            self._clears += 1
            self._start_anew()
            while self._segments:
                self._drop_segment()

    def routes(self) -> list[dict[str, Any]]:
        """Return the sums by route since the start, the route with the most seconds first.

        Percentiles are those of the last 2000 recordings of each route.
        """
        with self._lock:
            ordered = sorted(self._routes.values(), key=lambda route: -route.elapsed_s)
            return [route.to_json() for route in ordered]

    def statements(self) -> list[dict[str, Any]]:
        """Return the sums by statement since the start, the statement with the most seconds first."""
        with self._lock:
            ordered = sorted(enumerate(self._sums), key=lambda item: -item[1].elapsed_s)
            return [sums.to_json(number) for number, sums in ordered]

    def close(self) -> None:
        """Delete the private folder, and take no more recordings; idempotent. Kept recordings stay in their folder."""
        with self._lock:
            self._closed = True
        if os.getpid() == self._pid:
            shutil.rmtree(self._private, ignore_errors=True)

    def _route(self, kind: str, name: str) -> _Route:
        """Return the sums of a route; beyond a number of routes, those of all others."""
        found = self._routes.get((kind, name))
        if found is None:
            key = (kind, name) if len(self._routes) < _MAX_ROUTES else ("", _OTHER)
            found = self._routes.setdefault(key, _Route(key[1], key[0]))
        return found

    def _add_statements(self, recording: RecordingData, route: str) -> list[int]:
        """Add a recording's statements to the sums; return the numbers of the first ones."""
        numbers: dict[int, None] = {}
        executions: Iterable[tuple[Statement, int, float]] = [
            *((each, 1, each.elapsed_s) for each in recording.statements),
            *((each.first, each.count, each.repeated_s + each.different_s) for each in recording.unkept_places),
        ]
        for statement, count, elapsed_s in executions:
            key = statement.fingerprint
            number = self._statements.get(key)
            if number is None:
                if len(self._sums) <= _MAX_STATEMENTS:
                    number = len(self._sums)
                    is_last = number == _MAX_STATEMENTS
                    text = _OTHER if is_last else printable(shortened(statement.sql, _MAX_SQL))
                    self._sums.append(_StatementSums(text))
                    if not is_last:
                        self._statements[key] = number
                else:
                    number = _MAX_STATEMENTS
            numbers[number] = None
            self._sums[number].add(count, statement, elapsed_s, route)
        return list(numbers)[:_MAX_STATEMENTS_OF_ROW]

    def _store(self, content: bytes) -> tuple[int, int]:
        """Append to the newest file, or begin another one; return its number and the offset. May raise OSError."""
        share = self._max_bytes // _SEGMENTS
        if not self._segments or self._segments[-1][1] + len(content) > share:
            self._segments.append((self._last, 0))
        if len(content) > self._max_bytes // 2:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        while len(self._segments) > 1 and sum(size for _, size in self._segments) + len(content) > self._max_bytes:
            gone = self._segments[0][0]
            while self._entries and self._entries[0].segment == gone:
                self._entries.popleft()
            self._drop_segment()
        segment, offset = self._segments[-1]
        with self._path(segment).open("ab") as file:
            file.write(content)
        self._segments[-1] = segment, offset + len(content)
        return segment, offset

    def _drop_segment(self) -> None:
        self._path(self._segments.popleft()[0]).unlink(missing_ok=True)

    def _path(self, segment: int) -> Path:
        return self._private / f"{segment}.recordings"


def _count_bounded(counter: Counter[Any], name: Caller | str, count: int) -> None:
    """Count a name, or "other" if there are too many names."""
    counter[name if name in counter or len(counter) < _MAX_PLACES else _OTHER] += count


def _percentile(ordered: list[float], share: float) -> float:
    """Return a percentile of a sorted list by linear interpolation, as numpy does by default."""
    at = (len(ordered) - 1) * share
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)
