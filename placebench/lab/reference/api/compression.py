"""WSGI middleware that compresses response bodies, or sends them in chunks."""

import zlib
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

_LEVEL: Final = 1
_MIN_BYTES: Final = 1000
"""Shorter bodies are not compressed: they fit into one packet anyway."""
_GZIP: Final = 31  # zlib's window of 32 KB (15), in gzip's frame (16 more)

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None] | None


def compress_responses(app: WSGIApplication) -> WSGIApplication:
    """Return the application with bodies of at least 1000 bytes compressed with gzip if the client accepts gzip."""

    def zipped(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        worth = False

        def start(status: str, headers: list[tuple[str, str]], error: _ExceptionInfo = None) -> Any:
            nonlocal worth
            accepted = parse_accept_header(environ.get("HTTP_ACCEPT_ENCODING"), Accept)
            # A body that is written while it is sent has no length yet.
            length = next((float(value) for name, value in headers if name.lower() == "content-length"), float("inf"))
            worth = accepted.quality("gzip") > 0 and environ["REQUEST_METHOD"] != "HEAD" and length >= _MIN_BYTES
            if worth:
                others = [(name, value) for name, value in headers if name.lower() != "content-length"]
                headers = [*others, ("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
            return start_response(status, headers, error)

        body = app(environ, start)
        return _GzipBody(body) if worth else body

    return zipped


class _GzipBody:
    """A gzip-compressed body, which compresses another body part by part and closes it at the end."""

    def __init__(self, body: Iterable[bytes]) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        packer = zlib.compressobj(_LEVEL, wbits=_GZIP)
        for part in self._body:
            if packed := packer.compress(part):
                yield packed
        yield packer.flush()

    def close(self) -> None:
        getattr(self._body, "close", lambda: None)()


_BODILESS: Final = ("1", "204", "304")


def chunk_responses(app: WSGIApplication) -> WSGIApplication:
    """Return the application with bodies of unknown length sent in chunks if the client uses HTTP/1.1."""

    def framed(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        in_chunks = False

        def start(status: str, headers: list[tuple[str, str]], error: _ExceptionInfo = None) -> Any:
            nonlocal in_chunks
            length_known = any(name.lower() == "content-length" for name, _ in headers)
            takes_chunks = environ.get("SERVER_PROTOCOL") == "HTTP/1.1" and environ["REQUEST_METHOD"] != "HEAD"
            in_chunks = not length_known and not status.startswith(_BODILESS) and takes_chunks
            if in_chunks:
                headers = [*headers, ("Transfer-Encoding", "chunked")]
            return start_response(status, headers, error)

        body = app(environ, start)
        return _ChunkedBody(body) if in_chunks else body

    return framed


class _ChunkedBody:
    """A chunked body, which sends each part of another body as one chunk and closes that body at the end."""

    def __init__(self, body: Iterable[bytes]) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            if part:
                yield b"%x\r\n%b\r\n" % (len(part), part)
        yield b"0\r\n\r\n"

    def close(self) -> None:
        getattr(self._body, "close", lambda: None)()
