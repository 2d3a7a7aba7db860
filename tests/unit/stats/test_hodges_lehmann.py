"""The Hodges-Lehmann estimate and its exact interval: by hand, by the book, against scipy, and under the null."""

import math
import random
import statistics

import pytest
from scipy.stats import wilcoxon

from placebench.errors import TooFewReplicatesError, UndecidedError
from placebench.stats import ConfidenceInterval, hodges_lehmann
from placebench.stats.hodges_lehmann import (
    _cumulative,
    _normal_rank,
    critical_rank,
    interval_p,
    pseudo_median,
    replicates_needed,
    signed_rank_p,
    walsh_averages,
)

# Hamilton depression scores before and after tranquilizer, Hollander & Wolfe 1999, example 3.1.
BEFORE = (1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30)
AFTER = (0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29)


def heavy_tailed(rng: random.Random) -> float:
    """Symmetric noise about 0 with the tails of Student's t with two degrees of freedom."""
    return rng.gauss(0, 1) / math.sqrt(-math.log(1 - rng.random()))


def test_six_values_by_hand() -> None:
    """Of 1 2 4 8 16 32 the limits are the least and the greatest; the 11th of 21 averages is (1 + 16) / 2 = 8.5."""
    interval = hodges_lehmann([32, 1, 16, 2, 8, 4])

    assert ConfidenceInterval(estimate=8.5, low=1.0, high=32.0, confidence=0.95) == interval


def test_the_half_of_six_values_by_hand() -> None:
    """14 of 64 rank sums are at most 6, 18 at most 7: for 50 % the limits are the 7th average from below and above."""
    interval = hodges_lehmann([32, 1, 16, 2, 8, 4], confidence=0.5)

    assert ConfidenceInterval(estimate=8.5, low=4.5, high=16.0, confidence=0.5) == interval


def test_the_example_of_hollander_and_wolfe() -> None:
    """The book gives -0.46 and (-0.786, -0.010) for the change of nine patients' scores."""
    interval = hodges_lehmann([after - before for before, after in zip(BEFORE, AFTER, strict=True)])

    assert (interval.estimate, interval.low, interval.high) == pytest.approx((-0.46, -0.786, -0.01))


@pytest.mark.parametrize("n", [6, 9, 12, 20])
@pytest.mark.parametrize("confidence", [0.90, 0.95])
def test_the_limits_invert_the_exact_test_of_scipy(n: int, confidence: float) -> None:
    """Shifts just inside the limits are not rejected by scipy's exact Wilcoxon test, those just outside are."""
    rng = random.Random(n)
    values = [heavy_tailed(rng) for _ in range(n)]
    interval = hodges_lehmann(values, confidence=confidence)

    def kept(shift: float) -> bool:
        return wilcoxon([value - shift for value in values], method="exact").pvalue > 1 - confidence

    step = 1e-9
    found = (
        [kept(interval.low - step), kept(interval.low + step)],
        [kept(interval.high - step), kept(interval.high + step)],
    )

    assert found == ([False, True], [True, False])


@pytest.mark.parametrize(("n", "exact"), [(6, 0.96875), (12, 0.95752), (30, 0.95156)])
def test_a_nominal_95_percent_is_95_percent(n: int, exact: float) -> None:
    """Of 3000 intervals over heavy-tailed noise about 0, as many hold 0 as the exact distribution says, and 95 % do."""
    rng = random.Random(20_261_120 + n)
    runs = 3000
    holds_zero = 0
    for _ in range(runs):
        interval = hodges_lehmann([heavy_tailed(rng) for _ in range(n)])
        holds_zero += interval.low <= 0 <= interval.high
    three_deviations = 3 * math.sqrt(exact * (1 - exact) / runs)

    assert holds_zero / runs == pytest.approx(exact, abs=three_deviations)
    assert exact >= 0.95


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_fewer_than_six_cannot_tell(count: int) -> None:
    """Too few replicates are an error of its own, with both counts, and leave the command line with exit code 3."""
    counted = "1 replicate" if count == 1 else f"{count} replicates"

    with pytest.raises(TooFewReplicatesError, match=f"^inconclusive: {counted}, 6 needed$"):
        hodges_lehmann([-0.1] * count)
    assert issubclass(TooFewReplicatesError, UndecidedError)


