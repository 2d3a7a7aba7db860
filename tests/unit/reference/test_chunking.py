"""Bodies of unknown length are framed in chunks, others are left alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from placebench.reference.api.compression import chunk_responses

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
    answer = chunk_responses(app)({**usual, **environ}, lambda *start: seen.extend(start[1]))
    content = b"".join(answer)
    answer.close()  # type: ignore[attr-defined]
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
