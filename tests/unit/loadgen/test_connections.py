"""Kept connections that a server closes without a word, and what the load generator sends again."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, cycle, takewhile
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import main
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.http_session import Request

pytestmark = pytest.mark.processes

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Respond = Callable[[int], tuple[bytes, bool]]


@dataclass
class RawServer:
    """Does with the n-th request of a connection what `respond` says: bytes to send, and whether it stays open."""

    respond: Respond
    received: list[bytes] = field(default_factory=list)
    """The first line of each request, as often as it came."""
    url: str = ""
    drips: bool = False
    """Whether a response is followed by a byte every 0.1 s, for ever."""

    def serve(self, connection: socket.socket) -> None:
        """Read and respond until either side closes the connection."""
        with suppress(OSError), connection, connection.makefile("rb") as reader:
            for number in count(1):
                lines = list(takewhile(b"\r\n".__ne__, iter(reader.readline, b"")))
                if not lines:  # the client has closed the connection
                    return
                self.received.append(lines[0].strip())
                lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length")]
                reader.read(sum(lengths))
                response, stays_open = self.respond(number)
                connection.sendall(response)
                if not stays_open:
                    return
                while self.drips:
                    time.sleep(0.1)
                    connection.sendall(b"x")


@contextmanager
def raw_server(respond: Respond) -> Iterator[RawServer]:
    """A `RawServer` on a port of its own."""
    made = RawServer(respond)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=made.serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        made.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield made
        listening.shutdown(socket.SHUT_RDWR)


def reads_and_closes(at: int, response: bytes = RESPONSE) -> Respond:
    """Respond to the requests of a connection before that with this number; read that one and close."""
    return lambda number: (response, True) if number < at else (b"", False)


def load(server: RawServer, folder: Path, method: str = "GET", **fields: Any) -> LoadResult:
    """Send requests with this method, 20 unless *fields* say otherwise."""
    spec = {"requests": 20, "workload": (Request(method, "/", body=b"{}" if method == "POST" else b""),), **fields}
    return run_load(LoadSpec(url=server.url, **spec), folder=folder)


def test_a_request_on_a_kept_connection_that_was_closed_is_sent_once_more(tmp_path: Path) -> None:
    """A server that reads each third request of a connection and closes it: no failure, and a repetition for each.

    20 requests of the five idempotent methods are two on each of ten connections, nine of which had a third that was
    sent again. What the server has read is what the client counts, and its repetitions.
    """
    workload = tuple(Request(method, "/") for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"))
    with raw_server(reads_and_closes(3, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as server:
        result = load(server, tmp_path, workload=workload)

    assert (result.requests, result.failures, result.repeats) == (20, 0, 9)
    assert len(server.received) == 29


def test_the_latency_of_a_request_that_was_sent_again_begins_with_the_first_sending(tmp_path: Path) -> None:
    """The server holds the first sending back for 0.3 s before it closes, which are in the latency and no other's."""

    def respond(number: int) -> tuple[bytes, bool]:
        if number == 2:
            time.sleep(0.3)
            return b"", False
        return RESPONSE, True

    with raw_server(respond) as server:
        result = load(server, tmp_path, requests=2)

    assert (result.failures, result.repeats) == (0, 1)
    assert result.latency_s[1] > 0.3


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_closes_each_connection_without_a_word_has_no_failure(tmp_path: Path, method: str) -> None:
    """What uWSGI does: a response without Connection: close, and the end. Nothing is lost or sent twice by chance."""
    with raw_server(lambda _: (RESPONSE, False)) as server:
        result = load(server, tmp_path, method, requests=200, users=4)

    assert (result.requests, result.failures) == (200, 0)
    assert 200 <= len(server.received) <= 200 + result.repeats


def test_a_post_is_never_sent_twice(tmp_path: Path) -> None:
    """A POST on a connection that the server closes after reading it has failed, for it may have happened.

    From then on each POST has a new connection, and none fails; of the GETs on kept ones one is repeated.
    """
    workload = (Request("GET", "/"), Request("GET", "/"), Request("POST", "/", body=b"{}"))
    with raw_server(reads_and_closes(3)) as server:
        result = load(server, tmp_path, workload=workload, requests=9)

    assert (result.requests, result.failures, result.repeats) == (9, 1, 1)
    assert result.statuses == {"200": 8, "HTTPConnectionClosed": 1}
    assert len(server.received) == 10


def test_a_server_that_keeps_connections_gets_posts_on_them(tmp_path: Path) -> None:
    """Once the server has shown that it keeps a connection, the POSTs of a user share it."""
    numbers: list[int] = []

    def respond(number: int) -> tuple[bytes, bool]:
        numbers.append(number)
        return RESPONSE, True

    with raw_server(respond) as server:
        result = load(server, tmp_path, "POST", time_s=1.0, requests=None)

    assert (result.failures, result.repeats) == (0, 0)
    assert max(numbers) > len(numbers) / 2


def test_a_response_that_breaks_off_is_a_failure_and_not_repeated(tmp_path: Path) -> None:
    """The first byte of a response has come: the request was served, whatever became of the rest.

    The second response of each of three connections breaks off: in its head, in its body and in a chunk.
    """
    partial = iter(
        [
            b"HTTP/1.1 200 OK\r\nContent-Len",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
        ]
    )
    with raw_server(lambda number: (RESPONSE, True) if number == 1 else (next(partial), False)) as server:
        result = load(server, tmp_path, requests=6)

    assert (result.requests, result.failures, result.repeats) == (6, 3, 0)
    assert len(server.received) == 6


def test_a_request_is_sent_again_only_once(tmp_path: Path) -> None:
    """A server that closes the new connection, too, has failed the request."""
    answered = iter([True])
    with raw_server(lambda _: (RESPONSE, True) if next(answered, False) else (b"", False)) as server:
        result = load(server, tmp_path, requests=3)

    assert (result.requests, result.failures, result.repeats) == (3, 2, 1)
    assert len(server.received) == 4


def test_a_body_that_ends_with_the_connection_is_whole(tmp_path: Path) -> None:
    """Of HTTP/1.0 and with Connection: close, in turn: nothing is kept and nothing is repeated."""
    heads = cycle([b"HTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"])
    with raw_server(lambda _: (next(heads) + b"body", False)) as server:
        result = load(server, tmp_path)

    assert (result.requests, result.failures, result.repeats) == (20, 0, 0)
    assert result.body_bytes == [4] * 20


def test_a_response_has_to_be_whole_in_time(tmp_path: Path) -> None:
    """A body of which a byte comes each 0.1 s is given up after the response timeout of 0.5 s, as no body is."""

    def drip(_: int) -> tuple[bytes, bool]:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", True

    with raw_server(drip) as server:
        server.drips = True
        result = load(server, tmp_path, requests=1, response_timeout_s=0.5)

    assert result.failures == 1
    assert result.failure_messages == ["status 200, then ResponseTimeoutError: no whole response within 0.5 s"]
    assert 0.5 <= result.failed_latency_s[0]


def test_repetitions_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text, as JSON and in the samples; a run without one says nothing about them."""
    with raw_server(reads_and_closes(3)) as server:
        assert main(["load", server.url, "--request", "/", "--requests", "20", "--out", str(tmp_path)]) == 0
    assert "sent again  9 requests: the server had closed a kept connection" in capsys.readouterr().out
    assert LoadResult.load(tmp_path / "load.json").repeats == 9

    with raw_server(lambda _: (RESPONSE, True)) as server:
        assert main(["load", server.url, "--request", "/", "--requests", "20"]) == 0
    assert "sent again" not in capsys.readouterr().out
