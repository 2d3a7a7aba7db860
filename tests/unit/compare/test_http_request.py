"""What a service sends is read up to a limit, packed or not, and what is wrong with it is one line."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from placebench.compare.what import http_request
from placebench.compare.what.http_request import send

LIMIT = 2**20


@contextmanager
def serving(body: bytes, **headers: str) -> Iterator[str]:
    """The URL of a server that responds with *body* and these headers, packed by gzip as far as they say."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in ({"Content_Length": f"{len(body)}", "Content_Encoding": "gzip"} | headers).items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def bomb(size: int) -> bytes:
    """Zeros that are packed to a thousandth."""
    packing = zlib.compressobj(9, wbits=31)
    return b"".join(packing.compress(bytes(2**20)) for _ in range(size // 2**20)) + packing.flush()


def test_a_body_is_unpacked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MB in 256 KB end with one line, and never take more memory than a few times the limit."""
    monkeypatch.setattr(http_request, "_MAX_BODY_BYTES", LIMIT)
    body = bomb(256 * 2**20)

    with serving(body) as url:
        tracemalloc.start()
        try:
            with pytest.raises(OSError, match=r"^its body has more than 1048576 bytes when it is unpacked, the most"):
                send(url, "GET", "/", headers={})
            assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
        finally:
            tracemalloc.stop()


def test_a_length_above_the_limit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not that number of bytes would ever come."""
    monkeypatch.setattr(http_request, "_MAX_BODY_BYTES", LIMIT)

    with (
        serving(b"x", Content_Length=f"{10**15}") as url,
        pytest.raises(OSError, match=r"has 10{15} bytes, expected 1048576 at"),
    ):
        send(url, "GET", "/", headers={})


@pytest.mark.parametrize(
    ("pack", "expected"),
    [
        (lambda part: gzip.compress(part), b"orders"),
        (lambda part: gzip.compress(part) * 2, b"ordersorders"),
        (lambda part: gzip.compress(part) + b"\0" * 8, b"orders"),
        (lambda _: b"", b""),
    ],
)
def test_a_packed_body_is_that_of_gzip(pack: Callable[[bytes], bytes], expected: bytes) -> None:
    """A gzip body has one part or several, padding, or nothing at all."""
    with serving(pack(b"orders")) as url:
        assert send(url, "GET", "/", headers={}).body == expected


@pytest.mark.parametrize(
    "body", [gzip.compress(b"orders" * 99, mtime=0)[:-9], b"no gzip"], ids=["cut short", "not packed"]
)
def test_a_broken_body_is_an_error_of_the_service(body: bytes) -> None:
    """Cut short, or no gzip at all."""
    with serving(body) as url, pytest.raises(OSError, match=r"EOFError|error"):
        send(url, "GET", "/", headers={})
