"""One direction of an emulated link as arithmetic, without clock or socket: the time at which each byte leaves it.

`LinkProfile` is the latency and bandwidth of the link, `DelayQueue` holds the data in transit. Each chunk leaves half a
latency after its arrival, and later only if the bandwidth makes it wait for earlier chunks: a link delays pipelined
data once, not chunk by chunk.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

from placebench.errors import PlacebenchError
from placebench.limits import LATENCY_MS


@dataclass(frozen=True)
class LinkProfile:
    """Latency and bandwidth of a link; by default it adds no delay."""

    latency_s: float = 0.0
    """The latency of a round trip in seconds; half of it is added in each direction."""
    bytes_per_s: float | None = None
    """The bandwidth in each direction, in bytes per second; None for no limit."""

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s <= LATENCY_MS / 1e3:
            raise PlacebenchError(f"a latency of {self.latency_s * 1e3:g} ms: expected 0 to {LATENCY_MS:g} ms")
        if self.bytes_per_s is not None and not 0 < self.bytes_per_s < float("inf"):
            raise PlacebenchError(f"a bandwidth of {self.bytes_per_s * 8 / 1e6:g} Mbit/s: expected more than 0")


UNCHANGED: Final = LinkProfile()


class DelayQueue:
    """Data that one side sent and the other has not received yet; an empty chunk is the end of the stream."""

    def __init__(self, *, opened_s: float = 0.0) -> None:
        """Make an empty queue; nothing enters before *opened_s*, as before a handshake is over."""
        self.held_bytes = 0
        self._free_s = opened_s
        self._chunks: deque[tuple[float, bytes]] = deque()

    def put(self, chunk: bytes, now_s: float, profile: LinkProfile) -> None:
        """Add a *chunk* that arrives at *now_s* under the current *profile*; calls must be in order of arrival."""
        self._free_s = max(now_s, self._free_s)
        if profile.bytes_per_s is not None:
            self._free_s += len(chunk) / profile.bytes_per_s
        due_s = self._free_s + profile.latency_s / 2
        if self._chunks:
            due_s = max(due_s, self._chunks[-1][0])  # the link may have become faster meanwhile
        self._chunks.append((due_s, chunk))
        self.held_bytes += len(chunk)

    def take(self, now_s: float) -> bytes | None:
        """Return the next chunk that is due at *now_s*, or None."""
        if not self._chunks or self._chunks[0][0] > now_s:
            return None
        _, chunk = self._chunks.popleft()
        self.held_bytes -= len(chunk)
        return chunk

    @property
    def due_s(self) -> float:
        """The time at which the next chunk leaves; infinite if nothing is in transit."""
        return self._chunks[0][0] if self._chunks else math.inf
