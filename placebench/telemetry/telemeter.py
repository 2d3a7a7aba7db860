"""The live side of telemetry: one file per process, written once a second.

`Telemeter` records process figures (memory, CPU, GC, threads), and `_WatchedApplication` is the WSGI middleware that
times each request.
"""

import atexit
import gc
import itertools
import os
import resource
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Protocol

from placebench.telemetry.series_file import (
    DURATION_LINE,
    FIGURE_LINE,
    REQUEST_LINE,
    PathPatterns,
    SeriesFile,
    bounded_verb,
    clean,
)

_STATM = Path("/proc/self/statm")

_PoolInUse = Callable[[], int]


class _ProcessFigures:
    """Reads the figures of a process; counts garbage collections after `install`."""

    def __init__(self, pool_in_use: _PoolInUse | None = None) -> None:
        self._pool_in_use = pool_in_use
        self._page_bytes = resource.getpagesize()
        self._collections = 0
        self._pause_s = 0.0
        self._paused_at: float | None = None

    def install(self) -> None:
        """Start counting collections and their pauses in this process."""
        gc.callbacks.append(self._collected)

    def remove(self) -> None:
        """Stop counting; idempotent."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def figures(self) -> dict[str, float]:
        """Return the figures by name, in some 20 µs; figures that this system does not have are left out."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        read = {
            "cpu_user_s": used.ru_utime,
            "cpu_system_s": used.ru_stime,
            "gc_collections": self._collections,
            "gc_pause_s": self._pause_s,
            "threads": threading.active_count(),
        }
        with suppress(OSError):
            read["rss_bytes"] = int(_STATM.read_text().split()[1]) * self._page_bytes
        if self._pool_in_use is not None:
            read["pool_in_use"] = self._pool_in_use()
        return read

    def _collected(self, phase: str, _details: dict[str, int]) -> None:
        if phase == "start":
            self._paused_at = time.perf_counter()
        elif self._paused_at is not None:
            self._pause_s += time.perf_counter() - self._paused_at
            self._collections += 1
            self._paused_at = None


WATCH_KEY: Final = "placebench.watch"
"""Key of the request's watch in the WSGI environ; missing while telemetry is off."""
REQUEST_HEADER: Final = "X-Placebench-Request"
"""Header in which a client that also times requests sends the request's number."""
_FROM_CLIENT: Final = "HTTP_X_PLACEBENCH_REQUEST"
_MAX_NUMBER_LENGTH: Final = 18
_MAX_ROWS: Final = 10_000

_WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_clock = time.perf_counter
_current: ContextVar["_WatchedRequest | None"] = ContextVar("placebench_watch", default=None)


def _current_request() -> "_WatchedRequest | None":
    """Return the watch of the request that this thread or task serves; None without a request or telemetry."""
    watch = _current.get()
    return None if watch is None or watch.ended else watch


class _WatchedRequest:
    """One request while it is served, and the body of its response; `close()`, which every WSGI server calls, ends it.

    route: the pattern of the request's path, if the framework knows it. handler_s: the time of its handler.
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
        """Record the status and call the server's own `start_response`."""
        self.status = status[:3]
        return self._start_response(status, *rest)

    def note(self, series: str, label: str, started: float, duration_s: float) -> None:
        """Keep a duration inside this request until the request ends; *started* is a reading of time.perf_counter."""
        if self._rows is None:
            self._rows = []
        if len(self._rows) < _MAX_ROWS:
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
        """End the request after its response is sent or has failed; idempotent."""
        if not self.ended:
            self.ended = True
            self._server_s = _clock() - self.started
            self._meter.file.add(self._lines())
            # The environ holds this watch: keeping the body would make a reference cycle for the garbage collector.
            self.body = ()

    def _lines(self) -> str:
        verb, path, number = self._asked
        meter, zero_s = self._meter, self._meter.file.wall_zero_s
        verb, path = bounded_verb(verb), self.route or meter.patterns.of(path)
        if not number.isdecimal() or len(number) > _MAX_NUMBER_LENGTH:
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


