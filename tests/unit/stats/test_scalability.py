"""The Universal Scalability Law: known parameters come back, as often as the intervals say."""

import math
import random

import numpy as np
import pytest
from scipy.stats import t as student

from placebench.errors import TooFewReplicatesError
from placebench.stats import ConfidenceInterval, fit_scalability
from placebench.stats.scalability import _student

SIZES, REPEATS = (1, 2, 3, 4, 6), 5
RUNS = 400
AT_LEAST = RUNS * 0.95 - 3 * math.sqrt(RUNS * 0.95 * 0.05)
"""95 in 100, less three standard deviations for the luck of the draws."""


def throughput(workers: int, sigma: float, kappa: float) -> float:
    """100 per second of one."""
    return 100 * workers / (1 + sigma * (workers - 1) + kappa * workers * (workers - 1))


def measured(chance: random.Random, sigma: float, kappa: float, noise: float) -> list[tuple[float, float]]:
    """Each size measured so often, with relative normal errors."""
    return [(n, throughput(n, sigma, kappa) * (1 + chance.gauss(0, noise))) for n in SIZES for _ in range(REPEATS)]


def twice(middles: tuple[int, int, int], apart: int) -> list[tuple[float, float]]:
    """One, two and three workers, each measured once below and once above the middle."""
    return [(n, middle + sign * apart) for n, middle in enumerate(middles, start=1) for sign in (-1, 1)]


def holds(interval: ConfidenceInterval, truth: float) -> bool:
    """Whether the truth lies in it."""
    return interval.low <= truth <= interval.high


def test_a_law_without_noise_is_found_exactly() -> None:
    """λ 100, σ 0.1, κ 0.01: the peak is at √(0.9 / 0.01) = 9.49, and 8 workers do 352.4."""
    fit = fit_scalability([(n, throughput(n, 0.1, 0.01)) for n in SIZES for _ in range(2)])

    assert pytest.approx((100, 0.1, 0.01, math.sqrt(90)), rel=1e-6) == (
        fit.throughput_of_one.estimate,
        fit.contention.estimate,
        fit.crosstalk.estimate,
        fit.peak.estimate,
    )
    assert pytest.approx(800 / (1 + 0.7 + 0.56)) == fit.predict(8).estimate
    assert (6, 10) == (fit.largest, fit.n)


def test_a_throughput_that_only_rises_has_no_peak_that_is_known() -> None:
    """κ is 0 within the noise: the interval of the peak is open above, and begins beyond what was measured."""
    fit = fit_scalability(measured(random.Random(1), 0.2, 0.0, 0.01))

    assert math.inf == fit.peak.high
    assert 6 < fit.peak.low < math.inf


def test_too_little_is_inconclusive() -> None:
    """Three parameters need three sizes, and an interval needs six measurements."""
    for few in ([(n, throughput(n, 0.1, 0.01)) for n in SIZES], [(n, 9.0 * n) for n in (1, 2)] * 4):
        with pytest.raises(TooFewReplicatesError):
            fit_scalability(few)
    with pytest.raises(ValueError, match="above 0"):
        fit_scalability([(n, 0.0) for n in SIZES] * 2)


def test_students_deviates() -> None:
    """As in printed tables: t(0.975) for 1, 2, 7 and 22 degrees of freedom."""
    assert pytest.approx([12.706, 4.3027, 2.3646, 2.0739], rel=1e-4) == [_student(0.95, n) for n in (1, 2, 7, 22)]


def test_the_limits_are_those_of_fieller_and_of_weighted_least_squares() -> None:
    """By numpy's matrices and scipy's deviates; at a limit r of a ratio a / b the distance of a - r b from 0 is t."""
    points = measured(random.Random(3), 0.1, 0.01, 0.02)
    fit, deviate = fit_scalability(points, confidence=0.9), student.ppf(0.95, len(points) - 3)
    law, seen = np.array([[1, n - 1, n * (n - 1)] for n, _ in points]), np.array([n / each for n, each in points])
    theta, expected = np.array(fit.coefficients), law @ np.array(fit.coefficients)
    weighted = law / expected[:, None]
    variance = sum((seen / expected - 1) ** 2) / (len(points) - 3)
    covariance = variance * np.linalg.inv(weighted.T @ weighted)

    def distance(constant: float, row: list[float]) -> float:
        return float(abs(constant + row @ theta) / math.sqrt(row @ covariance @ np.array(row)))

    new = np.array([1, 7, 56])
    half = deviate * math.sqrt(new @ covariance @ new + variance * (new @ theta) ** 2 / 4)
    predicted = fit.predict(8, repeats=4)

    assert np.linalg.lstsq(weighted, seen / expected, rcond=None)[0] == pytest.approx(theta, rel=1e-6)
    assert np.array(fit.covariance) == pytest.approx(covariance, rel=1e-6)
    assert fit.noise == pytest.approx(math.sqrt(variance))
    for end in ("low", "high"):
        one, sigma, kappa, peak = (
            getattr(each, end) for each in (fit.throughput_of_one, fit.contention, fit.crosstalk, fit.peak)
        )
        rows = [[-sigma, 1.0, 0.0], [-kappa, 0.0, 1.0], [1.0, -1.0, -(peak**2)]]
        assert distance(1.0, [-one, 0.0, 0.0]) == pytest.approx(deviate, rel=1e-6)
        assert [distance(0.0, row) for row in rows] == pytest.approx([deviate] * 3, rel=1e-6)
    assert (predicted.low, predicted.high) == pytest.approx((8 / (new @ theta + half), 8 / (new @ theta - half)))
    assert {each.confidence for each in (fit.peak, fit.contention, predicted)} == {0.9}


