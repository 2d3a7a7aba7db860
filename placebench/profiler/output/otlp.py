"""A recording as spans and metrics of OpenTelemetry, in its JSON encoding: `write_otlp_traces`, `write_otlp_metrics`.

Both write JSON lines, which an OpenTelemetry collector reads from a file (receiver `otlpjsonfile`); each line is also
the body of a POST to /v1/traces or /v1/metrics. Names are those of the semantic conventions 1.44 for databases, whose
pool metrics are not declared stable yet. No package of OpenTelemetry must be installed.
"""

import json
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from placebench.errors import ProfilerError
from placebench.profiler.model.files import writing_whole
from placebench.profiler.model.recording_data import RecordingData
from placebench.profiler.model.statement import Checkout, DatabaseAddress, Span, Statement, Transaction

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
_SPANS_PER_LINE = 1000
_INTERNAL, _CLIENT = 1, 3
_ERROR = 2
_CUMULATIVE = 2
# The boundaries in the conventions.
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_ROWS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_POOL_NAME = "db.client.connection.pool.name"
_POOL_COUNTS = (
    ("count", "{connection}", (("used", "used"), ("idle", "idle"))),
    ("pending_requests", "{request}", (("pending", None),)),
    ("max", "{connection}", (("limit", None),)),
    ("idle.max", "{connection}", (("size", None),)),
)
"""Metrics of a pool: name, unit, and fields of `Checkout` with the state of the connections they count."""

_Json = dict[str, Any]
_Key = tuple[tuple[str, Any], ...]


def write_otlp_traces(recording: RecordingData, path: Path | str, *, service: str | None = None) -> None:
    """Write a trace for each request, with its statements, transaction steps and spans below it.

    A recording gets the same ids each time, so sending it twice does no harm.

    service: service.name of the resource (default: OTEL_SERVICE_NAME, as in OpenTelemetry's SDKs).
    Raises ProfilerError for a recording without the times of its requests.
    """
    frame = {"resource": _resource(recording, service)}
    spans = _spans(recording)
    with writing_whole(Path(path)) as file:
        while chunk := list(islice(spans, _SPANS_PER_LINE)):
            scope = {"scope": _scope(), "spans": chunk, "schemaUrl": _SCHEMA}
            _write_line(file, {"resourceSpans": [{**frame, "scopeSpans": [scope]}]})


def write_otlp_metrics(recording: RecordingData, path: Path | str, *, service: str | None = None) -> None:
    """Write the histograms of durations and rows, and the metrics of the connection pools.

    They are cumulative from the start of the recording. service and errors: see `write_otlp_traces`.
    """
    scope = {"scope": _scope(), "metrics": list(_metrics(recording)), "schemaUrl": _SCHEMA}
    with writing_whole(Path(path)) as file:
        _write_line(file, {"resourceMetrics": [{"resource": _resource(recording, service), "scopeMetrics": [scope]}]})


