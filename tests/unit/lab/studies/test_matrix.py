"""The matrix, from measurements that a reader can check by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failed_points import REASON, with_failures
from fake_survey import measured_again, study_head
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement, append_lines
from placebench.lab.studies.matrix_plan import AXES
from placebench.report import write_report

TOOK_S = {
    ("naive", "postgresql"): 2.0,
    ("naive", "sqlite"): 1.5,
    ("tuned", "postgresql"): 1.0,
    ("tuned", "sqlite"): 1.2,
}
DRIVERS = {"postgresql": "psycopg2-binary 2.9.13", "sqlite": "sqlite 3.40.1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two services on two databases."""
    return write_matrix(tmp_path, TOOK_S)


def write_matrix(folder: Path, took_s: dict[tuple[str, str], float]) -> Path:
    """Services on databases, five repeats each, every one 10 ms slower than the one before; 100 results."""
    points = [{"service": service, "database": kind, "requests": 10, "trees": 5} for service, kind in took_s]
    settings = {
        "matrix": "mine",
        "title": "Is SQLite faster?",
        "control": {"database": "postgresql"},
        "usual": dict(AXES),
        "versions": [{"point": point, **versions(str(point["database"]))} for point in points],
        "repeats": 5,
        "points": points,
        "impossible": [
            {"point": {"service": "dedup", "database": "sqlite"}, "reason": "it needs PostgreSQL"},
            {"point": {"service": "cached", "database": "none"}, "reason": "it needs PostgreSQL"},
        ],
    }
    study_head("matrix", variants=list(dict.fromkeys(service for service, _ in took_s)), settings=settings).save(
        folder / "run.json"
    )
    for repeat in range(5):
        for point in points:
            duration_s = took_s[str(point["service"]), str(point["database"])] + repeat / 100
            values = {"duration_s": duration_s, "cpu_s": duration_s / 2, "body_bytes": 1000, "results": 100}
            append_lines(folder / "measurements.jsonl", [Measurement(point, repeat, values)])
    return folder


def versions(database: str) -> dict[str, Any]:
    """What ran there."""
    return {"python": "3.11.7", "service": "placebench 1.0", "sqlalchemy": "2.1.9", "driver": DRIVERS[database]}


def test_the_overhead_is_against_the_control_of_the_same_repeat(
    folder: Path, documented: Callable[[str], set[str]]
) -> None:
    """naive is half a second quicker on SQLite, 5 ms a result; tuned 0.2 s slower: what the machine did is in none."""
    rows = document_of(results.load(folder))["rows"]

    assert documented("matrix") <= set(rows[0])
    assert [None, -0.5, None, 0.2] == [row["overhead_s"] and round(row["overhead_s"], 9) for row in rows]
    assert [True, False, True, False] == [row["is_control"] for row in rows]
    assert (-0.005, -0.5, -0.5) == tuple(
        round(rows[1][name], 9) for name in ("overhead_per_result_s", "overhead_low_s", "overhead_high_s")
    )
    assert (2.02, 0.9375, 5) == (rows[0]["duration_s"], rows[0]["confidence"], rows[0]["n"])


def test_the_headline_and_the_summary(folder: Path) -> None:
    """How many are slower and faster than their control; versions that differ are columns; the impossible too."""
    text = text_of(results.load(folder))

    assert text.startswith(
        "Is SQLite faster? Overhead over the control, 10 requests × 5 trees: −500 ms (naive) to 200 ms (tuned).\n"
        "Smallest overhead: naive: −500 ms [CI −500 ms, −500 ms; n = 5], −50.0 ms per request, −5.00 ms per result.\n"
    )
    assert "Largest job, 2 combinations: 1 slower than their control, 1 faster." in text
    assert "Driver" not in text
    assert "SQLAlchemy" not in text
    assert "not measured: service dedup, database sqlite; service cached, database none: it needs PostgreSQL" in text
    write_report(folder)
    page = (folder / "index.html").read_text()
    assert "sqlite 3.40.1" in page
    assert "naive: 0.752 ×" in page


