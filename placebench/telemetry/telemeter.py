"""The live side of telemetry: one file a process, a beat a second that reads figures and writes what waits.

The key piece is `Telemeter`:

    telemeter = Telemeter("telemetry", engine=engine)
    application = telemeter.wsgi(application)          # outermost
    profiler.listen(telemeter)                         # spans of profiler.timed(), and each recorded statement

It may be made before a fork: the file, the thread and the counters are those of the process that answers requests.
"""

import atexit
import itertools
import os
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

from placebench.telemetry.paths import PathPatterns
from placebench.telemetry.runtime import Runtime
from placebench.telemetry.series_file import DURATION_LINE, FIGURE_LINE, SeriesFile, clean
from placebench.telemetry.watching import WatchedApplication, WsgiApplication, current_watch

BEAT_S = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Pool(Protocol):
    def checkedout(self) -> int: ...


class _Engine(Protocol):
    """What is asked of a SQLAlchemy engine."""

    pool: Any


class Telemeter:
    """Writes the telemetry of each process that uses it to a file of its own in *folder*.

    engine: whose pool's connections in use are among the figures. role: what the process is, in the file's name.
    A file that cannot be written switches the telemetry of its process off; nothing here raises into the application.
    """

    def __init__(self, folder: Path | str, *, engine: _Engine | None = None, role: str = "worker") -> None:
        self._folder = Path(folder).absolute()
        self._engine = engine
        self._role = role
        self._pid = -1
        self._starting = threading.Lock()
        self.patterns = PathPatterns()

    def wsgi(self, application: WsgiApplication) -> WatchedApplication:
        """*application* with each request timed; it costs a request some microseconds (docs/lab/telemetry.md)."""
        return WatchedApplication(self, application)

    def ready(self) -> bool:
        """Whether telemetry is on in this process; begins with the first call in it, as after a fork."""
        if self._pid != os.getpid():
            self.begin()
        return not self.file.failed

    def begin(self) -> None:
        """Begin in this process: its file, its figures, its beat. Again is harmless."""
        with self._starting:
            if self._pid == os.getpid():
                return
            self._numbers = itertools.count(secrets.randbits(26) << 32)
            self._stop = threading.Event()
            self.runtime = Runtime(self._pool_in_use if self._engine is not None else None)
            name = f"{self._role}-{os.getpid()}-{secrets.token_hex(3)}.csv"
            self.file = SeriesFile(self._folder / name, self._head())
            self.runtime.install()
            self._pid = os.getpid()
        self._note_figures()
        self.file.flush()
        self._beating = threading.Thread(target=self._beat, name="placebench-telemetry", daemon=True)
        self._beating.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Read the figures a last time, write what waits, and stop; again is harmless."""
        if self._pid != os.getpid() or self._stop.is_set():
            return
        self._stop.set()
        self.runtime.remove()
        self._note_figures()
        self.file.close()

    def next_request(self) -> int:
        """A number for a request that brought none: unlike that of any other process."""
        return next(self._numbers)

    def duration(
        self, series: str, started: float, duration_s: float, *, request: int | str, verb: str, path: str, status: str
    ) -> None:
        """A duration outside of any watched request, such as a client's; *started* is a perf_counter reading."""
        if self.ready():
            at_s = self.file.wall_zero_s + started
            fields = (at_s, request, verb, path, status, series, "", duration_s)
            self.file.add(DURATION_LINE % fields)

    def figure(self, name: str, value: float) -> None:
        """A figure of the process, now."""
        if self.ready():
            self._note(self.file.wall_zero_s + time.perf_counter(), clean(name), value)

    # What `SqlProfiler.listen` asks for.

    def spanned(self, label: str, started: float, ended: float) -> None:
        """A span of `profiler.timed(label)` has ended; kept where it ran inside of a watched request."""
        watch = current_watch()
        if watch is not None:
            watch.note("timed", clean(label), started, ended - started)

    def recorded(self, recording: Any, started: float) -> None:
        """A recording has ended: its statements, transaction steps and waits for the pool; times inside the driver."""
        watch = current_watch()
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
        while not self._stop.wait(BEAT_S):
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
