"""From numbers to places: linear and logarithmic scales with round ticks.

The key pieces are `linear_scale` and `log_scale`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MOST_TICKS = 6
_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))


@dataclass(frozen=True)
class Scale:
    """A stretch of numbers laid on 0 … 1."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where *value* lies; 0 at the low end, 1 at the high end, held inside."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else 0.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(max(share, 0.0), 1.0)


def linear_scale(values: Sequence[float], *, room: float = 0.0) -> Scale:
    """A scale that holds all *values* and that share of their span more on each side."""
    low, high = min(values), max(values)
    pad = (high - low) * room or (abs(high) * 0.1 or 1.0) * (low == high)
    low, high = low - pad, high + pad
    return Scale(low, high, False, _linear_ticks(low, high))


def log_scale(values: Sequence[float], *, room: float = 0.0) -> Scale:
    """A scale on which equal factors are equal lengths, for positive *values*; *room* as in `linear_scale`."""
    low, high = min(values), max(values)
    pad = math.log(high / low) * room or 0.1 * (low == high)
    low, high = low * math.exp(-pad), high * math.exp(pad)
    return Scale(low, high, True, _log_ticks(low, high))


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
    rough = (high - low) / (_MOST_TICKS - 1)
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= rough)
    return tuple(step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1))


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """The finest of the usual series that fits; linear steps where the stretch is too short for any."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    series = [
        tuple(tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high)
        for steps in _STEPS
    ]
    fitting = [ticks for ticks in series if 3 <= len(ticks) <= _MOST_TICKS]
    if fitting:
        return fitting[-1]
    return _linear_ticks(low, high) if len(series[0]) <= _MOST_TICKS else _thinned(series[0])


def _thinned(ticks: tuple[float, ...]) -> tuple[float, ...]:
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]
