"""The offset between two clocks, bounded by the four stamps of each exchange: `ClockBounds`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class ClockBounds:
    """Bounds of another clock minus ours, in seconds.

    drifts: whether no single offset fits all exchanges; the bounds then hold at the moment of the fastest exchange.
    """

    low_s: float
    high_s: float
    drifts: bool = False

    @classmethod
    def of(cls, exchanges: Sequence[tuple[float, float, float, float]]) -> Self:
        """Return the bounds that follow from the exchanges, of which there must be at least one.

        An exchange is sent (our clock), received and answered (the other clock), and read (our clock). Nothing arrives
        before it was sent, however the delays differ: received - sent is an upper bound, answered - read a lower one.
        """
        bounds = [(answered - read, received - sent) for sent, received, answered, read in exchanges]
        low_s, high_s = max(low for low, _ in bounds), min(high for _, high in bounds)
        if low_s <= high_s:
            return cls(low_s, high_s)
        low_s, high_s = min(bounds, key=lambda each: each[1] - each[0])
        return cls(low_s, high_s, drifts=True)

    @property
    def offset_s(self) -> float:
        """The offset in the middle of the bounds, in seconds."""
        return (self.low_s + self.high_s) / 2

    @property
    def uncertainty_s(self) -> float:
        """The maximum error of `offset_s`, in seconds."""
        return (self.high_s - self.low_s) / 2

    def error_s(self, offset_s: float) -> float:
        """Return the maximum error of *offset_s*, in seconds."""
        return max(self.high_s - offset_s, offset_s - self.low_s)
