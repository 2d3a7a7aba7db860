"""The Hodges-Lehmann estimate of an effect, with its exact signed-rank interval, from one log ratio per replicate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from placebench.errors import TooFewReplicatesError
from placebench.stats.signed_rank import critical_rank

# Half a million averages take 16 MB and 0.2 s to sort; above that they are counted instead of kept.
SORTED_UP_TO = 1000


def order_statistics(values: Sequence[float], ranks: Sequence[int]) -> list[float]:
    """The Walsh averages at *ranks* (1 is the smallest) of the n(n+1)/2 that *values* have.

    Costs O(n² log n) up to 1000 values; beyond, about 60 passes over the values a rank, and no memory to speak of.
    """
    ordered = sorted(values)
    if len(ordered) <= SORTED_UP_TO:
        averages = sorted((left + right) / 2 for i, left in enumerate(ordered) for right in ordered[i:])
        return [averages[rank - 1] for rank in ranks]
    return [select(ordered, rank) for rank in ranks]


def select(ordered: Sequence[float], rank: int) -> float:
    """The Walsh average at *rank* of values in ascending order, found by halving the range it must lie in."""
    low, high = 2 * ordered[0], 2 * ordered[-1]
    while low < high:
        middle = low + (high - low) / 2
        if middle >= high:  # neighbours: rounding must not hide the lower one
            middle = low
        if _pairs_up_to(ordered, middle) >= rank:
            high = middle
        else:
            low = math.nextafter(middle, math.inf)
    return low / 2


def _pairs_up_to(ordered: Sequence[float], limit: float) -> int:
    """How many pairs i <= j sum to no more than *limit*; one pass, since j only ever falls."""
    count = 0
    j = len(ordered) - 1
    for i, value in enumerate(ordered):
        while j >= i and value + ordered[j] > limit:
            j -= 1
        if j < i:
            break
        count += j - i + 1
    return count


FEWEST_REPLICATES = 6


@dataclass(frozen=True)
class Interval:
    """An estimate and the limits between which the truth lies with *confidence*; log ratios, negative is less."""

    estimate: float
    low: float
    high: float
    confidence: float


def hodges_lehmann(log_ratios: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Pseudo-median of the replicates' log ratios with its exact signed-rank interval; negative is faster.

    log_ratios: one finite value per replicate, dimensionless, at least 6 (8 for 99 %). The interval holds the true
    value with at least *confidence* if the noise is symmetric, whatever its shape; no normal distribution is assumed.
    Raises TooFewReplicatesError with both counts, ValueError for a value or a confidence that cannot be.
    Source: Hodges & Lehmann 1963; Hollander & Wolfe 1999, ch. 3.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    needed = replicates_needed(confidence)
    if len(log_ratios) < needed:
        raise TooFewReplicatesError(f"cannot tell: {replicates(len(log_ratios))}, {needed} needed")
    return _interval(_finite(log_ratios), confidence)


def pseudo_median(log_ratios: Sequence[float]) -> float:
    """The Hodges-Lehmann estimate alone, from one value on: the median of the Walsh averages."""
    return _middle(*order_statistics(_finite(log_ratios), _middle_ranks(len(log_ratios))))


def replicates_needed(confidence: float) -> int:
    """The fewest replicates whose widest interval, least to greatest value, reaches *confidence*; never below 6."""
    return max(FEWEST_REPLICATES, math.ceil(1 - math.log2(1 - confidence)))


def replicates(number: int) -> str:
    """'1 replicate', '3 replicates'."""
    return f"{number} replicate" if number == 1 else f"{number} replicates"


def _interval(values: list[float], confidence: float) -> Interval:
    averages = len(values) * (len(values) + 1) // 2
    rank = max(1, critical_rank(len(values), (1 - confidence) / 2))
    ranks = [rank, averages + 1 - rank, *_middle_ranks(len(values))]
    low, high, *middle = order_statistics(values, ranks)
    return Interval(_middle(*middle), low, high, confidence)


def _middle_ranks(n: int) -> list[int]:
    averages = n * (n + 1) // 2
    return [(averages + 1) // 2, averages // 2 + 1]


def _middle(lower: float, upper: float) -> float:
    return lower + (upper - lower) / 2


def _finite(log_ratios: Sequence[float]) -> list[float]:
    values = [float(each) for each in log_ratios]
    strange = [each for each in values if not math.isfinite(each)]
    if strange:
        raise ValueError(f"log ratio {strange[0]} is not a finite number")
    return values