def _write_line(file: Any, document: _Json) -> None:
    file.write(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    file.write("\n")


def _resource(recording: RecordingData, service: str | None) -> _Json:
    """Return the resource of the program; each recording is another instance, whose sums start from zero."""
    name = service or os.environ.get("OTEL_SERVICE_NAME") or "unknown_service:python"
    instance = _trace_id(recording, 1)
    return {"attributes": _attributes({"service.name": name, "service.instance.id": instance})}


def _scope() -> _Json:
    return {"name": "placebench.profiler", "version": version("placebench")}


def _interval(recording: RecordingData) -> tuple[int, int]:
    """Return the first start and the last end of the requests in Unix nanoseconds."""
    if len(recording.timeline) < recording.requests:
        raise ProfilerError(f"{recording.name} does not know when its requests ran: record it again")
    started_s = min(each.started_unix_s for each in recording.timeline)
    ended_s = max(each.started_unix_s + each.elapsed_s for each in recording.timeline)
    return _nanoseconds(started_s), _nanoseconds(ended_s)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _trace_id(recording: RecordingData, request: int) -> str:
    """Return 32 hexadecimal digits that depend on the recording's name, the request's time and its number."""
    text = f"{recording.name}\x00{recording.timeline[request - 1] if recording.timeline else ''}\x00{request}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


# Traces.


def _spans(recording: RecordingData) -> Iterator[_Json]:
    """Yield the spans of all requests, then the spans below them."""
    _interval(recording)
    traces = [_trace_id(recording, number) for number, _ in enumerate(recording.timeline, 1)]
    for trace, request in zip(traces, recording.timeline, strict=True):
        root = _span(trace, 1, request.name, _INTERNAL, request.started_unix_s, request.elapsed_s)
        error = recording.error if len(traces) == 1 else None
        yield {**root, "attributes": _attributes({"error.type": error}), **_status(error)}
    below: Iterable[Statement | Transaction | Span] = (*recording.statements, *recording.transactions, *recording.spans)
    for number, each in enumerate(below, 2):
        position = each.request - 1
        started_s = recording.timeline[position].started_unix_s + each.started_s
        name, kind, seconds, attributes, error = _described(each)
        span = _span(traces[position], number, name, kind, started_s, seconds)
        yield {**span, "parentSpanId": f"{1:016x}", "attributes": _attributes(attributes), **_status(error)}


def _span(trace: str, number: int, name: str, kind: int, started_s: float, seconds: float) -> _Json:
    started = _nanoseconds(started_s)
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(started),
        "endTimeUnixNano": str(started + _nanoseconds(seconds)),
    }


def _described(each: Statement | Transaction | Span) -> tuple[str, int, float, _Json, str | None]:
    """Return the name, kind, seconds, attributes and error of a span."""
    if isinstance(each, Span):
        return each.label, _INTERNAL, each.elapsed_s, {}, None
    error = None if each.error is None else each.error.partition(":")[0]
    attributes: _Json = {**_address(each.database), "error.type": error}
    if isinstance(each, Transaction):
        attributes["db.operation.name"] = each.kind
        return each.kind, _CLIENT, each.elapsed_s or 0.0, attributes, each.error
    summary = each.summary
    attributes |= {"db.query.summary": summary, "db.query.text": each.sql}
    attributes["db.response.returned_rows"] = each.row_count if each.kind == "read" else None
    if each.caller is not None:
        attributes["code.file.path"] = each.caller.file
        attributes["code.line.number"] = each.caller.line
        attributes["code.function.name"] = each.caller.function
    for name in ("fingerprint", "compile_s", "pool_wait_s", "execute_s", "fetch_s", "round_trips", "repeated"):
        attributes[f"placebench.{name}"] = getattr(each, name)
    return summary or "statement", _CLIENT, _driver_s(each), attributes, each.error


def _driver_s(statement: Statement) -> float:
    """Return the seconds in the driver, which the conventions take as the duration of an operation."""
    return (statement.execute_s or 0.0) + (statement.fetch_s or 0.0)


def _status(error: str | None) -> _Json:
    return {} if error is None else {"status": {"code": _ERROR, "message": error}}


def _address(database: DatabaseAddress | None) -> _Json:
    if database is None:
        return {"db.system.name": "other_sql"}
    return {
        "db.system.name": database.system,
        "db.namespace": database.name,
        "server.address": database.address,
        "server.port": database.port,
    }


def _attributes(values: Mapping[str, Any]) -> list[_Json]:
    """Return the values that are not None as attributes in OTLP's JSON encoding."""
    attributes: list[_Json] = []
    for key, value in values.items():
        shown: _Json = {"stringValue": str(value)}
        if isinstance(value, bool):
            shown = {"boolValue": value}
        elif isinstance(value, int):
            shown = {"intValue": str(value)}
        elif isinstance(value, float):
            shown = {"doubleValue": value}
        if value is not None:
            attributes.append({"key": key, "value": shown})
    return attributes


# Metrics.


