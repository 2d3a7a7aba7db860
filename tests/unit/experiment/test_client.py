"""The client of an interleaved comparison, against a real HTTP server."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from placebench.experiment.client_process import Client, body_file, command


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers 200 with ten bytes, and 503 below /broken."""

    def do_GET(self) -> None:
        """One answer."""
        self.send_response(503 if self.path.startswith("/broken") else 200)
        self.end_headers()
        self.wfile.write(b"0123456789")

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
    seen = client.drive(url, "/x", 3)

    assert (len(seen["wall_s"]), seen["failures"], seen["body_bytes"]) == (3, [], 30)


def test_another_status_is_a_failure(client: Client, url: str) -> None:
    """An answer that is not 200 is counted and named."""
    assert client.drive(url, "/broken", 2)["failures"] == ["status 503", "status 503"]


def test_a_body_is_left_once_by_its_canonical_digest(client: Client, url: str, tmp_path: Path) -> None:
    """Equal bodies are one digest, and the body can be read back by it."""
    (digest,) = client.drive(url, "/x", 3)["answers"]

    assert body_file(tmp_path, digest).read_bytes() == b"0123456789"
    assert [path.name for path in tmp_path.iterdir()] == [f"{digest}.body"]


def test_a_server_that_is_gone_is_a_failure(client: Client) -> None:
    """No connection is a failure of the request, not of the client."""
    seen = client.drive("http://127.0.0.1:1", "/x", 1)

    assert len(seen["failures"]) == 1
    assert seen["failures"][0].startswith("ConnectionRefusedError")


def test_it_answers_a_line_with_a_line(url: str, tmp_path: Path) -> None:
    """The process reads one JSON document a line until its input ends, then exits 0."""
    asked = json.dumps({"url": url, "request": "/x", "requests": 2}) + "\n"

    answered = subprocess.run(command(tmp_path), input=asked * 2, capture_output=True, text=True, check=True)

    assert [len(json.loads(line)["wall_s"]) for line in answered.stdout.splitlines()] == [2, 2]
