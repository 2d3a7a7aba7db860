"""Figures of this process, read once a second: memory, CPU, collections, threads, connections in use.

The key piece is `Runtime`. CPU, collections and pauses only grow; the reading side takes differences.
"""

import gc
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

_STATM = Path("/proc/self/statm")

PoolInUse = Callable[[], int]


class Runtime:
    """Reads the figures; counts the collections of the garbage collector from `install` on."""

    def __init__(self, pool_in_use: PoolInUse | None = None) -> None:
        self._pool_in_use = pool_in_use
        self._page_bytes = resource.getpagesize()
        self._collections = 0
        self._pause_s = 0.0
        self._paused_at: float | None = None

    def install(self) -> None:
        """Count collections and their pauses in this process."""
        gc.callbacks.append(self._collected)

    def remove(self) -> None:
        """Count no more; again is harmless."""
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def figures(self) -> dict[str, float]:
        """Every figure by its name, some 20 µs; what this system does not tell is left out."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        read = {
            "cpu_user_s": used.ru_utime,
            "cpu_system_s": used.ru_stime,
            "gc_collections": self._collections,
            "gc_pause_s": self._pause_s,
            "threads": threading.active_count(),
        }
        if (rss := self._rss_bytes()) is not None:
            read["rss_bytes"] = rss
        if self._pool_in_use is not None:
            read["pool_in_use"] = self._pool_in_use()
        return read

    def _rss_bytes(self) -> int | None:
        try:
            return int(_STATM.read_text().split()[1]) * self._page_bytes
        except OSError:
            return None

    def _collected(self, phase: str, _details: dict[str, int]) -> None:
        if phase == "start":
            self._paused_at = time.perf_counter()
        elif self._paused_at is not None:
            self._pause_s += time.perf_counter() - self._paused_at
            self._collections += 1
            self._paused_at = None
