"""The counting link, between real sockets."""

import socket
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from placebench.experiment.link import Traffic, linked


@pytest.fixture
def database() -> Iterator[str]:
    """A server that answers each message with twice as many bytes; its address as a database's URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    while message := connection.recv(4096):
                        connection.sendall(message * 2)

        threading.Thread(target=serve, daemon=True).start()
        yield f"postgresql+psycopg2://me:secret@127.0.0.1:{listener.getsockname()[1]}/shop"
        listener.shutdown(socket.SHUT_RDWR)


def talk(url: str, *messages: bytes) -> None:
    """Send each message after the answer to the one before was read whole."""
    parts = make_url(url)
    with socket.create_connection((str(parts.host), int(parts.port or 0))) as connection:
        for message in messages:
            connection.sendall(message)
            answer = b""
            while len(answer) < 2 * len(message):
                answer += connection.recv(4096)


def test_bytes_and_turnarounds_are_counted(database: str) -> None:
    """Three messages of 2, 3 and 5 bytes, one after the other: three round trips, 10 bytes there, 20 back."""
    with linked(database) as link:
        talk(link.url, b"ab", b"abc", b"abcde")

        assert link.traffic() == Traffic(round_trips=3, bytes_sent=10, bytes_received=20)


def test_what_one_request_took_is_a_difference(database: str) -> None:
    """Connections of a pool stay open; the count goes on, and each request is what was added."""
    with linked(database) as link:
        talk(link.url, b"warm-up")
        before = link.traffic()
        talk(link.url, b"one", b"two")

        assert link.traffic().since(before) == Traffic(round_trips=2, bytes_sent=6, bytes_received=12)


def test_the_url_keeps_user_password_and_database(database: str) -> None:
    """Only host and port lead to the link."""
    with linked(database) as link:
        url = make_url(link.url)

    assert (url.username, url.password, url.host, url.database) == ("me", "secret", "127.0.0.1", "shop")
    assert url.port != make_url(database).port
