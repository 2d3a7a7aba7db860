"""One direction of an emulated link, as arithmetic: when each byte that goes in comes out. No clock, no socket.

`LinkProfile` is the latency and bandwidth of the link, `DelayQueue` holds what is in transit. Each chunk comes out at
its arrival plus half of the latency, later only where the bandwidth makes it wait for those before it: a link delays
what is pipelined once, not chunk by chunk.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from placebench.errors import PlacebenchError
from placebench.limits import LATENCY_MS


@dataclass(frozen=True)
class LinkProfile:
    """Latency and bandwidth of a link; by default it adds nothing."""

    latency_s: float = 0.0
    """A whole round trip: half of it in each direction."""
    bytes_per_s: float | None = None
    """In each direction; None: as fast as they come."""

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s <= LATENCY_MS / 1e3:
            raise PlacebenchError(f"a latency of {self.latency_s * 1e3:g} ms: expected 0 to {LATENCY_MS:g} ms")
        if self.bytes_per_s is not None and not 0 < self.bytes_per_s < float("inf"):
            raise PlacebenchError(f"a bandwidth of {self.bytes_per_s * 8 / 1e6:g} Mbit/s: expected more than 0")


UNCHANGED: Final = LinkProfile()


class DelayQueue:
    """What one side sent and the other has not received; an empty chunk stands for the end of the stream."""

    def __init__(self, *, opened_s: float = 0.0) -> None:
        """Make an empty queue; before *opened_s* nothing enters, as before a handshake is over."""
        self.held_bytes = 0
        self._free_s = opened_s
        self._chunks: deque[tuple[float, bytes]] = deque()

    def put(self, chunk: bytes, now_s: float, profile: LinkProfile) -> None:
        """*chunk* arrives at *now_s*, in the order of the calls, and enters the link as it is now."""
        self._free_s = max(now_s, self._free_s)
        if profile.bytes_per_s is not None:
            self._free_s += len(chunk) / profile.bytes_per_s
        due_s = self._free_s + profile.latency_s / 2
        if self._chunks:
            due_s = max(due_s, self._chunks[-1][0])  # the link may have become faster meanwhile
        self._chunks.append((due_s, chunk))
        self.held_bytes += len(chunk)

    def take(self, now_s: float) -> bytes | None:
        """The next chunk that is due at *now_s*, or None."""
        if not self._chunks or self._chunks[0][0] > now_s:
            return None
        _, chunk = self._chunks.popleft()
        self.held_bytes -= len(chunk)
        return chunk

    @property
    def due_s(self) -> float:
        """When the next chunk comes out; infinite where nothing is on its way."""
        return self._chunks[0][0] if self._chunks else math.inf
