"""Recordings as OTLP: strictly of the protocol, with the names of the conventions, each request a trace of its own."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from placebench.errors import ProfilerError
from placebench.profiler import Recording, Span, Statement, Transaction, write_otlp_metrics, write_otlp_traces
from placebench.profiler.model.statement import Caller, Checkout, DatabaseAddress, RecordedRequest

DATABASE = DatabaseAddress("postgresql", "db.example.org", 5432, "shop")
ADDRESS = {
    "db.system.name": "postgresql",
    "db.namespace": "shop",
    "server.address": "db.example.org",
    "server.port": "5432",
}


def recording(started_unix_s: float = 1000.0) -> Recording:
    """A read, a write that failed, a COMMIT, a span, and two checkouts of which one timed out."""
    caller = Caller("/app/views.py", 7, "view")
    read = Statement(
        "SELECT * FROM orders WHERE id = %s",
        "f",
        0.25,
        caller=caller,
        execute_s=0.5,
        fetch_s=0.25,
        row_count=3,
        database=DATABASE,
    )
    write = Statement("UPDATE orders SET n = 1", "g", 1.0, execute_s=0.002, error="IntegrityError", database=DATABASE)
    return Recording(
        "GET /orders",
        "full",
        statements=[read, write],
        transactions=[Transaction("COMMIT", 1.5, 0.01, database=DATABASE)],
        spans=[Span("numbers", 0.0, 2.0)],
        checkouts=(
            Checkout("main", 0.0, wait_s=0.1, create_s=0.05, use_s=1.5, used=1, idle=0, size=5, limit=15),
            Checkout("main", 0.5, wait_s=0.2, pending=1, used=1, idle=0, size=5, limit=15, timed_out=True),
        ),
        timeline=(RecordedRequest("GET /orders", started_unix_s, 2.0),),
        elapsed_s=2.0,
    )


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as a dict; whole numbers are texts in the protocol's JSON."""
    return {each["key"]: next(iter(each["value"].values())) for each in attributes}


def spans_of(each: Recording, path: Path) -> list[dict[str, Any]]:
    """All spans, line by line."""
    write_otlp_traces(each, path, service="shop")
    scopes = [json.loads(line)["resourceSpans"][0]["scopeSpans"][0] for line in path.read_text().splitlines()]
    return [span for scope in scopes for span in scope["spans"]]


def metrics_of(each: Recording, path: Path) -> dict[str, dict[str, Any]]:
    """Each metric's data by its name."""
    write_otlp_metrics(each, path, service="shop")
    (line,) = path.read_text().splitlines()
    metrics = json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    return {metric["name"]: metric.get("histogram") or metric["sum"] for metric in metrics}


def test_a_request_is_a_trace_with_its_statements_below(tmp_path: Path) -> None:
    """Named by operation and table; the time is the driver's; the line is that of the application."""
    root, read, write, commit, span = spans_of(recording(), tmp_path / "t.jsonl")

    assert [each["name"] for each in (root, read, write, commit, span)] == [
        "GET /orders",
        "SELECT orders",
        "UPDATE orders",
        "COMMIT",
        "numbers",
    ]
    assert {each["parentSpanId"] for each in (read, write, commit, span)} == {root["spanId"]}
    assert (read["startTimeUnixNano"], read["endTimeUnixNano"]) == ("1000250000000", "1001000000000")
    attributes = plain(read["attributes"])
    assert ADDRESS.items() <= attributes.items()
    assert (attributes["db.query.text"], attributes["db.response.returned_rows"]) == (
        "SELECT * FROM orders WHERE id = %s",
        "3",
    )
    assert (attributes["code.file.path"], attributes["code.line.number"]) == ("/app/views.py", "7")
    assert (write["status"]["code"], plain(write["attributes"])["error.type"]) == (2, "IntegrityError")
    assert plain(commit["attributes"])["db.operation.name"] == "COMMIT"


