"""A WSGI application that sends bytes that were made before: what transport costs, and nothing else.

CONSTANT_BODY_BYTES   how many; default 2583049, as long as Placement's response to the reference request at 1000 trees
"""

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

BODY = b"x" * int(os.environ.get("CONSTANT_BODY_BYTES") or 2_583_049)
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(BODY)))]


def application(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The same to every request."""
    start_response("200 OK", _HEADERS)
    return [BODY]
