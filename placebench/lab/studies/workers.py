"""The workers study: the same requests served by different mixes of processes and threads, or by event loops.

The main class is `WorkersStudy`, the study of `placebench lab study workers`. Each measurement is a fresh server,
warmed up, then a fixed number of requests by a fixed number of users. CPU is read before and after, memory throughout.
"""

import math
import os
import re
import socketserver
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NotRequired, TypedDict

from placebench import units
from placebench.commands.output import say
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.decoding import Amount, AtLeastOne, Count, Meta, Positive
from placebench.errors import PlacebenchError
from placebench.lab.studies.commands import ALL_WORKLOADS, WORKLOADS, ByPreset, WorkersOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.report.model import Chart
from placebench.report.study_report import (
    CLIENT_IS_BUSY,
    StudyResults,
    busy_client,
    interval_columns,
    interval_figures,
    measured,
    median_of_all,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.session import Measure, Point, Restartable, study_kind
from placebench.study.workers import throughput_by_memory

if TYPE_CHECKING:
    from placebench.meters.processes import Memory
    from placebench.runtime.running_server import RunningServer, ServerSpec


class _WorkersPoint(TypedDict):
    workload: Literal["compute", "database", "network", "query", "state", "state-frozen", "subprocess"]
    processes: AtLeastOne
    threads: AtLeastOne
    server: NotRequired[Literal["uvicorn", "granian"]]


class _WorkersSettings(StudySettings[_WorkersPoint]):
    users: Count
    variant: str


class _WorkersValues(TypedDict):
    elapsed_s: Positive
    requests: AtLeastOne
    throughput_per_s: Positive
    latency_s: Amount
    worker_cpu_s: Amount
    backend_cpu_s: Amount | None
    client_cpu_s: Amount
    pss_bytes: AtLeastOne
    uss_bytes: Count
    rss_bytes: Count
    unshared_bytes: int
    memory: Annotated[list[tuple[Amount, Count, Count, Count, int]], Meta(min_length=1)]


# --- the command


_MAX_CORES = 8
_MAX_THREADS = 64


def run(given: WorkersOptions) -> int:
    """Measure every workload with every mix."""
    from placebench.compare.what.pythons import free_threaded
    from placebench.lab.reference.variants import variant

    topology, mixes, workloads = given.topology(), _mixes(given), _workloads(given)
    variant(given.variant)
    if any(server in EVENT_LOOPS for *_, server in mixes):
        variant(f"{given.variant}+driver:{given.driver}")
        if strange := [name for name in workloads if name.startswith("state")]:
            raise PlacebenchError(
                f"--workloads {strange[0]} measures memory shared by a fork, and event loops are not forked: "
                "leave out the workload, or the servers with an event loop"
            )
    requests = given.default(_REQUESTS)
    study = WorkersStudy(
        mixes=mixes,
        workloads=workloads,
        requests={name: given.requests or requests[name] for name in workloads},
        users=given.users or max(processes * threads for processes, threads, _ in mixes),
        request=given.request or topology.request,
        variant=given.variant,
        driver=given.driver,
    )
    if not given.run.resume:
        say(free_threaded())
    return run_study(given, topology, study.spec(repeats=given.repeats))


def _mixes(given: WorkersOptions) -> tuple[tuple[int, int, str], ...]:
    if given.mixes is None:
        return tuple((*mix, "uwsgi") for mix in default_mixes(os.cpu_count() or 1, quick=given.is_quick))
    mix = r"([0-9]{1,4})x([0-9]{1,4})(?:@(uwsgi|uvicorn|granian))?"
    found = [re.fullmatch(mix, part) for part in given.mixes.split(",")]
    mixes = tuple(dict.fromkeys((int(each[1]), int(each[2]), each[3] or "uwsgi") for each in found if each))
    if not all(found) or not all(0 < processes * threads <= _MAX_THREADS for processes, threads, _ in mixes):
        raise PlacebenchError(
            f"--mixes {given.mixes!r}: expected processes x threads with commas between, such as 1x4,4x1,2x2, "
            f"of {_MAX_THREADS} threads together at most, each with @uvicorn or @granian for an event loop"
        )
    return mixes


def default_mixes(cores: int, *, quick: bool) -> tuple[tuple[int, int], ...]:
    """Return default mixes: one worker, n and 2n threads, n and 2n processes, and n processes of 2 threads."""
    n = min(max(cores, 2), _MAX_CORES)
    if quick:
        return ((1, 2 * n), (2 * n, 1), (n, 2))
    return ((1, 1), (1, n), (1, 2 * n), (n, 1), (2 * n, 1), (n, 2))


def _workloads(given: WorkersOptions) -> tuple[str, ...]:
    if given.workloads is None:
        return given.default(WORKLOADS)
    names = tuple(dict.fromkeys(given.workloads.split(",")))
    if strange := [name for name in names if name not in ALL_WORKLOADS]:
        raise PlacebenchError(f"--workloads names {strange[0]!r}: expected {', '.join(ALL_WORKLOADS)}")
    return names


# --- the measurement


_REQUESTS: Final = ByPreset(
    {**dict.fromkeys(ALL_WORKLOADS, 400), "query": 40},
    {**dict.fromkeys(ALL_WORKLOADS, 60), **dict.fromkeys(("state", "state-frozen"), 100), "query": 40},
)
"""Number of requests by workload, for --preset default and quick."""
THREADS: Final = "uwsgi"
EVENT_LOOPS: Final = ("uvicorn", "granian")
"""Servers of variants with an asynchronous driver; the threads of their mixes are the maximum number of tasks."""
_APPLICATION: Final = "placebench.lab.reference.workloads:application"
_HASH_SEED: Final = "1"
_QUERY = "query"
_ON_DATABASE = (_QUERY, "database")
_UPSTREAM_S = 0.02
_LOADED_WITHIN_S, _LOADED_STEP_S, _LOADED_SHARE = 60.0, 0.2, 0.2
"""Share of a CPU below which, during one step, a worker counts as having loaded the application."""


@dataclass(frozen=True)
class WorkersStudy:
    """The mixes of processes and threads, and the workloads that they serve."""

    mixes: tuple[tuple[int, int, str], ...]
    """Number of processes, of threads in each (tasks of an event loop), and the server."""
    workloads: tuple[str, ...]
    """The workloads: pure Python, GET /compute/N (compute); 20 ms of waiting (database, network); the full query
    (query); the start of a program (subprocess); reads of a state of 200 000 records loaded before the fork,
    GET /state/N (state), also after gc.freeze() (state-frozen)."""
    requests: Mapping[str, int]
    """Number of requests by workload, the same for every mix."""
    users: int
    """Number of closed-loop users, the same for every mix."""
    request: str
    variant: str = "tuned"
    driver: str = "asyncpg"
    """Driver of the variant in an event loop."""

    @property
    def points(self) -> tuple[Point, ...]:
        """All combinations of workloads and mixes, workload by workload."""
        return tuple(
            {"workload": workload, "processes": processes, "threads": threads}
            | ({"server": server} if server != THREADS else {})
            for workload in self.workloads
            for processes, threads, server in self.mixes
        )

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study.

        A measurement has `elapsed_s, requests, throughput_per_s, latency_s` (the median), `worker_cpu_s` (including
        programs that workers started), `backend_cpu_s, client_cpu_s`, `pss_bytes, uss_bytes, rss_bytes` (of the process
        tree at its highest PSS), `unshared_bytes` and `memory`, a list of `[at_s, pss_bytes, uss_bytes, rss_bytes,
        unshared_bytes]`.
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
        from placebench.compare.load.client_process import responses_folder
        from placebench.compare.load.clients import http_client
        from placebench.lab.placement_api import placement_workload
        from placebench.meters.meters import Backends, backend_cpu_between, read_backends
        from placebench.meters.processes import MemorySampler, read_tree_cpu_s
        from placebench.runtime.application_servers import serve

        same, bodies = setup.same_responses(), responses_folder(setup.folder)

        def measure(point: Point, _: int) -> dict[str, Any]:
            server, slots = point.get("server", THREADS), point["processes"] * point["threads"]
            name = f"{point['workload']} by {point['processes']} x {point['threads']} {server}"
            url, paths = setup.data.url, self.paths(point["workload"])
            different = list(dict.fromkeys(paths))
            workload, times = placement_workload(*different), len(paths) // len(different)

            def cpu(pids: list[int]) -> "tuple[float, Backends | None]":
                """Return the CPU seconds of the service, and those of the backends: none without a database."""
                backends = read_backends(url) if point["workload"] in _ON_DATABASE else Backends({})
                return read_tree_cpu_s(pids), backends

            spec = self.server_spec(point, url, setup.folder / "log" / f"{server}.log", upstream)
            with connections.in_use() as client, serve(spec) as service:
                if server in EVENT_LOOPS:
                    _wait_until_loaded(service)
                warm_up = client.drive(service.url, placement_workload(paths[0]), times=2 * slots, users=slots)
                same.check_all(name, warm_up.check().responses, bodies)
                metered = service.metered_pids()
                cpu_before_s, backends_before = cpu(metered)
                with MemorySampler(service.pid, service.worker_pids()) as memory:
                    seen = client.drive(service.url, workload, times=times, users=self.users)
                cpu_after_s, backends_after = cpu(metered)
                service.check()
                same.check_all(name, seen.check().responses, bodies)
            shared = memory.samples[0].shared_bytes
            over_time = [[each.at_s, *_sizes(each.process_tree), shared - each.shared_bytes] for each in memory.samples]
            return {
                "elapsed_s": seen.elapsed_s,
                "requests": len(paths),
                "throughput_per_s": len(paths) / seen.elapsed_s,
                "latency_s": statistics.median(seen.wall_s),
                "worker_cpu_s": cpu_after_s - cpu_before_s,
                "backend_cpu_s": backend_cpu_between(backends_before, backends_after),
                "client_cpu_s": seen.client_cpu_s,
                **dict(zip(("pss_bytes", "uss_bytes", "rss_bytes"), _sizes(memory.peak), strict=True)),
                "unshared_bytes": memory.unshared_bytes,
                "memory": over_time,
            }

        with Restartable(lambda: http_client(setup.folder)) as connections, _slow_service() as upstream:
            yield measure

    def paths(self, workload: str) -> list[str]:
        """Return the paths of the workload's requests, in the order in which they are sent."""
        count = self.requests[workload]
        if workload == _QUERY:
            return [self.request] * count
        return [f"/{workload.partition('-')[0]}/{number}" for number in range(count)]

    def server_spec(self, point: Point, database_url: str, log: Path, upstream: str) -> "ServerSpec":
        """Return the server spec of the point; *upstream*: the service that the workload network waits for."""
        from placebench.lab.reference.variants import variant as reference_variant
        from placebench.runtime.running_server import ServerSpec

        server = point.get("server", THREADS)
        name = f"{self.variant}+driver:{self.driver}" if server in EVENT_LOOPS else self.variant
        serving = reference_variant(name).serving
        variables = {}
        if point["workload"] != _QUERY:  # for placebench.lab.reference.workloads
            workload, _, frozen = point["workload"].partition("-")
            variables = {"PLACEBENCH_WORKLOAD": workload, "PLACEBENCH_FREEZE": str(int(frozen == "frozen"))}
        return ServerSpec(
            database_url=database_url,
            variant=name,
            processes=point["processes"],
            threads=point["threads"],
            environment={"PYTHONHASHSEED": _HASH_SEED, "PLACEBENCH_UPSTREAM": upstream, **variables},
            module=serving["module"] if point["workload"] == _QUERY else _APPLICATION,
            interface=serving["interface"],
            cache_server=serving["cache_server"] and point["workload"] == _QUERY,
            server=server,
            log=log,
        )


@contextmanager
def _slow_service() -> Iterator[str]:
    """Start a service that sends a line 20 ms after a client has connected; yield HOST:PORT."""

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


def _wait_until_loaded(server: "RunningServer") -> None:
    """Wait until all workers are idle, because a server with event loops responds when its first worker is ready."""
    from placebench.meters.processes import cpu_between, read_cpu_by_pid

    give_up_at, before = time.monotonic() + _LOADED_WITHIN_S, read_cpu_by_pid(server.worker_pids())
    while time.monotonic() < give_up_at:
        time.sleep(_LOADED_STEP_S)
        now = read_cpu_by_pid(server.worker_pids())
        if cpu_between(before, now) < _LOADED_SHARE * _LOADED_STEP_S:
            return
        before = now


def _sizes(memory: "Memory") -> tuple[int, int, int]:
    return memory.pss_bytes, memory.uss_bytes, memory.rss_bytes


# --- the report


_MEDIANS = ("throughput_per_s", "latency_s", "pss_bytes", "uss_bytes", "rss_bytes", "unshared_bytes", "client_cpu_s")
_UNSHARED = 4
"""Index of the un-shared bytes in a sample of `memory`."""
_MAX_POINTS_OF_LINE = 25
_NAMES = {
    "compute": "pure computation",
    "database": "waiting for the database",
    "network": "waiting for the network",
    "query": "the full query",
    "state": "shared state",
    "state-frozen": "shared state, frozen",
    "subprocess": "starting a program",
}


def results(run: Run) -> StudyResults:
    """Return one row per workload and mix, charts of throughput against memory, and of un-shared memory."""
    rows = [_row(point, made) for point, made in valid_points(run)]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=[*_throughput_charts(rows), *_unshared_charts(rows)],
        summary=list(_summary(rows)),
        notes=list(_notes(run.head.settings)),
        limits=_LIMITS,
        axes=_axes,
    )


