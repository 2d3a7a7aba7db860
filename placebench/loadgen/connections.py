"""Kept connections of the load generator: a request whose connection the server had closed is sent once more.

A server may close a kept connection at any moment, even without a `Connection: close` in its last response; uWSGI does
so after each response. The client notices only after it has sent the next request. RFC 9110, section 9.2.2, lets the
client send that request again on a new connection if the method is idempotent. The client does this once, counts it,
and times the request from the first sending.

A POST or PATCH is never sent twice. It uses a kept connection only of a server that is known to keep connections.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ssl import SSLEOFError, SSLZeroReturnError
from typing import Any, Final
from weakref import WeakSet

import gevent
import geventhttpclient.client
from gevent.socket import wait_read
from geventhttpclient.client import HTTPClient
from geventhttpclient.response import HTTPConnectionClosed, HTTPSocketPoolResponse

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_WATCHED_S: Final = 0.05
"""Seconds within which a server that closes the connection after each response has done so."""


@dataclass
class Sending:
    """How a request may be sent, and the number of times that requests were sent again."""

    may_repeat: bool = True
    """Whether an idempotent request may be sent again; False if its effect must not happen twice."""
    repeats: int = 0


all_others = Sending()
"""The setting that applies to requests outside of a `sending` block."""
_sending: ContextVar[Sending] = ContextVar("sending", default=all_others)


@contextmanager
def sending(*, may_repeat: bool) -> Iterator[Sending]:
    """Count the requests in the `with` block that are sent again, or forbid to send them again."""
    token = _sending.set(made := Sending(may_repeat))
    try:
        yield made
    finally:
        _sending.reset(token)


@dataclass
class _Attempt:
    """The kind of connection that a request needs, and whether its connection has carried a response before."""

    new: bool
    watch: bool
    is_reused: bool = False


_attempt: ContextVar[_Attempt] = ContextVar("attempt")


class KeptConnections:
    """The connection pool of one client, which knows which connections have carried a response before."""

    _keeps: dict[tuple[str, int | None], bool] = {}  # noqa: RUF012  all clients of a server share what they know
    """Whether a server, by host and port, keeps its connections; servers not yet known are missing."""

    def __init__(self, client: HTTPClient) -> None:
        self._pool = client._connection_pool
        self._server = (client.host, client.port)
        self._used, self._to_watch = WeakSet[Any](), WeakSet[Any]()
        self.size = self._pool.size

    @property
    def server_keeps(self) -> bool | None:
        """Whether the server keeps connections after a response; None until that is known."""
        return self._keeps.get(self._server)

    def note(self, *, keeps: bool) -> None:
        """Record whether the server kept a connection; a server that has closed one counts as keeping none."""
        self._keeps[self._server] = keeps and self.server_keeps is not False

    def get_socket(self) -> Any:
        """Return a connection for this greenlet's attempt: an open kept one, or a new one if that is required."""
        attempt = _attempt.get()
        sock = self._pool.get_socket()
        while attempt.new and sock in self._used:
            self._pool.release_socket(sock)
            sock = self._pool.get_socket()
        attempt.is_reused = sock in self._used
        if attempt.watch:
            self._to_watch.add(sock)
        return sock

    def return_socket(self, sock: Any) -> None:
        """Keep a connection after a response."""
        if sock in self._used:
            self.note(keeps=True)
        self._used.add(sock)
        if sock in self._to_watch and self.server_keeps is None:
            gevent.spawn(self._watch, sock)
        else:
            self._pool.return_socket(sock)

    def release_socket(self, sock: Any) -> None:
        """Close a connection."""
        self._pool.release_socket(sock)

    def close(self) -> None:
        """Close the connections that are kept."""
        self._pool.close()

    def _watch(self, sock: Any) -> None:
        """Watch briefly whether the server closes the connection, and return it to the pool if not."""
        try:
            wait_read(sock.fileno(), timeout=_WATCHED_S, timeout_exc=TimeoutError())
        except TimeoutError:
            self.note(keeps=True)
            self._pool.return_socket(sock)
        else:
            self.note(keeps=False)
            self._pool.release_socket(sock)


class RepeatingClient(HTTPClient):
    """A client of one server that sends a request again only in the case that this module describes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = KeptConnections(self)
        self._connection_pool = self._connections  # type: ignore[assignment]

    def request(self, method: str, request_uri: str, body: Any = b"", headers: Any = None) -> HTTPSocketPoolResponse:
        """Send a request and read the head of its response; raises OSError or HTTPParseError if there is none."""
        current, connections = _sending.get(), self._connections
        may_repeat = current.may_repeat and method.upper() in _IDEMPOTENT
        attempt = _Attempt(new=not may_repeat and not connections.server_keeps, watch=not may_repeat)
        _attempt.set(attempt)
        try:
            return super().request(method, request_uri, body, headers)
        except (HTTPConnectionClosed, SSLEOFError, SSLZeroReturnError):  # no byte of a response has come
            if not attempt.is_reused:
                raise
            connections.note(keeps=False)
            if not may_repeat:
                raise
        current.repeats += 1
        attempt.new = True
        return super().request(method, request_uri, body, headers)


def install() -> None:
    """Make all clients of this process, including those of locust's FastHttpUser, send as `RepeatingClient` does."""
    # The library itself would send again whenever a connection closes, even a new one, and would not report it.
    geventhttpclient.client.IDEMPOTENT_METHODS = frozenset()
    geventhttpclient.client.HTTPClient = RepeatingClient  # type: ignore[misc]
