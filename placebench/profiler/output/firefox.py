"""A recording for the Firefox Profiler: statements as markers, the flame graph as stacks: `write_firefox_profile`.

The file is a processed profile of version 61, gzipped, which https://profiler.firefox.com upgrades when it is opened.
Times in it are milliseconds.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from placebench.profiler.model.files import writing_whole
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Statement, Transaction

_VERSION = 61
_GECKO_VERSION = 30
_MS = 1e3
_INSTANT, _INTERVAL = 0, 1
_CATEGORIES = {"Other": "grey", "Python": "yellow", "SQL": "blue", "GC": "orange", "Profiler": "transparent"}
_LEAVES = {"sql": "SQL", "plan": "SQL", "gc": "GC", "profiler": "Profiler", "wait": "Python"}
_SQL_FIELDS = (
    ("sql", "Statement", "unique-string"),
    ("line", "Line", "unique-string"),
    ("rows", "Rows", "integer"),
    ("roundTrips", "Round trips", "integer"),
    ("execute", "Execute", "duration"),
    ("fetch", "Fetch", "duration"),
    ("compile", "Compile", "duration"),
    ("poolWait", "Connection-pool wait", "duration"),
    ("transaction", "Transaction", "integer"),
    ("error", "Error", "string"),
)

_Json = dict[str, Any]


def write_firefox_profile(recording: RecordingData, path: Path | str) -> None:
    """Write the recording as one file: a track for Python, with requests and spans, and one for each connection.

    A connection's stacks are its statements by operation and table; Python's are the flame graph, if there is one. For
    merged requests the flame graph shows the mean request, at the beginning.
    """
    profile = _Profile(recording)
    text = json.dumps(profile.to_json(), ensure_ascii=False, separators=(",", ":"))
    with writing_whole(Path(path)) as file:
        file.write(text)


class _Tables:
    """The tables that all tracks share: texts, functions, frames and stacks, each once."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._sources: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._frames: dict[tuple[int, int | None, str], int] = {}
        self._stacks: dict[tuple[int | None, int], int] = {}

    def text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def stack(self, frames: Iterable[tuple[str, str, int | None, str]]) -> int | None:
        """Return the number of a stack; each frame is a name, a file (or nothing), a line and a category."""
        below = None
        for name, file, line, category in frames:
            self.text(name)
            if file:
                self._sources.setdefault(file, len(self._sources))
                self.text(file)
            function = self._functions.setdefault((name, file), len(self._functions))
            frame = self._frames.setdefault((function, line, category), len(self._frames))
            below = self._stacks.setdefault((below, frame), len(self._stacks))
        return below

    def to_json(self) -> _Json:
        categories = list(_CATEGORIES)
        frames, functions, sources = list(self._frames), list(self._functions), list(self._sources)
        return {
            "stackTable": _table(
                len(self._stacks),
                frame=[frame for _, frame in self._stacks],
                prefix=[below for below, _ in self._stacks],
            ),
            "frameTable": _table(
                len(frames),
                ("inlineDepth", 0),
                ("address", -1),
                ("subcategory", 0),
                *((name, None) for name in ("nativeSymbol", "innerWindowID", "column")),
                category=[categories.index(category) for *_, category in frames],
                func=[function for function, *_ in frames],
                line=[line for _, line, _ in frames],
            ),
            "funcTable": _table(
                len(functions),
                ("isJS", False),
                ("relevantForJS", False),
                ("resource", -1),
                ("lineNumber", None),
                ("columnNumber", None),
                name=[self.text(name) for name, _ in functions],
                source=[self._sources.get(file) for _, file in functions],
            ),
            "sources": _table(
                len(sources),
                ("id", None),
                ("startLine", 1),
                ("startColumn", 1),
                ("sourceMapURL", None),
                filename=[self.text(file) for file in sources],
            ),
            "resourceTable": _table(0, type=[], lib=[], name=[], host=[]),
            "nativeSymbols": _table(0, libIndex=[], address=[], name=[], functionSize=[]),
            "stringArray": list(self._texts),
        }


def _table(length: int, *constant: tuple[str, Any], **columns: list[Any]) -> _Json:
    """Return a table of *length* rows as columns; the *constant* columns have one value throughout."""
    return {"length": length, **{name: [value] * length for name, value in constant}, **columns}


