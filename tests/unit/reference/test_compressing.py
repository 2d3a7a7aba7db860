"""Bodies are compressed for clients that ask for it, and left alone for others."""

import gzip
from typing import Any

import pytest
from werkzeug.test import Client

from placebench.reference.api.compression import compress_responses

LONG = b'{"a": "' + b"x" * 2000 + b'"}'


def answered(body: list[bytes], *headers: tuple[str, str], accept: str | None = "gzip", method: str = "GET") -> Any:
    """What a client gets of an application that answers with *body*."""

    def app(_: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", list(headers))
        return body

    return Client(compress_responses(app)).open(method=method, headers={"Accept-Encoding": accept} if accept else {})


def test_a_long_body_comes_in_gzip() -> None:
    """2009 bytes of which 2000 are alike need less than 100; the length of the whole is not claimed any more."""
    answer = answered([LONG[:1000], LONG[1000:]], ("Content-Length", "2009"))

    assert ("gzip", "Accept-Encoding", None) == tuple(
        answer.headers.get(name) for name in ("Content-Encoding", "Vary", "Content-Length")
    )
    assert LONG == gzip.decompress(answer.data)
    assert len(answer.data) < 100


def test_a_body_of_unknown_length_is_compressed_too() -> None:
    """It is written while it is sent."""
    assert LONG == gzip.decompress(answered([LONG]).data)


@pytest.mark.parametrize(("accept", "length"), [(None, 2009), ("identity", 2009), ("gzip;q=0", 2009), ("gzip", 999)])
def test_others_get_it_as_it_is(accept: str | None, length: int) -> None:
    """Whoever does not ask, and what fits into a packet."""
    answer = answered([LONG[:length]], ("Content-Length", str(length)), accept=accept)

    assert (None, LONG[:length]) == (answer.headers.get("Content-Encoding"), answer.data)
