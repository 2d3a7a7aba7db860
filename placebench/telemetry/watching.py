"""WSGI middleware that times each request: outermost, from the call of the application to the close of its body.

The key piece is `WatchedApplication`. Under uWSGI that is from the moment a worker has read the request's head and
calls the application until the last byte of the answer is handed to the kernel: the queue before the worker and uWSGI's
own parsing are outside. The framework reaches the request's `Watch` in the environ under `WATCH`, to tell its route and
what its handler took.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from placebench.telemetry.paths import bounded_verb
from placebench.telemetry.series_file import DURATION_LINE, REQUEST_LINE

if TYPE_CHECKING:
    from placebench.telemetry.telemeter import Telemeter

WATCH: Final = "placebench.watch"
"""Key of the request's Watch in the environ; not there while telemetry is off."""
REQUEST_HEADER: Final = "X-Placebench-Request"
"""A client that times requests as well sends the request's number in it."""
_FROM_CLIENT: Final = "HTTP_X_PLACEBENCH_REQUEST"
_LONGEST_NUMBER: Final = 18
_MOST_ROWS: Final = 10_000

WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_clock = time.perf_counter
_current: ContextVar["Watch | None"] = ContextVar("placebench_watch", default=None)


def current_watch() -> "Watch | None":
    """The watch of the request that this thread or task answers; None outside of one, or if telemetry is off."""
    watch = _current.get()
    return None if watch is None or watch.ended else watch


class Watch:
    """One request while it is answered, and the body of its answer; `close()`, which every WSGI server calls, ends it.

    route: its pattern, where the framework tells it. handler_s: what its handler took.
    """

    ended = False
    status = ""
    route: str | None = None
    application_s: float | None = None
    handler_s: float | None = None
    body: Iterable[bytes] = ()
    _rows: list[tuple[str, str, float, float]] | None = None
    _server_s = 0.0

    def __init__(self, meter: "Telemeter", environ: dict[str, Any], start_response: Callable[..., Any]) -> None:
        self._meter = meter
        self._asked = (environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), environ.get(_FROM_CLIENT, ""))
        self._start_response = start_response
        self.started = _clock()

    def start_response(self, status: str, *rest: Any) -> Any:
        """The server's own, with the status noted on the way."""
        self.status = status[:3]
        return self._start_response(status, *rest)

    def note(self, series: str, label: str, started: float, duration_s: float) -> None:
        """A duration inside this request, written when it ends; *started* is a reading of time.perf_counter."""
        if self._rows is None:
            self._rows = []
        if len(self._rows) < _MOST_ROWS:
            self._rows.append((series, label, started, duration_s))

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

    def end(self) -> None:
        """The answer is sent, or the request failed; again is harmless."""
        if not self.ended:
            self.ended = True
            self._server_s = _clock() - self.started
            self._meter.file.add(self._lines())
            # The environ holds this watch: with the body in it a circle would close, for the garbage collector to find.
            self.body = ()

    def _lines(self) -> str:
        verb, path, number = self._asked
        meter, zero_s = self._meter, self._meter.file.wall_zero_s
        verb, path = bounded_verb(verb), self.route or meter.patterns.of(path)
        if not number.isdecimal() or len(number) > _LONGEST_NUMBER:
            number = str(meter.next_request())
        handler_s, framework_s = self.handler_s, None
        if handler_s is not None and self.application_s is not None:
            framework_s = self.application_s - handler_s
        nested = (_field(framework_s), _field(handler_s))
        text = REQUEST_LINE % (zero_s + self.started, number, verb, path, self.status, self._server_s, *nested)
        for series, label, started, duration_s in self._rows or ():
            text += DURATION_LINE % (zero_s + started, number, verb, path, self.status, series, label, duration_s)
        return text


def _field(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.7f}"


class WatchedApplication:
    """A WSGI application whose requests are timed; what it answers is passed on untouched."""

    def __init__(self, meter: "Telemeter", application: WsgiApplication) -> None:
        self._meter = meter
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if not self._meter.ready():
            return self._application(environ, start_response)
        watch = environ[WATCH] = Watch(self._meter, environ, start_response)
        _current.set(watch)
        try:
            body = self._application(environ, watch.start_response)
            watch.application_s = _clock() - watch.started
        except BaseException as error:
            watch.status = type(error).__name__
            watch.end()
            raise
        if _is_sent_by_server(body, environ):
            watch.end()
            return body
        watch.body = body
        return watch


def _is_sent_by_server(body: object, environ: dict[str, Any]) -> bool:
    """Whether the body is the server's own file wrapper, which it sends by itself only if it gets it unwrapped."""
    wrapper = environ.get("wsgi.file_wrapper")
    return isinstance(wrapper, type) and isinstance(body, wrapper)
