"""The report of capacities in instances per second, and of how the instances ended."""

from collections.abc import Callable
from pathlib import Path

from fake_survey import VALUES, measured_again, write_survey
from reports import document_of

from placebench import results
from placebench.compare.keep.records import Measurement


def test_a_variant_is_compared_with_the_first(tmp_path: Path) -> None:
    """Six knees of 10 and six of 20 per second: twice as many, beyond any noise."""
    folder = write_survey(tmp_path / "run", "saturation", repeats=6)
    made = [
        Measurement({"variant": variant}, repeat, {**VALUES["saturation"], "knee_per_s": knee})
        for variant, knee in (("naive", 10.0), ("cached", 20.0))
        for repeat in range(6)
    ]

    naive, cached = document_of(measured_again(folder, made))["rows"]

    assert ("naive", None, 6) == (naive["variant"], naive["ratio"], naive["n"])
    assert ("cached", 20, 20) == (cached["variant"], round(cached["knee_low_per_s"]), round(cached["knee_high_per_s"]))
    assert (2, "higher") == (round(cached["ratio"], 9), cached["verdict"])


def test_shares_are_of_the_instances_of_all_repeats(tmp_path: Path, documented: Callable[[str], set[str]]) -> None:
    """50 of 1000 were claimed after a conflict; of 40 at twice the knee 10 failed, 5 of them without a response."""
    folder = write_survey(tmp_path / "run", "saturation", repeats=5)

    row = document_of(results.load(folder))["rows"][0]

    assert (0.05, 0.25, 0.125) == (row["refused_share"], row["overload_failed"], row["overload_timeouts"])
    assert documented("saturation") | documented("study saturation") <= set(row)