def test_values_of_one_axis_are_columns_beside_the_control(folder: Path) -> None:
    """A row for each service: what the control took, then each database with its overhead and interval."""
    head = json.loads((folder / "run.json").read_text())
    head["settings"]["columns"] = "database"
    (folder / "run.json").write_text(json.dumps(head))

    text = text_of(results.load(folder))
    lines = [" ".join(line.split()) for line in text.splitlines()]

    assert "Job Control sqlite" in lines
    assert "service naive, 10 requests × 5 trees 2.02 s 1.52 s, overhead −500 ms [−500 ms, −500 ms]" in lines
    assert "service tuned, 10 requests × 5 trees 1.02 s 1.22 s, overhead 200 ms [200 ms, 200 ms]" in lines
    write_report(folder)
    assert "Control and each database" in (folder / "index.html").read_text()


@pytest.mark.parametrize(
    ("python", "label"), [("3.11.7", "full"), ("3.11.2", "full, by a sampling thread"), ("3.13.0rc1", "full")]
)
def test_a_profiler_that_is_another_one_on_its_python_is_labelled(folder: Path, python: str, label: str) -> None:
    """Below 3.11.3 full has no profile function: its overhead is of something else."""
    path = folder / "run.json"
    head = json.loads(path.read_text())
    head["settings"]["usual"]["profiler"] = "full"
    for each in head["settings"]["versions"]:
        each["python"] = python
    path.write_text(json.dumps(head))

    rows = document_of(results.load(folder))["rows"]

    assert {row["profiler"] for row in rows} == {label}


def test_an_application_goes_by_the_name_that_it_was_given(tmp_path: Path) -> None:
    """Its definition is long; a step has its two ends."""
    before = "app=shop.wsgi:application,rev=HEAD~1,name=before"
    step = "naive+summaries+usages"
    took_s = {(name, kind): 1.0 for name in (before, step) for kind in ("postgresql", "sqlite")}

    text = text_of(results.load(write_matrix(tmp_path, took_s)))

    assert "before: " in text
    assert "naive+…+usages" in text
    assert "app=" not in text


def test_an_application_without_a_name_keeps_its_secrets(tmp_path: Path) -> None:
    """The values of its env= appear in no table, no sentence and no page."""
    service = "app=shop.wsgi:application,env=SECRET_KEY=c0ffee"
    folder = write_matrix(tmp_path, {(service, kind): 1.0 for kind in ("postgresql", "sqlite")})

    page = write_report(folder).read_text()

    assert "env=SECRET_KEY=***" in page
    assert "c0ffee" not in page + text_of(results.load(folder))


def test_combinations_that_failed_are_rows_whichever_they_are(folder: Path) -> None:
    """Four combinations, one to four of which failed, controls too: what did not run has no duration."""
    for failed, rows in with_failures(folder):
        assert [row.get("duration_s") is None for row in rows].count(True) == failed
        assert {row["versions"]["python"] for row in rows} == {"3.11.7"}


def test_a_combination_that_failed_later_keeps_what_was_measured(folder: Path) -> None:
    """Three of five repeats count: a row of three, which says so."""
    run = results.load(folder)
    point = run.head.settings["points"][0]
    made = [each for each in run.measurements if each.point != point or each.repeat < 3]

    row, *others = document_of(measured_again(folder, [*made, Measurement(point, 3, {}, REASON)]))["rows"]

    assert (row["n"], row["reason"]) == (3, f"3 of 5 repeats are valid: {REASON}")
    assert {each["reason"] for each in others} == {None}


def test_a_service_may_be_longer_than_the_name_of_a_file(tmp_path: Path) -> None:
    """Nothing of a survey is called after its services."""
    service = f"app=shop.wsgi:application,path=/srv/{'x' * 300}"
    run = results.load(write_matrix(tmp_path, {(service, "postgresql"): 1.0}))

    assert [service] == [row["service"] for row in document_of(run)["rows"]]
