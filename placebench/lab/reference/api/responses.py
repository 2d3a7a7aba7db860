"""Successful responses: a document, one that is sent while it is written, an empty one; and bodies of bytes."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import orjson
from werkzeug import Response

from placebench.lab.reference.api.call import JSON


def document(content: Any, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """*content* as JSON; location: the path of what was made."""
    return body(orjson.dumps(content), status=status, location=location)


def body(content: bytes, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """JSON that is already written."""
    response = Response(content, status=status, mimetype=JSON)
    return _with_location(response, location)


def stream(parts: Iterator[bytes], close: Callable[[], None]) -> Response:
    """JSON that is written while it is sent; close: is called after the last part, or when the client has gone."""
    response = Response(parts, mimetype=JSON)
    response.call_on_close(close)
    return response


def empty(*, status: HTTPStatus = HTTPStatus.NO_CONTENT, location: str | None = None) -> Response:
    """A status without a body."""
    response = Response(status=status)
    response.headers.remove("Content-Type")
    return _with_location(response, location)


def _with_location(response: Response, location: str | None) -> Response:
    if location is not None:
        response.location = location
        response.autocorrect_location_header = True  # absolute, as Placement's: clients go there without a base
    return response