def test_more_confidence_needs_more_replicates() -> None:
    """With 7 replicates the widest interval misses in 2 of 128 runs: enough for 98 %, not for 99 %."""
    values = [1, 2, 3, 4, 5, 6, 7]

    assert (hodges_lehmann(values, confidence=0.98).low, hodges_lehmann(values, confidence=0.98).high) == (1, 7)
    with pytest.raises(TooFewReplicatesError, match=r"7 replicates, 8 needed"):
        hodges_lehmann(values, confidence=0.99)
    exactly = hodges_lehmann(values, confidence=1 - 2 / 128)
    assert (exactly.low, exactly.high) == (1, 7)
    assert [replicates_needed(level) for level in (0.90, 0.95, 0.9779, 0.99, 0.999)] == [6, 6, 7, 8, 11]


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(strange: float) -> None:
    """A log ratio that is not finite is a bug upstream, never a quiet part of an estimate."""
    with pytest.raises(ValueError, match="is not a finite number"):
        hodges_lehmann([0.1, 0.2, 0.3, 0.4, 0.5, strange])


@pytest.mark.parametrize("confidence", [-0.5, 0, 1, 95, math.nan])
def test_a_confidence_is_a_share_of_one(confidence: float) -> None:
    """A confidence of 95 (percent) is refused, and one below nothing."""
    with pytest.raises(ValueError, match="is not between 0 and 1"):
        hodges_lehmann([0.1] * 6, confidence=confidence)


def test_turning_the_question_round_turns_the_answer_round() -> None:
    """Baseline over variant has the negative estimate and the limits swapped."""
    rng = random.Random(5)
    values = [rng.gauss(-1, 0.1) for _ in range(13)]
    there, back = hodges_lehmann(values), hodges_lehmann([-value for value in values])

    assert (-back.estimate, -back.high, -back.low) == pytest.approx((there.estimate, there.low, there.high))


def test_equal_values_have_an_interval_without_width() -> None:
    """Seven times the same log ratio is that log ratio."""
    assert ConfidenceInterval(-0.5, -0.5, -0.5, 0.95) == hodges_lehmann([-0.5] * 7)


@pytest.mark.parametrize(("values", "expected"), [([3.0], 3.0), ([1.0, 2.0], 1.5), ([1.0, 2.0, 12.0], 4.25)])
def test_the_estimate_alone_takes_any_number(values: list[float], expected: float) -> None:
    """For 1 2 6 the averages are 1, 1.5, 2, 3.5, 4, 6; their median lies between 2 and 3.5."""
    assert expected == pseudo_median(values)


def test_the_walsh_averages_of_three_values() -> None:
    """1 2 6 have six pairs, each value with itself among them."""
    assert walsh_averages([6, 1, 2], [1, 2, 3, 4, 5, 6]) == [1.0, 1.5, 2.0, 3.5, 4.0, 6.0]


@pytest.mark.parametrize(("n", "tail", "rank"), [(6, 0.025, 1), (9, 0.025, 6), (12, 0.025, 14), (20, 0.025, 53)])
def test_the_ranks_of_the_tables(n: int, tail: float, rank: int) -> None:
    """One above the critical values 0, 5, 13 and 52 of the printed tables (two-sided 5 %)."""
    assert rank == critical_rank(n, tail)


def test_the_rank_sums_of_six_coins_by_hand() -> None:
    """One pattern of 64 each sums up to 0, 1 and 2, two to 3 (3, 1 + 2), and so on to 10, by which half have come."""
    patterns = [64 * chance for chance in _cumulative(6)]

    assert patterns == [1, 2, 3, 5, 7, 10, 14, 18, 22, 27, 32]


