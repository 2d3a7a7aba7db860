"""Sentences: the effect, its interval and the verdict as people say them."""

from dataclasses import replace

import pytest

from placebench.report.sentences import (
    comparison_sentence,
    detectable_text,
    effect_text,
    interval_text,
    moment,
    outcome_text,
    power_text,
    verdict_text,
)
from placebench.stats import Comparison, compare_counts, compare_profiled

MADE = Comparison(
    baseline="naive",
    variant="tuned",
    metric="cpu_s",
    ratio=0.32,
    low=0.31,
    high=0.33,
    confidence=0.95,
    replicates=6,
    invalidated=0,
    verdict="faster",
    detectable=0.0117,
    margin=0.01,
    reason="",
    log_ratios=(-1.1,) * 6,
)


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (
            MADE,
            (
                "tuned answers this request with 3.1 times less server CPU than naive "
                "(95 % interval 3.0 to 3.2; 6 replicates): faster."
            ),
        ),
        (
            replace(MADE, metric="wall_s", ratio=1.0422, low=1.039, high=1.045, verdict="slower"),
            (
                "tuned answers this request in 4.2 % more time than naive "
                "(95 % interval 3.9 to 4.5 %; 6 replicates): slower."
            ),
        ),
        (
            replace(MADE, ratio=0.995, low=0.992, high=0.999, verdict="below the margin"),
            (
                "tuned answers this request with 0.50 % less server CPU than naive "
                "(95 % interval 0.10 to 0.80 %; 6 replicates): below the margin of 1 %."
            ),
        ),
        (
            replace(MADE, ratio=1.001, low=0.998, high=1.004, verdict="equivalent"),
            (
                "tuned answers this request with as much server CPU as naive "
                "(95 % interval −0.20 % to +0.40 %; 6 replicates): equivalent."
            ),
        ),
        (
            replace(MADE, ratio=0.98, low=0.95, high=1.02, verdict="inconclusive"),
            (
                "Cannot tell whether tuned answers this request with less server CPU than naive "
                "(95 % interval −5.0 % to +2.0 %; 6 replicates)."
            ),
        ),
        (
            replace(MADE, low=None, high=None, verdict="inconclusive", reason="inconclusive: 3 replicates, 6 needed"),
            "Cannot tell whether tuned answers this request with less server CPU than naive: 3 replicates, 6 needed.",
        ),
    ],
)
def test_the_first_sentence(comparison: Comparison, sentence: str) -> None:
    """Each verdict has its words; none of them is "no difference"."""
    assert comparison_sentence(comparison) == sentence


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.32, "3.1 times less"), (3.1, "3.1 times more"), (0.9, "10 % less"), (1.25, "25 % more")]
)
def test_a_large_effect_is_a_factor_and_a_small_one_a_percentage(ratio: float, text: str) -> None:
    """From one and a half times on, either way, people think in factors."""
    assert effect_text(replace(MADE, ratio=ratio, low=None, high=None)) == text


def test_what_was_not_measured_is_called_so() -> None:
    """Neither 0 % nor an empty place, and no verdict."""
    missing = replace(MADE, ratio=None, low=None, high=None, verdict="inconclusive", log_ratios=())

    assert [effect_text(missing), interval_text(missing)] == ["not measured", "no 95 % interval"]
    assert verdict_text(missing) == "not measured"


@pytest.mark.parametrize(
    ("metric", "before", "after", "told"),
    [
        ("statements", [17.0] * 6, [17.0] * 6, "the same · equivalent"),
        ("statements", [0.0] * 6, [0.0] * 6, "the same · equivalent"),
        ("statements", [0.0] * 6, [5.0] * 6, "0 → 5 · more"),
        ("bytes_sent", [2048.0] * 6, [0.0] * 6, "2.00 KiB → 0 B · less"),
        ("rows", [10.0] * 6, [9.0] * 6, "10 % less"),
    ],
)
def test_counts_are_told_as_counts(metric: str, before: list[float], after: list[float], told: str) -> None:
    """What has no ratio is told by its values, what is equal is the same, and nothing counted is faster."""
    assert outcome_text(compare_counts(before, after, "naive", "tuned", metric), between=" · ") == told


def test_pauses_that_are_gone_are_told_by_their_values() -> None:
    """120 ms in the collector and none at all: there is no ratio, and both were measured."""
    gone = compare_profiled([0.12] * 3, [0.0] * 3, "naive", "tuned", "gc_s")

    assert effect_text(gone) == "120 ms → 0 s"


def test_only_times_are_faster() -> None:
    """Memory is less or more, as counts are."""
    assert [verdict_text(replace(MADE, metric=metric)) for metric in ("cpu_s", "wall_s", "pss_bytes", "rows")] == [
        "faster",
        "faster",
        "less",
        "less",
    ]


def test_the_power_line() -> None:
    """Every comparison says which effect it could have seen, two digits of it, and whether that is a rough figure."""
    assert power_text(replace(MADE, replicates=20)) == "the smallest effect that it could have seen is about 1.2 %"
    assert power_text(MADE) == (
        "the smallest effect that it could have seen is about 1.2 % (roughly, with fewer than 20 replicates)"
    )
    assert power_text(replace(MADE, detectable=None)).startswith("fewer than two replicates")


def test_what_could_have_been_seen_is_told_as_the_effects_are() -> None:
    """A log ratio of 0.693 is twice as much: 100 % more, as an effect of that size would be; it is not 69 %."""
    assert detectable_text(replace(MADE, detectable=0.6931)) == "100 %"
    assert detectable_text(replace(MADE, detectable=None)) == "not measured"


def test_a_stamp_for_people() -> None:
    """UTC is named, not added."""
    assert moment("2026-11-20T14:03:11+00:00") == "2026-11-20 14:03:11 UTC"