class _Track:
    """Samples and markers of one thread of the profile."""

    def __init__(self, name: str, number: int, tables: _Tables) -> None:
        self._name = name
        self._number = number
        self._tables = tables
        self._samples: list[tuple[float, int | None, float]] = []
        self._markers: list[tuple[str, float, float, str, _Json]] = []

    def add_sample(self, started_s: float, seconds: float, stack: int | None) -> None:
        self._samples.append((started_s * _MS, stack, seconds * _MS))

    def add_marker(self, name: str, started_s: float, seconds: float, category: str, data: _Json) -> None:
        self._markers.append((name, started_s * _MS, (started_s + seconds) * _MS, category, data))

    def to_json(self, ended_ms: float) -> _Json:
        samples = sorted(self._samples, key=lambda sample: sample[0])
        markers = sorted(self._markers, key=lambda marker: marker[1])
        categories = list(_CATEGORIES)
        return {
            "name": self._name,
            "processName": "Python",
            "processType": "default",
            "isMainThread": self._number == 0,
            "showMarkersInTimeline": True,
            "pid": "1",
            "tid": self._number + 1,
            "processStartupTime": 0,
            "processShutdownTime": ended_ms,
            "registerTime": 0,
            "unregisterTime": ended_ms,
            "pausedRanges": [],
            "samples": {
                **_table(len(samples)),
                "time": [started for started, _, _ in samples],
                "stack": [stack for _, stack, _ in samples],
                "weight": [weight for *_, weight in samples],
                "weightType": "tracing-ms",
            },
            "markers": _table(
                len(markers),
                name=[self._tables.text(name) for name, *_ in markers],
                startTime=[started for _, started, *_ in markers],
                endTime=[ended if ended > started else None for _, started, ended, *_ in markers],
                phase=[_INTERVAL if ended > started else _INSTANT for _, started, ended, *_ in markers],
                category=[categories.index(category) for *_, category, _ in markers],
                data=[data for *_, data in markers],
            ),
        }


