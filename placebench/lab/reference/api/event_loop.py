"""Runs a WSGI application in an event loop, for ASGI servers: `EventLoopApplication`.

Each request runs in a greenlet. While SQLAlchemy awaits an asynchronous driver there, the event loop serves other
requests; Python code that computes blocks the event loop. One code base serves WSGI and ASGI this way.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from io import BytesIO
from typing import Any
from wsgiref.types import WSGIApplication, WSGIEnvironment

from sqlalchemy import Engine
from sqlalchemy.util import await_only, greenlet_spawn

from placebench.lab.reference.api.call import BODY_LIMIT

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]

_CGI_NAMES = {"HTTP_CONTENT_TYPE": "CONTENT_TYPE", "HTTP_CONTENT_LENGTH": "CONTENT_LENGTH"}


class EventLoopApplication:
    """An ASGI application that runs a WSGI application in the event loop, each request in a greenlet that can await."""

    def __init__(self, application: WSGIApplication, engine: Engine) -> None:
        """application: must wait only through *engine*, whose driver is asynchronous, or through `await_only`."""
        self._application = application
        self._engine = engine

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one request (scope "http"), or close the connections when the server shuts down (scope "lifespan")."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await greenlet_spawn(self._engine.dispose)
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            body = await _read_body(receive)
            if body is not None:
                await greenlet_spawn(self._serve, _environ(scope, body), send)

    def _serve(self, environ: WSGIEnvironment, send: _Send) -> None:
        """Send the response part by part; the application yields a part only after the one before it was sent."""
        started: list[_Message] = []

        def start_response(status: str, headers: Iterable[tuple[str, str]], *_: object) -> Callable[[bytes], object]:
            encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            started.append({"type": "http.response.start", "status": int(status[:3]), "headers": encoded})
            return _refuse_write

        parts = self._application(environ, start_response)
        try:
            for part in parts:
                if started:
                    await_only(send(started.pop()))
                await_only(send({"type": "http.response.body", "body": part, "more_body": True}))
            if started:
                await_only(send(started.pop()))
            await_only(send({"type": "http.response.body", "body": b"", "more_body": False}))
        finally:
            getattr(parts, "close", lambda: None)()


def _refuse_write(_part: bytes) -> None:
    raise NotImplementedError("WSGI's write() is for applications older than iterators")


async def _read_body(receive: _Receive) -> bytes | None:
    """Return the body of the request, or None if the client disconnected before the end of the body.

    Reading stops once the body is longer than `BODY_LIMIT`; the service then rejects the request.
    """
    parts, size, more = [], 0, True
    while more and size <= BODY_LIMIT:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts)


def _environ(scope: _Message, body: bytes) -> WSGIEnvironment:
    host, port = scope.get("server") or ("localhost", 80)
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": (root := scope.get("root_path", "")).encode().decode("latin-1"),
        "PATH_INFO": scope["path"].removeprefix(root).encode(errors="surrogateescape").decode("latin-1"),
        "QUERY_STRING": scope.get("query_string", b"").decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or 80),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        key = f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}"
        key, text = _CGI_NAMES.get(key, key), value.decode("latin-1")
        environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ
