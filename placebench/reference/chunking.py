"""A body of unknown length in chunks, for a server that sends what it is given: the key piece is `chunked`.

uWSGI's --http-socket writes the application's bytes as they are, and ends a body without Content-Length by closing the
connection, so a client could not tell a body that broke off from a whole one. In chunks it can: the last is missing.
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_BODILESS: Final = ("1", "204", "304")

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None] | None


def chunked(app: WSGIApplication) -> WSGIApplication:
    """The application, with every body of unknown length framed in chunks where the client speaks HTTP/1.1."""

    def framed(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        in_chunks = False

        def start(status: str, headers: list[tuple[str, str]], error: _ExceptionInfo = None) -> Any:
            nonlocal in_chunks
            length_known = any(name.lower() == "content-length" for name, _ in headers)
            in_chunks = not length_known and not status.startswith(_BODILESS) and _speaks_chunks(environ)
            if in_chunks:
                headers = [*headers, ("Transfer-Encoding", "chunked")]
            return start_response(status, headers, error)

        body = app(environ, start)
        return _Frames(body) if in_chunks else body

    return framed


def _speaks_chunks(environ: WSGIEnvironment) -> bool:
    return bool(environ["SERVER_PROTOCOL"] == "HTTP/1.1" and environ["REQUEST_METHOD"] != "HEAD")


class _Frames:
    """A body, each of its parts as a chunk; closes what it reads from."""

    def __init__(self, body: Iterable[bytes]) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            if part:
                yield b"%x\r\n%b\r\n" % (len(part), part)
        yield b"0\r\n\r\n"

    def close(self) -> None:
        """Release what the body holds."""
        getattr(self._body, "close", lambda: None)()
