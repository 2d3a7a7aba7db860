"""The live side of telemetry: one file per process, written once a second.

`Telemeter` records process figures (memory, CPU, GC, threads), and gives applications the middleware that times each
request.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from placebench.telemetry.requests import (
    AsgiApplication,
    WatchedApplication,
    WatchedAsgiApplication,
    WsgiApplication,
    current_request,
    watched_handler,
)
from placebench.telemetry.series_file import DURATION_LINE, FIGURE_LINE, PathPatterns, SeriesFile, clean, statement_line

_STATM = Path("/proc/self/statm")

_PoolInUse = Callable[[], int]
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


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
        self._recorded = 0
        self._starting = threading.Lock()
        self.patterns: PathPatterns = PathPatterns()

    def wsgi(self, application: WsgiApplication) -> WatchedApplication:
        """Return a WSGI application with its requests timed, which costs some microseconds each."""
        return WatchedApplication(self, application)

    def asgi(self, application: AsgiApplication) -> WatchedAsgiApplication:
        """Return an ASGI application with its HTTP requests timed, each until the last part of its response is sent.

        WebSockets and the lifespan are passed on untimed. The pattern of a path has the names of the parameters that
        the framework's router writes into the scope, as Starlette, FastAPI and Litestar do.
        """
        return WatchedAsgiApplication(self, application)

    def handler(self, function: _Handler) -> _Handler:
        """Return a view or an endpoint, plain or `async def`, with its time recorded as the series `handler`.

        The rest of the time until the response begins becomes the series `framework`. Outside of a watched request the
        function is called as it is.
        """
        return watched_handler(function)

    def ready(self) -> bool:
        """Return whether telemetry is on in this process; the first call in a process starts it, also after a fork."""
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
            self._written_statements: set[str] = set()
            self._recorded = 0
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

    def flush(self) -> None:
        """Read the figures and write the waiting rows now, instead of at the next full second."""
        if self.ready():
            self._note_figures()
            self.file.flush()

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
        watch = current_request()
        if watch is not None:
            watch.note("timed", clean(label), started, ended - started)

    def on_recording(self, recording: Any, started: float) -> None:
        """Record a recording's statements, transaction steps and waits for the pool; times are inside the driver.

        Its own duration tells a request without a statement from one that was not recorded.
        """
        watch = current_request()
        if watch is None:
            return
        self._recorded += 1
        watch.note("recorded", "", started, recording.elapsed_s)
        for statement in recording.statements:
            if statement.fingerprint not in self._written_statements:
                self._written_statements.add(statement.fingerprint)
                self.file.add(statement_line(statement.fingerprint, statement.redacted_sql))
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
        if self._recorded:  # tells requests without a statement from those that nobody recorded
            self._note(at_s, "recorded_requests", self._recorded)

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
