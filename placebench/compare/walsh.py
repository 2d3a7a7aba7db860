"""Order statistics of the Walsh averages, the means of all pairs of values, each value paired with itself too.

The key piece is `order_statistics`.
"""

import math
from collections.abc import Sequence

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
