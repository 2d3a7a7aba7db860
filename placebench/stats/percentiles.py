"""Quantiles of raw samples, shown only where enough samples lie above them.

The key pieces are `quantile` and `cumulative`.
"""

from collections.abc import Sequence

SAMPLES_ABOVE = 10


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value below which *share* of the samples lie, between neighbours in proportion; None for too few samples.

    ordered: the samples in ascending order. At least 10 of them have to lie above the quantile (p99 needs 1000):
    with fewer it says more about the slowest request than about the service.
    """
    if samples_needed(share) > len(ordered):
        return None
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def cumulative(ordered: Sequence[float], *, points: int = 200) -> list[tuple[float, float]]:
    """The distribution as (value, share of the samples up to it), thinned evenly to at most so many points.

    ordered: the samples in ascending order; the first and the last are always among the points.
    """
    n = len(ordered)
    if n <= points:
        return [(value, (place + 1) / n) for place, value in enumerate(ordered)]
    places = (round(number * (n - 1) / (points - 1)) for number in range(points))
    return [(ordered[place], (place + 1) / n) for place in places]


def samples_needed(share: float) -> int:
    """How many samples a quantile takes to be shown: 20 for p50, 1000 for p99."""
    return round(SAMPLES_ABOVE / (1 - share))
