"""Measurements other than requests: `Meters` of a part of a run, `RunCost` of a run, `Usage` of a busy service."""

from dataclasses import dataclass
from typing import Any, Literal

from placebench.decoding import Amount, Count

_PARTS = ("servers", "clients", "databases", "placebench")


@dataclass(frozen=True)
class Meters:
    """CPU and memory of the server side in one part of a run."""

    worker_cpu_s: Amount
    backend_cpu_s: Amount | None
    """CPU seconds of the PostgreSQL backends of this database; None if not all of them could be read."""
    peak_pss_bytes: Count | None
    """The highest sample of the total proportional set size of the service's processes."""

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of workers and backends; None if the backends' could not be read."""
        return None if self.backend_cpu_s is None else self.worker_cpu_s + self.backend_cpu_s


@dataclass(frozen=True)
class RunCost:
    """The cost of a run so far, over all its sessions."""

    servers_cpu_s: Amount
    """CPU seconds of the servers of all variants, with their workers."""
    clients_cpu_s: Amount | None
    """CPU seconds of the processes that send requests; None if they run on another machine."""
    databases_cpu_s: Amount | None
    """CPU seconds of PostgreSQL; None if its processes are not visible, as on another machine."""
    placebench_cpu_s: Amount
    """CPU seconds of placebench and of the other programs that it runs: setup commands, git, pip, pg_dump."""
    energy_j: dict[str, Amount] | None = None
    """Joules of the whole machine during the run, by RAPL domain such as package-0; None if unreadable."""

    @property
    def core_minutes(self) -> float:
        """CPU minutes of all parts that could be read."""
        parts: list[float | None] = [getattr(self, f"{name}_cpu_s") for name in _PARTS]
        return sum(filter(None, parts)) / 60

    def figures(self, elapsed_s: float) -> dict[str, Any]:
        """Return the cost as it is published: core-minutes by part, wall minutes, joules by domain."""
        return {
            "core_minutes": round(self.core_minutes, 3),
            **{f"{name}_core_minutes": _minutes(getattr(self, f"{name}_cpu_s")) for name in _PARTS},
            "wall_minutes": _minutes(elapsed_s),
            "energy_j": self.energy_j and {name: round(joules, 1) for name, joules in self.energy_j.items()},
        }


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / 60, 3)


Full = Literal[
    "generator",
    "machine CPU",
    "worker CPU",
    "one thread",
    "single-threaded master",
    "database CPU",
    "database lock",
    "disk",
    "pool wait",
    "one lock",
    "workers",
    "limit",
    "nothing",
    "unknown",
]
"""What limits a service at its highest throughput; `full_resource.name_full` decides it."""


@dataclass(frozen=True)
class Usage:
    """What a service, its database and its machine used in a `with` block; None is not measured."""

    machine_cpu: Amount | None = None
    """Share of the CPU time of all cores that was not idle."""
    process_cpu: Amount | None = None
    """Cores that the service's processes used together."""
    processes: Count = 0
    """Number of processes of the service that did something, the master left out if it has others below it."""
    threads: Count = 0
    """Number of threads of these processes."""
    busiest_process: Amount | None = None
    """Share of a core that the busiest process of the service used."""
    busiest_thread: Amount | None = None
    starved: Amount = 0.0
    """Mean number of the service's threads that were ready to run, and had no CPU."""
    busiest_is_master: bool = False
    """Whether the busiest process has other processes of the service below it."""
    database_cpu: Amount | None = None
    """Cores that the database's processes used together."""
    busiest_backend: Amount | None = None
    blocked: Amount = 0.0
    """Mean number of the service's threads and the database's processes that waited for a disk."""
    running: Amount | None = None
    """Mean number of database sessions that worked and waited for nothing."""
    locked: Amount | None = None
    """Mean number of database sessions that waited for a lock."""
    reading: Amount | None = None
    """Mean number of database sessions that waited for a file."""
    in_use: Amount | None = None
    """Mean number of database sessions with a statement or a transaction under way."""
    sessions: Amount | None = None
    """Mean number of database sessions of the service."""