def test_merged_requests_are_traces_of_their_own(tmp_path: Path) -> None:
    """Each at its own time; the same recording has the same ids again."""
    merged = Recording.merge([recording(1000.0), recording(2000.0)])

    spans = spans_of(merged, tmp_path / "t.jsonl")
    reads = [each for each in spans if each["name"] == "SELECT orders"]
    assert [each["startTimeUnixNano"] for each in reads] == ["1000250000000", "2000250000000"]
    assert len({each["traceId"] for each in spans}) == 2
    assert spans == spans_of(merged, tmp_path / "again.jsonl")


def test_durations_and_rows_are_histograms_of_the_conventions(tmp_path: Path) -> None:
    """By operation and error, in their buckets; only reads return rows."""
    metrics = metrics_of(recording(), tmp_path / "m.jsonl")

    read, write = metrics["db.client.operation.duration"]["dataPoints"]
    assert plain(read["attributes"]) == {**ADDRESS, "db.query.summary": "SELECT orders"}
    assert (read["count"], read["sum"], read["bucketCounts"]) == ("1", 0.75, list("0000001000"))
    assert plain(write["attributes"])["error.type"] == "IntegrityError"
    (rows,) = metrics["db.client.response.returned_rows"]["dataPoints"]
    assert (rows["sum"], rows["explicitBounds"][2], rows["bucketCounts"][2]) == (3.0, 5.0, "1")


def test_pools_have_their_waits_uses_and_numbers(tmp_path: Path) -> None:
    """A time-out is not a wait that ended; a number is a point whenever it has changed."""
    metrics = metrics_of(recording(), tmp_path / "m.jsonl")

    def sums(name: str) -> list[float]:
        return [point["sum"] for point in metrics[f"db.client.connection.{name}"]["dataPoints"]]

    def numbers(name: str) -> list[tuple[str, ...]]:
        points = metrics[f"db.client.connection.{name}"]["dataPoints"]
        return [(*list(plain(point["attributes"]).values())[1:], point["asInt"]) for point in points]

    assert [sums(name) for name in ("wait_time", "use_time", "create_time")] == [[0.1], [1.5], [0.05]]
    assert numbers("count") == [("used", "1"), ("idle", "0")]
    assert numbers("pending_requests") == [("0",), ("1",)]
    assert [numbers(name) for name in ("max", "idle.max", "timeouts")] == [[("15",)], [("5",)], [("1",)]]


def test_every_line_is_of_the_protocol(tmp_path: Path) -> None:
    """OpenTelemetry's own definitions parse them, and refuse what they do not know; 1000 spans are a line at most."""
    json_format = pytest.importorskip("google.protobuf.json_format")
    traces = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2")
    metrics = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    merged = Recording.merge([recording()] * 300)
    write_otlp_traces(merged, tmp_path / "t.jsonl")
    write_otlp_metrics(merged, tmp_path / "m.jsonl")

    parsed = [
        json_format.ParseDict(_with_base64(json.loads(line)), traces.TracesData())
        for line in (tmp_path / "t.jsonl").read_text().splitlines()
    ]
    data = json_format.Parse((tmp_path / "m.jsonl").read_text(), metrics.MetricsData())

    assert [len(each.resource_spans[0].scope_spans[0].spans) for each in parsed] == [1000, 500]
    assert len(data.resource_metrics[0].scope_metrics[0].metrics) == 10


def _with_base64(document: Any) -> Any:
    """The ids as protobuf's own JSON has them: OTLP's has hexadecimal digits."""
    if isinstance(document, list):
        return [_with_base64(each) for each in document]
    if not isinstance(document, dict):
        return document
    return {
        key: b64encode(bytes.fromhex(value)).decode() if key.endswith(("traceId", "panId")) else _with_base64(value)
        for key, value in document.items()
    }


def test_a_recording_of_an_older_version_says_what_it_lacks(tmp_path: Path) -> None:
    """No invented times, and no half-written file."""
    with pytest.raises(ProfilerError):
        write_otlp_traces(Recording("r", "full"), tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()