def test_growth_above_linear_has_no_peak() -> None:
    """κ below 0: the peak is nowhere, as its interval is."""
    fit = fit_scalability([(n, throughput(n, 0.0, -0.01)) for n in SIZES for _ in range(2)])

    assert fit.peak == ConfidenceInterval(math.inf, math.inf, math.inf, 0.95)
    assert math.inf == fit.predict(20).estimate


PEAKS = {
    "between two and three": ((40, 150, 200), 2, (2.738, 2.574, 2.996)),
    "as much of two as of three: at √6, or nowhere": ((100, 150, 150), 5, (2.449, 2.005, math.inf)),
    "σ below 1, or above": ((200, 100, 60), 2, (0.818, 0, 1.056)),
    "σ above 1, or below": ((150, 80, 60), 2, (0, 0, 0.632)),
    "σ above 1": ((300, 60, 40), 2, (0, 0, 0)),
    "σ above 1, and κ may be below 0: it rises again": ((200, 50, 50), 5, (0, 0, math.inf)),
    "κ below 0, or above": ((40, 100, 300), 5, (math.inf, 3.615, math.inf)),
    "κ below 0, and σ may be above 1: it falls before": ((40, 80, 300), 2, (math.inf, 0, math.inf)),
    "κ below 0": ((50, 100, 300), 2, (math.inf, math.inf, math.inf)),
    "nothing is known": ((50, 80, 40), 30, (1.569, 0, math.inf)),
}


@pytest.mark.parametrize(("middles", "apart", "expected"), PEAKS.values(), ids=PEAKS)
def test_the_peak_is_0_if_throughput_falls_from_the_first_on_and_infinite_if_it_rises(
    middles: tuple[int, int, int], apart: int, expected: tuple[float, float, float]
) -> None:
    """The estimate is within its limits; those that the measurements do not bound are 0 and infinity."""
    peak = fit_scalability(twice(middles, apart)).peak

    assert pytest.approx(expected, abs=5e-4) == (peak.estimate, peak.low, peak.high)


@pytest.mark.parametrize(
    ("middles", "apart", "low"),
    [
        ((50, 80, 40), 30, -math.inf),  # nothing is excluded
        ((50, 300, 40), 20, -math.inf),  # from 0.53 to 12.29
        ((150, 60, 120), 30, -math.inf),  # from -156.13 to -9.52
        ((40, 300, 60), 20, 5.728),  # from -0.46 to 5.73
    ],
)
def test_a_ratio_open_above_is_bounded_below_if_0_is_excluded(
    middles: tuple[int, int, int], apart: int, low: float
) -> None:
    """σ where 1 / λ may be 0: what Fieller's interval excludes is then in the middle."""
    contention = fit_scalability(twice(middles, apart)).contention

    assert pytest.approx((low, math.inf), abs=5e-4) == (contention.low, contention.high)


def test_a_slow_service_has_a_law() -> None:
    """A request in ten seconds: a throughput need not be above 1."""
    fit = fit_scalability([(n, throughput(n, 0.1, 0.01) / 1000) for n in SIZES] * 2)

    assert pytest.approx(0.1) == fit.throughput_of_one.estimate


@pytest.mark.parametrize("pair", [(0, 9.0), (-1, 9.0), (1, -9.0)])
def test_sizes_and_throughputs_are_above_zero(pair: tuple[int, float]) -> None:
    """One of them is enough; six measurements of three sizes are."""
    enough = [(n, throughput(n, 0.1, 0.01)) for n in (1, 2, 3)] * 2

    assert fit_scalability(enough).n == 6
    with pytest.raises(ValueError, match="above 0"):
        fit_scalability([*enough, pair])


@pytest.mark.parametrize(("sigma", "kappa"), [(0.1, 0.01), (0.3, 0.0), (0.02, 0.002)])
def test_the_intervals_hold_the_truth_as_often_as_they_claim(sigma: float, kappa: float) -> None:
    """95 % of 400 runs with 4 % noise: λ, σ, κ, the peak, and new measurements at a size that was not fitted."""
    chance, hits = random.Random(7), dict.fromkeys(("lambda", "sigma", "kappa", "peak", "one", "mean"), 0)
    peak = math.sqrt((1 - sigma) / kappa) if kappa else math.inf
    for _ in range(RUNS):
        fit = fit_scalability(measured(chance, sigma, kappa, 0.04))
        new = [throughput(8, sigma, kappa) * (1 + chance.gauss(0, 0.04)) for _ in range(5)]
        hits["lambda"] += holds(fit.throughput_of_one, 100)
        hits["sigma"] += holds(fit.contention, sigma)
        hits["kappa"] += holds(fit.crosstalk, kappa)
        hits["peak"] += holds(fit.peak, peak)
        hits["one"] += holds(fit.predict(8), new[0])
        hits["mean"] += holds(fit.predict(8, repeats=5), sum(new) / 5)

    assert {} == {name: count for name, count in hits.items() if count < AT_LEAST}
    assert min(hits.values()) < RUNS  # an interval that always holds it says nothing
