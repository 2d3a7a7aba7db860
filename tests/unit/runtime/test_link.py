"""The counting link, between real sockets."""

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from placebench.errors import LoadError, PlacebenchError
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import Traffic, open_database_link, open_link_ahead, open_service_link

pytestmark = pytest.mark.processes


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
    with open_database_link(database) as link:
        talk(link.url, b"ab", b"abc", b"abcde")

        assert link.traffic() == Traffic(round_trips=3, bytes_sent=10, bytes_received=20, connections=1)


def test_what_one_request_took_is_a_difference(database: str) -> None:
    """Connections of a pool stay open; the count goes on, and each request is what was added."""
    with open_database_link(database) as link:
        talk(link.url, b"warm-up")
        before = link.traffic()
        talk(link.url, b"one", b"two")

        assert link.traffic().since(before) == Traffic(round_trips=2, bytes_sent=6, bytes_received=12, connections=1)


def test_the_url_keeps_user_password_and_database(database: str) -> None:
    """Only host and port lead to the link."""
    with open_database_link(database) as link:
        url = make_url(link.url)

    assert (url.username, url.password, url.host, url.database) == ("me", "secret", "127.0.0.1", "shop")
    assert url.port != make_url(database).port


def test_a_slow_link_holds_bytes_once_and_counts_them_alike(database: str) -> None:
    """Two proxies of 20 ms: a handshake of the nearer and two round trips over both take 20 + 2 x 40 ms at least."""
    with open_database_link(database, proxies=2) as link:
        link.set_profile(LinkProfile(latency_s=0.020))
        link.trace()
        started = time.perf_counter()
        talk(link.url, b"x" * 300_000, b"yz")
        elapsed_s = time.perf_counter() - started
        traffic, trace = link.traffic(), link.trace()

    assert traffic == Traffic(round_trips=2, bytes_sent=300_002, bytes_received=600_004, connections=1)
    assert elapsed_s >= 0.020 + 2 * 0.040
    assert traffic.in_transit_s >= 2 * 0.040
    assert (300_002, 600_004) == (sum(trace["sent"]), sum(trace["received"]))


def test_what_is_pipelined_crosses_a_slow_link_together(database: str) -> None:
    """Forty messages 1 ms apart over 370 ms: one latency and what lies between them, far from forty latencies."""
    with open_database_link(database) as link:
        parts = make_url(link.url)
        link.set_profile(LinkProfile(latency_s=0.37))
        with socket.create_connection((str(parts.host), int(parts.port or 0))) as connection:
            started = time.perf_counter()
            for _ in range(40):
                connection.sendall(b"a")
                time.sleep(0.001)
            answer = b""
            while len(answer) < 80:
                answer += connection.recv(4096)
            elapsed_s = time.perf_counter() - started

        assert link.traffic().round_trips == 1
        assert 0.74 <= elapsed_s < 7


def test_a_client_is_linked_to_a_service(database: str) -> None:
    """The same proxy on the other side of the service; its URL is all that changes."""
    url = make_url(database)
    with open_service_link(f"http://127.0.0.1:{url.port}") as link:
        talk(link.url, b"GET /")

        assert link.traffic() == Traffic(round_trips=1, bytes_sent=5, bytes_received=10, connections=1)


def test_a_link_that_drops_is_one_line(database: str) -> None:
    """Whoever asks it then is told that it is gone."""
    with open_database_link(database) as link:
        os.kill(link.pids[0], signal.SIGKILL)

        with pytest.raises(LoadError, match=r"^the link dropped: its process is gone; it left no message$"):
            link.traffic()


def test_a_link_to_nowhere_is_one_line() -> None:
    """Nothing listens at the other end: the address, and why."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    expected = rf"^the link cannot be opened: 127.0.0.1:{port} cannot be reached: .*refused"
    with pytest.raises(LoadError, match=expected), open_database_link(f"postgresql://me@127.0.0.1:{port}/shop"):
        pass


def test_proxies_have_a_limit(database: str) -> None:
    """Each is a process."""
    with pytest.raises(PlacebenchError, match=r"^0 proxies: expected 1 to 8$"), open_database_link(database, proxies=0):
        pass


@pytest.mark.parametrize(("dies", "arrives"), [(False, b"late"), (True, b"")])
def test_nothing_passes_while_a_link_is_cut(dies: bool, arrives: bytes) -> None:
    """What was sent meanwhile arrives afterwards; where an end has died, never: the connection has ended."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        open_link_ahead(listener.getsockname()[1]) as link,
    ):
        link.open()
        with socket.create_connection(("127.0.0.1", link.port)) as service:
            other, _ = listener.accept()
            with other:
                link.cut()
                service.sendall(b"late")
                meanwhile = select.select([other], [], [], 0.05)[0]
                if dies:
                    link.shut()
                link.heal()

                assert (meanwhile, other.recv(100)) == ([], arrives)


def test_a_link_refuses_connections_while_its_other_end_does(database: str) -> None:
    """Before it is opened, and after it was shut: whoever connects tries another address then."""
    with open_link_ahead(make_url(database).port or 0) as link:
        address = f"tcp://127.0.0.1:{link.port}"
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                talk(address, b"x")
            link.open()
            talk(address, b"ab")
            link.shut()
