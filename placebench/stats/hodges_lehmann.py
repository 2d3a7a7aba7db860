"""The Hodges-Lehmann estimate of an effect, its exact signed-rank interval, and the p of no change.

`hodges_lehmann` takes one log ratio per replicate. The null distribution of Wilcoxon's signed-rank sum is computed here
exactly, ties included: scipy has neither the interval nor an exact p with ties.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

from placebench.errors import TooFewReplicatesError

MIN_REPLICATES = 6


@dataclass(frozen=True)
class ConfidenceInterval:
    """An estimate, and limits that enclose the true value with *confidence*; log ratios, negative means less."""

    estimate: float
    low: float
    high: float
    confidence: float


def hodges_lehmann(log_ratios: Sequence[float], *, confidence: float = 0.95) -> ConfidenceInterval:
    """Return the pseudo-median of the log ratios with its exact signed-rank interval; negative means faster.

    log_ratios: one finite value per replicate, dimensionless, at least 6 (8 for 99 %). The interval holds the true
    value with at least *confidence* if the noise is symmetric; no normal distribution is assumed.
    Raises TooFewReplicatesError with the number of replicates seen and needed, and ValueError for a value that is not
    finite or a confidence outside 0 … 1. Source: Hodges & Lehmann 1963; Hollander & Wolfe 1999, ch. 3.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    needed = replicates_needed(confidence)
    if len(log_ratios) < needed:
        raise TooFewReplicatesError(f"inconclusive: {count_replicates(len(log_ratios))}, {needed} needed")
    return _interval(finite_values(log_ratios), confidence)


def pseudo_median(log_ratios: Sequence[float]) -> float:
    """Return the Hodges-Lehmann estimate without its interval: the median of the Walsh averages, for any n ≥ 1."""
    return _middle(*walsh_averages(finite_values(log_ratios), _middle_ranks(len(log_ratios))))


def replicates_needed(confidence: float) -> int:
    """Return how many replicates are needed for an interval at *confidence*, which is then their range; at least 6."""
    return max(MIN_REPLICATES, math.ceil(1 - math.log2(1 - confidence)))


def count_replicates(number: int) -> str:
    """Return a number of replicates as text, such as '1 replicate' or '3 replicates'."""
    return f"{number} replicate" if number == 1 else f"{number} replicates"


def _interval(values: list[float], confidence: float) -> ConfidenceInterval:
    averages = len(values) * (len(values) + 1) // 2
    rank = max(1, critical_rank(len(values), (1 - confidence) / 2))
    ranks = [rank, averages + 1 - rank, *_middle_ranks(len(values))]
    low, high, *middle = walsh_averages(values, ranks)
    return ConfidenceInterval(_middle(*middle), low, high, confidence)


