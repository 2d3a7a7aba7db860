"""A recording as a profile of the Firefox Profiler: tables that refer to each other, markers, and stacks.

That the program itself reads such a file was seen with its command line (profiler-cli 0.10), which needs Node.
"""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flame_graphs import session_of

from placebench.errors import ProfilerError
from placebench.profiler import Recording, Span, Statement, Transaction, write_firefox_profile
from placebench.profiler.capture.stack import leaf
from placebench.profiler.model.statement import Caller, DatabaseAddress, RecordedRequest

VIEW = "view\x00/app/views.py\x007\x01l9"


@pytest.fixture
def recording() -> Recording:
    """Two statements on two connections at the same time, a COMMIT, a span, and a flame graph of two stacks."""
    database = DatabaseAddress("postgresql", "db", 5432, "shop")
    first = Statement(
        "SELECT * FROM orders",
        "f",
        0.25,
        caller=Caller("/app/views.py", 9, "view"),
        execute_s=0.5,
        row_count=3,
        connection=1,
        database=database,
    )
    second = Statement("UPDATE orders SET a = 1", "g", 0.25, execute_s=0.125, connection=2, database=database)
    return Recording(
        "GET /orders",
        "flame",
        statements=[first, second],
        transactions=[Transaction("COMMIT", 0.75, 0.125, connection=2, database=database)],
        spans=[Span("numbers", 0.0, 1.0)],
        timeline=(RecordedRequest("GET /orders", 1000.0, 2.0),),
        elapsed_s=2.0,
        session=session_of([([VIEW], 0.25), ([VIEW, leaf("SELECT * FROM orders", "sql")], 0.5)]),
    )


def profile_of(each: Recording, path: Path) -> dict[str, Any]:
    """What was written."""
    write_firefox_profile(each, path)
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def names_of(profile: dict[str, Any], stack: int | None) -> list[str]:
    """The functions of a stack, the outermost one first."""
    shared, names = profile["shared"], []
    while stack is not None:
        function = shared["frameTable"]["func"][shared["stackTable"]["frame"][stack]]
        names.append(shared["stringArray"][shared["funcTable"]["name"][function]])
        stack = shared["stackTable"]["prefix"][stack]
    return names[::-1]


def test_each_connection_is_a_track_with_its_statements(recording: Recording, tmp_path: Path) -> None:
    """Beside the one of Python; a marker has the times of the driver, the text, and the line as its stack."""
    profile = profile_of(recording, tmp_path / "p.json.gz")

    tracks = profile["threads"]
    texts = profile["shared"]["stringArray"]
    assert [track["name"] for track in tracks] == [
        "Python",
        "connection 1 to db:5432/shop",
        "connection 2 to db:5432/shop",
    ]
    markers = tracks[1]["markers"]
    (data,) = markers["data"]
    assert [texts[name] for name in markers["name"]] == ["SELECT orders"]
    assert (markers["startTime"], markers["endTime"], markers["phase"]) == ([250.0], [750.0], [1])
    assert (texts[data["sql"]], data["rows"], data["execute"]) == ("SELECT * FROM orders", 3, 500.0)
    assert names_of(profile, data["cause"]["stack"]) == ["view"]
    assert [texts[name] for name in tracks[2]["markers"]["name"]] == ["UPDATE orders", "COMMIT"]
    assert [texts[name] for name in tracks[0]["markers"]["name"]] == ["GET /orders", "numbers"]


def test_the_flame_graph_is_the_samples_of_python(recording: Recording, tmp_path: Path) -> None:
    """One after the other, each as long as it took, with the line of the frame and its category."""
    profile = profile_of(recording, tmp_path / "p.json.gz")

    samples, frames = profile["threads"][0]["samples"], profile["shared"]["frameTable"]
    assert (samples["time"], samples["weight"], samples["weightType"]) == ([0.0, 250.0], [250.0, 500.0], "tracing-ms")
    assert [names_of(profile, stack) for stack in samples["stack"]] == [["view"], ["view", "SELECT * FROM orders"]]
    categories = [profile["meta"]["categories"][number]["name"] for number in frames["category"]]
    assert (categories[0], frames["line"][0]) == ("Python", 9)
    assert "SQL" in categories


def test_all_columns_of_a_table_have_its_length(recording: Recording, tmp_path: Path) -> None:
    """And what a column refers to is there, a stack's caller before it."""
    profile = profile_of(Recording.merge([recording, recording]), tmp_path / "p.json.gz")

    tables = [table for table in profile["shared"].values() if isinstance(table, dict)]
    tables += [track[name] for track in profile["threads"] for name in ("samples", "markers")]
    for table in tables:
        assert {len(column) for column in table.values() if isinstance(column, list)} <= {table["length"]}
    stacks = profile["shared"]["stackTable"]
    assert all(prefix is None or prefix < number for number, prefix in enumerate(stacks["prefix"]))
    assert max(stacks["frame"]) < profile["shared"]["frameTable"]["length"]
    assert profile["meta"]["preprocessedProfileVersion"] == 61


def test_requests_of_which_one_does_not_know_when_it_ran_all_begin_at_0(recording: Recording, tmp_path: Path) -> None:
    """A merge of recordings of which one has no timeline, as those of older versions."""
    merged = Recording.merge([replace(recording, timeline=()), recording])

    profile = profile_of(merged, tmp_path / "p.json.gz")

    starts = profile["threads"][1]["markers"]["startTime"]
    assert (len(starts), starts[0]) == (2, starts[1])


@pytest.mark.parametrize("request_number", [-1, 0, 2])
def test_a_statement_of_a_request_that_is_not_there_is_refused(recording: Recording, request_number: int) -> None:
    """Whatever reads the file would look for it in vain."""
    document = recording.to_json()
    document["statements"][0]["request"] = request_number

    with pytest.raises(ProfilerError, match=rf"statements\[0\]\.request: .* saw {request_number}$"):
        Recording.from_json(document)
