"""Reads what the server side takes: CPU of uWSGI's workers, CPU of PostgreSQL's backends, memory of the processes.

The key piece is `ServerMeter`. CPU comes from the clock of each process (clock_getcpuclockid(3)) in nanoseconds, since
/proc/PID/stat counts in ticks of 10 ms, which is as long as a whole fast request, and /proc/PID/task forgets threads
that ended. Linux only; what cannot be read is None ("not measured").
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import psutil
from sqlalchemy import make_url, text

from placebench.experiment.records import Meters
from placebench.postgres import connected

_PROC = Path("/proc")
_STARVED = 1
"""Place in schedstat: nanoseconds that a thread waited for a CPU."""
_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel's include/linux/posix-timers.h: what the scheduler counted."""
_LOCAL_HOSTS = {None, "", "localhost", "127.0.0.1", "::1"}


def cpu_s(pid: int) -> float:
    """CPU seconds of process *pid* so far, with those of threads that ended; 0.0 for a process that is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPU_CLOCK) / 1e9
    except OSError:
        return 0.0


def starved_s(pids: Iterable[int]) -> float:
    """Seconds so far that threads of the processes could have run and had no CPU: others kept the machine busy."""
    return sum(_starved_ns(task) for pid in pids for task in _tasks(pid)) / 1e9


def cpu_by_pid(pids: Iterable[int]) -> dict[int, float]:
    """CPU seconds so far of each process."""
    return {pid: cpu_s(pid) for pid in pids}


def _tasks(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def _starved_ns(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[_STARVED])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # the thread ended between the listing and the reading


def pss_bytes(pids: Iterable[int]) -> int | None:
    """Proportional set size of the processes together; None where the kernel does not let us read it."""
    total = 0
    for pid in pids:
        try:
            total += psutil.Process(pid).memory_full_info().pss
        except (psutil.AccessDenied, AttributeError):
            return None
        except psutil.NoSuchProcess:
            continue
    return total


def backend_pids(database_url: str) -> list[int] | None:
    """The PostgreSQL backends that serve this database, ours excepted; None for a server on another machine.

    None are needed for SQLite: the list is empty.

    Raises DatabaseError where the server does not answer any more.

    1 round trip on a connection of its own:

        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    """
    url = make_url(database_url)
    if url.get_backend_name() == "sqlite":
        return []  # it works in the process that asks
    if url.get_backend_name() != "postgresql" or url.host not in _LOCAL_HOSTS:
        return None
    with connected(database_url) as connection:
        pids = list(connection.scalars(text(_BACKENDS)))
    # A server in a container of its own has pids that are not ours.
    return pids if all((_PROC / str(pid) / "schedstat").exists() for pid in pids) else None


_BACKENDS = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


class ServerMeter:
    """What one service and its database take inside the `with` block; memory is sampled every *sample_s*."""

    def __init__(self, worker_pids: Callable[[], list[int]], database_url: str, *, sample_s: float = 0.25) -> None:
        self._worker_pids = worker_pids
        self._database_url = database_url
        self._sample_s = sample_s
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample_memory, name="memory-sampler", daemon=True)
        self._peak_pss: int | None = None
        self._before: tuple[dict[int, float], dict[int, float] | None] = ({}, None)
        self._after: tuple[dict[int, float], dict[int, float] | None] = ({}, None)

    def __enter__(self) -> Self:
        self._before = self.snapshot()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._sampler.join()
        self._after = self.snapshot()

    def snapshot(self) -> tuple[dict[int, float], dict[int, float] | None]:
        """CPU seconds so far: workers by pid, backends by pid."""
        backends = backend_pids(self._database_url)
        return cpu_by_pid(self._worker_pids()), None if backends is None else cpu_by_pid(backends)

    def read(self) -> Meters:
        """What was taken; call it after the `with` block."""
        (workers_before, backends_before), (workers_after, backends_after) = self._before, self._after
        return Meters(
            worker_cpu_s=spent(workers_before, workers_after),
            backend_cpu_s=spent_or_none(backends_before, backends_after),
            peak_pss_bytes=self._peak_pss,
        )

    def _sample_memory(self) -> None:
        while True:
            now = pss_bytes(self._worker_pids())
            self._peak_pss = max(filter(None, (self._peak_pss, now)), default=None)
            if self._done.wait(self._sample_s):
                return


def spent(before: dict[int, float], after: dict[int, float]) -> float:
    """CPU seconds between two readings; a process that came meanwhile counts with its whole life."""
    return sum(now - before.get(pid, 0.0) for pid, now in after.items())


def spent_or_none(before: dict[int, float] | None, after: dict[int, float] | None) -> float | None:
    """As `spent`, and None where either reading could not be made."""
    return None if before is None or after is None else spent(before, after)
