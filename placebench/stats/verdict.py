"""The verdict on a change, from its interval: faster, slower, equivalent, below the margin, or inconclusive.

The main function is `decide`; the verdict is never "no difference".
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from random import Random
from statistics import NormalDist, stdev
from typing import Literal, Protocol

from placebench.stats.hodges_lehmann import ConfidenceInterval, critical_rank, replicates_needed, walsh_averages

Verdict = Literal["faster", "slower", "equivalent", "below the margin", "inconclusive"]

FASTER: Verdict = "faster"
SLOWER: Verdict = "slower"
EQUIVALENT: Verdict = "equivalent"
BELOW_MARGIN: Verdict = "below the margin"
INCONCLUSIVE: Verdict = "inconclusive"

POWER = 0.8
"""The share of runs that find an effect as large as the minimum detectable effect."""
ROUGH_BELOW = 20
"""The number of replicates below which the minimum detectable effect is a rough figure."""


class IntervalMethod(Protocol):
    """An interval function: `hodges_lehmann` for a fixed number of replicates, `sequential_interval` otherwise."""

    def __call__(self, log_ratios: Sequence[float], /, *, confidence: float = 0.95) -> ConfidenceInterval:
        """Return the estimate and the interval of the log ratios."""


def decide(interval: ConfidenceInterval, margin: float) -> Verdict:
    """Return the verdict on *interval*, from which it follows alone.

    faster, slower    the interval excludes no change, and the estimate reaches the margin
    equivalent        the interval lies inside ±margin
    below the margin  the interval excludes no change, but neither of the above holds
    inconclusive      none of these; see `minimum_detectable_effect`
    """
    excludes_no_change = interval.high < 0 or interval.low > 0
    if excludes_no_change and abs(interval.estimate) >= margin:
        return FASTER if interval.estimate < 0 else SLOWER
    if -margin < interval.low and interval.high < margin:
        return EQUIVALENT
    return BELOW_MARGIN if excludes_no_change else INCONCLUSIVE


def minimum_detectable_effect(log_ratios: Sequence[float], *, confidence: float = 0.95) -> float | None:
    """Return the smallest log ratio that 4 of 5 runs of this size find; None if the replicates are too few to find any.

    At 95 % it is 4.4 σ/√n for 6 replicates, which must then all agree, 3.2 σ/√n for 12, and 2.9 σ/√n for many. The
    noise is assumed to be normal; with fewer than `ROUGH_BELOW` replicates its σ is a rough figure.
    """
    if len(log_ratios) < replicates_needed(confidence):
        return None
    needed = _needed_effects(len(log_ratios), confidence)
    return needed[math.ceil(POWER * len(needed)) - 1] * stdev(log_ratios)


def detection_probability(
    effect: float, log_ratios: Sequence[float], *, replicates: int, confidence: float = 0.95
) -> float | None:
    """Return the share of runs of *replicates* that find a log ratio of *effect* in the noise of *log_ratios*.

    None if that many replicates never find any effect. At `minimum_detectable_effect` the share is 0.8.
    """
    if len(log_ratios) < 2 or replicates < replicates_needed(confidence):
        return None
    needed, noise = _needed_effects(replicates, confidence), stdev(log_ratios)
    return bisect_right(needed, abs(effect) / noise) / len(needed) if noise else 1.0


@lru_cache(maxsize=32)
def _needed_effects(replicates: int, confidence: float) -> list[float]:
    """Return the effects that simulated runs can just find, ascending, in standard deviations of the noise.

    A run finds an effect that lifts the lower limit of its interval above 0: the negated limit of a run without an
    effect. The draws are the same in every process, and take 0.1 s for 12 replicates and 0.3 s for 60. For more than 60
    replicates the effects are those for 60, scaled by the root of 60 over the number of replicates.
    """
    drawn = min(replicates, 60)
    rank = max(1, critical_rank(drawn, (1 - confidence) / 2))
    chance, normal = Random(0), NormalDist()
    runs = ([normal.inv_cdf(chance.random() or 0.5) for _ in range(drawn)] for _ in range(48_000 // drawn))
    limits = [walsh_averages(run, [rank])[0] for run in runs]
    return sorted(-limit * math.sqrt(drawn / replicates) for limit in limits)
