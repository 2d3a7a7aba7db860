"""The verdict on a change by its interval: faster, slower, equivalent, below the margin, or inconclusive.

The main function is `decide`; it is never "no difference".
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev
from typing import Literal, Protocol

from placebench.stats.hodges_lehmann import ConfidenceInterval, hodges_lehmann

Verdict = Literal["faster", "slower", "equivalent", "below the margin", "inconclusive"]

FASTER: Verdict = "faster"
SLOWER: Verdict = "slower"
EQUIVALENT: Verdict = "equivalent"
BELOW_MARGIN: Verdict = "below the margin"
INCONCLUSIVE: Verdict = "inconclusive"

_EFFICIENCY = math.sqrt(0.955)
"""The efficiency of the signed-rank test relative to a test that assumes normal errors."""
POWER = 0.8
"""The share of runs that find a detectable effect."""
ROUGH_BELOW = 20
"""With fewer replicates the minimum detectable effect is a rough figure."""


class IntervalMethod(Protocol):
    """`hodges_lehmann` for a fixed number of replicates, `sequential_interval` for a run that stops when decided."""

    def __call__(self, log_ratios: Sequence[float], /, *, confidence: float = 0.95) -> ConfidenceInterval:
        """Return the interval of log ratios."""


def decide(
    log_ratios: Sequence[float],
    interval: ConfidenceInterval,
    margin: float,
    *,
    method: IntervalMethod = hodges_lehmann,
) -> Verdict:
    """Return the verdict on *interval*, which *method* made of *log_ratios*.

    faster, slower    the interval excludes no change, and the estimate reaches the margin
    equivalent        both one-sided tests at the interval's level put the change inside ±margin
    below the margin  the interval excludes no change, but the estimate does not reach the margin
    inconclusive      none of these; look at `minimum_detectable_effect`
    """
    excludes_no_change = interval.high < 0 or interval.low > 0
    if excludes_no_change and abs(interval.estimate) >= margin:
        return FASTER if interval.estimate < 0 else SLOWER
    if _equivalent(method(log_ratios, confidence=2 * interval.confidence - 1), margin):
        return EQUIVALENT
    return BELOW_MARGIN if excludes_no_change else INCONCLUSIVE


def minimum_detectable_effect(log_ratios: Sequence[float], *, confidence: float = 0.95) -> float | None:
    """Return the smallest log ratio that as many replicates find in about 4 of 5 runs; None for a single one.

    It is 2.87 σ/√n with intervals of 95 %, and accurate from some twenty replicates on: six replicates must all agree,
    and find it half the time.
    """
    if len(log_ratios) < 2:
        return None
    deviates = (_beyond_noise(confidence) + NormalDist().inv_cdf(POWER)) / _EFFICIENCY
    return deviates * stdev(log_ratios) / math.sqrt(len(log_ratios))


def detection_probability(effect: float, log_ratios: Sequence[float], *, confidence: float = 0.95) -> float | None:
    """Return the share of runs in which as many replicates find a log ratio of *effect*; None for a single one.

    `minimum_detectable_effect` is the effect at which this is 0.8; with few replicates both are rough.
    """
    if len(log_ratios) < 2:
        return None
    noise = stdev(log_ratios) / math.sqrt(len(log_ratios))
    return NormalDist().cdf(abs(effect) * _EFFICIENCY / noise - _beyond_noise(confidence)) if noise else 1.0


def _beyond_noise(confidence: float) -> float:
    """Return the normal deviate that noise alone exceeds, on either side, in 1 − *confidence* of all runs."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _equivalent(both_sides: ConfidenceInterval, margin: float) -> bool:
    """Whether two one-sided tests, each with the whole error, put the change inside ±margin."""
    return -margin < both_sides.low and both_sides.high < margin
