"""One direction of an emulated link as arithmetic, without clock or socket: the time at which each byte leaves it.

`LinkProfile` is the latency, bandwidth and loss of the link, `DelayQueue` holds the data in transit. Each chunk leaves
half a latency after its arrival, and later only if the bandwidth makes it wait for earlier chunks: a link delays
pipelined data once, not chunk by chunk. A proxy sees bytes and no packets, so a lost packet is the delay that it
causes: the sender's retransmission time-out, for its chunk and everything behind it.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Final

from placebench import units
from placebench.errors import PlacebenchError
from placebench.limits import LATENCY_MS

PACKET_BYTES: Final = 1448
"""Bytes of data in one packet, as TCP sends them over Ethernet."""
_LEAST_TIMEOUT_S: Final = 0.2


@dataclass(frozen=True)
class LinkProfile:
    """Latency and bandwidth of a link; by default it adds no delay."""

    latency_s: float = 0.0
    """The latency of a round trip in seconds; half of it is added in each direction."""
    bytes_per_s: float | None = None
    """The bandwidth in each direction, in bytes per second; None for no limit."""
    loss: float = 0.0
    """The share of packets that are lost, each of which costs `retransmission_s`."""
    loss_seed: int = 0
    """Decides which packets are lost: the same for the same data."""

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s <= LATENCY_MS / 1e3:
            raise PlacebenchError(f"a latency of {self.latency_s * 1e3:g} ms: expected 0 to {LATENCY_MS:g} ms")
        if self.bytes_per_s is not None and not 0 < self.bytes_per_s < float("inf"):
            raise PlacebenchError(f"a bandwidth of {self.bytes_per_s * 8 / 1e6:g} Mbit/s: expected more than 0")
        if not 0 <= self.loss < 1:
            raise PlacebenchError(f"a loss of {units.whole_percent(self.loss)}: expected 0 to less than 100 %")

    @property
    def retransmission_s(self) -> float:
        """Seconds until a lost packet is sent again: a round trip and Linux's least time-out of 200 ms (RFC 6298)."""
        return self.latency_s + _LEAST_TIMEOUT_S

    def delay_by_loss_s(self, byte_count: int, chance: random.Random) -> float:
        """Return the seconds by which the losses of a chunk delay it; its packets are lost independently."""
        if not self.loss:
            return 0.0
        intact = (1 - self.loss) ** max(1, math.ceil(byte_count / PACKET_BYTES))
        times = 0
        while chance.random() >= intact:  # what was sent again may be lost again
            times += 1
            intact = 1 - self.loss
        return times * self.retransmission_s


UNCHANGED: Final = LinkProfile()
_NO_CHANCE: Final = random.Random(0)


class DelayQueue:
    """Data that one side sent and the other has not received yet; an empty chunk is the end of the stream."""

    def __init__(self, *, opened_s: float = 0.0) -> None:
        """Make an empty queue; nothing enters before *opened_s*, as before a handshake is over."""
        self.held_bytes = 0
        self.loss_s = 0.0
        """Seconds by which lost packets have delayed the data, each second once; without the end of the stream."""
        self._free_s = opened_s
        self._chunks: deque[tuple[float, bytes]] = deque()

    def put(self, chunk: bytes, now_s: float, profile: LinkProfile, chance: random.Random = _NO_CHANCE) -> None:
        """Add a *chunk* that arrives at *now_s* under the current *profile*; calls must be in order of arrival.

        chance: decides which packets are lost, if the profile has a loss.
        """
        self._free_s = max(now_s, self._free_s)
        if profile.bytes_per_s is not None:
            self._free_s += len(chunk) / profile.bytes_per_s
        intact_s = self._free_s + profile.latency_s / 2
        if self._chunks:
            intact_s = max(intact_s, self._chunks[-1][0])  # the link may have become faster meanwhile
        by_loss_s = profile.delay_by_loss_s(len(chunk), chance)
        due_s = max(intact_s, self._free_s + profile.latency_s / 2 + by_loss_s)
        self.loss_s += due_s - intact_s if chunk else 0.0
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