def _middle_ranks(n: int) -> list[int]:
    averages = n * (n + 1) // 2
    return [(averages + 1) // 2, averages // 2 + 1]


def _middle(lower: float, upper: float) -> float:
    return lower + (upper - lower) / 2


def finite_values(log_ratios: Sequence[float]) -> list[float]:
    """Return the values as floats; raise ValueError if one is not a finite number."""
    values = [float(each) for each in log_ratios]
    strange = [each for each in values if not math.isfinite(each)]
    if strange:
        raise ValueError(f"log ratio {strange[0]} is not a finite number")
    return values


def walsh_averages(values: Sequence[float], ranks: Sequence[int]) -> list[float]:
    """Return the Walsh averages at *ranks* (1 is the smallest) of all n(n+1)/2; costs O(n² log n)."""
    ordered = sorted(values)
    averages = sorted((left + right) / 2 for i, left in enumerate(ordered) for right in ordered[i:])
    return [averages[rank - 1] for rank in ranks]


# Up to this size every probability is counted; the table for 200 values takes 0.1 s once. Beyond it, the corrected
# normal distribution gives the same rank for nearly every tail (test_hodges_lehmann.py), and an error of one rank moves
# a limit by one of more than 20 000 neighbouring averages.
_EXACT_UP_TO = 200


def critical_rank(n: int, tail: float) -> int:
    """Return the smallest rank sum t of n values with P(T <= t) >= *tail*; 0 if no limit has that small a tail.

    The t-th smallest and t-th largest Walsh averages are the limits of an interval that misses the true value on either
    side with a probability below *tail*. Takes n³/12 additions, once for each n, up to n = 200; almost none above.
    """
    return bisect_left(_cumulative(n), tail) if n <= _EXACT_UP_TO else _normal_rank(n, tail)


def signed_rank_p(values: Sequence[float]) -> float:
    """Return the two-sided p of no change, exact even with ties: the share of sign patterns at least as lopsided.

    Values of 0 carry no information and are left out (Wilcoxon 1945); if all are 0, the p is 1. Takes n³ additions up
    to n = 200 values; above, a normal distribution with the variance of the actual ranks is used.
    """
    nonzero = [each for each in values if each]
    doubled = _doubled_ranks([abs(each) for each in nonzero])
    upper = sum(rank for rank, each in zip(doubled, nonzero, strict=True) if each > 0)
    lower = min(upper, sum(doubled) - upper)
    return min(1.0, 2 * _chance_up_to(tuple(sorted(doubled)), lower))


def interval_p(values: Sequence[float]) -> float:
    """Return the two-sided p of no change that agrees with `hodges_lehmann`, which inverts the signed-rank test.

    It is the least error rate at which the interval excludes 0. Walsh averages of exactly 0 count against both sides,
    so ties and zeros make it larger than `signed_rank_p`, never smaller than the interval allows. Costs O(n² log n).
    """
    ordered = sorted(finite_values(values))
    n = len(ordered)
    averages = [left + right for i, left in enumerate(ordered) for right in ordered[i:]]
    beyond = min(sum(each <= 0 for each in averages), sum(each >= 0 for each in averages))
    if n > _EXACT_UP_TO:
        mean, variance = n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24
        return min(1.0, 2 * NormalDist(mean, math.sqrt(variance)).cdf(beyond + 0.5))
    chances = _cumulative(n)
    return min(1.0, 2 * chances[beyond]) if beyond < len(chances) else 1.0


def _normal_rank(n: int, tail: float) -> int:
    """Approximate `critical_rank` by the normal distribution with corrections for continuity and kurtosis.

    Source: Cornish & Fisher 1938.
    """
    ranks = range(1, n + 1)
    mean, variance = sum(ranks) / 2, sum(rank**2 for rank in ranks) / 4
    excess_kurtosis = -sum(rank**4 for rank in ranks) / 8 / variance**2
    z = NormalDist().inv_cdf(tail)
    corrected = z + excess_kurtosis / 24 * (z**3 - 3 * z)
    return math.ceil(mean - 0.5 + math.sqrt(variance) * corrected)


@lru_cache(maxsize=32)
def _cumulative(n: int) -> list[float]:
    """Return P(T <= t) for t from 0 to the middle, where T sums the ranks among 1 … n that a fair coin picks."""
    return list(accumulate(_chances(range(1, n + 1), n * (n + 1) // 4)))


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Return twice the rank of each size; equal sizes share their mean rank, so twice the rank is always an integer."""
    ordered = sorted(sizes)
    return [bisect_left(ordered, size) + bisect_right(ordered, size) + 1 for size in sizes]


@lru_cache(maxsize=256)
def _chance_up_to(ranks: tuple[int, ...], limit: int) -> float:
    """Return the probability that the sum of the *ranks* that a fair coin picks is at most *limit*."""
    if len(ranks) > _EXACT_UP_TO:
        mean, variance = sum(ranks) / 2, sum(rank * rank for rank in ranks) / 4
        return NormalDist(mean, math.sqrt(variance)).cdf(limit + 1)
    return sum(_chances(ranks, limit))


def _chances(ranks: Iterable[int], most: int) -> list[float]:
    """Return the probabilities that the sum of the *ranks* that a fair coin picks is 0, 1, … *most*."""
    chances = [1.0] + [0.0] * most
    for rank in ranks:
        shifted = ([0.0] * rank + chances)[: most + 1]
        chances = [(without + picked) / 2 for without, picked in zip(chances, shifted, strict=True)]
    return chances
