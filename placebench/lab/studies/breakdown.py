"""The latency breakdown: each endpoint loaded for its throughput, and its requests taken apart by telemetry.

The main class is `BreakdownStudy`, the study of `placebench lab study breakdown`. A measurement
is two fresh servers: one loaded by as many users as it has workers, without the profiler; and one worker with one user,
each statement recorded, so that nothing waits for anything but itself. Their telemetry stays in the run's folder.
Claims change the data, so each of their loads has a copy of it.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.errors import LoadError
from placebench.lab.inventory.topology import Topology
from placebench.lab.reference.variants import variant as reference_variant
from placebench.lab.studies.study import Measure, Point, StudySetup, StudySpec
from placebench.runtime.application_servers import serve
from placebench.runtime.running_server import ServerSpec
from placebench.telemetry import Telemetry, load

if TYPE_CHECKING:
    import pandas as pd

NOOP: Final = "no-op"
CLAIMS: Final = "claims"
ENDPOINTS: Final = (NOOP, "candidates", "candidates, limit 10", "one provider", "its inventories", "traits", CLAIMS)
QUICK_ENDPOINTS: Final = (NOOP, "candidates", "one provider")
_WARM_UP_A_WORKER: Final = 4
_CANDIDATES_PER_USER: Final = 100


@dataclass(frozen=True)
class BreakdownStudy:
    """The latency breakdown of some endpoints."""

    endpoints: tuple[str, ...]
    """Of ENDPOINTS; the no-op among them."""
    request: str
    """Of the endpoint "candidates"."""
    variant: str = "tuned"
    processes: int = 2
    time_s: float = 3.0
    """Of each of the two loads of a measurement."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured; a measurement has the fields of `load_figures` and of `request_breakdown`."""
        return StudySpec(
            command="breakdown",
            points=tuple({"endpoint": name} for name in self.endpoints),
            repeats=repeats,
            prepare=self._prepare,
            request=self.request,
            settings={"variant": self.variant, "processes": self.processes, "time_s": self.time_s},
            variants=(self.variant,),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        requests = _endpoint_requests(self.request, setup.data.topology)

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            endpoint = _Endpoint(point["endpoint"], requests[point["endpoint"]], _part(setup, point, repeat))
            return _measure(self, setup, endpoint)

        yield measure


@dataclass(frozen=True)
class _Endpoint:
    """What is loaded in one measurement."""

    name: str
    request: str
    part: Path
    """Where its telemetry goes."""

    @property
    def verb(self) -> str:
        """Of the requests that are taken apart: claims ask for candidates in between."""
        return "PUT" if self.name == CLAIMS else "GET"

    def database_url(self, setup: StudySetup, load_name: str) -> str:
        """The data of the study; for claims a copy for each load, since they use up what there is."""
        return setup.data.copy(f"{self.part.name} {load_name}") if self.name == CLAIMS else setup.data.url

    def load(self, database_url: str) -> dict[str, Any]:
        """What `LoadSpec` takes: for claims a mix of nova's kind, whose acknowledged writes are looked for."""
        if self.name != CLAIMS:
            return {"request": self.request}
        return {"kind": "claims", "request": self.request, "database_url": database_url}

    def telemetry(self, load_name: str) -> Telemetry:
        """Of the requests that are taken apart."""
        telemetry = load(self.part / load_name)
        return replace(telemetry, durations=telemetry.durations[telemetry.durations["verb"] == self.verb])


def _endpoint_requests(request: str, topology: Topology) -> dict[str, str]:
    """Path and query of each endpoint; a provider is the root of the first tree."""
    provider = f"/resource_providers/{topology.uuids(0)[0]}"
    return {
        NOOP: "/",
        "candidates": request,
        "candidates, limit 10": f"{request}&limit=10",
        "one provider": provider,
        "its inventories": f"{provider}/inventories",
        "traits": "/traits",
        CLAIMS: f"{request}&limit={_CANDIDATES_PER_USER}",
    }


def _part(setup: StudySetup, point: Point, repeat: int) -> Path:
    """Where the telemetry of this measurement goes; what one that failed has left there is gone."""
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{point['endpoint']} {repeat + 1}")
    part = setup.folder / "telemetry" / name.replace("--", "-")
    shutil.rmtree(part, ignore_errors=True)
    return part


def _measure(study: BreakdownStudy, setup: StudySetup, endpoint: _Endpoint) -> dict[str, Any]:
    busy = _load(study, setup, endpoint, "loaded", processes=study.processes)
    _load(study, setup, endpoint, "apart", processes=1, PLACEBENCH_PROFILE="light")
    return {
        "path": f"{endpoint.verb} /allocations/<id>" if endpoint.name == CLAIMS else endpoint.request,
        **load_figures(busy, endpoint.telemetry("loaded")),
        **request_breakdown(endpoint.telemetry("apart")),
    }


def _load(
    study: BreakdownStudy, setup: StudySetup, endpoint: _Endpoint, name: str, *, processes: int, **environment: str
) -> LoadResult:
    """Load a fresh server by as many users as it has workers; raises LoadError where a request failed."""
    database_url = endpoint.database_url(setup, name)
    spec = ServerSpec(
        database_url=database_url,
        variant=study.variant,
        **reference_variant(study.variant).serving,
        processes=processes,
        environment=environment,
        telemetry=endpoint.part / name,
        log=setup.folder / "log" / "uwsgi-breakdown.log",
    )
    with serve(spec) as server:
        made = LoadSpec(
            url=server.url,
            **endpoint.load(database_url),
            users=processes,
            time_s=study.time_s,
            warmup=_WARM_UP_A_WORKER * processes,
            seed=setup.data.topology.seed,
            telemetry=endpoint.part / name,
        )
        result = run_load(made, folder=setup.folder / "log")
        server.check()
    writes = result.write_check
    if result.failures:
        failed = f"{result.failures} of {result.requests} failed: {result.failure_messages[0]}"
        raise LoadError(f"{endpoint.verb} {endpoint.request}: {failed}")
    if writes and writes.lost:
        raise LoadError(f"{writes.lost} of {writes.acknowledged} acknowledged claims are not in the database")
    return result


def load_figures(result: LoadResult, telemetry: Telemetry) -> dict[str, Any]:
    """Throughput of the requests of *telemetry*, and how they fell on the workers.

    shares: of the requests, a worker each, most first. chi_square: of their counts against equal ones, with
    len(shares) - 1 degrees of freedom.
    """
    counts = telemetry.paired().groupby("worker_server", observed=True).size()
    workers = [file.worker for file in telemetry.files if file.worker.startswith("worker-")]
    each = sorted((int(counts.get(name, 0)) for name in workers), reverse=True)
    fair = sum(each) / len(each)
    requests = int((telemetry.durations["series"] == "client").sum())
    return {
        "requests": requests,
        "throughput_per_s": requests / result.elapsed_s,
        "client_cpu_share": result.client_cpu_s / result.elapsed_s,
        "shares": [count / sum(each) for count in each],
        "chi_square": sum((count - fair) ** 2 / fair for count in each),
    }


def request_breakdown(telemetry: Telemetry) -> dict[str, Any]:
    """The mean request in seconds: way_in + framework + python + pool + database + way_out is client, exactly.

    way_in: from sending to the call of the application. framework, handler: as in `Telemetry`. database: inside the
    driver. python: the rest of the handler. way_out: from the application's return to the last byte at the client.
    Raises LoadError where no request was seen by both sides.
    """
    pairs = telemetry.paired()
    if not len(pairs):
        raise LoadError("no request of the client is in the server's telemetry: log/uwsgi-breakdown.log may say why")
    inside = _inside(telemetry.durations, pairs)
    way_in = (pairs["started_s_server"] - pairs["started_s_client"]).mean()
    client, handler = pairs["duration_s_client"].mean(), inside["handler"]
    database = inside["statement"] + inside["transaction"]
    parts = {
        "client_s": client,
        "way_in_s": way_in,
        "framework_s": inside["framework"],
        "python_s": handler - database - inside["pool"],
        "pool_s": inside["pool"],
        "database_s": database,
        "way_out_s": client - way_in - inside["framework"] - handler,
    }
    statements = telemetry.durations["series"].eq("statement") & telemetry.durations["request"].isin(pairs["request"])
    return {
        **{name: float(seconds) for name, seconds in parts.items()},
        "apart_requests": len(pairs),
        "statements": int(statements.sum()) / len(pairs),
    }


def _inside(durations: "pd.DataFrame", pairs: "pd.DataFrame") -> Mapping[str, float]:
    """Seconds of each series in the mean of these requests; 0 where there is none of it."""
    sums = durations[durations["request"].isin(pairs["request"])].groupby("series", observed=True)["duration_s"].sum()
    names = ("framework", "handler", "statement", "transaction", "pool")
    return {name: float(sums.get(name, 0.0)) / len(pairs) for name in names}
