"""The network study, from measurements that a reader can check by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_survey import study_head
from reports import document_of, text_of

from placebench import results
from placebench.compare.keep.records import Measurement, RunHead, append_lines
from placebench.report import write_report
from placebench.study.network_report import _agreement

SETTINGS = {"job": "query", "operations": 1, "between": "database", "bytes_per_s": None, "proxies": 1}
ROUND_TRIPS = {"naive": 20, "tuned": 8}
WORK_S = {"naive": 0.5, "tuned": 0.2}


def values(variant: str, latency_ms: float, noise_s: float, starved_s: float = 0.0) -> dict[str, Any]:
    """A job in a world without surprises: the work, and a latency for each round trip."""
    away_s = ROUND_TRIPS[variant] * latency_ms / 1e3
    return {
        "elapsed_s": WORK_S[variant] + away_s + noise_s,
        "cpu_s": WORK_S[variant],
        "round_trips": ROUND_TRIPS[variant],
        "connections": 0,
        "bytes_sent": ROUND_TRIPS[variant] * 100,
        "bytes_received": ROUND_TRIPS[variant] * 1000,
        "in_transit_s": away_s,
        "proxy_cpu_s": 0.001,
        "starved_s": starved_s,
        "body_bytes": 5000,
        "trace": {"bin_s": 0.001, "sent": [100, 0, 100], "received": [0, 1000]},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of naive and tuned."""
    return write_study(tmp_path, ("naive", "tuned"))


def write_study(folder: Path, variants: tuple[str, str], starved_s: float = 0.0) -> Path:
    """Two variants at 0 and 50 ms, five times each."""
    points = [{"variant": variant, "latency_ms": ms} for variant in variants for ms in (0.0, 50.0)]
    study_head(
        "network", variants=list(variants), settings={**SETTINGS, "repeats": 5, "points": points, "impossible": []}
    ).save(folder / "run.json")
    made = [
        Measurement(point, repeat, values(point["variant"], point["latency_ms"], repeat / 1000, starved_s))
        for repeat in range(5)
        for point in points
    ]
    append_lines(folder / "measurements.jsonl", made)
    return folder


def rows(folder: Path) -> dict[tuple[str, float], dict[str, Any]]:
    return {(row["variant"], row["latency_ms"]): row for row in document_of(results.load(folder))["rows"]}


def test_a_row_has_medians_and_counts(folder: Path) -> None:
    """0.5 s of work and 20 round trips of 50 ms are 1.5 s, and 2 ms of noise in the median of five."""
    row = rows(folder)["naive", 50.0]

    assert (5, pytest.approx(1.502), pytest.approx(1.5), pytest.approx(1.504)) == (
        row["n"],
        row["elapsed_s"],
        row["elapsed_low_s"],
        row["elapsed_high_s"],
    )
    assert (0.5, 2000, 20_000, 20) == tuple(
        row[name] for name in ("cpu_s", "bytes_sent", "bytes_received", "round_trips")
    )
    assert pytest.approx(1 / 1.502) == row["idle_share"]


def test_round_trips_as_published_are_runtime_over_round_trip_time(folder: Path) -> None:
    """1.502 s over 50 ms are 30.04, where 20 were counted; at 0 ms there are none to compute."""
    published = {place: row["round_trips_published"] for place, row in rows(folder).items()}

    assert pytest.approx(30.04) == published["naive", 50.0]
    assert published["naive", 0.0] is None
    assert "–" in text_of(results.load(folder))


def test_the_difference_grows_as_the_round_trips_predict(folder: Path) -> None:
    """12 round trips fewer save 12 x 50 ms = 0.6 s more at 50 ms than at 0."""
    tuned = rows(folder)["tuned", 50.0]

    assert (pytest.approx(0.6), pytest.approx(0.6), True) == (
        tuned["predicted_growth_s"],
        tuned["measured_growth_s"],
        tuned["agrees"],
    )
    assert rows(folder)["tuned", 0.0]["predicted_growth_s"] is None


