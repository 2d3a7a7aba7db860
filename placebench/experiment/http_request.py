"""One GET as the benchmark sends it: `get`, and `fetch` where another status than 200 is an error."""

import gzip
import http.client
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from placebench.errors import LoadError

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    """Unpacked, if it came packed."""
    packed_bytes: int
    """How long it came."""


def get(url: str, request: str, *, encoding: str = "identity") -> Reply:
    """GET *request* (path and query) from the service at *url*, on a connection of its own.

    encoding: what the client takes, "identity" or "gzip".
    Raises OSError where no whole reply came. uWSGI's --http-socket closes each connection, so none is kept.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", request, headers={**HEADERS, "Accept-Encoding": encoding})
        reply = connection.getresponse()
        body = reply.read()
        unpacked = gzip.decompress(body) if reply.headers["Content-Encoding"] == "gzip" else body
        return Reply(reply.status, unpacked, len(body))
    except (http.client.HTTPException, EOFError, zlib.error) as error:
        raise OSError(f"{type(error).__name__} {error}") from error
    finally:
        connection.close()


def fetch(url: str, request: str) -> Reply:
    """Return the reply of the service at *url* to *request* (path and query); raises LoadError unless it is 200."""
    try:
        reply = get(url, request)
    except OSError as error:
        raise LoadError(f"{url}{request} gave no response: {error}") from error
    if reply.status != HTTPStatus.OK:
        said = " ".join(reply.body[:300].decode(errors="replace").split())
        raise LoadError(f"{url}{request} returned {reply.status}, expected 200: {said}")
    return reply
