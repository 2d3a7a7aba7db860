"""The bytes of a socket, read without taking it from its owner."""

import gc
import os
import socket
from collections.abc import Iterator

import pytest

from placebench.profiler.capture.connection_state import socket_meter


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            yield client, other


def test_bytes_of_both_directions_are_told(pair: tuple[socket.socket, socket.socket]) -> None:
    """100 sent and 50 received, and the connection goes on working."""
    client, server = pair
    meter = socket_meter(client.fileno(), encrypted=False)
    before = meter.read()

    client.sendall(b"x" * 100)
    server.recv(1000)
    server.sendall(b"y" * 50)
    received = client.recv(1000)
    after = meter.read()

    assert (after[0] - before[0], after[1] - before[1], received) == (100, 50, b"y" * 50)


def test_bytes_under_encryption_are_not_measured(pair: tuple[socket.socket, socket.socket]) -> None:
    """They would be those of TLS, not of the protocol."""
    assert socket_meter(pair[0].fileno(), encrypted=True) is None


def test_a_unix_socket_does_not_count() -> None:
    """It is not measured, and not an error."""
    one, other = socket.socketpair()
    with one, other:
        assert socket_meter(one.fileno(), encrypted=False) is None


def test_a_closed_socket_says_so(pair: tuple[socket.socket, socket.socket]) -> None:
    """The meter does not close what is not its own, nor read what is gone."""
    client, _ = pair
    meter = socket_meter(client.fileno(), encrypted=False)
    client.close()

    with pytest.raises(OSError, match="Bad file descriptor"):
        meter.read()


def test_a_meter_that_goes_leaves_the_socket_as_it_was(
    pair: tuple[socket.socket, socket.socket], recwarn: pytest.WarningsRecorder
) -> None:
    """It is open, and blocks though the application has a default timeout for sockets that it makes."""
    client, server = pair
    socket.setdefaulttimeout(1.0)
    try:
        meter = socket_meter(client.fileno(), encrypted=False)
    finally:
        socket.setdefaulttimeout(None)
    assert meter is not None
    blocking = os.get_blocking(client.fileno())
    del meter
    gc.collect()

    client.sendall(b"x")
    assert (blocking, server.recv(1), list(recwarn)) == (True, b"x", [])
