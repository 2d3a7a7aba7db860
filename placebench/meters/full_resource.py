"""What was full while a service had its highest throughput: CPU, one thread, a lock, a pool, the database, the disk.

`UsageMeter` reads the processes of a service and the sessions of its database inside a `with` block; `name_full` names
what limited the throughput, from these readings and from what the clients saw. The processes of a service are found by
the port at which it listens, so they are seen on this machine only.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Self

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from placebench import units
from placebench.errors import DatabaseError
from placebench.meters.meters import LOCAL_HOSTS, Backends, read_backends
from placebench.meters.processes import read_cpu_by_pid, read_cpu_wait_s, read_descendants, read_parent
from placebench.meters.readings import Full, Usage
from placebench.meters.wait_events import read_waits
from placebench.runtime.postgres import open_connection

_PROC = Path("/proc")
_SAMPLE_EVERY_S = 0.25
_ENDS_S = 0.5
"""Time in seconds that a load generator needs to end after its last request."""
_USED_FROM, _USED_UNTIL = 0.8, 0.05
"""Which readings are used, as shares of the load's duration before its end."""
_IDLE = (3, 4)
"""Places in the first line of /proc/stat, after the word cpu, of the idle time and of the time that waits for disks."""
_LISTEN = "0A"
"""The state of a socket that listens, in /proc/net/tcp."""
_TIMES = 8
"""Number of times in that line that do not overlap."""


def find_service(host: str | None, port: int) -> list[int]:
    """Return the ids of the processes that listen at *port* of this machine, and of those below them.

    Empty if the host is another one, or if the processes belong to another user.
    """
    if host not in LOCAL_HOSTS:
        return []
    sockets = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _listening(_PROC / "net" / name, port)}
    found = {int(each.name) for each in _PROC.iterdir() if each.name.isdecimal() and sockets & _sockets(each / "fd")}
    return sorted(found.union(*map(read_descendants, found)))


def _listening(table: Path, port: int) -> set[str]:
    """Return the inodes of the sockets that listen at *port*, from /proc/net/tcp or tcp6."""
    try:
        rows = [row.split() for row in table.read_text().splitlines()[1:]]
    except OSError:
        return set()
    return {row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port}


