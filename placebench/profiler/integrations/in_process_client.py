"""Requests to an application in this process, WSGI or ASGI, without a server.

The key pieces are `application_named` and `Caller.answer`: one request in, its status out, all of the body read.
"""

import asyncio
import inspect
import io
import sys
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import unquote
from wsgiref.util import setup_testing_defaults

from placebench.errors import ProfilerError

T = TypeVar("T")


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


class Application(Protocol):
    """An application that can be asked."""

    def answer(self, request: Request) -> int:
        """Ask it, read all of its answer, and give the status."""

    def close(self) -> None:
        """Let it end."""


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


def is_asgi(application: Any) -> bool:
    """Whether calling it gives a coroutine."""
    call = application if inspect.isfunction(application) else getattr(application, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(call)


class WsgiCaller:
    """Asks a WSGI application."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def answer(self, request: Request) -> int:
        """Ask it, read all of its answer, and give the status."""
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
        statuses: list[str] = []

        def start_response(status: str, _headers: object, _error: object = None) -> Any:
            statuses.append(status)
            return lambda _piece: None

        body = self._application(environ, start_response)
        try:
            for _ in body:
                pass
        finally:
            if hasattr(body, "close"):
                body.close()
        return int(_last(statuses).split()[0])

    def close(self) -> None:
        """A WSGI application has no end."""


class AsgiCaller:
    """Asks an ASGI application, in an event loop of its own from its startup to its shutdown."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._runner = asyncio.Runner()
        self._to_lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        try:
            self._lifespan = self._runner.run(self._start())
        except BaseException:
            self._runner.close()
            raise

    def answer(self, request: Request) -> int:
        """Ask it, read all of its answer, and give the status."""
        # In the caller's context, not in the runner's own: that is where the recording is.
        return self._runner.run(self._answer(request), context=copy_context())

    def close(self) -> None:
        """Shut it down."""
        try:
            self._runner.run(self._stop())
        finally:
            self._runner.close()

    async def _start(self) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._live())
        await self._tell("startup", task)
        return task

    async def _stop(self) -> None:
        if not self._lifespan.done():
            await self._tell("shutdown", self._lifespan)
            await self._lifespan

    async def _live(self) -> None:
        """The lifespan protocol; an application without one may raise, and is asked all the same."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        try:
            await self._application(scope, self._to_lifespan.get, self._from_lifespan.put)
        except Exception:  # noqa: BLE001  that is how the specification has it say "not supported"
            return

    async def _tell(self, step: str, task: "asyncio.Task[None]") -> None:
        """Send it a step of its life, and wait for its answer or its end."""
        await self._to_lifespan.put({"type": f"lifespan.{step}"})
        answered = asyncio.create_task(self._from_lifespan.get())
        await asyncio.wait({task, answered}, return_when=asyncio.FIRST_COMPLETED)
        message = answered.result() if answered.done() else {}
        answered.cancel()
        if message.get("type") == f"lifespan.{step}.failed":
            raise ProfilerError(f"the application's {step} failed: {message.get('message', 'it does not say why')}")

    async def _answer(self, request: Request) -> int:
        statuses: list[int] = []
        pieces = [{"type": "http.request", "body": request.body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return pieces.pop() if pieces else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self._application(_scope(request), receive, send)
        return _last(statuses)


def _last(statuses: list[T]) -> T:
    """What it answered with in the end. Raises ProfilerError if it never answered."""
    if not statuses:
        raise ProfilerError("the application returned without an answer: expected a status; is it WSGI or ASGI?")
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