def _axes(point: Mapping[str, Any]) -> dict[str, Any]:
    server = point.get("server", "")
    return {"server": "uwsgi", **point, "mix": f"{point['processes']} x {point['threads']} {server}".strip()}


def _row(point: Mapping[str, Any], made: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    elapsed = median_interval([each["elapsed_s"] for each in values])
    medians = {name: statistics.median([each[name] for each in values]) for name in _MEDIANS}
    cpu_s = median_of_all(
        [
            None if each["backend_cpu_s"] is None else float(each["worker_cpu_s"] + each["backend_cpu_s"])
            for each in values
        ]
    )
    typical = min(made, key=lambda each: abs(each.values["elapsed_s"] - elapsed.median))
    samples = typical.values["memory"]
    step = max(1, math.ceil(len(samples) / _MAX_POINTS_OF_LINE))
    share = medians.pop("client_cpu_s") / elapsed.median
    return {
        **_axes(point),
        "n": elapsed.n,
        "requests": values[0]["requests"],
        **interval_figures("elapsed", "_s", elapsed),
        "confidence": elapsed.confidence,
        **medians,
        "cpu_s": cpu_s,
        "cpu_s_per_request": None if cpu_s is None else cpu_s / values[0]["requests"],
        "unshared_over_time": [[sample[0], sample[_UNSHARED]] for sample in [*samples[:-1:step], samples[-1]]],
        "client_cpu_share": share,
        "client_was_busy": share > CLIENT_IS_BUSY,
    }


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Compare the largest number of processes with that many threads, on the query if it was measured."""
    for workload in sorted({row["workload"] for row in rows}, key=lambda name: (name != "query", name)):
        mine = {
            (row["processes"], row["threads"]): row
            for row in rows
            if row["workload"] == workload and row["server"] == "uwsgi"
        }
        for count in sorted((processes for processes, threads in mine if threads == 1 < processes), reverse=True):
            if (1, count) in mine:
                return _against(mine[1, count], mine[count, 1])
    if not rows:
        return "Threads or processes: nothing was measured."
    best = max(rows, key=lambda row: row["throughput_per_s"])
    return (
        f"{best['mix']} (processes x threads) serves {units.rate(best['throughput_per_s'])} of "
        f"{_NAMES[best['workload']]} in {units.size(best['pss_bytes'])}."
    )


def _against(threads: Mapping[str, Any], processes: Mapping[str, Any]) -> str:
    faster = processes["throughput_per_s"] / threads["throughput_per_s"]
    larger = processes["pss_bytes"] / threads["pss_bytes"]
    return (
        f"{_NAMES[threads['workload']].capitalize()}: {processes['processes']} processes serve {_rate_in(processes)}, "
        f"{threads['threads']} threads {_rate_in(threads)}: {units.times(faster)} the throughput for "
        f"{units.times(larger)} the memory."
    )


def _rate_in(row: Mapping[str, Any]) -> str:
    return f"{units.rate(row['throughput_per_s'])} in {units.size(row['pss_bytes'])}"


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from busy_client(rows, lambda row: f"{_NAMES[row['workload']]} by {row['mix']}")
    if rows and not any(row["client_was_busy"] for row in rows):
        most = max(row["client_cpu_share"] for row in rows)
        yield f"The load generator took at most {units.percent(most)} of a core, so it was not the limit."


_COLUMNS = (
    measured("workload", "workload", lambda name: _NAMES[name]),
    measured("mix", "processes x threads, or tasks"),
    measured("n", "n", units.count),
    *interval_columns("elapsed", "_s", "time", units.duration),
    measured("throughput_per_s", "throughput", units.rate),
    measured("latency_s", "median latency", units.duration),
    measured("cpu_s_per_request", "CPU per request", units.duration),
    measured("pss_bytes", "PSS", units.size),
    measured("uss_bytes", "USS", units.size),
    measured("rss_bytes", "RSS", units.size),
    measured("unshared_bytes", "un-shared", units.size),
    measured("client_cpu_share", "generator CPU", units.percent),
)


def _throughput_charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    for workload in dict.fromkeys(row["workload"] for row in rows):
        svg = throughput_by_memory(
            [(row["mix"], _role(row), row) for row in rows if row["workload"] == workload],
            title=f"Throughput against memory, {_NAMES[workload]}",
            description="A point for each mix of processes and threads; up is faster, left is smaller.",
            keys=("threads in one process", "processes of one thread", "both, one of each, or an event loop"),
        )
        caption = "Processes x threads. Up is faster; left is smaller (peak PSS of the process tree)."
        yield f"{_NAMES[workload].capitalize()}: throughput against memory", Chart(svg, caption)


def _unshared_charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    """Yield charts of un-shared memory over time for workloads with a shared state, from the median repeat."""
    for workload in dict.fromkeys(row["workload"] for row in rows if row["workload"].startswith("state")):
        title = f"Memory un-shared by copy-on-write, {_NAMES[workload]}"
        svg = lines(
            [
                Line(
                    row["mix"],
                    [(at_s, max(0.0, lost / units.MIB)) for at_s, lost in row["unshared_over_time"]],
                    _role(row),
                )
                for row in rows
                if row["workload"] == workload
            ],
            title=title,
            description="A line for each mix: memory that its workers no longer share since the first request.",
            show=units.mebibytes,
            show_where=units.duration,
        )
        caption = (
            "Pages that the workers shared after the fork and have copied since, because something wrote to them: even "
            "reading a Python object writes its reference count."
        )
        yield title, Chart(svg, caption)


def _role(row: Mapping[str, Any]) -> Role:
    processes, threads = row["processes"], row["threads"]
    if row["server"] != "uwsgi":
        return "between"
    if processes == 1 < threads:
        return "baseline"
    return "variant" if threads == 1 < processes else "between"


def _notes(settings: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Each measurement is a fresh server, warmed up, and the same requests of {units.count(settings['users'])} "
        "users for every mix. Every response is compared with the first one to the same request."
    )
    yield (
        "Pure computation is Python without input or output; the full query is the request above, by the variant "
        f"{settings['variant']}; shared state is loaded before the fork and read in fiftieths; frozen is after "
        "gc.freeze(). Waiting is 20 ms per request, for PostgreSQL or for another service."
    )
    yield (
        "Memory is the peak of master and workers together. RSS counts a shared page in each process, PSS in parts, "
        "USS only what one process has alone."
    )
    yield "Un-shared: memory that copy-on-write has copied in the workers between the first request and the last."
    yield "CPU per request is of the workers, and of PostgreSQL's backends for the query; generator CPU is of one core."


_LIMITS = (
    "The effect of more cores: processes gain until the cores are used up, and so does the database beside them.",
    "A Python without the global interpreter lock.",
    "Memory of PostgreSQL's backends: one for each thread.",
)


KIND = study_kind(__name__, _WorkersSettings, _WorkersPoint, _WorkersValues)
