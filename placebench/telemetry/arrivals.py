"""The schedule of an open load: independent arrivals at a steady rate, the same for the same seed everywhere."""

import random
from collections.abc import Iterator


def arrivals(rate_per_s: float, seed: int) -> Iterator[float]:
    """Offsets in seconds from the start at which requests are due, for ever; the gaps are exponential."""
    chance = random.Random(seed)
    at = 0.0
    while True:
        at += chance.expovariate(rate_per_s)
        yield at
