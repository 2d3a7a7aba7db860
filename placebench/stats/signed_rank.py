"""The null distribution of Wilcoxon's signed-rank sum: its lower critical rank, and the p of a sample.

The key pieces are `critical_rank` and `signed_rank_p`.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

# Up to here every probability is counted; the table for 200 values takes 0.1 s once. Beyond, the corrected normal
# distribution gives the same rank for nearly every tail (tests/unit/compare/test_signed_rank.py), and a rank beside the
# right one moves a limit by one of more than 20 000 neighbouring averages.
EXACT_UP_TO = 200


def critical_rank(n: int, tail: float) -> int:
    """Least rank sum t of n values with P(T <= t) >= *tail*; 0 where no limit can have that small a tail.

    The t-th smallest and t-th largest Walsh average are the limits of an interval that misses the true value on either
    side with a probability below *tail*. Costs n³/12 additions, once for each n, up to n = 200; nothing beyond.
    """
    return bisect_left(_cumulative(n), tail) if n <= EXACT_UP_TO else normal_rank(n, tail)


def signed_rank_p(values: Sequence[float]) -> float:
    """Two-sided p of no change, exact with ties too: how many sign patterns are at least as lopsided as this one.

    Values of 0 say nothing and are left out (Wilcoxon 1945); without any other the p is 1. Costs n³ additions up to
    n = 200 values; beyond, the normal distribution with the variance of the ranks as they are.
    """
    told = [each for each in values if each]
    doubled = _doubled_ranks([abs(each) for each in told])
    upper = sum(rank for rank, each in zip(doubled, told, strict=True) if each > 0)
    lower = min(upper, sum(doubled) - upper)
    return min(1.0, 2 * _chance_up_to(tuple(sorted(doubled)), lower))


def normal_rank(n: int, tail: float) -> int:
    """The same from the normal distribution with continuity and kurtosis correction (Cornish & Fisher 1938)."""
    mean = n * (n + 1) / 4
    variance = n * (n + 1) * (2 * n + 1) / 24
    fourth_powers = n * (n + 1) * (2 * n + 1) * (3 * n * n + 3 * n - 1) / 30
    excess_kurtosis = -fourth_powers / 8 / variance**2
    z = NormalDist().inv_cdf(tail)
    corrected = z + excess_kurtosis / 24 * (z**3 - 3 * z)
    return math.ceil(mean - 0.5 + math.sqrt(variance) * corrected)


@lru_cache(maxsize=32)
def _cumulative(n: int) -> list[float]:
    """P(T <= t) for t = 0 up to the middle, where T sums those of the ranks 1 … n that a fair coin picks."""
    middle = n * (n + 1) // 4
    chances = [1.0] + [0.0] * middle
    for rank in range(1, n + 1):
        shifted = [0.0] * min(rank, middle + 1) + chances[: max(middle + 1 - rank, 0)]
        chances = [(without + picked) / 2 for without, picked in zip(chances, shifted, strict=True)]
    return list(accumulate(chances))


def _doubled_ranks(sizes: Sequence[float]) -> list[int]:
    """Twice the rank of each size, equal sizes sharing the mean of theirs: whole numbers, ties or not."""
    ordered = sorted(sizes)
    return [bisect_left(ordered, size) + bisect_right(ordered, size) + 1 for size in sizes]


@lru_cache(maxsize=256)
def _chance_up_to(ranks: tuple[int, ...], limit: int) -> float:
    """How likely the sum of those *ranks* that a fair coin picks is at most *limit*."""
    if len(ranks) > EXACT_UP_TO:
        mean, variance = sum(ranks) / 2, sum(rank * rank for rank in ranks) / 4
        return NormalDist(mean, math.sqrt(variance)).cdf(limit + 1)
    chances = [1.0] + [0.0] * limit
    for rank in ranks:
        shifted = [0.0] * min(rank, limit + 1) + chances[: max(limit + 1 - rank, 0)]
        chances = [(without + picked) / 2 for without, picked in zip(chances, shifted, strict=True)]
    return sum(chances)