class _WatchedApplication:
    """A WSGI application whose requests are timed; its responses are passed on unchanged."""

    def __init__(self, meter: "Telemeter", application: _WsgiApplication) -> None:
        self._meter = meter
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request, and time it while telemetry is on."""
        if not self._meter.ready():
            return self._application(environ, start_response)
        watch = environ[WATCH_KEY] = _WatchedRequest(self._meter, environ, start_response)
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


_BEAT_S = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Engine(Protocol):
    """The part of a SQLAlchemy engine that is used here."""

    pool: Any


class Telemeter:
    """Writes the telemetry of each process that uses it to a separate file in *folder*.

    engine: if given, the connections in use of its pool are among the figures. role: the kind of process, for the
    file's name. If a file cannot be written, the telemetry of its process is switched off, without an exception in the
    application.
    """

    def __init__(self, folder: Path | str, *, engine: _Engine | None = None, role: str = "worker") -> None:
        self._folder = Path(folder).absolute()
        self._engine = engine
        self._role = role
        self._pid = -1
        self._starting = threading.Lock()
        self.patterns: PathPatterns = PathPatterns()

    def wsgi(self, application: _WsgiApplication) -> _WatchedApplication:
        """Return *application* with its requests timed, which costs some microseconds each (docs/lab/telemetry.md)."""
        return _WatchedApplication(self, application)

    def ready(self) -> bool:
        """Return whether telemetry is on in this process; the first call in a process begins it, also after a fork."""
        if self._pid != os.getpid():
            self.begin()
        return not self.file.failed

    def begin(self) -> None:
        """Begin telemetry in this process: its file, its figures and the thread that writes them; idempotent."""
        with self._starting:
            if self._pid == os.getpid():
                return
            self._numbers = itertools.count(secrets.randbits(26) << 32)
            self._stop = threading.Event()
            self.runtime: _ProcessFigures = _ProcessFigures(self._pool_in_use if self._engine is not None else None)
            name = f"{self._role}-{os.getpid()}-{secrets.token_hex(3)}.csv"
            self.file: SeriesFile = SeriesFile(self._folder / name, self._head())
            self.runtime.install()
            self._pid = os.getpid()
        self._note_figures()
        self.file.flush()
        self._beating = threading.Thread(target=self._beat, name="placebench-telemetry", daemon=True)
        self._beating.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Read the figures a last time, write the waiting rows, and stop; idempotent."""
        if self._pid != os.getpid() or self._stop.is_set():
            return
        self._stop.set()
        self._beating.join(_BEAT_S)  # it may hold rows that it is about to write
        self.runtime.remove()
        self._note_figures()
        self.file.close()

    def next_request(self) -> int:
        """Return a number for a request that has none; other processes use other numbers."""
        return next(self._numbers)

    def duration(
        self, series: str, started: float, duration_s: float, *, request: int | str, verb: str, path: str, status: str
    ) -> None:
        """Record a duration outside of any watched request, such as a client's; *started* is a perf_counter reading."""
        if self.ready():
            at_s = self.file.wall_zero_s + started
            fields = (at_s, request, verb, path, status, series, "", duration_s)
            self.file.add(DURATION_LINE % fields)

    def figure(self, name: str, value: float) -> None:
        """Record a figure of the process with the current time."""
        if self.ready():
            self._note(self.file.wall_zero_s + time.perf_counter(), clean(name), value)

    # The interface of a listener of `SqlProfiler.listen`.

    def on_span(self, label: str, started: float, ended: float) -> None:
        """Record a span of `profiler.timed(label)` that has ended inside a watched request."""
        watch = _current_request()
        if watch is not None:
            watch.note("timed", clean(label), started, ended - started)

    def on_recording(self, recording: Any, started: float) -> None:
        """Record a recording's statements, transaction steps and waits for the pool; times are inside the driver."""
        watch = _current_request()
        if watch is None:
            return
        for statement in recording.statements:
            driver_s = (statement.execute_s or 0.0) + (statement.fetch_s or 0.0)
            watch.note("statement", statement.fingerprint, started + statement.started_s, driver_s)
            if statement.pool_wait_s:
                watch.note("pool", "", started + statement.started_s, statement.pool_wait_s)
        for step in recording.transactions:
            if step.elapsed_s is not None:
                watch.note("transaction", step.kind, started + step.started_s, step.elapsed_s)

    def _beat(self) -> None:
        # uWSGI ends a worker inside its signal handler, which blocks that signal for its own thread only: a second
        # signal would come to this thread, and end the process before the rows of `close` are written.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._stop.wait(_BEAT_S):
            if self.file.failed:
                return
            self._note_figures()
            self.file.flush()

    def _note_figures(self) -> None:
        at_s = self.file.wall_zero_s + time.perf_counter()
        for name, value in self.runtime.figures().items():
            self._note(at_s, name, value)

    def _note(self, at_s: float, name: str, value: float) -> None:
        self.file.add(FIGURE_LINE % (at_s, name, repr(value)))

    def _pool_in_use(self) -> int:
        checked_out = getattr(self._engine.pool, "checkedout", None) if self._engine is not None else None
        return 0 if checked_out is None else int(checked_out())

    def _head(self) -> dict[str, Any]:
        return {
            "role": self._role,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot": _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else None,
            "python": sys.version.split()[0],
            "clock": "wall time at the start, then time.perf_counter",
        }
