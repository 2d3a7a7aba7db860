"""Threads, processes or event loops: the same requests served by every mix of them, with what each mix takes.

The main class is `WorkersStudy`, the study of `placebench lab study workers`. Each measurement is
a fresh server, warmed up, then a fixed number of requests by a fixed number of users; CPU is read at both ends, memory
all the while.
"""

import socketserver
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from placebench.compare.load.client_process import Driven, HttpClient, http_client, responses_folder
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.workload import placement_workload
from placebench.lab.reference.variants import variant as reference_variant
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.meters.meters import Backends, backend_cpu_between, read_backends
from placebench.meters.processes import Memory, MemorySampler, cpu_between, read_cpu_by_pid, read_tree_cpu_s
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import RunningServer, ServerSpec

REQUESTS: Final = {
    **dict.fromkeys(("compute", "database", "network", "state", "state-frozen", "subprocess"), 400),
    "query": 40,
}
QUICK_REQUESTS: Final = {
    **dict.fromkeys(("compute", "database", "network", "subprocess"), 60),
    **dict.fromkeys(("state", "state-frozen"), 100),
    "query": 40,
}
THREADS: Final = "uwsgi"
EVENT_LOOPS: Final = ("uvicorn", "granian")
"""Servers of variants with an asynchronous driver; a mix of theirs says how many tasks there may be, not threads."""
_WORKLOADS: Final = "placebench.lab.reference.workloads:application"
_HASH_SEED: Final = "1"
_QUERY = "query"
_ON_DATABASE = (_QUERY, "database")
_UPSTREAM_S = 0.02
_LOADED_WITHIN_S, _LOADED_STEP_S, _LOADED_SHARE = 60.0, 0.2, 0.2
"""A worker that takes less than this share of a CPU for a step has loaded the application."""


@dataclass(frozen=True)
class WorkersStudy:
    """Which mixes of processes and threads serve which workloads."""

    mixes: tuple[tuple[int, int, str], ...]
    """Processes, threads in each of them (tasks of an event loop), and the server."""
    workloads: tuple[str, ...]
    """compute: pure Python, GET /compute/N; database and network: 20 ms of waiting; query: the full query;
    subprocess: the start of a program; state: reads of a state of 200 000 records that was
    loaded before the fork, GET /state/N; state-frozen: the same after gc.freeze()."""
    requests: Mapping[str, int]
    """How many, by workload; the same for every mix."""
    users: int
    """Closed-loop users, the same number for every mix."""
    request: str
    variant: str = "tuned"
    driver: str = "asyncpg"
    """Of the variant in an event loop."""

    @property
    def points(self) -> tuple[Point, ...]:
        """Workload by workload."""
        return tuple(
            {"workload": workload, "processes": processes, "threads": threads}
            | ({"server": server} if server != THREADS else {})
            for workload in self.workloads
            for processes, threads, server in self.mixes
        )

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured.

        A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `worker_cpu_s` (and that of
        programs that they started), `backend_cpu_s, client_cpu_s`, `pss_bytes, uss_bytes, rss_bytes` (the process tree
        at its highest PSS), `unshared_bytes` and
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
        with Restartable(lambda: http_client(setup.folder)) as client, _slow_service() as upstream:
            yield _Meter(self, setup, client, setup.same_responses(), upstream).measure

    def paths(self, workload: str) -> list[str]:
        """Return the requests, in this order."""
        count = self.requests[workload]
        if workload == _QUERY:
            return [self.request] * count
        return [f"/{workload.partition('-')[0]}/{number}" for number in range(count)]

    def server_spec(self, point: Point, database_url: str, log: Path, upstream: str) -> ServerSpec:
        """How the point is served; *upstream*: the service that the workload network waits for."""
        server = point.get("server", THREADS)
        name = f"{self.variant}+driver:{self.driver}" if server in EVENT_LOOPS else self.variant
        serving = reference_variant(name).serving
        return ServerSpec(
            database_url=database_url,
            variant=name,
            processes=point["processes"],
            threads=point["threads"],
            environment={
                "PYTHONHASHSEED": _HASH_SEED,
                "PLACEBENCH_UPSTREAM": upstream,
                **_variables(point["workload"]),
            },
            module=serving["module"] if point["workload"] == _QUERY else _WORKLOADS,
            interface=serving["interface"],
            cache_server=serving["cache_server"] and point["workload"] == _QUERY,
            server=server,
            log=log,
        )


