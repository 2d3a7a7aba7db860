"""Threads or processes: the same requests answered by every mix of both, with what each mix takes.

The key piece is `workers_study`, which makes the `Question` of `placebench lab study workers`.
Each measurement is a fresh uWSGI,
warmed up, then a fixed number of requests by a fixed number of users; CPU is read at both ends, memory all the while.
"""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from placebench.errors import GateFailedError
from placebench.experiment.concurrent_clients import Crowd, crowd
from placebench.experiment.study import Ground, Measure, Point, Question, Renewed
from placebench.measure.meters import Backends, backend_cpu_between, read_backends
from placebench.measure.processes import Memory, MemorySampler, cpu_between, read_cpu_by_pid
from placebench.runtime.wsgi_servers import RunningServer, ServerSpec, serve

WORKLOADS: Final = {
    "compute": "pure Python, no input or output: GET /compute/N",
    "query": "the full query",
    "state": "reads of a state of 200 000 records that was loaded before the fork: GET /state/N",
    "state-frozen": "the same after gc.freeze()",
}
REQUESTS: Final = {"compute": 400, "query": 40, "state": 400, "state-frozen": 400}
QUICK_REQUESTS: Final = {"compute": 60, "query": 40, "state": 100, "state-frozen": 100}
_REFERENCE: Final = "placebench.reference.wsgi:application"
_WORKLOADS: Final = "placebench.reference.workloads:application"
_HASH_SEED: Final = "1"
_QUERY = "query"


@dataclass(frozen=True)
class WorkersStudy:
    """What is asked of whom."""

    mixes: tuple[tuple[int, int], ...]
    """Processes and threads in each of them."""
    workloads: tuple[str, ...]
    """Of WORKLOADS."""
    requests: Mapping[str, int]
    """How many, by workload; the same for every mix."""
    users: int
    """Who wait for answers, the same number for every mix."""
    request: str
    variant: str = "tuned"

    @property
    def points(self) -> tuple[Point, ...]:
        """Workload by workload."""
        return tuple(
            {"workload": workload, "processes": processes, "threads": threads}
            for workload in self.workloads
            for processes, threads in self.mixes
        )

    def paths(self, workload: str) -> list[str]:
        """What is asked, in this order."""
        count = self.requests[workload]
        if workload == _QUERY:
            return [self.request] * count
        return [f"/{workload.partition('-')[0]}/{number}" for number in range(count)]

    def spec(self, point: Point, database_url: str, log: Path) -> ServerSpec:
        """How the point is served."""
        return ServerSpec(
            database_url=database_url,
            variant=self.variant,
            processes=point["processes"],
            threads=point["threads"],
            environment={"PYTHONHASHSEED": _HASH_SEED, **_variables(point["workload"])},
            module=_REFERENCE if point["workload"] == _QUERY else _WORKLOADS,
            log=log,
        )


def _variables(workload: str) -> dict[str, str]:
    """For placebench.reference.workloads; nothing for the query."""
    if workload == _QUERY:
        return {}
    name, _, frozen = workload.partition("-")
    return {"PLACEBENCH_WORKLOAD": name, "PLACEBENCH_FREEZE": str(int(frozen == "frozen"))}


def workers_study(asked: WorkersStudy, *, repeats: int) -> Question:
    """The question of `placebench lab study workers`.

    A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `worker_cpu_s, backend_cpu_s,
    client_cpu_s, pss_bytes, uss_bytes, rss_bytes` (the process tree at its highest PSS), `unshared_bytes` and `memory`, a
    list of
    `[at_s, pss_bytes, uss_bytes, rss_bytes, unshared_bytes]`.
    """
    return Question(
        command="workers",
        points=asked.points,
        repeats=repeats,
        prepare=partial(_standing, asked),
        request=asked.request,
        settings={"requests": dict(asked.requests), "users": asked.users, "variant": asked.variant},
        variants=(asked.variant,),
    )


@contextmanager
def _standing(asked: WorkersStudy, ground: Ground) -> Iterator[Measure]:
    with Renewed(lambda: crowd(ground.folder / "log" / "users.log")) as users:
        yield _Measuring(asked, ground, users).measured


@dataclass
class _Measuring:
    """Measures points one after the other, and remembers what they answered."""

    asked: WorkersStudy
    ground: Ground
    users: Renewed[Crowd]
    answers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Who answered a request first, and the digest of that."""

    def measured(self, point: Point, _: int) -> dict[str, Any]:
        """One point on a server of its own."""
        spec = self.asked.spec(point, self.ground.seeded, self.ground.folder / "log" / "uwsgi.log")
        paths = self.asked.paths(point["workload"])
        with self.users.in_use() as users, serve(spec) as server:
            slots = point["processes"] * point["threads"]
            self._hold(point, users.drive(server.url, paths[:1] * 2 * slots, users=slots))
            return self._loaded(point, server, users, paths)

    def _loaded(self, point: Point, server: RunningServer, users: Crowd, paths: list[str]) -> dict[str, Any]:
        workers = server.worker_pids()
        before, backends_before = read_cpu_by_pid(workers), self._backends(point)
        with MemorySampler(server.pid, workers) as memory:
            seen = users.drive(server.url, paths, users=self.asked.users)
        cpu_s, backends_after = cpu_between(before, read_cpu_by_pid(workers)), self._backends(point)
        server.check()
        self._hold(point, seen)
        return {
            "elapsed_s": seen["elapsed_s"],
            "requests": len(paths),
            "throughput_per_s": len(paths) / seen["elapsed_s"],
            "latency_s": statistics.median(seen["wall_s"]),
            "worker_cpu_s": cpu_s,
            "backend_cpu_s": backend_cpu_between(backends_before, backends_after),
            "client_cpu_s": seen["client_cpu_s"],
            **_memory(memory),
        }

    def _backends(self, point: Point) -> Backends | None:
        """None are needed for a workload that asks no database."""
        return read_backends(self.ground.seeded) if point["workload"] == _QUERY else Backends({})

    def _hold(self, point: Point, seen: Mapping[str, Any]) -> None:
        """Every body says what the first one to this request said; raises GateFailedError else."""
        name = f"{point['workload']} by {point['processes']} x {point['threads']}"
        for request, digests in seen["answers"].items():
            for digest in digests:
                first, expected = self.answers.setdefault(request, (name, digest))
                if digest != expected:
                    raise GateFailedError(
                        f"{name} answers {request} differently from {first}, no speed is printed: "
                        f"digest {digest[:12]} where {expected[:12]} was expected"
                    )


def _memory(sampler: MemorySampler) -> dict[str, Any]:
    peak, shared = sampler.peak, sampler.samples[0].shared_bytes
    over_time = [[each.at_s, *_figures(each.process_tree), shared - each.shared_bytes] for each in sampler.samples]
    return {
        **dict(zip(("pss_bytes", "uss_bytes", "rss_bytes"), _figures(peak), strict=True)),
        "unshared_bytes": sampler.unshared_bytes,
        "memory": over_time,
    }


def _figures(memory: Memory) -> tuple[int, int, int]:
    return memory.pss_bytes, memory.uss_bytes, memory.rss_bytes
