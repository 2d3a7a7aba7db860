"""One request as the benchmark sends it: `send`; `get` and `fetch` send a GET to a service with Placement's API.

`fetch` raises an error for any status but 200.
"""

import http.client
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from placebench.errors import LoadError

HEADERS: Mapping[str, str] = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
RESPONSE_LIMIT_S = 300.0
"""The longest time in seconds without a byte of a response, and that a body without a length may take."""
_MAX_BODY_BYTES = 2**29  # the response with all candidates of a million providers has 350 MB
_PART_BYTES = 2**16


@dataclass(frozen=True)
class Reply:
    """The response to a request."""

    status: int
    body: bytes
    """The body, decompressed if it was sent with gzip."""
    headers: Sequence[tuple[str, str]] = ()


def send(
    url: str,
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    body: bytes = b"",
    timeout_s: float = RESPONSE_LIMIT_S,
) -> Reply:
    """Send a request to the service at *url* on a new connection, because uWSGI's --http-socket closes each connection.

    path: the path and query. timeout_s: the maximum time without a byte. Raises OSError if no complete reply arrives,
    TimeoutError if no byte does.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers))
        reply = connection.getresponse()
        if (reply.length or 0) > _MAX_BODY_BYTES:
            raise OSError(f"its body has {reply.length} bytes, expected {_MAX_BODY_BYTES} at most")
        content = reply.read() if reply.length is not None else _read_to_end(reply)
        unpacked = _unpacked(content) if reply.headers["Content-Encoding"] == "gzip" else content
        return Reply(reply.status, unpacked, reply.getheaders())
    except (http.client.HTTPException, EOFError, zlib.error, ValueError) as error:
        raise OSError(f"{type(error).__name__} {error}") from error
    finally:
        connection.close()


def _unpacked(content: bytes) -> bytes:
    """Decompress gzip data; raises OSError beyond `_MAX_BODY_BYTES`, which a few compressed bytes may expand to."""
    parts, length = list[bytes](), 0
    while content:
        unpacking = zlib.decompressobj(wbits=31)
        parts.append(unpacking.decompress(content, _MAX_BODY_BYTES + 1 - length))
        length += len(parts[-1])
        if length > _MAX_BODY_BYTES:
            raise OSError(
                f"its body has more than {_MAX_BODY_BYTES} bytes when it is unpacked, the most that is expected"
            )
        if not unpacking.eof:
            raise EOFError("its packed body ends too early")
        content = unpacking.unused_data.lstrip(b"\0")  # another part may follow
    return b"".join(parts)


def _read_to_end(reply: http.client.HTTPResponse) -> bytes:
    """Read the body of a response that does not state its length; raises OSError if the body does not end."""
    parts, length, give_up_at = list[bytes](), 0, time.monotonic() + RESPONSE_LIMIT_S
    while part := reply.read1(_PART_BYTES):
        parts.append(part)
        length += len(part)
        if length > _MAX_BODY_BYTES or time.monotonic() > give_up_at:
            raise OSError(
                f"its body did not end: {length} bytes in {RESPONSE_LIMIT_S + time.monotonic() - give_up_at:.0f} s"
            )
    return b"".join(parts)


def get(url: str, request: str, *, timeout_s: float = RESPONSE_LIMIT_S) -> Reply:
    """Send GET *request* (path and query) to a service with Placement's API, as `send` does."""
    return send(url, "GET", request, headers=HEADERS, timeout_s=timeout_s)


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
