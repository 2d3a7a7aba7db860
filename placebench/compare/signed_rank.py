"""The null distribution of Wilcoxon's signed-rank sum, as far as an interval needs it: its lower critical rank.

The key piece is `critical_rank`.
"""

import math
from bisect import bisect_left
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
