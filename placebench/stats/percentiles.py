"""Percentiles of raw samples, and the median of a few repeats with its exact confidence interval.

`percentile` and `cumulative_distribution` describe many samples, `median_interval` a row of a table: no distribution is
assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

_SAMPLES_ABOVE = 10


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which *share* of the samples lie, between neighbours in proportion; None for too few samples.

    ordered: the samples in ascending order. At least 10 of them have to lie above the percentile (p99 needs 1000):
    with fewer it says more about the slowest request than about the service.
    """
    if samples_needed(share) > len(ordered):
        return None
    position = share * (len(ordered) - 1)
    below = int(position)
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])


def cumulative_distribution(ordered: Sequence[float], *, points: int = 200) -> list[tuple[float, float]]:
    """The distribution as (value, share of the samples up to it), thinned evenly to at most so many points.

    ordered: the samples in ascending order; the first and the last are always among the points.
    """
    n = len(ordered)
    if n <= points:
        return [(value, (place + 1) / n) for place, value in enumerate(ordered)]
    places = (round(number * (n - 1) / (points - 1)) for number in range(points))
    return [(ordered[place], (place + 1) / n) for place in places]


def samples_needed(share: float) -> int:
    """How many samples a percentile takes to be shown: 20 for p50, 1000 for p99."""
    return round(_SAMPLES_ABOVE / (1 - share))


_MIN_CONFIDENCE = 0.93
"""Reached by the least and the greatest of five repeats, of which 15 in 16 enclose the median."""


@dataclass(frozen=True)
class MedianInterval:
    """The median of *n* repeats, and the limits between which the true median lies with *confidence*."""

    median: float
    low: float | None
    """None where there are fewer than five repeats, as are `high` and `confidence`."""
    high: float | None
    confidence: float | None
    n: int


def median_interval(values: Sequence[float]) -> MedianInterval:
    """Median of *values* (at least one) with the narrowest symmetric interval of order statistics that holds 93 %.

    Five repeats give least to greatest, at 93.75 %. Source: the sign test; Hollander & Wolfe 1999, ch. 3.6.
    Raises ValueError without a value.
    """
    if not values:
        raise ValueError("no values: a median needs one")
    ordered = sorted(values)
    n = len(ordered)
    dropped = max((k for k in range(n) if _confidence(n, k) >= _MIN_CONFIDENCE), default=None)
    if dropped is None:
        return MedianInterval(median(ordered), None, None, None, n)
    return MedianInterval(median(ordered), ordered[dropped], ordered[n - 1 - dropped], _confidence(n, dropped), n)


def _confidence(n: int, dropped: int) -> float:
    """How often the values that are left, with *dropped* fewer on each side, enclose the median."""
    return float(1 - 2 * sum(comb(n, k) for k in range(dropped + 1)) / 2**n)
