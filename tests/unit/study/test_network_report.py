"""The report of `placebench study network`, from measurements that a reader can check by hand."""

from pathlib import Path
from typing import Any

import pytest
from fake_survey import SETTINGS, VALUES, study_head
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement, append_lines
from placebench.report import build_report

TRIPS = {"insert": 100, "pipeline": 10}


def run(folder: Path, repeats: int, **settings: Any) -> Path:
    """Insert and pipeline at 0 ms, 50 ms and 20 + 80 ms: 1 s of work, some noise, and the waits for round trips."""
    points = [
        {"variant": variant, "link": link, "latency_ms": ms}
        for variant in TRIPS
        for link, ms in (("0", 0.0), ("50", 50.0), ("20+80", 100.0))
    ]
    known = {**SETTINGS["study-network"], "repeats": repeats, "points": points, "impossible": [], **settings}
    study_head("study-network", variants=[], settings=known).save(folder / "run.json")
    append_lines(folder / "measurements.jsonl", [measured(point, n) for n in range(repeats) for point in points])
    return folder


def measured(point: dict[str, Any], repeat: int) -> Measurement:
    trips = TRIPS[point["variant"]]
    elapsed_s = (1 + repeat / 100) * (1 + trips * point["latency_ms"] / 1e3)
    values = {**VALUES["study-network"], "elapsed_s": elapsed_s, "round_trips": trips, "connections": 0}
    return Measurement(point, repeat, values)


def rows(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["variant"], row["link"]): row for row in document_of(results.load(folder))["rows"]}


def test_the_slope_counts_round_trips_without_the_work(tmp_path: Path) -> None:
    """In repeat n, 100 round trips over 50 ms add 5 s x (1 + n / 100): time / RTT has the second of work in it."""
    row = rows(run(tmp_path, 3))["insert", "50"]

    assert (pytest.approx(101), None) == (row["round_trips_by_slope"], row["round_trips_by_slope_low"])
    assert pytest.approx(6 * 1.01 / 0.05) == row["round_trips_published"]
    assert rows(tmp_path)["insert", "0"]["round_trips_by_slope"] is None


def test_two_commands_are_compared_in_pairs(tmp_path: Path) -> None:
    """10 against 100 round trips through 20 + 80 ms: 2 s are 0.182 of 11 s in each of six repeats."""
    row = rows(run(tmp_path, 6))["pipeline", "20+80"]

    assert [pytest.approx(2 / 11)] * 3 == [row["ratio"], row["ratio_low"], row["ratio_high"]]
    assert "−82 % time [95 % CI −82, −82; n = 6]" in row["change"]
    assert 100.0 == row["round_trip_ms"]


def test_five_repeats_have_no_interval(tmp_path: Path) -> None:
    """The ratio is there, its limits are not."""
    row = rows(run(tmp_path, 5))["pipeline", "50"]

    assert (pytest.approx(1.5 / 6), None, None) == (row["ratio"], row["ratio_low"], row["ratio_high"])


def test_the_headline_is_that_of_the_longest_link(tmp_path: Path) -> None:
    """Both commands through the jump box, with their round trips."""
    text = text_of(results.load(run(tmp_path, 6)))

    assert (
        "At a round-trip time of 100 ms to 127.0.0.1:5432, insert takes 11.3 s in 100 round trips and pipeline 2.05 s "
        "in 10: −82 % time [95 % CI −82, −82; n = 6]." in text
    )
    assert "20 + 80 ms" in text


@pytest.mark.parametrize(("loss", "said"), [(0.0, "A network that loses packets"), (0.02, "recovery from a loss")])
def test_the_limits_are_those_of_the_links(tmp_path: Path, loss: float, said: str) -> None:
    """With a loss, what it leaves out is said instead."""
    assert any(said in limit for limit in build_report(results.load(run(tmp_path, 1, loss=loss))).limits)
