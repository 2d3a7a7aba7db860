"""The client of an interleaved comparison, against a real HTTP server."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from made_records import run_head

from placebench.compare.keep.run_folder import RunFolder, claim_folder
from placebench.compare.load import client_process
from placebench.compare.load.client_process import Client, _without_own_port, body_file
from placebench.compare.load.clients import http_client
from placebench.compare.what import http_request
from placebench.compare.what.canonical_response import parse_response
from placebench.compare.what.http_request import Reply
from placebench.errors import LoadError, NoResponseError
from placebench.lab.placement_api import placement_workload

DIGEST = parse_response(b"0123456789").digest


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers 200 with ten bytes, or a document at /same and /other, 503 below /broken, and never at /silent."""

    count = 0

    def do_GET(self) -> None:
        """One answer."""
        type(self).count += 1
        if self.path == "/silent":
            self.rfile.read(1)  # until the client closes the connection
            return
        bodies = {
            "/same": b'{"a": 1, "b": 2}' if self.count % 2 else b'{"b": 2, "a": 1}',
            "/other": b'{"count": %d}' % self.count,
        }
        self.send_response(503 if self.path.startswith("/broken") else 200)
        self.end_headers()
        with suppress(ConnectionError):
            while self.path == "/endless":
                self.wfile.write(bytes(2**16))
        self.wfile.write(bodies.get(self.path, b"0123456789"))

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def url() -> Iterator[str]:
    """A server on a free port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """One that leaves its bodies in tmp_path."""
    return Client(tmp_path)


def test_a_block_has_a_time_for_each_request(client: Client, url: str) -> None:
    """Three requests, three times, thirty bytes, no failure."""
    seen = client.drive(url, placement_workload("/x"), times=3)

    assert (len(seen.wall_s), seen.failures, seen.body_bytes) == (3, [], 30)


def test_another_status_is_a_failure(client: Client, url: str) -> None:
    """An answer that is not 200 is counted and named, with what it says."""
    seen = client.drive(url, placement_workload("/broken"), times=2)

    assert seen.failures == ["/broken: status 503, expected 200: 0123456789"] * 2


def test_a_body_is_left_once_by_its_canonical_digest(client: Client, url: str, tmp_path: Path) -> None:
    """Equal bodies are one digest, and the body can be read back by it."""
    (digest,) = client.drive(url, placement_workload("/x"), times=3).digests

    assert body_file(tmp_path, digest).read_bytes() == b"0123456789"
    assert [path.name for path in tmp_path.iterdir()] == [f"{digest}.body"]


@pytest.mark.parametrize(("limit", "value"), [("_MAX_BODY_BYTES", 1), ("RESPONSE_LIMIT_S", 0.2)])
def test_a_body_that_does_not_end_is_a_failure(
    limit: str, value: float, client: Client, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read no further than the longest body, and no longer than a response may take."""
    monkeypatch.setattr(http_request, "_MAX_BODY_BYTES", 2**34)
    monkeypatch.setattr(http_request, limit, value)

    (failure,) = client.drive(url, placement_workload("/endless")).failures

    assert failure.startswith("/endless: OSError: its body did not end: ")


def test_a_server_that_never_responds_is_asked_once(
    client: Client, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other request is sent after the first without a response, and no measurement is repeated after it."""
    monkeypatch.setattr(client_process, "RESPONSE_LIMIT_S", 0.1)
    monkeypatch.setattr(Handler, "count", 0)
    run = RunFolder(tmp_path, run_head())

    with pytest.raises(NoResponseError, match=r"^1 of 1 requests failed: /silent: no response within 0\.1 s$"):
        run.try_twice("count", lambda: client.drive(url, placement_workload("/silent"), times=3).check())
    assert Handler.count == 1


def test_a_server_that_is_gone_is_a_failure(client: Client) -> None:
    """No connection is a failure of the request, not of the client."""
    seen = client.drive("http://127.0.0.1:1", placement_workload("/x"))

    assert len(seen.failures) == 1
    assert seen.failures[0].startswith("/x: ConnectionRefusedError")


@pytest.mark.processes
def test_the_process_drives_what_it_is_told(url: str, tmp_path: Path) -> None:
    """Two orders, one after the other; bodies of both lie in the folder of the run."""
    with http_client(claim_folder(tmp_path / "run")) as process:
        one, other = (
            process.drive(url, placement_workload("/x"), times=2),
            process.drive(url, placement_workload("/y"), times=5, users=2),
        )

    assert (len(one.wall_s), len(other.wall_s), other.failures) == (2, 5, [])
    assert (one.digests, other.digests) == ([DIGEST], [DIGEST])
    assert body_file(tmp_path / "run" / "responses", DIGEST).read_bytes() == b"0123456789"


def test_every_body_is_digested_and_the_order_of_keys_means_nothing(client: Client, url: str) -> None:
    """Six responses of two spellings are one; six that differ are six."""
    seen = client.drive(url, placement_workload("/same", "/other"), times=6, users=2)

    assert (12, []) == (len(seen.wall_s), seen.failures)
    assert {"/same": 1, "/other": 6} == {request: len(digests) for request, digests in seen.responses.items()}
    assert seen.elapsed_s >= max(seen.wall_s)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"next": "http://127.0.0.1:8123/x?page=2"}', b'{"next": "http://127.0.0.1/x?page=2"}'),
        (b"localhost:8123 and next=http%3A%2F%2F127.0.0.1%3A8123", b"localhost and next=http%3A%2F%2F127.0.0.1"),
        (b"127.0.0.1:81234, 8123 and shop:8123", b"127.0.0.1:81234, 8123 and shop:8123"),
    ],
)
def test_the_servers_own_port_is_not_compared(body: bytes, expected: bytes) -> None:
    """It differs between variants; another port, another host and another number are compared."""
    reply = Reply(302, body, [("Location", body.decode())])

    plain = _without_own_port(reply, "http://127.0.0.1:8123")

    assert (expected, [("Location", expected.decode())]) == (plain.body, plain.headers)


def test_digits_of_the_port_in_an_identifier_start_no_search() -> None:
    """The response is returned as it is: the search takes a second of the client's CPU for some megabytes."""
    reply = Reply(200, b'{"uuid": "01812345-8123-4000-8000-000000008123"}', [("ETag", "8123")])

    assert _without_own_port(reply, "http://127.0.0.1:8123") is reply


def test_a_failed_request_is_an_error_when_checked(client: Client, url: str) -> None:
    """One of two requests failed."""
    with pytest.raises(LoadError, match=r"^1 of 2 requests failed: /broken: status 503, "):
        client.drive(url, placement_workload("/x", "/broken")).check()
