"""When bytes come out of a slow link: arithmetic on moments that the test sets."""

import math
import random

import pytest

from placebench.errors import PlacebenchError
from placebench.runtime.network.delay_queue import UNCHANGED, DelayQueue, LinkProfile


def test_what_is_pipelined_is_delayed_once() -> None:
    """Over 250 ms a round trip, chunks that arrive at 0, 1 and 2 64ths of a second come out at 8, 9 and 10 64ths."""
    lane, shape = DelayQueue(), LinkProfile(latency_s=0.25)
    for number in range(3):
        lane.put(b"%d" % number, number / 64, shape)

    seen = []
    for tick in range(20):
        while (chunk := lane.take(tick / 64)) is not None:
            seen.append((chunk, tick))

    assert [(b"0", 8), (b"1", 9), (b"2", 10)] == seen


def test_bandwidth_makes_bytes_wait_for_those_before_them() -> None:
    """At 1000 bytes a second, 500 bytes take 0.5 s and 500 more that arrive with them come 0.5 s later."""
    lane, shape = DelayQueue(), LinkProfile(latency_s=0.2, bytes_per_s=1000)
    lane.put(b"x" * 500, 0.0, shape)
    lane.put(b"y" * 500, 0.0, shape)

    assert 0.6 == pytest.approx(lane.due_s)
    assert b"x" * 500 == lane.take(0.61)
    assert 1.1 == pytest.approx(lane.due_s)


def test_a_link_without_a_shape_holds_nothing() -> None:
    """What goes in at 3 s comes out at 3 s."""
    lane = DelayQueue()
    lane.put(b"now", 3.0, UNCHANGED)

    assert (b"now", 0) == (lane.take(3.0), lane.held_bytes)
    assert math.inf == lane.due_s


def test_nothing_enters_before_the_handshake_is_over() -> None:
    """A connection opened at 1 s over 0.2 s of latency: what is sent at once arrives at 1 + 0.2 + 0.1 s."""
    lane = DelayQueue(opened_s=1.0 + 0.2)
    lane.put(b"GET /", 1.0, LinkProfile(latency_s=0.2))

    assert 1.3 == pytest.approx(lane.due_s)


def test_order_holds_when_the_link_becomes_faster() -> None:
    """A chunk over the old latency is not overtaken by one over the new."""
    lane = DelayQueue()
    lane.put(b"slow", 0.0, LinkProfile(latency_s=0.2))
    lane.put(b"fast", 0.0, UNCHANGED)

    assert [b"slow", b"fast", None] == [lane.take(0.1), lane.take(0.1), lane.take(0.1)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"latency_s": -0.001}, "a latency of -1 ms: expected 0 to 370 ms"),
        ({"latency_s": 0.371}, "a latency of 371 ms: expected 0 to 370 ms"),
        ({"latency_s": math.nan}, "a latency of nan ms: expected 0 to 370 ms"),
        ({"bytes_per_s": 0.0}, "a bandwidth of 0 Mbit/s: expected more than 0"),
    ],
)
def test_a_link_that_cannot_be_is_one_line(given: dict[str, float], said: str) -> None:
    """What was seen, and what was expected."""
    with pytest.raises(PlacebenchError, match=f"^{said}$"):
        LinkProfile(**given)


class _Chance(random.Random):
    """Gives the numbers that the test has chosen."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = list(numbers)

    def random(self) -> float:
        return self._numbers.pop(0)


def test_a_lost_packet_arrives_a_timeout_later_and_holds_up_what_follows() -> None:
    """Over 100 ms a round trip, a packet lost twice leaves at 0.05 + 2 x (0.1 + 0.2) s, and so does the next one."""
    lane, profile = DelayQueue(), LinkProfile(latency_s=0.1, loss=0.25)
    lane.put(b"lost", 0.0, profile, _Chance(0.75, 0.9, 0.74))
    lane.put(b"next", 0.01, profile, _Chance(0.0))

    assert None is lane.take(0.649)
    assert [b"lost", b"next"] == [lane.take(0.651), lane.take(0.651)]
    assert 0.6 == pytest.approx(lane.loss_s)


def test_a_large_chunk_is_as_many_packets_as_it_needs() -> None:
    """Half of all packets are lost: a chunk of two packets arrives at once with a chance of 0.25."""
    profile = LinkProfile(loss=0.5)

    assert 0.0 == profile.delay_by_loss_s(1449, _Chance(0.2499))
    assert 0.2 == profile.delay_by_loss_s(1449, _Chance(0.25, 0.0))
    assert 0.0 == profile.delay_by_loss_s(1448, _Chance(0.4999))


def test_a_link_that_loses_everything_is_refused() -> None:
    """Nothing would ever arrive."""
    with pytest.raises(PlacebenchError, match="100 %:"):
        LinkProfile(loss=1.0)