def test_no_rank_for_too_few() -> None:
    """Of five coins none falls on the 2.5 % side: all tails has 1 in 32."""
    assert critical_rank(5, 0.025) == 0


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0] * 6, 2 / 64),
        ([-1.0, -2.0, -3.0], 2 / 8),
        ([1.0, -1.0], 1.0),
        ([3.0, 2.0, -1.0], 4 / 8),
    ],
)
def test_the_p_of_few_values_by_hand(values: list[float], p: float) -> None:
    """Of 2ⁿ sign patterns so many are as lopsided; equal sizes share a rank, zeros say nothing."""
    assert signed_rank_p(values) == pytest.approx(p)


def test_the_p_agrees_with_scipy() -> None:
    """Without ties scipy's exact test gives the same, from 5 to 40 values."""
    stats = pytest.importorskip("scipy.stats")
    chance = random.Random(1)
    for n in range(5, 41, 5):
        values = [chance.gauss(0.3, 1) for _ in range(n)]

        assert signed_rank_p(values) == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_the_p_of_many_values_is_that_of_the_normal_distribution() -> None:
    """Above 200 values it takes over, as scipy's with a continuity correction: within 1 % of the exact p."""
    chance = random.Random(2)
    values = [chance.gauss(0.1, 1) for _ in range(201)]

    assert signed_rank_p(values) == pytest.approx(wilcoxon(values, correction=True, method="approx").pvalue)
    assert signed_rank_p(values) == pytest.approx(wilcoxon(values, method="exact").pvalue, rel=0.01)


def test_with_200_values_the_patterns_are_still_counted() -> None:
    """The ranks 1 … 117 add up to 6903; without 12 p is at least 1 in 10 000, without 13 below, as scipy counts it."""
    more, fewer = ([-k if k <= 117 and k != positive else k for k in range(1, 201)] for positive in (12, 13))

    assert signed_rank_p(fewer) == pytest.approx(wilcoxon(fewer, method="exact").pvalue, rel=1e-9)
    assert signed_rank_p(fewer) < 0.0001 <= signed_rank_p(more)
    assert critical_rank(200, 0.0001 / 2) == 6891


def test_a_thousand_replicates_are_no_trouble() -> None:
    """The estimate stays beside the median, and the interval is 2 · 1.96 · √(π/3) σ/√n wide."""
    rng = random.Random(7)
    values = [rng.gauss(0.25, 1) for _ in range(1_000)]
    interval = hodges_lehmann(values)

    assert interval.estimate == pytest.approx(statistics.median(values), abs=0.05)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * math.sqrt(math.pi / 3 / 1_000), rel=0.05)


def test_the_normal_distribution_takes_over_without_a_step() -> None:
    """From 100 to 200 values the corrected normal rank is within one of the counted rank, and mostly on it."""
    off = [
        abs(critical_rank(n, tail) - _normal_rank(n, tail))
        for n in range(100, 201, 10)
        for tail in (0.0005, 0.005, 0.01105, 0.025, 0.05, 0.25)
    ]

    assert max(off) == 1
    assert sum(off) < len(off) / 10


@pytest.mark.parametrize("n", [6, 7, 12, 40])
def test_the_p_of_the_interval_is_the_rate_at_which_it_just_excludes_no_change(n: int) -> None:
    """Values with ties and zeros too: a little above p the interval excludes 0, a little below it does not."""
    chance = random.Random(n)
    for _ in range(40):
        values = [round(chance.gauss(1, 1), 1) for _ in range(n)]
        p = interval_p(values)
        for rate, excludes in ((p * 1.001, True), (p * 0.999, False)):
            if rate < 1 and n >= replicates_needed(1 - rate):
                made = hodges_lehmann(values, confidence=1 - rate)
                assert (made.low > 0 or made.high < 0) == excludes


def test_the_p_of_the_interval_is_that_of_the_signed_ranks_without_ties() -> None:
    """Exactly up to 200 values, and nearly for more."""
    chance = random.Random(2)
    few, many = ([chance.gauss(0.1, 1) for _ in range(n)] for n in (50, 300))

    assert interval_p(few) == pytest.approx(signed_rank_p(few))
    assert interval_p(many) == pytest.approx(signed_rank_p(many), rel=0.02)
    assert interval_p([0.0] * 7) == 1
