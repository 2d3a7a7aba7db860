"""Bytes over time, for each direction of a link, in as many bins as fit: the key piece is `Trace`.

Its memory is bounded: once the bins are used up, each two become one that is twice as long.
"""

from dataclasses import dataclass, field
from typing import Any

MOST_BINS = 400
_FIRST_BIN_S = 0.001


@dataclass
class Trace:
    """Bytes in bins of `bin_s` seconds from `began_s` on, as the service sent and received them."""

    began_s: float
    bin_s: float = _FIRST_BIN_S
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def add_sent(self, at_s: float, byte_count: int) -> None:
        """The service sent so many bytes at *at_s*."""
        self._add(self.sent, at_s, byte_count)

    def add_received(self, at_s: float, byte_count: int) -> None:
        """The service received so many bytes at *at_s*."""
        self._add(self.received, at_s, byte_count)

    def to_json(self) -> dict[str, Any]:
        """`{"bin_s", "sent": [bytes, ...], "received": [...]}`; a list ends with its last byte."""
        return {"bin_s": self.bin_s, "sent": self.sent, "received": self.received}

    def _add(self, bins: list[int], at_s: float, byte_count: int) -> None:
        while (number := int((at_s - self.began_s) / self.bin_s)) >= MOST_BINS:
            self._merge()
        bins.extend([0] * (number + 1 - len(bins)))
        bins[number] += byte_count

    def _merge(self) -> None:
        self.bin_s *= 2
        for bins in (self.sent, self.received):
            bins[:] = [sum(bins[at : at + 2]) for at in range(0, len(bins), 2)]
