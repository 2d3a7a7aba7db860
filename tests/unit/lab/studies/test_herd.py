"""The herd's table, from counts that a reader can check by hand."""

from pathlib import Path

import pytest
from fake_survey import POINTS, VALUES, measured_again, write_survey
from reports import document_of

from placebench import results
from placebench.compare.keep.records import Measurement


def test_counts_are_per_claim_with_the_interval_of_five_repeats(tmp_path: Path) -> None:
    """68 full hosts and 2, 12, 22, 32, 42 conflicts of other kinds in 20 claims: the median is 90 of 20, 4.5."""
    folder = write_survey(tmp_path / "run", "herd", repeats=5)
    made = [
        Measurement(POINTS["herd"][0], repeat, {**VALUES["herd"], "updates": 2 + 10 * repeat, "overcommitted": repeat})
        for repeat in range(5)
    ]

    (row,) = document_of(measured_again(folder, made))["rows"]

    assert (5, 4.5, 3.5, 5.5) == (row["n"], row["conflicts_per_claim"], row["conflicts_low"], row["conflicts_high"])
    assert (3.4, 1.1, 1.05, 12) == tuple(
        row[name] for name in ("full_per_claim", "updates_per_claim", "requests_per_claim", "hosts")
    )
    assert (2, 0, 4) == (row["overcommitted"], row["overcommitted_low"], row["overcommitted_high"])


def test_the_headline_has_both_orders_where_both_were_measured(tmp_path: Path) -> None:
    """Of the most schedulers."""
    headline = document_of(results.load(write_survey(tmp_path / "run", "herd")))["headline"]

    assert 2 == headline.count("3.50")


def test_a_measurement_without_claims_is_refused(tmp_path: Path) -> None:
    """Nothing can be said per claim."""
    folder = write_survey(tmp_path / "run", "herd", repeats=1)
    lines = (folder / "measurements.jsonl").read_text().replace('"claims": 20', '"claims": 0')
    (folder / "measurements.jsonl").write_text(lines)

    with pytest.raises(results.RunFolderError, match="claims"):
        document_of(results.load(folder))
