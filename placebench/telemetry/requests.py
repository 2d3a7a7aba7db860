"""Requests timed while they are served: `WatchedApplication` for WSGI, `WatchedAsgiApplication` for ASGI.

`watched_handler` times the handlers inside them, in whatever thread or task the framework calls a handler.
"""

import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar, cast

from placebench.telemetry.series_file import DURATION_LINE, REQUEST_LINE, PathPatterns, SeriesFile, bounded_verb

WATCH_KEY: Final = "placebench.watch"
"""Key of the request's watch in the WSGI environ; missing while telemetry is off."""
REQUEST_HEADER: Final = "X-Placebench-Request"
"""Header in which a client that also times requests sends the request's number."""
_FROM_CLIENT: Final = "HTTP_X_PLACEBENCH_REQUEST"
_ASGI_FROM_CLIENT: Final = REQUEST_HEADER.lower().encode()
_MAX_NUMBER_LENGTH: Final = 18
_MAX_ROWS: Final = 10_000

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]
_Handler = TypeVar("_Handler", bound=Callable[..., Any])
_clock = time.perf_counter
_current: ContextVar["WatchedRequest | None"] = ContextVar("placebench_watch", default=None)


class _Meter(Protocol):
    """The part of a `Telemeter` that a watched request uses."""

    file: SeriesFile
    patterns: PathPatterns

    def ready(self) -> bool: ...

    def next_request(self) -> int: ...

    def flush(self) -> None: ...


def current_request() -> "WatchedRequest | None":
    """Return the watch of the request that this thread or task serves; None without a request or telemetry."""
    watch = _current.get()
    return None if watch is None or watch.ended else watch


class WatchedRequest:
    """One request while it is served.

    path: the path as it was sent. route: its pattern, if the framework knows it. application_s: the time until the
    application began its response. handler_s: the time in its handler.
    """

    ended = False
    status = ""
    route: str | None = None
    application_s: float | None = None
    handler_s: float | None = None
    _is_in_handler = False
    _rows: list[tuple[str, str, float, float]] | None = None
    _served_at: float | None = None

    def __init__(self, meter: _Meter, verb: str, path: str, number: str) -> None:
        self._meter = meter
        self._verb = verb
        self.path = path
        self._number = number
        self.started = _clock()

    def note(self, series: str, label: str, started: float, duration_s: float) -> None:
        """Keep a duration inside this request until the request ends; *started* is a reading of time.perf_counter.

        What began after the response was sent, such as a background task, is not part of the request.
        """
        if self._served_at is not None and started > self._served_at:
            return
        if self._rows is None:
            self._rows = []
        if len(self._rows) < _MAX_ROWS:
            self._rows.append((series, label, started, duration_s))

    @property
    def is_served(self) -> bool:
        """Whether the last part of the response was sent."""
        return self._served_at is not None

    @contextmanager
    def in_handler(self) -> Iterator[None]:
        """Add the time inside to the handler's time; a handler that is called by another one counts once."""
        if self._is_in_handler or self.is_served:
            yield
            return
        self._is_in_handler, started = True, _clock()
        try:
            yield
        finally:
            self._is_in_handler = False
            self.handler_s = (self.handler_s or 0.0) + _clock() - started

    def stop_timing(self) -> None:
        """Stop the time of the request, whose last part is sent; idempotent."""
        if self._served_at is None:
            self._served_at = _clock()

    def end(self) -> None:
        """End the request after its response is sent or has failed; idempotent."""
        if not self.ended:
            self.stop_timing()
            self.ended = True
            self._meter.file.add(self._lines())

    def _lines(self) -> str:
        assert self._served_at is not None, "end() has stopped the time"
        server_s = self._served_at - self.started
        number, meter, zero_s = self._number, self._meter, self._meter.file.wall_zero_s
        verb, path = bounded_verb(self._verb), self.route or meter.patterns.of(self.path)
        if not number.isdecimal() or len(number) > _MAX_NUMBER_LENGTH:
            number = str(meter.next_request())
        handler_s, framework_s = self.handler_s, None
        if handler_s is not None and self.application_s is not None:
            # A handler that sends the response itself ends after the response has begun.
            framework_s = max(0.0, self.application_s - handler_s)
        nested = (_field(framework_s), _field(handler_s))
        text = REQUEST_LINE % (zero_s + self.started, number, verb, path, self.status, server_s, *nested)
        for series, label, started, duration_s in self._rows or ():
            text += DURATION_LINE % (zero_s + started, number, verb, path, self.status, series, label, duration_s)
        return text


