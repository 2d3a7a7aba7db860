"""One GET as the benchmark sends it: the headers that every request bears, and the reply with its body read."""

import http.client
from dataclasses import dataclass
from urllib.parse import urlsplit

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", "Accept-Encoding": "identity"}
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    body: bytes


def get(url: str, request: str) -> Reply:
    """GET *request* (path and query) from the service at *url*, on a connection of its own.

    Raises OSError where no whole reply came. uWSGI's --http-socket closes each connection, so none is kept.
    """
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", request, headers=HEADERS)
        reply = connection.getresponse()
        return Reply(reply.status, reply.read())
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__} {error}") from error
    finally:
        connection.close()
