"""Bodies of unknown length are framed in chunks, and long ones compressed for clients that accept it."""

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from placebench.lab.reference.api.compression import chunk_responses, compress_responses

PARTS = [b"[1,", b"", b"2" * 20, b"]"]


class Body:
    """The parts, and whether they were closed."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        return iter(PARTS)

    def close(self) -> None:
        self.closed = True


def sent(*headers: tuple[str, str], status: str = "200 OK", **environ: str) -> tuple[list[Any], bytes, Body]:
    """The headers and bytes that a server would send, and the application's body."""
    seen: list[Any] = []
    body = Body()

    def app(_: Any, start_response: Any) -> Body:
        start_response(status, list(headers))
        return body

    usual = {"SERVER_PROTOCOL": "HTTP/1.1", "REQUEST_METHOD": "GET"}
    response = chunk_responses(app)({**usual, **environ}, lambda *start: seen.extend(start[1]))
    content = b"".join(response)
    response.close()  # type: ignore[attr-defined]
    return seen, content, body


def test_a_body_of_unknown_length_comes_in_chunks() -> None:
    """Each part with its length, none for an empty part, the empty chunk at the end; then the body is closed."""
    headers, content, body = sent(("Content-Type", "application/json"))

    assert headers == [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    assert content == b"3\r\n[1,\r\n14\r\n22222222222222222222\r\n1\r\n]\r\n0\r\n\r\n"
    assert body.closed


@pytest.mark.parametrize(
    ("headers", "environ"),
    [
        ([("content-length", "24")], {}),
        ([], {"SERVER_PROTOCOL": "HTTP/1.0"}),
        ([], {"REQUEST_METHOD": "HEAD"}),
        ([], {"status": "204 No Content"}),
    ],
)
def test_other_bodies_are_left_alone(headers: list[tuple[str, str]], environ: dict[str, str]) -> None:
    """Where the length is known, or the client or the status knows no chunks."""
    seen, content, body = sent(*headers, **environ)

    assert (seen, content) == (headers, b"".join(PARTS))
    assert body.closed


LONG = b'{"a": "' + b"x" * 2000 + b'"}'


def compressed(body: list[bytes], *headers: tuple[str, str], accept: str | None = "gzip", method: str = "GET") -> Any:
    """What a client gets of an application that responds with *body*."""

    def app(_: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", list(headers))
        return body

    return Client(compress_responses(app)).open(method=method, headers={"Accept-Encoding": accept} if accept else {})


def test_a_request_without_a_protocol_gets_a_plain_body() -> None:
    """HTTP/0.9 names none, and uWSGI then has no SERVER_PROTOCOL."""
    response = chunk_responses(lambda _, start: start("200 OK", []) or PARTS)({"REQUEST_METHOD": "GET"}, print)

    assert list(response) == PARTS


def test_a_long_body_comes_in_gzip() -> None:
    """2009 bytes of which 2000 are alike need less than 100; the length of the whole is not claimed any more."""
    response = compressed([LONG[:1000], LONG[1000:]], ("Content-Length", "2009"))

    assert ("gzip", "Accept-Encoding", None) == tuple(
        response.headers.get(name) for name in ("Content-Encoding", "Vary", "Content-Length")
    )
    assert LONG == gzip.decompress(response.data)
    assert len(response.data) < 100


def test_a_body_of_unknown_length_is_compressed_too() -> None:
    """It is written while it is sent."""
    assert LONG == gzip.decompress(compressed([LONG]).data)


@pytest.mark.parametrize(("accept", "length"), [(None, 2009), ("identity", 2009), ("gzip;q=0", 2009), ("gzip", 999)])
def test_others_get_it_as_it_is(accept: str | None, length: int) -> None:
    """Whoever does not ask, and what fits into a packet."""
    response = compressed([LONG[:length]], ("Content-Length", str(length)), accept=accept)

    assert (None, LONG[:length]) == (response.headers.get("Content-Encoding"), response.data)
