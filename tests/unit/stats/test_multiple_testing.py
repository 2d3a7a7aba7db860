"""Several metrics of one run, and what identical variants are called."""

import math
import random
from dataclasses import replace

import pytest
from comparisons import comparison

from placebench.stats import adjust_for_multiple_testing, compare_counts, compare_profiled
from placebench.stats.comparison import Comparison
from placebench.stats.hodges_lehmann import hodges_lehmann
from placebench.stats.multiple_testing import benjamini_hochberg
from placebench.stats.replicates import COUNTED
from placebench.stats.verdict import FASTER, INCONCLUSIVE, Verdict, decide


def test_benjamini_hochberg_by_hand() -> None:
    """Four values: 0.01·4/1, 0.02·4/2, 0.04·4/3 and 0.9, each no more than the next."""
    assert benjamini_hochberg([0.9, 0.01, 0.04, 0.02]) == pytest.approx([0.9, 0.04, 0.16 / 3, 0.04])


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    """On random values, in the order they came."""
    stats = pytest.importorskip("scipy.stats")
    chance = random.Random(1)
    values = [chance.random() ** 3 for _ in range(30)]

    assert benjamini_hochberg(values) == pytest.approx(list(stats.false_discovery_control(values)))


def test_a_count_that_differs_is_told_apart() -> None:
    """17 statements against 11 in twelve requests: a ratio without noise."""
    made = compare_counts([17.0] * 12, [11.0] * 12, "naive", "tuned", "statements")

    assert (made.verdict, made.baseline_value, made.variant_value) == ("faster", 17.0, 11.0)
    assert [made.ratio, made.low, made.high] == pytest.approx([11 / 17] * 3)
    assert made.p == pytest.approx(2 / 4096)


def test_a_count_that_is_the_same_is_equivalent() -> None:
    """No difference in any request, zeros among them."""
    assert compare_counts([17.0] * 12, [17.0] * 12, "a", "b", "rows").verdict == "equivalent"
    assert compare_counts([0.0] * 12, [0.0] * 12, "a", "b", "rows").verdict == "equivalent"


def test_a_count_against_none_has_no_ratio() -> None:
    """11 statements against 0 is not so many times less, and less."""
    made = compare_counts([11.0] * 12, [0.0] * 12, "tuned", "noop", "statements")

    assert (made.ratio, made.low, made.baseline_value, made.variant_value) == (None, None, 11.0, 0.0)
    assert made.verdict == "faster"


def test_requests_that_one_variant_was_not_sent_do_not_count() -> None:
    """Three requests against two are two pairs, of which none was invalidated."""
    made = compare_counts([10.0, 20.0, 30.0], [10.0, 20.0], "a", "b", "rows")

    assert (made.replicates, made.invalidated, made.baseline_value) == (2, 0, 15.0)


def test_what_the_profiler_saw_has_a_ratio_and_no_verdict() -> None:
    """Garbage collection of 0.2 and 0.4 s, and of 0.1 and 0.2 s: half of it, in requests of one process."""
    made = compare_profiled([0.2, 0.4], [0.1, 0.2], "a", "b", "gc_s")

    assert (made.baseline_value, made.variant_value, made.ratio) == pytest.approx((0.3, 0.15, 0.5))
    assert (made.low, made.high, made.verdict) == (None, None, "inconclusive")
    assert (made.confidence, made.invalidated) == (0.95, 0)
    assert "2 and 2 requests" in made.reason


@pytest.mark.parametrize(
    ("before", "after", "is_measured"),
    [([], [0.1], False), ([0.1], [], False), ([0.0], [0.1], True), ([0.1], [0.0], True)],
)
def test_what_was_not_profiled_or_was_nothing_has_no_ratio(
    before: list[float], after: list[float], is_measured: bool
) -> None:
    """Without samples of both it was not measured; with a mean of 0 it was."""
    made = compare_profiled(before, after, "a", "b", "gc_s")

    assert made.ratio is None
    assert is_measured == ("requests" in made.reason)