@pytest.mark.parametrize(
    ("low_s", "said"),
    [(0.5, "which does not contradict it, but is not within 20 %."), (0.7, "NOT within 20 %.")],
    ids=["wide", "contradicted"],
)
def test_a_wide_interval_does_not_contradict_the_prediction(low_s: float, said: str) -> None:
    """600 ms are predicted and 900 ms measured: an interval from 500 ms holds both, one from 700 ms does not."""
    growth = {"predicted_growth_s": 0.6, "measured_growth_s": 0.9, "agrees": False}
    row = {"variant": "tuned", **growth, "measured_growth_low_s": low_s, "measured_growth_high_s": 1.2}

    assert _agreement({**row, "link": "50"}).endswith(f" ms, 1.20 s], {said}")


def test_what_is_lost_is_said_to_be_lost(tmp_path: Path) -> None:
    """With tuned as the baseline naive's 12 round trips more lose 0.6 s more at 50 ms than at 0."""
    text = text_of(results.load(write_study(tmp_path, ("tuned", "naive"))))

    assert (
        "By its round trips naive should lose 600 ms from the shortest latency to 50 ms; measured: 600 ms [CI 600 ms, "
        "600 ms], within 20 %." in text
    )
    assert "−600 ms" in text
    assert "-600 ms" not in text


@pytest.mark.parametrize(("starved_s", "is_said"), [(0.19, False), (0.21, True)])
def test_a_server_that_waits_for_a_cpu_longer_than_it_computes_is_on_a_busy_machine(
    tmp_path: Path, starved_s: float, is_said: bool
) -> None:
    """tuned computes for 0.2 s: to wait as long again is what client and proxies on the same cores cannot explain."""
    text = text_of(results.load(write_study(tmp_path, ("naive", "tuned"), starved_s)))

    assert ("for up to 51.2 % of the time that the server had work to do, it waited for a CPU" in text) == is_said


def test_changes_against_the_baseline_are_percentages(folder: Path) -> None:
    """1.502 s against 0.602 s; 0.5 s of CPU against 0.2; 20 round trips against 8, and so the bytes."""
    assert rows(folder)["tuned", 50.0]["change"] == "−60 % time, −60 % CPU, −60 % round trips, −60 % bytes"
    assert rows(folder)["tuned", 50.0]["ratios"]["time"] == pytest.approx(0.602 / 1.502)
    assert document_of(results.load(folder))["headline"] == (
        "At a round-trip time of 50 ms to its database, naive takes 1.50 s in 20 round trips and tuned 602 ms in 8: "
        "−60 % time."
    )


def test_the_page_shows_time_over_latency_and_bytes_over_time(folder: Path) -> None:
    """Both charts, with the variants named; a run of which nothing was measured says so."""
    page = write_report(folder).read_text()

    assert all(heading in page for heading in ("Time over latency", "Bytes over time at 50 ms", "Measurements"))
    (folder / "measurements.jsonl").write_text("")
    assert "nothing was measured" in write_report(folder).read_text()


def test_the_page_says_what_the_machine_could_resolve(folder: Path) -> None:
    """A study keeps the calibration of its machine as a comparison does."""
    measured = {"replicates": 60, "estimate": 0.0, "low": -0.001, "high": 0.001, "margin": 0.01, "passed": True}
    cpu = {"metric": "cpu_s", **measured, "runs_of_six": 10, "false_positives": 0, "power": {}, "detectable": {}}
    kept = {"made_at": "2026-11-21T14:00:00+00:00", "machine": None, "metrics": {"cpu_s": cpu}}
    head = RunHead.load(folder / "run.json")
    replace(head, manifest={"calibration": kept}).save(folder / "run.json")

    assert "This machine was calibrated at 2026-11-21 14:00:00 UTC" in write_report(folder).read_text()