def _sockets(folder: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for each in folder.iterdir():
            with suppress(OSError):
                found.add(str(each.readlink()))
    return found


@dataclass(frozen=True)
class _Reading:
    """Counters and states at one moment."""

    at_s: float
    busy: int
    total: int
    by_process: Mapping[int, float]
    by_thread: Mapping[tuple[int, int], float]
    starved_s: float
    backends: Backends | None
    blocked: int
    waits: Mapping[str, int] | None


class UsageMeter:
    """Reads what the processes of a service, and its database, use in the `with` block, four times a second."""

    def __init__(self, pids: Sequence[int], database_url: str = "") -> None:
        """database_url: a PostgreSQL on this machine, whose sessions and processes are read; empty for none."""
        self._pids = pids
        self._database_url = database_url if database_url.startswith("postgres") else ""
        self._readings: list[_Reading] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="usage", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        with ExitStack() as stack:
            connection = None
            if self._database_url:
                with suppress(DatabaseError):
                    connection = stack.enter_context(open_connection(self._database_url))
            while True:
                with suppress(DatabaseError, SQLAlchemyError):
                    self._readings.append(self._read(connection))
                if self._done.wait(_SAMPLE_EVERY_S):
                    return

    def _read(self, connection: Connection | None) -> _Reading:
        busy, total = _machine_ticks()
        backends = read_backends(self._database_url) if connection is not None else None
        seen = [*self._pids, *(backends.cpu_s if backends else ())]
        return _Reading(
            at_s=time.monotonic(),
            busy=busy,
            total=total,
            by_process=read_cpu_by_pid(self._pids),
            by_thread=_thread_cpu(self._pids),
            starved_s=read_cpu_wait_s(self._pids),
            backends=backends,
            blocked=sum(_state(task) == "D" for pid in seen for task in _tasks(pid)),
            waits=None if connection is None else read_waits(connection),
        )

    def read(self, loaded_s: float) -> Usage:
        """Return what was used while the load lasted, without its beginning and its end; call it after the block.

        loaded_s: the duration of the load, which ended with the block.
        """
        end_s = self._readings[-1].at_s - _ENDS_S
        window = [
            each
            for each in self._readings
            if end_s - _USED_FROM * loaded_s <= each.at_s <= end_s - _USED_UNTIL * loaded_s
        ]
        return _usage(window if len(window) > 1 else self._readings)


def _usage(readings: Sequence[_Reading]) -> Usage:
    before, after = readings[0], readings[-1]
    took_s = max(after.at_s - before.at_s, _SAMPLE_EVERY_S)
    total = after.total - before.total
    by_process = {pid: (now - before.by_process.get(pid, 0.0)) / took_s for pid, now in after.by_process.items()}
    by_thread = [(now - before.by_thread.get(key, 0.0)) / took_s for key, now in after.by_thread.items()]
    busiest = max(by_process, key=by_process.__getitem__, default=None)
    parents = {parent for pid in by_process if (parent := read_parent(pid)) in by_process}
    workers = [pid for pid in by_process if pid not in parents] or list(by_process)
    backends: dict[int, float] = {}
    if before.backends and after.backends:
        earlier = before.backends.cpu_s
        backends = {pid: (now - earlier.get(pid, 0.0)) / took_s for pid, now in after.backends.cpu_s.items()}
    waits = [each.waits for each in readings if each.waits is not None]
    return Usage(
        machine_cpu=(after.busy - before.busy) / total if total > 0 else None,
        process_cpu=sum(by_process.values()) if by_process else None,
        processes=len(workers),
        threads=sum(pid in workers for pid, _ in after.by_thread),
        busiest_process=None if busiest is None else by_process[busiest],
        busiest_thread=max(by_thread, default=None),
        starved=max(0.0, after.starved_s - before.starved_s) / took_s,
        busiest_is_master=busiest in parents,
        database_cpu=sum(backends.values()) if backends else None,
        busiest_backend=max(backends.values(), default=None),
        blocked=fmean(each.blocked for each in readings),
        running=_mean(waits, lambda name: name == "backends active running"),
        locked=_mean(waits, lambda name: name.startswith(("backends active Lock", "backends active LWLock"))),
        reading=_mean(waits, lambda name: name.startswith("backends active IO")),
        in_use=_mean(waits, lambda name: name.startswith(("backends active", "backends idle in transaction"))),
        sessions=_mean(waits, lambda _: True),
    )


def _mean(waits: Iterable[Mapping[str, int]], chosen: Callable[[str], bool]) -> float | None:
    seen = [sum(number for name, number in each.items() if chosen(name)) for each in waits]
    return fmean(seen) if seen else None


def _machine_ticks() -> tuple[int, int]:
    try:
        with Path("/proc/stat").open() as lines:
            ticks = [int(each) for each in lines.readline().split()[1 : 1 + _TIMES]]
    except OSError:
        return 0, 0
    return sum(ticks) - sum(ticks[place] for place in _IDLE), sum(ticks)


def _tasks(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_bytes().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def _thread_cpu(pids: Iterable[int]) -> dict[tuple[int, int], float]:
    found = {}
    for pid in pids:
        for task in _tasks(pid):
            with suppress(OSError):
                found[pid, int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


# --- what was full

_FULL_CPU = 0.85
"""Share of a core from which on a process or a thread has no time left; what else runs takes the rest."""
_FULL_MACHINE = 0.95
_MOST = 0.5
"""Share of the sessions at work from which on what they wait for is what limits them."""
_ONE_AT_A_TIME = (0.5, 1.5)
"""The range of requests served at once that shows one lock. Below it, requests take longer under load than alone."""
_ALL = 0.75
_PARTLY = 0.8


def name_full(
    usage: Usage, *, users: int, throughput_per_s: float, alone_s: float, client_cpu: float, cores: int = 0
) -> tuple[Full, str]:
    """Return what was full while *users* users sent one request after the other, and the reading that shows it.

    alone_s: the time of a request when nothing else is under way. By Little's law the throughput times this time is the
    number of requests that are served at once, which shows a lock or a pool that uses no CPU. Far less than one shows
    neither: what limits the service is unknown then.
    client_cpu: the share of a core that the load generator used.
    """
    cores = cores or len(os.sched_getaffinity(0))
    at_once = throughput_per_s * alone_s
    if client_cpu >= _FULL_CPU:
        return "generator", f"the load generator used {units.whole_percent(client_cpu)} of a core"
    if by_database := _full_database(usage):
        return by_database
    if usage.blocked >= _MOST * max(1.0, at_once):
        return "disk", f"{usage.blocked:.1f} threads waited for a disk at any moment"
    busiest = usage.busiest_process or 0.0
    if busiest >= _FULL_CPU:
        if usage.busiest_is_master:
            return "single-threaded master", f"the master process used {units.whole_percent(busiest)} of a core"
        whole = usage.process_cpu or 0.0
        if usage.processes > 1 and whole < _FULL_CPU * min(usage.processes, cores):
            return "one thread", f"one of {usage.processes} processes used {units.whole_percent(busiest)} of a core"
        return "worker CPU", f"{_number(usage.processes, 'process')} used {units.whole_percent(whole)} of a core"
    wanted = (usage.process_cpu or 0.0) + usage.starved + (usage.database_cpu or 0.0) + client_cpu
    if (usage.machine_cpu or 0.0) >= _FULL_MACHINE and wanted >= _FULL_CPU:  # not only by other programs
        return _full_machine(usage, client_cpu, cores)
    used = usage.process_cpu or 0.0
    if used + usage.starved >= _FULL_CPU * max(1, usage.processes):
        shown = f"{_number(usage.processes, 'process')} used {units.whole_percent(used)} of a core"
        return "worker CPU", f"{shown}, and threads that could run waited for one"
    if at_once >= _PARTLY * users:
        return "nothing", f"{users} users were served at once, and more would be"
    if not usage.threads:
        return "unknown", "the processes of the service are not to be seen from here"
    return _full_without_cpu(usage, at_once)


def _full_database(usage: Usage) -> tuple[Full, str] | None:
    at_work = (usage.running or 0.0) + (usage.locked or 0.0) + (usage.reading or 0.0)
    if at_work < _MOST:
        return None
    if (usage.locked or 0.0) >= max(_MOST, _MOST * at_work):
        return "database lock", f"{usage.locked:.1f} of {at_work:.1f} sessions at work waited for a lock"
    if (usage.reading or 0.0) >= _MOST * at_work:
        return "disk", f"{usage.reading:.1f} of {at_work:.1f} sessions at work waited for a file"
    if usage.busiest_backend is not None and usage.busiest_backend >= _FULL_CPU:
        return "database CPU", f"one session used {units.whole_percent(usage.busiest_backend)} of a core"
    return None


def _full_machine(usage: Usage, client_cpu: float, cores: int) -> tuple[Full, str]:
    """Return whose CPU fills the machine: that of the greatest user, unless other programs use most of it."""
    shares: dict[Full, float] = {
        "worker CPU": usage.process_cpu or 0.0,
        "database CPU": usage.database_cpu or 0.0,
        "generator": client_cpu,
    }
    most = max(shares, key=shares.__getitem__)
    service, database, generator = (units.whole_percent(each) for each in shares.values())
    seen = f"all cores were busy: service {service}, database {database} and load generator {generator} of a core"
    return "machine CPU" if sum(shares.values()) < _MOST * cores else most, seen


def _full_without_cpu(usage: Usage, at_once: float) -> tuple[Full, str]:
    """Return which lock, pool or set of threads was full, by the number of requests that were served at once."""
    served = f"{at_once:.1f} requests were served at once by {_number(usage.threads, 'thread')}"
    sessions, in_use = usage.sessions or 0.0, usage.in_use or 0.0
    if sessions >= 1 and in_use >= _ALL * sessions and usage.threads > sessions + usage.processes:
        return "pool wait", f"{in_use:.1f} of {sessions:.1f} sessions of the database were in use, {served}"
    least, most = _ONE_AT_A_TIME
    if at_once < least:
        return "unknown", f"{served}: requests take longer than alone, and no reading says why"
    if at_once < most:
        return "one lock", served
    if at_once >= _ALL * max(1, usage.threads - usage.processes):
        return "workers", served
    return "limit", served


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's' if noun[-1] != 's' else 'es'}"
