"""Successful responses: a document, one that is sent while it is written, an empty one; and bodies of bytes."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from itertools import chain
from typing import Any, Final

import orjson
from werkzeug import Response

from placebench.reference.api.call import JSON


def document(content: Any, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """*content* as JSON; location: the path of what was made."""
    return body(orjson.dumps(content), status=status, location=location)


def body(content: bytes, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """JSON that is already written."""
    response = Response(content, status=status, mimetype=JSON)
    return _located(response, location)


def stream(parts: Iterator[bytes], close: Callable[[], None]) -> Response:
    """JSON that is written while it is sent; close: is called after the last part, or when the client has gone."""
    response = Response(parts, mimetype=JSON)
    response.call_on_close(close)
    return response


def nothing(*, status: HTTPStatus = HTTPStatus.NO_CONTENT, location: str | None = None) -> Response:
    """A status without a body."""
    response = Response(status=status)
    response.headers.remove("Content-Type")
    return _located(response, location)


def _located(response: Response, location: str | None) -> Response:
    if location is not None:
        response.location = location
    return response


Body = bytes | Iterator[bytes]

STREAMED_FROM_BYTES: Final = 50_000_000


def held(parts: Iterator[bytes]) -> Body:
    """In one piece up to 50 MB; beyond, the parts that are written already and, as they are taken, those to come."""
    written: list[bytes] = []
    size = 0
    for part in parts:
        written.append(part)
        size += len(part)
        if size > STREAMED_FROM_BYTES:
            return chain(written, parts)
    return b"".join(written)
