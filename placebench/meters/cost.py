"""The cost of a run, read by `CostMeter`: CPU seconds of its processes by part, and the energy of the processors.

The CPU includes every process that a run starts and ends, and all processes of the PostgreSQL server that it works on,
even for other users of that server. Energy is read from the processor's counters (RAPL), for the whole machine.
"""

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url, text

from placebench.meters.meters import LOCAL_HOSTS, is_postgresql
from placebench.meters.processes import read_tree_cpu_s
from placebench.meters.readings import RunCost
from placebench.runtime.postgres import open_connection
from placebench.runtime.supervisor import ended_cpu_s

_POWERCAP = Path("/sys/class/powercap")
_CLIENTS = ("client", "locust")
CLIENT_ELSEWHERE = "client on another machine"
"""Name of the ssh process that connects to a client on another machine."""
_DATABASES = ("PostgreSQL", "initdb")
_OURS = ("", "the command", "link", CLIENT_ELSEWHERE)
_BACKEND = "SELECT pg_backend_pid()"


class CostMeter:
    """Meters this process and the processes that it starts from now on, in addition to the cost of earlier sessions."""

    def __init__(self, before: RunCost | None = None, *, powercap: Path = _POWERCAP) -> None:
        self._before = before
        self._began_s, self._ended = _own_cpu_s(), dict(ended_cpu_s)
        self._postmasters: dict[int, float] = {}
        self._is_blind = False
        self._energy = _EnergyMeter(powercap)

    def watch_server(self, url: str) -> None:
        """Add the PostgreSQL server at *url* to the cost from now on; costs a connection and 1 round trip."""
        pid = _postmaster(url)
        if pid is None:
            self._is_blind = True
        else:
            self._postmasters.setdefault(pid, _server_cpu_s(pid))

    def read(self) -> RunCost:
        """Return the cost so far."""
        ended = {name: taken - self._ended.get(name, 0.0) for name, taken in ended_cpu_s.items()}
        clients = sum(ended.get(name, 0.0) for name in _CLIENTS)
        started = sum(ended.get(name, 0.0) for name in _DATABASES)
        servers = sum(taken for name, taken in ended.items() if name not in (*_CLIENTS, *_DATABASES, *_OURS))
        watched = sum(max(0.0, _server_cpu_s(pid) - before) for pid, before in self._postmasters.items())
        own = _own_cpu_s() - self._began_s - clients - started - servers
        now = RunCost(
            servers_cpu_s=servers,
            clients_cpu_s=None if ended.get(CLIENT_ELSEWHERE) else clients,
            databases_cpu_s=None if self._is_blind else started + watched,
            placebench_cpu_s=max(0.0, own),
            energy_j=self._energy.read(),
        )
        return now if self._before is None else _sum(self._before, now)


def _sum(before: RunCost, now: RunCost) -> RunCost:
    """Return the cost of all sessions; a part that one of them could not read is None."""
    energy = None
    if before.energy_j is not None and now.energy_j is not None:
        energy = {name: joules + before.energy_j.get(name, 0.0) for name, joules in now.energy_j.items()}
    return RunCost(
        servers_cpu_s=before.servers_cpu_s + now.servers_cpu_s,
        clients_cpu_s=_both(before.clients_cpu_s, now.clients_cpu_s),
        databases_cpu_s=_both(before.databases_cpu_s, now.databases_cpu_s),
        placebench_cpu_s=before.placebench_cpu_s + now.placebench_cpu_s,
        energy_j=energy,
    )


def _both(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else before + now


def _own_cpu_s() -> float:
    """Return the CPU seconds of this process and of all its descendants that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _postmaster(url: str) -> int | None:
    """Return the main process of a PostgreSQL server; None if it is not visible to this process."""
    import psutil

    if make_url(url).host not in LOCAL_HOSTS:
        return None
    with open_connection(url) as connection:
        backend: int = connection.scalar(text(_BACKEND)) or 0
        parent = None
        if is_postgresql(backend):
            with suppress(psutil.NoSuchProcess):
                parent = psutil.Process(backend).ppid()
    return parent if parent is not None and is_postgresql(parent) else None


def _server_cpu_s(postmaster: int) -> float:
    """Return the CPU seconds of the postmaster and of its children, including those that have ended."""
    import psutil

    children: list[int] = []
    with suppress(psutil.NoSuchProcess):
        children = [child.pid for child in psutil.Process(postmaster).children()]
    return read_tree_cpu_s([postmaster, *children])


class _EnergyMeter:
    """Adds up RAPL's counters, which restart at 0 after some tens of minutes and so must be read more often."""

    def __init__(self, powercap: Path) -> None:
        self._powercap = powercap
        self._last = dict(self._counters())
        self._joules = dict.fromkeys(self._last, 0.0)

    def read(self) -> dict[str, float] | None:
        """Return the joules since the start by domain; None if no counter can be read."""
        for domain, (now, wraps_at) in self._counters():
            if domain in self._last:
                before = self._last[domain][0]
                self._joules[domain] += ((now - before) if now >= before else now + wraps_at - before) / 1e6
                self._last[domain] = (now, wraps_at)
        return dict(self._joules) or None

    def _counters(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the microjoules of each package, and of the memory, which no package contains; with where they wrap."""
        for zone in sorted(self._powercap.glob("intel-rapl:*")):
            try:
                name = (zone / "name").read_text().strip()
                if name.startswith("package"):
                    yield name, _counter(zone)
                elif name == "dram":
                    package = (zone.parent / zone.name.rpartition(":")[0] / "name").read_text().strip()
                    yield f"{package} {name}", _counter(zone)
            except (OSError, ValueError):
                continue  # only root may read it since 2020 (CVE-2020-8694)


def _counter(zone: Path) -> tuple[int, int]:
    return int((zone / "energy_uj").read_text()), int((zone / "max_energy_range_uj").read_text())