def _field(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.7f}"


class _WatchedResponse(WatchedRequest):
    """A WSGI request, and the body of its response; `close()`, which every WSGI server calls, ends it."""

    body: Iterable[bytes] = ()

    def __init__(self, meter: _Meter, environ: dict[str, Any], start_response: Callable[..., Any]) -> None:
        self._start_response = start_response
        super().__init__(meter, environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), environ.get(_FROM_CLIENT, ""))

    def start_response(self, status: str, *rest: Any) -> Any:
        """Record the status and call the server's own `start_response`."""
        self.status = status[:3]
        return self._start_response(status, *rest)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.body)

    def close(self) -> None:
        """Close the application's body, and end the request."""
        try:
            close = getattr(self.body, "close", None)
            if close is not None:
                close()
        finally:
            self.end()
            # The environ holds this watch: keeping the body would make a reference cycle for the garbage collector.
            self.body = ()


class WatchedApplication:
    """A WSGI application whose requests are timed; its responses are passed on unchanged."""

    def __init__(self, meter: _Meter, application: WsgiApplication) -> None:
        self._meter = meter
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request, and time it while telemetry is on."""
        if not self._meter.ready():
            return self._application(environ, start_response)
        watch = environ[WATCH_KEY] = _WatchedResponse(self._meter, environ, start_response)
        _current.set(watch)
        try:
            body = self._application(environ, watch.start_response)
            watch.application_s = _clock() - watch.started
        except BaseException as error:
            watch.status = type(error).__name__
            watch.end()
            raise
        # The server sends its own file wrapper efficiently, but only if it gets the wrapper itself.
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(wrapper, type) and isinstance(body, wrapper):
            watch.end()
            return body
        watch.body = body
        return watch


class WatchedAsgiApplication:
    """An ASGI application whose HTTP requests are timed; everything is passed on unchanged.

    A request ends with the last part of its response, so that background tasks are not in its time. WebSockets and the
    lifespan are not timed.
    """

    def __init__(self, meter: _Meter, application: AsgiApplication) -> None:
        self._meter = meter
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and time it while telemetry is on."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, self._flushed(send))
            return
        if scope["type"] != "http" or not self._meter.ready():
            await self._application(scope, receive, send)
            return
        path = scope.get("path", "")
        number = next((value for name, value in scope.get("headers", ()) if name == _ASGI_FROM_CLIENT), b"")
        watch = WatchedRequest(self._meter, scope.get("method", ""), path, number.decode("latin-1"))

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                watch.status = str(message["status"])
                watch.application_s = _clock() - watch.started
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # A profiler inside hands over its statements after this message: the row is written at the end.
                watch.stop_timing()

        token = _current.set(watch)
        try:
            await self._application(scope, receive, send_and_note)
        except BaseException as error:
            if not watch.is_served:
                watch.status = type(error).__name__
            raise
        finally:
            _current.reset(token)
            watch.path = _without_parameters(path, scope)
            watch.end()

    def _flushed(self, send: Send) -> Send:
        """Return *send* that writes the waiting rows when the application has shut down.

        uvicorn ends itself by the signal that it got, without running what was registered with atexit.
        """

        async def send_and_flush(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown.") and self._meter.ready():
                self._meter.flush()
            await send(message)

        return send_and_flush


def _without_parameters(path: str, scope: Scope) -> str:
    """Return the path with `<name>` for each parameter that the framework's router has found in it."""
    parameters = scope.get("path_params")
    if isinstance(parameters, dict):
        for name, value in parameters.items():
            # The last one: in /orders/orders the parameter follows the word of the route.
            before, found, after = f"{path}/".rpartition(f"/{value}/")
            if found and value != "":
                path = f"{before}/<{name}>/{after}".removesuffix("/")
    return path


def watched_handler(handler: _Handler) -> _Handler:
    """Return *handler* with its time added to the watched request that it is called in; plain or `async def`."""
    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            watch = current_request()
            if watch is None:
                return await handler(*args, **kwargs)
            with watch.in_handler():
                return await handler(*args, **kwargs)

        return cast("_Handler", call_async)

    @functools.wraps(handler)
    def call(*args: Any, **kwargs: Any) -> Any:
        watch = current_request()
        if watch is None:
            return handler(*args, **kwargs)
        with watch.in_handler():
            return handler(*args, **kwargs)

    return cast("_Handler", call)
