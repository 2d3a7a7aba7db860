"""Requests to a WSGI or ASGI application in this process, without a server and without a package that speaks HTTP.

The main function is `in_process_client`, which makes an `InProcessClient`: it sends a `Request`, reads the whole body
of its `Response` and keeps cookies. werkzeug's test client is not in the base install, and does not know ASGI.
"""

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote
from wsgiref.util import setup_testing_defaults

from placebench.errors import ProfilerError
from placebench.http_session import Request, Session
from placebench.profiler.integrations.application import Interface, interface_of

_BODY_KEPT = 64 * 1024
_BODY_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the application. body: its first 64 KiB; the rest was read and dropped."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """Return the first value of a header, whose *name* is in lower case; empty if there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    @property
    def text(self) -> str:
        """The beginning of the body on one line, for a message; empty for an HTML page."""
        if "html" in self.header("content-type"):
            return ""
        text = " ".join(self.body[:_BODY_SHOWN].decode(errors="replace").split())
        return "".join(letter if letter.isprintable() else "?" for letter in text)


class InProcessClient:
    """Sends requests one after another, with the cookies that the application has set, as a browser does.

    In a request that may change something, the cookie of a CSRF protection is also sent as its header. The access token
    of an OAuth2 login is sent with every later request. interface: "wsgi" or "asgi".
    """

    def __init__(self, send: Callable[[Request], Response], interface: Interface) -> None:
        self.interface = interface
        self._send = send
        self._session = Session()

    def send(self, request: Request) -> Response:
        """Send a request, and read the whole response."""
        response = self._send(replace(request, headers={**self._session.headers(request.method), **request.headers}))
        self._session.keep_cookies(response.headers)
        return response

    def log_in(self, request: Request) -> None:
        """Send a login request. Raises ProfilerError if the status of its response is not below 400."""
        response = self.send(request)
        if response.status >= 400:
            raise ProfilerError(f"login {request}: status {response.status}, expected below 400; nothing was recorded")
        self._session.keep_access_token(response.body)


@contextmanager
def in_process_client(application: Any, interface: Interface | None = None) -> Iterator[InProcessClient]:
    """Start an application, yield a client for it, and shut it down; by default its signature shows the interface.

    An ASGI application runs in its own event loop. Raises ProfilerError if its startup or its shutdown fails.
    """
    interface = interface or interface_of(application)
    if interface == "wsgi":
        yield InProcessClient(partial(_send_wsgi, application), interface)
        return
    with asyncio.Runner() as runner:
        state: dict[str, Any] = {}
        lifespan = _lifespan(application, state)
        runner.run(lifespan.__aenter__())

        def send(request: Request) -> Response:
            # In the caller's context, which holds the recording, not in the runner's own.
            return runner.run(_send_asgi(application, request, state), context=copy_context())

        try:
            yield InProcessClient(send, interface)
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def _send_wsgi(application: Any, request: Request) -> Response:
    path, _, query = request.path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(request.body)),
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    starts: list[tuple[int, list[tuple[str, str]]]] = []
    kept = bytearray()

    def start_response(status: str, headers: list[tuple[str, str]], _error: object = None) -> Any:
        starts.append((int(status.split()[0]), headers))
        return kept.extend

    body = application(environ, start_response)
    try:
        for part in body:
            kept += part[: max(0, _BODY_KEPT - len(kept))]
    finally:
        if hasattr(body, "close"):
            body.close()
    return _response(starts, kept)


async def _send_asgi(application: Any, request: Request, state: Mapping[str, Any]) -> Response:
    starts: list[tuple[int, list[tuple[str, str]]]] = []
    kept = bytearray()
    parts = [{"type": "http.request", "body": request.body, "more_body": False}]
    complete = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if parts:
            return parts.pop()
        # The client stays until it has the whole response: a streaming response ends when the client is gone.
        await complete.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
                for name, value in message.get("headers", ())
            ]
            starts.append((message["status"], headers))
        elif message["type"] == "http.response.body":
            kept.extend(message.get("body", b"")[: max(0, _BODY_KEPT - len(kept))])
            if not message.get("more_body", False):
                complete.set()

    await application(_scope(request, state), receive, send)
    return _response(starts, kept)


@asynccontextmanager
async def _lifespan(application: Any, state: dict[str, Any]) -> AsyncIterator[None]:
    """Run an ASGI application's lifespan from startup to shutdown; an application without lifespan support may raise.

    state: values that the application keeps for its requests.
    """
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def live() -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}
        try:
            await application(scope, sent.get, received.put)
        except Exception:  # noqa: BLE001  by the specification this means "not supported"
            return

    async def announce(step: str) -> None:
        """Announce a step, and wait for the response to it or for the end of the application's task."""
        await sent.put({"type": f"lifespan.{step}"})
        response = asyncio.create_task(received.get())
        await asyncio.wait({task, response}, return_when=asyncio.FIRST_COMPLETED)
        message = response.result() if response.done() else {}
        response.cancel()
        if message.get("type") == f"lifespan.{step}.failed":
            raise ProfilerError(f"the application's {step} failed: {message.get('message', 'it does not say why')}")

    task = asyncio.create_task(live())
    await announce("startup")
    yield
    if not task.done():
        await announce("shutdown")
        await task


def _response(starts: list[tuple[int, list[tuple[str, str]]]], body: bytearray) -> Response:
    """Return the response with the last status and headers. Raises ProfilerError if there are none."""
    if not starts:
        raise ProfilerError("the application returned without a response: expected a status; is it WSGI or ASGI?")
    status, headers = starts[-1]
    return Response(status, tuple(headers), bytes(body))


def _scope(request: Request, state: Mapping[str, Any]) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    headers = {"host": "127.0.0.1", "content-length": str(len(request.body))}
    headers |= {name.lower(): value for name, value in request.headers.items()}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 80),
        "state": dict(state),
    }