class _Profile:
    """Builds the whole profile from a recording."""

    def __init__(self, recording: RecordingData) -> None:
        self._recording = recording
        self._tables = _Tables()
        times = [request.started_unix_s for request in recording.timeline]
        self._started_unix_s = min(times, default=0.0)
        # If not all requests have a start, all begin at 0.
        known = len(times) == recording.requests
        self._starts = [each - self._started_unix_s for each in times] if known else [0.0] * recording.requests
        of_many = f" (mean of {recording.requests} requests)" if recording.requests > 1 else ""
        self._python = _Track(f"Python{of_many if recording.session else ''}", 0, self._tables)
        self._connections: dict[int | None, _Track] = {}

    def to_json(self) -> _Json:
        self._add_python()
        for statement in self._recording.statements:
            self._add_to_connection(statement)
        for step in self._recording.transactions:
            self._add_to_connection(step)
        requests = [each.elapsed_s + start for each, start in zip(self._recording.timeline, self._starts, strict=False)]
        ended_ms = max(requests, default=self._recording.elapsed_s) * _MS
        connections = [self._connections[number] for number in sorted(self._connections, key=lambda each: each or 0)]
        threads = [track.to_json(ended_ms) for track in (self._python, *connections)]
        return {
            "meta": self._meta(len(threads), ended_ms),
            "libs": [],
            "threads": threads,
            "shared": self._tables.to_json(),
        }

    def _meta(self, tracks: int, ended_ms: float) -> _Json:
        session = self._recording.session
        return {
            "version": _GECKO_VERSION,
            "preprocessedProfileVersion": _VERSION,
            "product": self._recording.name,
            "importedFrom": "placebench",
            "startTime": self._started_unix_s * _MS,
            "profilingStartTime": 0,
            "profilingEndTime": ended_ms,
            "interval": (session.max_interval if session is not None else 0.001) * _MS,
            "processType": 0,
            "stackwalk": 0,
            "categories": [
                {"name": name, "color": color, "subcategories": ["Other"]} for name, color in _CATEGORIES.items()
            ],
            "markerSchema": [
                _schema("SQL", "{marker.data.sql}", _SQL_FIELDS),
                _schema("Request", "{marker.name}", ()),
                _schema("Span", "{marker.name}", ()),
            ],
            "usesOnlyOneStackType": True,
            "sourceCodeIsNotOnSearchfox": True,
            "symbolicationNotSupported": True,
            "keepProfileThreadOrder": True,
            "initialVisibleThreads": list(range(tracks)),
            "initialSelectedThreads": [0],
        }

    def _add_python(self) -> None:
        """Add requests, spans and the flame graph to the track of Python."""
        for request, start in zip(self._recording.timeline, self._starts, strict=False):
            self._python.add_marker(request.name, start, request.elapsed_s, "Python", {"type": "Request"})
        for span in self._recording.spans:
            started_s = self._starts[span.request - 1] + span.started_s
            self._python.add_marker(span.label, started_s, span.elapsed_s, "Python", {"type": "Span"})
        now_s = 0.0
        for stack, seconds in () if self._recording.session is None else self._recording.session.frame_records:
            self._python.add_sample(now_s, seconds, self._tables.stack(map(_frame, stack)))
            now_s += seconds

    def _add_to_connection(self, each: Statement | Transaction) -> None:
        """Add a statement or a step to its connection's track, as a marker and as a sample of its whole length."""
        if each.connection not in self._connections:
            name = "no connection" if each.connection is None else f"connection {each.connection}"
            name += f" to {each.database}" if each.database else ""
            self._connections[each.connection] = _Track(name, len(self._connections) + 1, self._tables)
        track = self._connections[each.connection]
        started_s = self._starts[each.request - 1] + each.started_s
        if isinstance(each, Statement):
            name, seconds = each.summary or "statement", (each.execute_s or 0.0) + (each.fetch_s or 0.0)
        else:
            name, seconds = each.kind, each.elapsed_s or 0.0
        track.add_marker(name, started_s, seconds, "SQL", self._data(each))
        if seconds:
            track.add_sample(started_s, seconds, self._tables.stack([(name, "", None, "SQL")]))

    def _data(self, each: Statement | Transaction) -> _Json:
        """Return the fields of a marker, without those that were not measured."""
        data: _Json = {"sql": None, "roundTrips": each.round_trips, "error": each.error}
        if isinstance(each, Transaction):
            return {
                "type": "SQL",
                **_measured({**data, "sql": self._tables.text(each.kind), "transaction": each.number}),
            }
        data |= {"sql": self._tables.text(each.sql), "rows": each.row_count, "transaction": each.transaction}
        for name, seconds in (
            ("execute", each.execute_s),
            ("fetch", each.fetch_s),
            ("compile", each.compile_s),
            ("poolWait", each.pool_wait_s),
        ):
            data[name] = None if seconds is None else seconds * _MS
        callers = [caller for caller in (each.outer_caller, each.caller) if caller is not None]
        if callers:
            data["line"] = self._tables.text(str(callers[-1]))
            frames = [(caller.function, caller.file, caller.line, "Python") for caller in callers]
            data["cause"] = {"stack": self._tables.stack(frames)}
        return {"type": "SQL", **_measured(data)}


def _measured(data: _Json) -> _Json:
    return {key: value for key, value in data.items() if value is not None}


def _schema(name: str, label: str, fields: Sequence[tuple[str, str, str]]) -> _Json:
    return {
        "name": name,
        "tableLabel": label,
        "tooltipLabel": "{marker.name}",
        "chartLabel": "{marker.name}",
        "display": ["marker-chart", "marker-table", "timeline-overview"],
        "fields": [{"key": key, "label": title, "format": kind} for key, title, kind in fields],
    }


def _frame(frame: str) -> tuple[str, str, int | None, str]:
    """Return a frame of pyinstrument as name, file, line and category; a leaf has no file."""
    place, *attributes = frame.split("\x01")
    name, file, first_line = (*place.split("\x00"), "", "0")[:3]
    if file in _LEAVES:
        return name, "", None, _LEAVES[file]
    line = next((each[1:] for each in attributes if each.startswith("l")), first_line)
    return name, file, int(line) if line.isdecimal() and int(line) else None, "Python"
