"""What was measured beside the requests, as a run folder keeps it: `Meters` of a stretch, `RunCost` of a run."""

from dataclasses import dataclass
from typing import Any

from placebench.decoding import Amount, Count

_PARTS = ("servers", "clients", "databases", "placebench")


@dataclass(frozen=True)
class Meters:
    """What the server side took meanwhile, start and end of the same stretch apart."""

    worker_cpu_s: Amount
    backend_cpu_s: Amount | None
    """PostgreSQL's backends of this database; None where not all of it could be read."""
    peak_pss_bytes: Count | None
    """Proportional set size of the service's processes together, the highest of the samples."""

    @property
    def cpu_s(self) -> float | None:
        """Of workers and backends; None where that of the backends could not be read."""
        return None if self.backend_cpu_s is None else self.worker_cpu_s + self.backend_cpu_s


@dataclass(frozen=True)
class RunCost:
    """What a run has cost so far, over all its sessions."""

    servers_cpu_s: Amount
    """Of the servers of all variants, with their workers."""
    clients_cpu_s: Amount | None
    """Of the processes that send requests; None where they run on another machine."""
    databases_cpu_s: Amount | None
    """Of PostgreSQL; None where it runs on another machine."""
    placebench_cpu_s: Amount
    """Of placebench, and of what it runs besides: setup commands, git, pip, pg_dump."""
    energy_j: dict[str, Amount] | None = None
    """Joules of the whole machine meanwhile, by domain of RAPL such as package-0; None where it cannot be read."""

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
