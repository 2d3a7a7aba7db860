"""The knee of a search of rates, and the report of knees and of what comes after them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_survey import VALUES, measured_again, write_survey
from reports import document_of

from placebench import results
from placebench.compare.keep.records import Measurement
from placebench.compare.load.load_steps import LoadStep, Outcome
from placebench.lab.studies.saturation import _knee, _rates, _row


@pytest.mark.parametrize(
    ("made", "knee"),
    [
        ([(8, "held"), (16, "held"), (32, "broken"), (22, "held")], (22, 32)),
        ([(8, "broken"), (4, "held"), (5.6, "broken")], (4, 5.6)),
        ([(8, "held"), (16, "generator"), (16, "generator"), (11, "held")], (11, None)),
        ([(8, "held"), (16, "generator"), (16, "broken")], (8, 16)),
        ([(8, "held"), (16, "generator"), (16, "generator"), (32, "broken")], (8, None)),
        ([(8, "broken"), (4, "broken")], (None, 4)),
    ],
)
def test_the_knee_is_below_all_that_was_broken(
    made: list[tuple[float, Outcome]], knee: tuple[float | None, float | None]
) -> None:
    """A load at which the generator was the limit says nothing about the service beyond it."""
    steps = [LoadStep(load, 1, 0, load, {}, 0.1, 0, outcome, "") for load, outcome in made]

    assert knee == _knee(steps)


def test_a_knee_has_the_interval_of_five_repeats(tmp_path: Path) -> None:
    """Knees of 8, 10, 12, 14 and 16 per second: 12, from 8 to 16; 30 of 40 instances in 4 s were claimed beyond."""
    folder = write_survey(tmp_path / "run", "saturation", repeats=5)
    knees = enumerate((8.0, 10.0, 12.0, 14.0, 16.0))
    made = [Measurement({"variant": "cached"}, n, {**VALUES["saturation"], "knee_per_s": knee}) for n, knee in knees]

    document = document_of(measured_again(folder, made))
    (row,) = document["rows"]

    assert (5, 12, 8, 16) == tuple(row[name] for name in ("n", "knee_per_s", "knee_low_per_s", "knee_high_per_s"))
    assert (7.5, 0.25, 0.25) == tuple(row[name] for name in ("overload_per_s", "overload_failed", "overload_timeouts"))
    assert "service" == row["limited_by"]
    assert [(8, 5, 5, 200, 0.1), (16, 10, 0, 400, 1.2)] == [
        (each["rate_per_s"], each["repeats"], each["held"], each["requests"], each["p95_s"] and round(each["p95_s"], 3))
        for each in document["rates"]
    ]


def test_percentiles_need_their_samples(tmp_path: Path, documented: Callable[[str], set[str]]) -> None:
    """40 instances at the knee in each of five repeats: enough for p95, too few for p99; 2 of 40 after a conflict."""
    folder = write_survey(tmp_path / "run", "saturation", repeats=5)

    row = document_of(results.load(folder))["rows"][0]

    assert (0.1, 0.1, None, None) == tuple(row[name] for name in ("p50_s", "p95_s", "p99_s", "p999_s"))
    assert documented("saturation") <= set(row)
    assert (0.05, 0.2) == (row["refused_share"], row["client_cpu"])


def test_a_generator_that_was_the_limit_makes_a_lower_bound(tmp_path: Path) -> None:
    """No rate was too much for the service: the knee is at least the highest that held."""
    folder = write_survey(tmp_path / "run", "saturation", repeats=1)
    lines = (folder / "measurements.jsonl").read_text().replace('"broken_per_s": 16.0', '"broken_per_s": null')
    (folder / "measurements.jsonl").write_text(lines)

    document = document_of(results.load(folder))

    assert {"generator"} == {row["limited_by"] for row in document["rows"]}
    assert 2 == document["headline"].count("at least 8.00 /s")


def test_the_published_rows_are_those_of_the_raw_file() -> None:
    """Knees and rates of docs/results, which docs/lab/saturation.md shows, are computed anew from the measurements."""
    raw = json.loads((Path(__file__).parents[4] / "docs" / "results" / "saturation.json").read_text())
    made = [Measurement(**each) for each in raw["measurements"] if each["invalid"] is None]

    for row in raw["rows"]:
        mine = [each for each in made if each.point == {"variant": row["variant"]}]

        assert {**_row(row["variant"], mine), "reason": None} == row
        assert list(_rates(row["variant"], mine)) == [
            each for each in raw["rates"] if each["variant"] == row["variant"]
        ]
