"""The options of a recording, and the clocks that it measures with: `Options` and `Clocks`."""

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType

from placebench.errors import ProfilerError
from placebench.profiler.model.session import gil_is_off

MODES = ("light", "full", "sampled", "external", "flame", "plans")
FLAME_GRAPH_MODES = ("sampled", "external", "flame", "plans")
DEFAULT_FLAME_MODE = "sampled"
"""The mode of flame graphs that nobody has chosen a mode for."""

CLOCK_TICK_S = 1e-9
"""The seconds by which a measured interval may be wrong: a clock's tick, and what adding rounds away."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a recording; raises ProfilerError for a mode that is unknown or needs the GIL.

    mode: "light" (times, rows, fingerprints), "full" (call sites and bytes too), "sampled" (a flame graph too, of which
        a sampling thread estimates Python's part), "flame" (a flame graph by a function that each call of Python
        runs) or "plans" ("flame" with PostgreSQL's plans). "external" is "full" without bytes, with a flame graph that
        py-spy estimates.
    explain: in mode "plans", have EXPLAIN estimate the plan if the server does not send the actual one.
    parameters: keep bound values, literals and messages of errors; they may be secrets.
    max_statements: how many statements, and how many transaction steps, are kept; the others are counted.
    """

    mode: str = "full"
    parameters: bool = False
    max_statements: int = 10_000
    explain: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ProfilerError(f"unknown mode {self.mode!r}: expected one of {', '.join(MODES)}")
        if self.mode in ("sampled", "flame", "plans") and gil_is_off():
            raise ProfilerError(
                f"mode {self.mode!r} needs the GIL: without it sys._current_frames() can crash (gh-152355), and "
                "pyinstrument would switch it on; expected light, full or external, or PYTHON_GIL=1"
            )

    @property
    def counts_bytes(self) -> bool:
        """Whether the kernel's counters of bytes are read with each round trip, which takes a system call."""
        return self.mode not in ("light", "external")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of elapsed time, of the running thread's CPU time and of the process's, in seconds."""

    elapsed: Clock = time.perf_counter
    cpu: Clock = time.thread_time
    process: Clock = time.process_time

    def elapsed_safely(self, report_failure: Callable[[Exception], None]) -> Clock:
        """Return the clock of elapsed time; if it fails, it reports the failure and repeats its last reading."""
        clock, last = self.elapsed, 0.0
        if clock is time.perf_counter:
            return clock

        def never_raises() -> float:
            nonlocal last
            try:
                last = clock()
            except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
                report_failure(error)
            return last

        return never_raises


def shares_thread() -> bool:
    """Return whether this thread runs several things in turn, which share its CPU time and its stack."""
    return inside_event_loop() or inside_greenlets()


def inside_greenlets() -> bool:
    """Return whether this thread runs greenlets of gevent or eventlet, and not just SQLAlchemy's own under asyncio."""
    if not isinstance(threading.get_ident, BuiltinFunctionType):  # monkey-patched
        return True
    greenlet, hubs = sys.modules.get("greenlet"), sys.modules.get("gevent._hub_local")
    if hubs is not None and hubs.get_hub_if_exists() is not None:
        return True
    return greenlet is not None and greenlet.getcurrent().parent is not None and not inside_event_loop()


def inside_event_loop() -> bool:
    """Return whether this thread runs an event loop, whose tasks share its CPU time."""
    # Without asyncio, whose import takes a tenth of a second, or while it is being imported, no loop runs.
    get_running_loop = getattr(sys.modules.get("asyncio"), "get_running_loop", None)
    if get_running_loop is None:
        return False
    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True
