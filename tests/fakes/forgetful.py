"""The reference service, but every fifth claim is acknowledged and not written."""

from collections.abc import Iterable
from itertools import count
from wsgiref.types import StartResponse, WSGIEnvironment

from placebench.lab.reference.wsgi import application as honest

_claims = count(1)


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Claims are counted in this process."""
    number = next(_claims) if environ["REQUEST_METHOD"] == "PUT" else 0
    if number and number % 5 == 0:
        start_response("204 No Content", [])
        return [b""]
    return honest(environ, start_response)