def _variables(workload: str) -> dict[str, str]:
    """For placebench.lab.reference.workloads; nothing for the query."""
    if workload == _QUERY:
        return {}
    name, _, frozen = workload.partition("-")
    return {"PLACEBENCH_WORKLOAD": name, "PLACEBENCH_FREEZE": str(int(frozen == "frozen"))}


@contextmanager
def _slow_service() -> Iterator[str]:
    """A service that sends a line 20 ms after a client has connected; yields HOST:PORT."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            time.sleep(_UPSTREAM_S)
            self.request.sendall(b"done\n")

    class Service(socketserver.ThreadingTCPServer):
        daemon_threads, request_queue_size = True, 1024

    with Service(("127.0.0.1", 0), Handler) as service:
        thread = threading.Thread(target=service.serve_forever, args=(_UPSTREAM_S,), daemon=True)
        thread.start()
        yield "{}:{}".format(*service.server_address)
        service.shutdown()
        thread.join()


def _wait_until_loaded(server: RunningServer) -> None:
    """Wait until all workers rest: servers of event loops respond when the first one of them does."""
    give_up_at, before = time.monotonic() + _LOADED_WITHIN_S, read_cpu_by_pid(server.worker_pids())
    while time.monotonic() < give_up_at:
        time.sleep(_LOADED_STEP_S)
        now = read_cpu_by_pid(server.worker_pids())
        if cpu_between(before, now) < _LOADED_SHARE * _LOADED_STEP_S:
            return
        before = now


@dataclass
class _Meter:
    """Measures points one after the other, and compares their responses."""

    study: WorkersStudy
    setup: StudySetup
    client: Restartable[HttpClient]
    same: SameResponses
    upstream: str

    def measure(self, point: Point, _: int) -> dict[str, Any]:
        """One point on a server of its own."""
        log = self.setup.folder / "log" / f"{point.get('server', THREADS)}.log"
        spec = self.study.server_spec(point, self.setup.data.url, log, self.upstream)
        paths = self.study.paths(point["workload"])
        with self.client.in_use() as client, serve(spec) as server:
            if spec.server in EVENT_LOOPS:
                _wait_until_loaded(server)
            slots = point["processes"] * point["threads"]
            self._check(point, client.drive(server.url, placement_workload(paths[0]), times=2 * slots, users=slots))
            return self._load(point, server, client, paths)

    def _load(self, point: Point, server: RunningServer, client: HttpClient, paths: list[str]) -> dict[str, Any]:
        workers = server.worker_pids()
        different = list(dict.fromkeys(paths))
        workload, times = placement_workload(*different), len(paths) // len(different)
        metered = server.metered_pids()
        before, backends_before = read_tree_cpu_s(metered), self._backends(point)
        with MemorySampler(server.pid, workers) as memory:
            seen = client.drive(server.url, workload, times=times, users=self.study.users)
        cpu_s, backends_after = read_tree_cpu_s(metered) - before, self._backends(point)
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
        return read_backends(self.setup.data.url) if point["workload"] in _ON_DATABASE else Backends({})

    def _check(self, point: Point, seen: Driven) -> None:
        """Raise LoadError for a request that failed, GateFailedError for a response that is not as the first was."""
        name = f"{point['workload']} by {point['processes']} x {point['threads']} {point.get('server', THREADS)}"
        self.same.check_all(name, seen.check().responses, responses_folder(self.setup.folder))


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
