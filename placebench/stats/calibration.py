"""What a machine can resolve, from replicates of identical variants: is no change called no change, and what is seen?

The key piece is `calibrate`. Effects are injected into the measured noise: replicates are drawn anew with replacement,
as many as a run would make, and each draw is shifted by the effect. The interval moves with its values, so that one set
of draws tells the power for every effect.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from placebench.stats.hodges_lehmann import FEWEST_REPLICATES, hodges_lehmann
from placebench.stats.verdict import FOUND

EFFECTS = (0.01, 0.02, 0.05)
"""Injected, as a share of the baseline."""
RUNS = (12, 30)
"""Replicates of a run that screens, and of one that is published."""
_DRAWS = 400


@dataclass(frozen=True)
class Calibration:
    """What replicates of identical variants say about one metric; effects are log ratios."""

    metric: str
    replicates: int
    estimate: float
    low: float
    high: float
    margin: float
    accepted: bool
    """Whether the interval of all of them lies within half the margin."""
    sixes: int
    """Into so many disjoint runs of six they were cut …"""
    sixes_called: int
    """… of which so many had an interval that excludes no change."""
    power: Mapping[str, Mapping[str, float]]
    """By replicates of a run, by effect: how often it is found. '12' → '0.02' → 0.97."""
    called: Mapping[str, float]
    """By replicates of a run: how often noise alone is called a change."""
    detectable: Mapping[str, float]
    """By replicates of a run: the smallest effect that is found in 4 of 5."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def calibrate(log_ratios: Sequence[float], metric: str, *, margin: float, seed: int) -> Calibration:
    """Calibrate one metric; costs about a second.

    log_ratios: one a replicate of identical variants. Raises TooFewReplicatesError for fewer than 6.
    """
    whole = hodges_lehmann(log_ratios)
    sixes = [hodges_lehmann(six) for six in _disjoint(log_ratios, FEWEST_REPLICATES)]
    noise = [each - whole.estimate for each in log_ratios]
    drawn = {str(number): _limits(noise, number, seed) for number in RUNS}
    return Calibration(
        metric=metric,
        replicates=len(log_ratios),
        estimate=whole.estimate,
        low=whole.low,
        high=whole.high,
        margin=margin,
        accepted=-margin / 2 < whole.low and whole.high < margin / 2,
        sixes=len(sixes),
        sixes_called=sum(each.low > 0 or each.high < 0 for each in sixes),
        power={
            number: {f"{effect:g}": fmean(low + math.log1p(effect) > 0 for low, _ in limits) for effect in EFFECTS}
            for number, limits in drawn.items()
        },
        called={number: fmean(low > 0 or high < 0 for low, high in limits) for number, limits in drawn.items()},
        detectable={number: _found_in_most(limits) for number, limits in drawn.items()},
    )


def _limits(noise: Sequence[float], number: int, seed: int) -> list[tuple[float, float]]:
    """The limits of the intervals of *number* replicates, drawn anew many times."""
    chance = random.Random(f"{seed} {number}")
    intervals = [hodges_lehmann(chance.choices(noise, k=number)) for _ in range(_DRAWS)]
    return [(each.low, each.high) for each in intervals]


def _found_in_most(limits: Sequence[tuple[float, float]]) -> float:
    """The shift that brings the lower limit of 4 in 5 draws above no change."""
    needed = sorted(-low for low, _ in limits)
    return max(0.0, needed[math.ceil(FOUND * len(needed)) - 1])


def _disjoint(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[start : start + size] for start in range(0, len(values) - size + 1, size)]