def test_a_count_that_is_sometimes_none_is_never_equivalent() -> None:
    """In every other request the baseline asks nothing: the equal pairs alone do not speak for the others."""
    more = compare_counts([1.0, 0.0] * 6, [1.0] * 12, "a", "b", "statements")
    crossed = compare_counts([1.0, 0.0] * 6, [0.0, 1.0] * 6, "a", "b", "statements")
    less = compare_counts([1.0] * 12, [1.0, 0.0] * 6, "a", "b", "statements")

    assert less.verdict == "faster"
    assert (more.verdict, more.ratio, more.baseline_value, more.variant_value) == ("slower", None, 0.5, 1.0)
    assert (crossed.verdict, crossed.reason) == (
        "inconclusive",
        "inconclusive: some requests count less and some more, and with zeros there is no ratio",
    )


def measured(metric: str, p: float, verdict: Verdict = FASTER) -> Comparison:
    """Return a comparison of a measured metric with this p."""
    return comparison(metric=metric, p=p, p_adjusted=p, verdict=verdict, confidence=0.95)


def test_a_secondary_metric_needs_an_adjusted_p() -> None:
    """Six replicates that agree have p 2/64; beside another measured metric this is no verdict any more."""
    among, still = adjust_for_multiple_testing([measured("wall_s", 2 / 64), measured("pss_bytes", 1.0, INCONCLUSIVE)])
    (alone,) = adjust_for_multiple_testing([measured("wall_s", 2 / 64)])

    assert (alone.verdict, alone.p_adjusted) == (FASTER, pytest.approx(2 / 64))
    assert (among.verdict, among.p_adjusted, still.p_adjusted) == (INCONCLUSIVE, pytest.approx(4 / 64), 1.0)
    assert among.reason == (
        "inconclusive: adjusted for the other metrics, wall_s has too few replicates: p is 0.062 and 0.05 is needed"
    )


def test_seven_replicates_that_agree_are_enough_for_every_metric() -> None:
    """p 2/128 of wall time holds beside memory that does not move, and beside any number of counts."""
    counts = [compare_counts([10.0] * 6, [10.0] * 6, "a", "b", name) for name in COUNTED]

    made = adjust_for_multiple_testing([measured("wall_s", 2 / 128), measured("pss_bytes", 1.0, INCONCLUSIVE), *counts])

    assert (made[0].verdict, made[0].p_adjusted) == (FASTER, pytest.approx(4 / 128))


def test_the_primary_metric_counts_and_what_was_not_measured_stay_as_they_are() -> None:
    """They are as they were, whatever the p of the others is."""
    counted = compare_counts([10.0] * 6, [9.0] * 6, "a", "b", "bytes_sent")
    unknown = compare_counts(None, None, "a", "b", "rows")
    before = [measured("cpu_s", 0.9), unknown, counted]

    made = adjust_for_multiple_testing([*before, measured("wall_s", 1.0), measured("pss_bytes", 1.0)])

    assert made[:3] == before


def test_an_adjusted_p_at_the_level_keeps_its_verdict() -> None:
    """At a confidence of 1 − 2/64 a p of 2/64 is as small as it has to be."""
    moved = replace(measured("wall_s", 2 / 64), confidence=1 - 2 / 64)

    assert [each.verdict for each in adjust_for_multiple_testing([moved])] == [FASTER]


@pytest.mark.parametrize("n", [6, 12, 30])
@pytest.mark.parametrize("tails", ["normal", "heavy", "coarse"])
def test_identical_programs_are_seldom_called_different(n: int, tails: str) -> None:
    """Of 1000 comparisons of noise at most 5 in 100 end with faster or slower; 68 allow for the luck of 1000 draws."""
    chance = random.Random(f"{n} {tails}")

    def noise() -> float:
        value = chance.gauss(0, 0.01)
        if tails == "heavy":
            return value / math.sqrt(chance.gammavariate(1.5, 1 / 1.5))
        return round(value, 2) if tails == "coarse" else value

    called = 0
    for _ in range(1000):
        values = [noise() for _ in range(n)]
        called += decide(values, hodges_lehmann(values), margin=0.0001) in ("faster", "slower")

    assert called <= 68
