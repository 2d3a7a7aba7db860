"""The client of an interleaved comparison, against a real HTTP server."""

import http.server
import json
import subprocess
import threading
from collections.abc import Iterator

import pytest

from placebench.experiment.client import command, drive


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


def test_a_block_has_a_time_for_each_request(url: str) -> None:
    """Three requests, three times, thirty bytes, no failure."""
    seen = drive(url, "/x", 3)

    assert (len(seen["wall_s"]), seen["failures"], seen["body_bytes"]) == (3, [], 30)


def test_another_status_is_a_failure(url: str) -> None:
    """An answer that is not 200 is counted and named."""
    assert drive(url, "/broken", 2)["failures"] == ["status 503", "status 503"]


def test_a_server_that_is_gone_is_a_failure() -> None:
    """No connection is a failure of the request, not of the client."""
    seen = drive("http://127.0.0.1:1", "/x", 1)

    assert len(seen["failures"]) == 1
    assert seen["failures"][0].startswith("ConnectionRefusedError")


def test_it_answers_a_line_with_a_line(url: str) -> None:
    """The process reads one JSON document a line until its input ends, then exits 0."""
    asked = json.dumps({"url": url, "request": "/x", "requests": 2}) + "\n"

    answered = subprocess.run(command(), input=asked * 2, capture_output=True, text=True, check=True)

    assert [len(json.loads(line)["wall_s"]) for line in answered.stdout.splitlines()] == [2, 2]