def _metrics(recording: RecordingData) -> Iterator[_Json]:
    started, ended = _interval(recording)
    stamps = {"startTimeUnixNano": str(started), "timeUnixNano": str(ended)}
    durations, rows = _Histogram(_SECONDS), _Histogram(_ROWS)
    for each in recording.statements:
        error = None if each.error is None else each.error.partition(":")[0]
        key = {**_address(each.database), "db.query.summary": each.summary, "error.type": error}
        durations.add(tuple(key.items()), _driver_s(each))
        if each.kind == "read" and each.row_count is not None:
            rows.add(tuple(key.items()), each.row_count)
    yield from durations.to_metric("db.client.operation.duration", "s", stamps)
    yield from rows.to_metric("db.client.response.returned_rows", "{row}", stamps)
    for name in ("wait", "use", "create"):
        times = _Histogram(_SECONDS)
        for checkout in recording.checkouts:
            seconds = getattr(checkout, f"{name}_s")
            if seconds is not None and not checkout.timed_out:
                times.add(((_POOL_NAME, checkout.pool),), seconds)
        yield from times.to_metric(f"db.client.connection.{name}_time", "s", stamps)
    if recording.checkouts:
        yield from _pool_counts(recording, started, ended)


class _Histogram:
    """Counts of values between boundaries, by attributes."""

    def __init__(self, boundaries: Sequence[float]) -> None:
        self._boundaries = boundaries
        self._values: dict[_Key, list[float]] = {}

    def add(self, key: _Key, value: float) -> None:
        self._values.setdefault(key, []).append(value)

    def to_metric(self, name: str, unit: str, stamps: _Json) -> Iterator[_Json]:
        points = [self._point(key, values, stamps) for key, values in self._values.items()]
        if points:
            histogram = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
            yield {"name": name, "unit": unit, "histogram": histogram}

    def _point(self, key: _Key, values: list[float], stamps: _Json) -> _Json:
        counts = [0] * (len(self._boundaries) + 1)
        for value in values:
            counts[bisect_left(self._boundaries, value)] += 1
        return {
            "attributes": _attributes(dict(key)),
            **stamps,
            "count": str(len(values)),
            "sum": float(sum(values)),
            "min": float(min(values)),
            "max": float(max(values)),
            "explicitBounds": [float(each) for each in self._boundaries],
            "bucketCounts": [str(count) for count in counts],
        }


def _pool_counts(recording: RecordingData, started: int, ended: int) -> Iterator[_Json]:
    """Yield the numbers of connections and waiting requests at each checkout, the sizes of the pools, and timeouts."""

    def came(checkout: Checkout) -> float:
        return recording.timeline[checkout.request - 1].started_unix_s + checkout.started_s + (checkout.wait_s or 0.0)

    in_order = [(_nanoseconds(came(each)), each) for each in sorted(recording.checkouts, key=came)]
    for name, unit, fields in _POOL_COUNTS:
        points: list[_Json] = []
        for field, state in fields:
            last: dict[str, int] = {}
            for now, each in in_order:
                value = getattr(each, field)
                if value is not None and last.get(each.pool) != value:  # only a change is a point
                    last[each.pool] = value
                    points.append(_point(each.pool, state, started, now, value))
        if points:
            yield _sum(name, unit, points, is_monotonic=False)
    timeouts: dict[str, int] = {}
    for _, each in in_order:
        timeouts[each.pool] = timeouts.get(each.pool, 0) + each.timed_out
    points = [_point(pool, None, started, ended, count) for pool, count in timeouts.items()]
    yield _sum("timeouts", "{timeout}", points, is_monotonic=True)


def _point(pool: str, state: str | None, started: int, now: int, value: int) -> _Json:
    attributes = {_POOL_NAME: pool, "db.client.connection.state": state}
    stamps = {"startTimeUnixNano": str(started), "timeUnixNano": str(now)}
    return {"attributes": _attributes(attributes), **stamps, "asInt": str(value)}


def _sum(name: str, unit: str, points: list[_Json], *, is_monotonic: bool) -> _Json:
    data = {"aggregationTemporality": _CUMULATIVE, "isMonotonic": is_monotonic, "dataPoints": points}
    return {"name": f"db.client.connection.{name}", "unit": unit, "sum": data}
