"""The Universal Scalability Law: known parameters come back, as often as the intervals say."""

import math
import random

import pytest

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


def test_a_throughput_that_only_rises_has_no_peak_that_is_known() -> None:
    """κ is 0 within the noise: the interval of the peak is open above, and begins beyond what was measured."""
    fit = fit_scalability(measured(random.Random(1), 0.2, 0.0, 0.01))

    assert math.inf == fit.peak.high
    assert 6 < fit.peak.low < math.inf


def test_too_little_is_inconclusive() -> None:
    """Three parameters need three sizes, and an interval needs more than three measurements."""
    for few in ([(1, 9.0), (2, 15.0), (3, 20.0)], [(n, 9.0 * n) for n in (1, 2)] * 4):
        with pytest.raises(TooFewReplicatesError):
            fit_scalability(few)
    with pytest.raises(ValueError, match="above 0"):
        fit_scalability([(n, 0.0) for n in SIZES] * 2)


def test_students_deviates() -> None:
    """As in printed tables: t(0.975) for 1, 2, 7 and 22 degrees of freedom."""
    assert pytest.approx([12.706, 4.3027, 2.3646, 2.0739], rel=1e-4) == [_student(0.95, n) for n in (1, 2, 7, 22)]
