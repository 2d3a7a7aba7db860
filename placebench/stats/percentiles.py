"""Percentiles of raw samples, where one crosses a limit, and the median of a few repeats with its exact interval.

`percentile` and `cumulative_distribution` describe many samples, `median_interval` a few repeats, and `crossing_rate`
finds the arrival rate at which a percentile of the latency reaches a limit. No distribution is assumed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean, median

_SAMPLES_ABOVE = 10


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which *share* of the samples lie, by linear interpolation; None for too few samples.

    ordered: the samples in ascending order. At least 10 samples must lie above the percentile (p99 needs 1000):
    with fewer, it describes the slowest request rather than the service.
    """
    if samples_needed(share) > len(ordered):
        return None
    position = share * (len(ordered) - 1)
    below = int(position)
    return ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])


def cumulative_distribution(ordered: Sequence[float], *, points: int = 200) -> list[tuple[float, float]]:
    """Return the distribution as (value, share of the samples up to that value), thinned evenly to at most *points*.

    ordered: the samples in ascending order; the first and the last are always among the points.
    """
    n = len(ordered)
    if n <= points:
        return [(value, (place + 1) / n) for place, value in enumerate(ordered)]
    places = (round(number * (n - 1) / (points - 1)) for number in range(points))
    return [(ordered[place], (place + 1) / n) for place in places]


def samples_needed(share: float) -> int:
    """Return the number of samples that the percentile at *share* needs: 20 for p50, 1000 for p99."""
    return round(_SAMPLES_ABOVE / (1 - share))


_MAX_ROOT = 2.0
"""Above it the latency is below a quarter of the limit, which says little about the rate at the limit."""
_MAX_OUTSIDE = 1.25
"""By this factor the crossing may lie outside the rates that were measured."""


def crossing_rate(measured: Sequence[tuple[float, float]], limit_s: float) -> float | None:
    """Return the rate at which a percentile of the latency reaches *limit_s*; None if the rates do not show it.

    measured: pairs of a rate and the percentile in seconds there, infinite if requests failed or a queue grew.
    The square root of limit / percentile falls nearly linearly with the logarithm of the rate for a single queue, from
    half the capacity to overload, where it is 0; least squares on both finds where it is 1. In simulations of M/M/1 and
    M/D/1 queues that is within 1 % of the true rate on average (tests/unit/stats/test_crossing_rate.py).
    """
    if len(measured) < 2:
        return None
    across = [math.log(rate) for rate, _ in measured]
    roots = [min(_MAX_ROOT, math.sqrt(limit_s / seconds)) for _, seconds in measured]
    middle, height = fmean(across), fmean(roots)
    spread = sum((x - middle) ** 2 for x in across)
    slope = sum((x - middle) * (y - height) for x, y in zip(across, roots, strict=True)) / spread if spread else 0.0
    if slope >= 0:
        return None
    rate = math.exp(middle + (1 - height) / slope)
    rates = [rate for rate, _ in measured]
    return rate if min(rates) / _MAX_OUTSIDE <= rate <= max(rates) * _MAX_OUTSIDE else None


_MIN_CONFIDENCE = 0.93
"""Minimum confidence of an interval of repeats; the range of five repeats has 93.75 %."""


@dataclass(frozen=True)
class MedianInterval:
    """The median of *n* repeats, and the limits around the true median with *confidence*."""

    median: float
    low: float | None
    """The lower limit; None for fewer than five repeats, like `high` and `confidence`."""
    high: float | None
    confidence: float | None
    n: int


def median_interval(values: Sequence[float]) -> MedianInterval:
    """Return the median of *values* with the narrowest symmetric interval of order statistics that holds 93 %.

    Five repeats give their range, at 93.75 %. Source: the sign test; Hollander & Wolfe 1999, ch. 3.6.
    Raises ValueError if *values* is empty.
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
    """Return the probability that the range of the values without *dropped* on each side encloses the median."""
    return float(1 - 2 * sum(comb(n, k) for k in range(dropped + 1)) / 2**n)
