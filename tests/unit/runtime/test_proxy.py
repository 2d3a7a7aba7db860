"""The proxy of a link passes everything on and counts it, in total and over time."""

import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.proxy import MAX_BINS, Relay, Trace


@dataclass
class Ends:
    """A relay, and both ends of a connection through it."""

    relay: Relay
    service: socket.socket
    other: socket.socket


def ready(relay: Relay) -> bool:
    """Whether a turn of it would not wait."""
    return any(select.select(relay.readers, relay.writers, (), 0))


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The connection is open and nothing has passed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def connect() -> socket.socket:
            begun = socket.socket()
            begun.connect(listener.getsockname())
            return begun

        relay = Relay(connect)
        with socket.create_connection(("127.0.0.1", relay.port)) as service:
            relay.run_once()
            other, _ = listener.accept()
            with other:
                yield Ends(relay, service, other)
                for connection in list(relay.connections):
                    connection.close()
        relay.close()


def test_a_reader_that_pauses_does_not_keep_the_relay_busy(ends: Ends) -> None:
    """The other end sends until the service's buffers are full; then there is nothing to do before it reads."""
    sent = 0
    while not ends.relay.delayed:
        sent += ends.other.send(b"x" * 65536)
        ends.relay.run_once()

    assert 1 == len(ends.relay.writers)
    assert ends.relay.until_due_s() is None

    received = 0
    while received < sent:
        received += len(ends.service.recv(1 << 20))
        while ready(ends.relay):
            ends.relay.run_once()
    assert sent == received == ends.relay.bytes_received


def test_a_connection_that_breaks_leaves_nothing_on_its_way(ends: Ends) -> None:
    """Reset while bytes were under way: they are lost, and nobody waits for them."""
    ends.relay.set_profile(LinkProfile(latency_s=0.1))
    ends.other.sendall(b"late")
    ends.relay.run_once()
    assert 1 == len(ends.relay.delayed)

    ends.service.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ends.service.close()
    ends.relay.run_once()

    assert (set(), set(), None) == (ends.relay.connections, ends.relay.delayed, ends.relay.until_due_s())


def test_the_end_of_a_stream_is_passed_on_after_its_last_byte(ends: Ends) -> None:
    """Whoever reads sees the bytes and then the end; the way back stays open."""
    ends.service.sendall(b"last words")
    ends.service.shutdown(socket.SHUT_WR)
    ends.relay.run_once()
    ends.relay.run_once()

    assert [b"last words", b""] == [ends.other.recv(100), ends.other.recv(100)]
    ends.other.sendall(b"heard")
    ends.relay.run_once()
    assert b"heard" == ends.service.recv(100)


def test_bytes_fall_into_the_bin_of_their_moment() -> None:
    """3 and 4 bytes within the first millisecond, 5 in the third; 6 came back in the second."""
    trace = Trace(began_s=10.0)
    trace.add_sent(10.0001, 3)
    trace.add_sent(10.0009, 4)
    trace.add_received(10.0011, 6)
    trace.add_sent(10.0025, 5)

    assert {"bin_s": 0.001, "sent": [7, 0, 5], "received": [0, 6]} == trace.to_json()


def test_a_long_trace_has_longer_bins_and_the_same_bytes() -> None:
    """A byte a millisecond for 1000 ms: 250 bins of 4 ms, and no byte is lost."""
    trace = Trace(began_s=0.0)
    for millisecond in range(1000):
        trace.add_received(millisecond / 1000 + 0.0005, 1)

    assert (0.004, 1000) == (trace.bin_s, sum(trace.received))
    assert len(trace.received) <= MAX_BINS
    assert {4} == set(trace.received)
