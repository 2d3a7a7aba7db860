"""Threads or processes: the same requests served by every mix of both, with what each mix takes.

The main class is `WorkersStudy`, the study of `placebench lab study workers`.
Each measurement is a fresh uWSGI,
warmed up, then a fixed number of requests by a fixed number of users; CPU is read at both ends, memory all the while.
"""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from placebench.experiment.client_process import Driven, HttpClient, http_client, responses_folder
from placebench.experiment.same_responses import SameResponses
from placebench.experiment.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.experiment.workload import placement_workload
from placebench.measure.meters import Backends, backend_cpu_between, read_backends
from placebench.measure.processes import Memory, MemorySampler, cpu_between, read_cpu_by_pid
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer, ServerSpec

REQUESTS: Final = {"compute": 400, "query": 40, "state": 400, "state-frozen": 400}
QUICK_REQUESTS: Final = {"compute": 60, "query": 40, "state": 100, "state-frozen": 100}
_REFERENCE: Final = "placebench.reference.wsgi:application"
_WORKLOADS: Final = "placebench.reference.workloads:application"
_HASH_SEED: Final = "1"
_QUERY = "query"


@dataclass(frozen=True)
class WorkersStudy:
    """Which mixes of processes and threads serve which workloads."""

    mixes: tuple[tuple[int, int], ...]
    """Processes and threads in each of them."""
    workloads: tuple[str, ...]
    """compute: pure Python, GET /compute/N; query: the full query; state: reads of a state of 200 000 records that was
    loaded before the fork, GET /state/N; state-frozen: the same after gc.freeze()."""
    requests: Mapping[str, int]
    """How many, by workload; the same for every mix."""
    users: int
    """Closed-loop users, the same number for every mix."""
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

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured.

        A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `worker_cpu_s, backend_cpu_s,
        client_cpu_s, pss_bytes, uss_bytes, rss_bytes` (the process tree at its highest PSS), `unshared_bytes` and
        `memory`, a list of `[at_s, pss_bytes, uss_bytes, rss_bytes, unshared_bytes]`.
        """
        return StudySpec(
            command="workers",
            points=self.points,
            repeats=repeats,
            prepare=self._prepare,
            request=self.request,
            settings={"requests": dict(self.requests), "users": self.users, "variant": self.variant},
            variants=(self.variant,),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        with Restartable(lambda: http_client(setup.folder)) as client:
            yield _Meter(self, setup, client, setup.same_responses()).measure

    def paths(self, workload: str) -> list[str]:
        """Return the requests, in this order."""
        count = self.requests[workload]
        if workload == _QUERY:
            return [self.request] * count
        return [f"/{workload.partition('-')[0]}/{number}" for number in range(count)]

    def server_spec(self, point: Point, database_url: str, log: Path) -> ServerSpec:
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


@dataclass
class _Meter:
    """Measures points one after the other, and compares their responses."""

    study: WorkersStudy
    setup: StudySetup
    client: Restartable[HttpClient]
    same: SameResponses

    def measure(self, point: Point, _: int) -> dict[str, Any]:
        """One point on a server of its own."""
        spec = self.study.server_spec(point, self.setup.data.url, self.setup.folder / "log" / "uwsgi.log")
        paths = self.study.paths(point["workload"])
        with self.client.in_use() as client, serve(spec) as server:
            slots = point["processes"] * point["threads"]
            self._check(point, client.drive(server.url, placement_workload(paths[0]), times=2 * slots, users=slots))
            return self._load(point, server, client, paths)

    def _load(self, point: Point, server: RunningServer, client: HttpClient, paths: list[str]) -> dict[str, Any]:
        workers = server.worker_pids()
        different = list(dict.fromkeys(paths))
        workload, times = placement_workload(*different), len(paths) // len(different)
        before, backends_before = read_cpu_by_pid(workers), self._backends(point)
        with MemorySampler(server.pid, workers) as memory:
            seen = client.drive(server.url, workload, times=times, users=self.study.users)
        cpu_s, backends_after = cpu_between(before, read_cpu_by_pid(workers)), self._backends(point)
        server.check()
        self._check(point, seen)
        return {
            "elapsed_s": seen.elapsed_s,
            "requests": len(paths),
            "throughput_per_s": len(paths) / seen.elapsed_s,
            "latency_s": statistics.median(seen.wall_s),
            "worker_cpu_s": cpu_s,
            "backend_cpu_s": backend_cpu_between(backends_before, backends_after),
            "client_cpu_s": seen.client_cpu_s,
            **_memory(memory),
        }

    def _backends(self, point: Point) -> Backends | None:
        """None are needed for a workload without a database."""
        return read_backends(self.setup.data.url) if point["workload"] == _QUERY else Backends({})

    def _check(self, point: Point, seen: Driven) -> None:
        """Raise LoadError for a request that failed, GateFailedError for a response that is not as the first was."""
        seen.check()
        name = f"{point['workload']} by {point['processes']} x {point['threads']}"
        for request, digests in seen.responses.items():
            self.same.check_bodies(name, request, digests, responses_folder(self.setup.folder))


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
