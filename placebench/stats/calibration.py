"""The resolution of a machine, measured with identical variants: false positives, power and detectable effects.

`calibrate` does this for one metric. Effects are injected into the measured noise: replicates are drawn with
replacement, as many as a run has, and each draw is shifted by the effect. The interval shifts with its values, so one
set of draws gives the power for every effect.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Literal, get_args

from placebench.decoding import Amount, AtLeastOne, Count, Meta, Share
from placebench.stats.hodges_lehmann import MIN_REPLICATES, hodges_lehmann
from placebench.stats.verdict import POWER

_EFFECTS = (0.01, 0.02, 0.05)
"""Injected effects, as shares of the baseline."""
_RUN_SIZES = (12, 30)
"""Replicates of a screening run and of a published run."""
_DRAWS = 400


CalibratedMetric = Literal["cpu_s", "wall_s", "pss_bytes"]
CALIBRATED: tuple[CalibratedMetric, ...] = get_args(CalibratedMetric)
_LogRatio = Annotated[float, Meta(ge=-100, le=100)]
_EffectShare = Annotated[str, Meta(pattern=r"^0?\.\d+$")]


@dataclass(frozen=True, kw_only=True)
class MetricCalibration:
    """The calibration of one metric with replicates of identical variants; effects are log ratios."""

    metric: CalibratedMetric
    replicates: AtLeastOne
    estimate: _LogRatio
    low: _LogRatio
    high: _LogRatio
    margin: Amount
    passed: bool
    """Whether the A/A check passed: the interval of all replicates lies within half the margin."""
    runs_of_six: Count
    """The number of disjoint runs of six into which the replicates can be split."""
    false_positives: Count
    """The number of runs of six whose interval excludes no change."""
    power: Mapping[str, Mapping[_EffectShare, Share]]
    """The share of runs that find an effect, by number of replicates and by effect: '12' → '0.02' → 0.97."""
    false_positive_rate: Mapping[str, float] = field(default_factory=dict)
    """The share of runs in which noise alone looks like a change, by number of replicates."""
    detectable: Mapping[str, _LogRatio]
    """The minimum detectable effect, found in 4 of 5 runs, by number of replicates."""


def calibrate(log_ratios: Sequence[float], metric: CalibratedMetric, *, margin: float, seed: int) -> MetricCalibration:
    """Calibrate one metric; takes about a second.

    log_ratios: one per replicate of identical variants. Raises TooFewReplicatesError if there are fewer than 6.
    """
    whole = hodges_lehmann(log_ratios)
    runs_of_six = [hodges_lehmann(six) for six in _disjoint(log_ratios, MIN_REPLICATES)]
    noise = [each - whole.estimate for each in log_ratios]
    drawn = {str(number): _limits(noise, number, seed) for number in _RUN_SIZES}
    return MetricCalibration(
        metric=metric,
        replicates=len(log_ratios),
        estimate=whole.estimate,
        low=whole.low,
        high=whole.high,
        margin=margin,
        passed=-margin / 2 < whole.low and whole.high < margin / 2,
        runs_of_six=len(runs_of_six),
        false_positives=sum(each.low > 0 or each.high < 0 for each in runs_of_six),
        power={
            number: {f"{effect:g}": fmean(low + math.log1p(effect) > 0 for low, _ in limits) for effect in _EFFECTS}
            for number, limits in drawn.items()
        },
        false_positive_rate={
            number: fmean(low > 0 or high < 0 for low, high in limits) for number, limits in drawn.items()
        },
        detectable={number: _detectable_shift(limits) for number, limits in drawn.items()},
    )


def _limits(noise: Sequence[float], number: int, seed: int) -> list[tuple[float, float]]:
    """Return the interval limits of many simulated runs of *number* replicates drawn from *noise*."""
    chance = random.Random(f"{seed} {number}")
    intervals = [hodges_lehmann(chance.choices(noise, k=number)) for _ in range(_DRAWS)]
    return [(each.low, each.high) for each in intervals]


def _detectable_shift(limits: Sequence[tuple[float, float]]) -> float:
    """Return the shift that lifts the lower limits of 4 in 5 intervals above 0."""
    needed = sorted(-low for low, _ in limits)
    return max(0.0, needed[math.ceil(POWER * len(needed)) - 1])


def _disjoint(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[start : start + size] for start in range(0, len(values) - size + 1, size)]
