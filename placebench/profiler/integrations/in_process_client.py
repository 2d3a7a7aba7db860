"""Requests to a WSGI or ASGI application in this process, without a server and without a package that speaks HTTP.

The main functions are `application_named` and `in_process_client`: one request in, its status out, all of the body
read. werkzeug's test client is no part of the base install, which has to profile, and it knows no ASGI.
"""

import asyncio
import inspect
import io
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Self
from urllib.parse import unquote
from wsgiref.util import setup_testing_defaults

from placebench.errors import ProfilerError


@dataclass(frozen=True, slots=True)
class Request:
    """One request. path: with its query. Header names as they are written in HTTP."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @classmethod
    def parse(cls, text: str, *, headers: Mapping[str, str], body: bytes) -> Self:
        """A request from "GET /x?y=1". Raises ProfilerError for anything else."""
        method, _, path = text.strip().partition(" ")
        if not method.isalpha() or not path.startswith("/"):
            raise ProfilerError(f"request {text!r}: expected a method and a path, such as 'GET /orders?page=2'")
        return cls(method.upper(), path, headers, body)

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


Send = Callable[[Request], int]
"""Sends a request, reads all of the response, and returns its status."""


def application_named(name: str) -> Any:
    """The object that "module:callable" names; "module:factory()" calls it. Modules of the current folder are found.

    Raises ProfilerError if there is none.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ProfilerError(f"application {name!r}: expected MODULE:CALLABLE, such as shop.wsgi:application")
    if "" not in sys.path and "." not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ProfilerError(f"application {name!r}: there is no module {error.name!r}") from error
    for part in attribute.removesuffix("()").split("."):
        if not hasattr(found, part):
            raise ProfilerError(f"application {name!r}: {module_name} has no {part!r}")
        found = getattr(found, part)
    return found() if attribute.endswith("()") else found


@contextmanager
def in_process_client(application: Any, interface: str | None = None) -> Iterator[Send]:
    """Around the life of an application: what sends it requests by its interface, "wsgi" or "asgi".

    By default the interface is ASGI if a call of the application is awaited. An ASGI application runs in an event loop
    of its own. Raises ProfilerError if its startup or its shutdown fails.
    """
    call = application if inspect.isfunction(application) else getattr(application, "__call__", None)  # noqa: B004
    if interface == "wsgi" or (interface is None and not inspect.iscoroutinefunction(call)):
        yield partial(_send_wsgi, application)
        return
    with asyncio.Runner() as runner:
        lifespan = _lifespan(application)
        runner.run(lifespan.__aenter__())
        # In the caller's context, not in the runner's own: that is where the recording is.
        try:
            yield lambda request: runner.run(_send_asgi(application, request), context=copy_context())
        finally:
            runner.run(lifespan.__aexit__(None, None, None))


def _send_wsgi(application: Any, request: Request) -> int:
    path, _, query = request.path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "CONTENT_LENGTH": str(len(request.body)),
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key == "CONTENT_TYPE" else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    statuses: list[int] = []

    def start_response(status: str, _headers: object, _error: object = None) -> Any:
        statuses.append(int(status.split()[0]))
        return lambda _part: None

    body = application(environ, start_response)
    try:
        for _ in body:
            pass
    finally:
        if hasattr(body, "close"):
            body.close()
    return _last_status(statuses)


async def _send_asgi(application: Any, request: Request) -> int:
    statuses: list[int] = []
    parts = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return parts.pop() if parts else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await application(_scope(request), receive, send)
    return _last_status(statuses)


@asynccontextmanager
async def _lifespan(application: Any) -> AsyncIterator[None]:
    """Around an ASGI application's life, from its startup to its shutdown; one without the protocol may raise."""
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def live() -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await application(scope, sent.get, received.put)
        except Exception:  # noqa: BLE001  that is how the specification has it say "not supported"
            return

    async def announce(step: str) -> None:
        """Wait for the response to a step, or for the end of the application's life."""
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


def _last_status(statuses: list[int]) -> int:
    """The status of the response. Raises ProfilerError if there was none."""
    if not statuses:
        raise ProfilerError("the application returned without a response: expected a status; is it WSGI or ASGI?")
    return statuses[-1]


def _scope(request: Request) -> dict[str, Any]:
    """A request as ASGI has it."""
    path, _, query = request.path.partition("?")
    headers = {"host": "127.0.0.1", "content-length": str(len(request.body)), **request.headers}
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
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
