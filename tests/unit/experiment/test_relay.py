"""The relay between real sockets, turned by hand."""

import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.proxy import Relay


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
