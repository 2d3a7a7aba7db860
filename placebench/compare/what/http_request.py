"""One request as the benchmark sends it: `send`; `get` and `fetch` are a GET of the laboratory.

`fetch` raises where another status than 200 comes.
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
_TIMEOUT_S = 300.0
_LONGEST_BODY = 2**29  # all candidates of a million providers have 350 MB
_PART_BYTES = 2**16


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    """Unpacked, if it came packed."""
    packed_bytes: int
    """How long it came."""
    headers: Sequence[tuple[str, str]] = ()


def send(
    url: str, method: str, path: str, *, headers: Mapping[str, str], body: bytes = b"", timeout_s: float = _TIMEOUT_S
) -> Reply:
    """Send a request to the service at *url*, on a connection of its own. path: with its query.

    timeout_s: how long nothing may come. Raises OSError where no whole reply came, TimeoutError where nothing came.
    uWSGI's --http-socket closes each connection, so none is kept.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request(method, path, body=body or None, headers=dict(headers))
        reply = connection.getresponse()
        if (reply.length or 0) > _LONGEST_BODY:
            raise OSError(f"its body has {reply.length} bytes, expected {_LONGEST_BODY} at most")
        content = reply.read() if reply.length is not None else _read_to_end(reply)
        unpacked = _unpacked(content) if reply.headers["Content-Encoding"] == "gzip" else content
        return Reply(reply.status, unpacked, len(content), reply.getheaders())
    except (http.client.HTTPException, EOFError, zlib.error, ValueError) as error:
        raise OSError(f"{type(error).__name__} {error}") from error
    finally:
        connection.close()


def _unpacked(content: bytes) -> bytes:
    """The content of a gzip file; raises OSError for more than `_LONGEST_BODY`, which a few packed bytes may become."""
    parts, length = list[bytes](), 0
    while content:
        unpacking = zlib.decompressobj(wbits=31)
        parts.append(unpacking.decompress(content, _LONGEST_BODY + 1 - length))
        length += len(parts[-1])
        if length > _LONGEST_BODY:
            raise OSError(
                f"its body has more than {_LONGEST_BODY} bytes when it is unpacked, the most that is expected"
            )
        if not unpacking.eof:
            raise EOFError("its packed body ends too early")
        content = unpacking.unused_data.lstrip(b"\0")  # another part may follow
    return b"".join(parts)


def _read_to_end(reply: http.client.HTTPResponse) -> bytes:
    """The body of a response that does not say how long it is; raises OSError for one that does not end."""
    parts, length, give_up_at = list[bytes](), 0, time.monotonic() + _TIMEOUT_S
    while part := reply.read1(_PART_BYTES):
        parts.append(part)
        length += len(part)
        if length > _LONGEST_BODY or time.monotonic() > give_up_at:
            raise OSError(f"its body did not end: {length} bytes in {_TIMEOUT_S + time.monotonic() - give_up_at:.0f} s")
    return b"".join(parts)


def get(url: str, request: str, *, encoding: str = "identity", timeout_s: float = _TIMEOUT_S) -> Reply:
    """GET *request* (path and query) from a service that speaks Placement's API, as `send` does.

    encoding: what the client takes, "identity" or "gzip".
    """
    return send(url, "GET", request, headers={**HEADERS, "Accept-Encoding": encoding}, timeout_s=timeout_s)


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
