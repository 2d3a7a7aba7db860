"""Quantiles of raw samples, shown only where enough samples lie above them.

The key piece is `quantile`.
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


def samples_needed(share: float) -> int:
    """How many samples a quantile takes to be shown: 20 for p50, 1000 for p99."""
    return round(SAMPLES_ABOVE / (1 - share))
