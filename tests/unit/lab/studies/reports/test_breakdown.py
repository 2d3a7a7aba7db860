"""The latency breakdown, from measurements that a reader can check by hand."""

from pathlib import Path
from typing import Any

import pytest
from fake_survey import study_head
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement, append_lines

PARTS = ("http_s", "framework_s", "python_s", "pool_s", "database_s", "unexplained_s")


def values(throughput_per_s: float, way_s: float, database_s: float) -> dict[str, Any]:
    """A request of so many seconds on its way and in the database, 1 ms in the framework and 2 ms in Python."""
    return {
        "path": "/",
        "requests": 100,
        "throughput_per_s": throughput_per_s,
        "client_cpu_share": 0.1,
        "shares": [0.5, 0.5],
        "chi_square": 0.0,
        "client_s": way_s + 0.003 + database_s,
        "way_in_s": way_s / 2,
        "way_out_s": way_s / 2,
        "framework_s": 0.001,
        "python_s": 0.002,
        "pool_s": 0.0,
        "database_s": database_s,
        "statements": 1.0,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A no-op of 4 ms outside of the application, and traits of 6 ms there and 2 ms in the database; five repeats."""
    points = [{"endpoint": "no-op"}, {"endpoint": "traits"}]
    study_head(
        "breakdown", variants=["tuned"], settings={"points": points, "repeats": 5, "impossible": []}, request="/traits"
    ).save(tmp_path / "run.json")
    return tmp_path


def measured(folder: Path, noop_per_s: float, traits_per_s: float) -> results.Run:
    """The run with these throughputs."""
    for repeat in range(5):
        made = {"no-op": values(noop_per_s, 0.004, 0.0), "traits": values(traits_per_s, 0.006, 0.002)}
        for endpoint, seen in made.items():
            append_lines(folder / "measurements.jsonl", [Measurement({"endpoint": endpoint}, repeat, seen)])
    return results.load(folder)


def test_what_a_no_op_does_not_need_is_left_unexplained(folder: Path) -> None:
    """Of 6 ms outside of the application 4 are the no-op's, 2 are unexplained; all parts are the client's 11 ms."""
    run = measured(folder, 200.0, 100.0)
    _, traits = document_of(run)["rows"]

    assert (0.004, 0.002) == tuple(pytest.approx(traits[name]) for name in ("http_s", "unexplained_s"))
    assert pytest.approx(0.011) == traits["client_s"] == pytest.approx(sum(traits[part] for part in PARTS))
    assert (0.5, 0.5) == (traits["share_of_noop"], traits["database_share"])
    assert "which is impossible" not in text_of(run)


def test_nothing_can_be_quicker_than_the_no_op(folder: Path) -> None:
    """Where something seems to be, the machine was busy, and that is said."""
    text = text_of(measured(folder, 100.0, 130.0))

    assert "traits had a higher throughput than the no-op, which is impossible: the machine was busy" in text
