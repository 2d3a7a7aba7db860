"""A WSGI application that sends 2.58 MB that were made before: what transport costs, and nothing else."""

from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

BODY = b"x" * 2_583_049  # as long as Placement's answer to the headline request at 1000 trees
_HEADERS = [("Content-Type", "application/json"), ("Content-Length", str(len(BODY)))]


def application(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """The same to every request."""
    start_response("200 OK", _HEADERS)
    return [BODY]
