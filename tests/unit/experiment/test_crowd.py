"""Users who wait for their answers, and digests of every body."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from placebench.experiment.concurrent_clients import drive


class Service(BaseHTTPRequestHandler):
    """/same says the same in any order of keys, /other counts, anything else is 404."""

    said = 0

    def do_GET(self) -> None:
        type(self).said += 1
        bodies = {
            "/same": b'{"a": 1, "b": 2}' if self.said % 2 else b'{"b": 2, "a": 1}',
            "/other": b'{"said": %d}' % self.said,
        }
        body = bodies.get(self.path, b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def url() -> Iterator[str]:
    """The service in a thread."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_every_body_is_digested_and_the_order_of_keys_means_nothing(url: str) -> None:
    """Six answers of two spellings are one; three that differ are three."""
    told = drive(url, ["/same"] * 6 + ["/other"] * 3, 2)

    assert (9, []) == (len(told["wall_s"]), told["failures"])
    assert {"/same": 1, "/other": 3} == {request: len(digests) for request, digests in told["answers"].items()}
    assert told["elapsed_s"] >= max(told["wall_s"])


def test_a_request_that_fails_is_told(url: str) -> None:
    """404 is no answer, and nobody there is none either."""
    assert ["/lost: status 404"] == drive(url, ["/lost"], 1)["failures"]
    assert "refused" in drive("http://127.0.0.1:1", ["/same"], 1)["failures"][0]
