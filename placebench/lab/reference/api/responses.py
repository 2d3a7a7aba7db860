"""Makes successful responses: from a document, from JSON bytes, from parts that are sent while written, or empty."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import orjson
from werkzeug import Response

from placebench.lab.reference.api.call import JSON


def document(content: Any, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """Return a response with *content* as JSON; location: the path of the resource that was created."""
    return body(orjson.dumps(content), status=status, location=location)


def body(content: bytes, *, status: HTTPStatus = HTTPStatus.OK, location: str | None = None) -> Response:
    """Return a response with *content*, which is JSON already; location: the path of the resource that was created."""
    response = Response(content, status=status, mimetype=JSON)
    return _with_location(response, location)


def stream(parts: Iterator[bytes], close: Callable[[], None]) -> Response:
    """Return a response whose JSON is sent part by part.

    close: is called after the last part, or when the client disconnects.
    """
    response = Response(parts, mimetype=JSON)
    response.call_on_close(close)
    return response


def empty(*, status: HTTPStatus = HTTPStatus.NO_CONTENT, location: str | None = None) -> Response:
    """Return a response without a body; location: the path of the resource that was created."""
    response = Response(status=status)
    response.headers.remove("Content-Type")
    return _with_location(response, location)


def _with_location(response: Response, location: str | None) -> Response:
    if location is not None:
        response.location = location
        response.autocorrect_location_header = True  # an absolute URL, as in Placement: clients expect that
    return response
