"""The latency breakdown: the throughput of each endpoint, and the parts of its latency from telemetry.

The main class is `BreakdownStudy`, the study of `placebench lab study breakdown`. A measurement uses two fresh servers:
one is loaded by as many users as it has workers, without the profiler; the other has one worker and one user, and
records each statement, so that no request waits for another. Their telemetry stays in the run's folder. Claims change
the data, so each of their loads has its own copy.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import LoadResult, Measurement
from placebench.decoding import Amount, Count, Meta, Positive, Share
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.studies.commands import LOAD_S, BreakdownOptions, ByPreset
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.page.row_charts import Bar, bars
from placebench.report.model import Chart
from placebench.report.study_report import (
    StudyResults,
    busy_client,
    interval_columns,
    interval_figures,
    measured,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.session import Measure, Point, study_kind

if TYPE_CHECKING:
    from placebench.lab.inventory.topology import Topology
    from placebench.telemetry import Telemetry


class _BreakdownPoint(TypedDict):
    endpoint: str


class _BreakdownValues(TypedDict):
    path: str
    requests: Count
    throughput_per_s: Positive
    client_cpu_share: Amount
    shares: Annotated[list[Share], Meta(min_length=1)]
    chi_square: Amount
    client_s: float
    way_in_s: float
    way_out_s: float
    framework_s: float
    python_s: float
    pool_s: float
    database_s: float
    statements: Amount


# --- the command


def run(given: BreakdownOptions) -> int:
    """Measure every endpoint."""
    from placebench.lab.reference.variants import variant

    variant(given.variant)
    topology = given.topology()
    study = BreakdownStudy(
        endpoints=_endpoints(given),
        request=given.request or topology.request,
        variant=given.variant,
        processes=given.processes,
        time_s=given.time or given.default(LOAD_S),
    )
    return run_study(given, topology, study.spec(repeats=given.repeats))


def _endpoints(given: BreakdownOptions) -> tuple[str, ...]:
    """Return the no-op, then the endpoints that the user named, such as `candidates-limit-10`."""
    if given.endpoints is None:
        return given.default(ByPreset(ENDPOINTS, QUICK_ENDPOINTS))
    known = {name.replace(",", "").replace(" ", "-"): name for name in ENDPOINTS}
    names = given.endpoints.split(",")
    if strange := [name for name in names if name not in known]:
        raise PlacebenchError(f"--endpoints names {strange[0]!r}: expected {', '.join(known)}, with commas between")
    return tuple(dict.fromkeys((NOOP, *(known[name] for name in names))))


# --- the measurement


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
    """Names in ENDPOINTS, including the no-op."""
    request: str
    """The request of the endpoint "candidates"."""
    variant: str = "tuned"
    processes: int = 2
    time_s: float = 3.0
    """Seconds of each of the two loads of a measurement."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study; a measurement has the values of `load_figures` and `request_breakdown`."""
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
            name = "".join(letter if letter.isalnum() else "-" for letter in f"{point['endpoint']} {repeat + 1}")
            part = setup.folder / "telemetry" / name.replace("--", "-")
            shutil.rmtree(part, ignore_errors=True)  # left over from a failed measurement
            return _measure(self, setup, _Endpoint(point["endpoint"], requests[point["endpoint"]], part))

        yield measure


@dataclass(frozen=True)
class _Endpoint:
    """The endpoint that is loaded in one measurement."""

    name: str
    request: str
    part: Path
    """Folder of the measurement's telemetry."""

    @property
    def verb(self) -> str:
        """The HTTP method of the requests that are broken down; claims are preceded by requests for candidates."""
        return "PUT" if self.name == CLAIMS else "GET"

    def database_url(self, setup: StudySetup, load_name: str) -> str:
        """Return the URL of the study's database; for claims a new copy per load, because they use up inventory."""
        return setup.data.copy(f"{self.part.name} {load_name}") if self.name == CLAIMS else setup.data.url

    def load(self, database_url: str) -> dict[str, Any]:
        """Return arguments of `LoadSpec`; for claims a mix like nova's, whose acknowledged writes are looked up."""
        if self.name != CLAIMS:
            return {"request": self.request}
        return {"kind": "claims", "request": self.request, "database_url": database_url}

    def telemetry(self, load_name: str) -> "Telemetry":
        from placebench.telemetry import load

        telemetry = load(self.part / load_name)
        return replace(telemetry, durations=telemetry.durations[telemetry.durations["verb"] == self.verb])


def _endpoint_requests(request: str, topology: "Topology") -> dict[str, str]:
    """Return path and query of each endpoint; the provider is the root of the first tree."""
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
    """Load a fresh server with as many users as it has workers; raise LoadError if a request failed."""
    from placebench.compare.load.load_run import LoadSpec, run_load
    from placebench.lab.reference.variants import variant as reference_variant
    from placebench.lab.variants import serving
    from placebench.runtime.application_servers import serve
    from placebench.runtime.running_server import ServerSpec

    database_url = endpoint.database_url(setup, name)
    spec = ServerSpec(
        database_url=database_url,
        variant=study.variant,
        **serving(reference_variant(study.variant)),
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


def load_figures(result: LoadResult, telemetry: "Telemetry") -> dict[str, Any]:
    """Return the throughput of the requests in *telemetry*, and how they were distributed over the workers.

    shares: the share of requests of each worker, largest first. chi_square: the statistic of their counts against equal
    counts, with len(shares) - 1 degrees of freedom.
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


def request_breakdown(telemetry: "Telemetry") -> dict[str, Any]:
    """Return the mean request in seconds by part; way_in + framework + python + pool + database + way_out = client.

    way_in: from sending to the call of the application. framework, handler: as in `Telemetry`. database: time inside
    the driver. python: the remaining time of the handler. way_out: from the application's return to the last byte at
    the client. Raises LoadError if no request was recorded on both sides.
    """
    pairs = telemetry.paired()
    if not len(pairs):
        raise LoadError("no request of the client is in the server's telemetry: log/uwsgi-breakdown.log may say why")
    recorded = telemetry.durations[telemetry.durations["request"].isin(pairs["request"])]
    sums = recorded.groupby("series", observed=True)["duration_s"].sum()
    framework, handler, statement, transaction, pool = (
        float(sums.get(name, 0.0)) / len(pairs) for name in ("framework", "handler", "statement", "transaction", "pool")
    )
    way_in = (pairs["started_s_server"] - pairs["started_s_client"]).mean()
    client = pairs["duration_s_client"].mean()
    database = statement + transaction
    parts = {
        "client_s": client,
        "way_in_s": way_in,
        "framework_s": framework,
        "python_s": handler - database - pool,
        "pool_s": pool,
        "database_s": database,
        "way_out_s": client - way_in - framework - handler,
    }
    return {
        **{name: float(seconds) for name, seconds in parts.items()},
        "apart_requests": len(pairs),
        "statements": int(recorded["series"].eq("statement").sum()) / len(pairs),
    }


# --- the report


_PARTS = {
    "http_s": "connection and HTTP, as of a no-op",
    "framework_s": "framework",
    "python_s": "handler, in Python",
    "pool_s": "connection-pool wait",
    "database_s": "database (driver)",
    "unexplained_s": "unexplained",
}
_UNEVEN = 1.1
_ABOVE_NOOP = 1.05


def results(run: Run) -> StudyResults:
    """Return one row per endpoint, charts of the parts of its latency, and of its throughput next to the no-op's."""
    endpoints = {point["endpoint"]: made for point, made in valid_points(run)}
    rows = [_row(name, made, endpoints.get(NOOP, [])) for name, made in endpoints.items()]
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        charts=list(_charts(rows)),
        summary=list(_summary(rows)),
        notes=_NOTES,
        limits=_LIMITS,
    )


def _row(name: str, made: Sequence[Measurement], noop: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    throughput = median_interval([each["throughput_per_s"] for each in values])
    ways_s = _mean(values, "way_in_s") + _mean(values, "way_out_s")
    # Parts are means of means, which add up; medians of the parts would not.
    floor_s = fmean(each.values["way_in_s"] + each.values["way_out_s"] for each in noop) if noop else None
    http_s = ways_s if floor_s is None else min(ways_s, floor_s)
    parts = {part: _mean(values, part) for part in ("framework_s", "python_s", "pool_s", "database_s")}
    # The ratio is per repeat, because both were measured within the same minutes.
    noop_per_s = {each.repeat: each.values["throughput_per_s"] for each in noop}
    of_noop = [each.values["throughput_per_s"] / noop_per_s[each.repeat] for each in made if each.repeat in noop_per_s]
    handler_s = parts["python_s"] + parts["pool_s"] + parts["database_s"]
    return {
        "endpoint": name,
        "path": values[0]["path"],
        "n": throughput.n,
        "requests": sum(each["requests"] for each in values),
        **interval_figures("throughput", "_per_s", throughput),
        "share_of_noop": median(of_noop) if of_noop else None,
        "client_s": _mean(values, "client_s"),
        "http_s": http_s,
        **parts,
        "unexplained_s": ways_s - http_s,
        "database_share": parts["database_s"] / handler_s if handler_s and parts["database_s"] else None,
        "statements": _mean(values, "statements"),
        "workers": len(values[0]["shares"]),
        "busiest_share": median(max(each["shares"]) for each in values),
        "chi_square": median(each["chi_square"] for each in values),
        "client_cpu_share": median(each["client_cpu_share"] for each in values),
    }


def _mean(values: Sequence[Mapping[str, Any]], name: str) -> float:
    return fmean(each[name] for each in values)


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    named = {row["endpoint"]: row for row in rows}
    if NOOP not in named:
        return "Latency breakdown: the no-op was not measured, so there is no ceiling to compare with."
    noop = named[NOOP]
    framework = units.duration(noop["framework_s"])
    ceiling = f"Ceiling: {units.rate(noop['throughput_per_s'])} for a no-op ({framework} framework time per request)"
    others = [row for row in rows if row["endpoint"] != NOOP]
    if not others:
        return f"{ceiling}."
    row = others[0]
    database = row["database_share"]
    share = "" if database is None else f"; {units.percent(database)} of its handler time is spent in the database"
    reached = units.percent(row["share_of_noop"], digits=2)
    return f"{ceiling}. {row['endpoint']} reaches {reached} of it{share}."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from busy_client(rows, itemgetter("endpoint"))
    above = [row["endpoint"] for row in rows if (row["share_of_noop"] or 0.0) > _ABOVE_NOOP]
    if above:
        yield (
            f"{', '.join(above)} had a higher throughput than the no-op, which is impossible: the machine was busy "
            "with other work. Do not rely on throughputs; the parts of a bar still add up."
        )
    uneven = [row for row in rows if row["busiest_share"] * row["workers"] > _UNEVEN]
    if uneven:
        shares = (f"{row['endpoint']} {units.percent(row['busiest_share'])} by the busiest" for row in uneven)
        yield f"The {uneven[0]['workers']} workers were not used evenly: {', '.join(shares)}."
    elif rows and rows[0]["workers"] > 1:
        most = max(row["busiest_share"] for row in rows)
        yield f"The {rows[0]['workers']} workers were used evenly: the busiest served at most {units.percent(most)}."


_COLUMNS = (
    measured("endpoint", "endpoint"),
    measured("n", "n", units.count),
    *interval_columns("throughput", "_per_s", "throughput", units.rate),
    measured("share_of_noop", "of the no-op", units.percent),
    measured("client_s", "latency, one user", units.duration),
    measured("http_s", "HTTP", units.duration),
    measured("framework_s", "framework", units.duration),
    measured("python_s", "Python", units.duration),
    measured("pool_s", "pool", units.duration),
    measured("database_s", "database", units.duration),
    measured("unexplained_s", "unexplained", units.duration),
    measured("database_share", "database of handler", units.percent),
    measured("statements", "statements", units.average),
    measured("busiest_share", "busiest worker", units.percent),
)


def _charts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Chart]]:
    if not rows:
        return
    latency = bars(
        [
            Bar(row["endpoint"], tuple(max(row[part], 0.0) for part in _PARTS), value=units.duration(row["client_s"]))
            for row in rows
        ],
        part_names=list(_PARTS.values()),
        title="Latency at the client by part",
        description="A bar for each endpoint, whose parts add up to the mean latency at the client.",
        show=units.duration,
        is_whole=True,
    )
    caption = "One user, one worker, each statement recorded: the mean of all requests."
    yield "Latency at the client by part", Chart(latency, caption)
    throughput = bars(
        [
            Bar(row["endpoint"], (row["throughput_per_s"],), "baseline" if row["endpoint"] == NOOP else "variant")
            for row in rows
        ],
        title="Throughput",
        description="Requests per second of each endpoint, all workers busy; the no-op is the ceiling.",
        show=units.rate,
    )
    yield "Throughput", Chart(throughput, "As many users as workers, the profiler off.")


_NOTES = (
    "The no-op is GET /: through uWSGI and the whole framework, without a database. No endpoint can be faster here.",
    "A bar is of requests whose every statement was recorded; its parts add up to the client's mean latency.",
    "Connection and HTTP: what a no-op needs outside of the application, from sending to the last byte read.",
    "Framework: the application without its handler: routing, headers and checks.",
    "Database: inside the driver, so network and PostgreSQL. SQLAlchemy's own work is part of Python.",
    "Unexplained: time outside of the application beyond a no-op's, such as sending a large response.",
    "Claims are PUT /allocations/<id> for a new consumer each; their rate contains the GET before every ten of them.",
    "Busiest worker: its share of the requests; one over the number of workers is even.",
)
_LIMITS = (
    "The profiler's overhead: it is in the bars, as part of Python, and not in the throughput.",
    "Where the time inside the driver went: execution plans and the network study show that.",
    "The wait for a busy worker: the bars are of one user.",
    "How another machine would do: client, workers and database share this one.",
)


KIND = study_kind(__name__, StudySettings[_BreakdownPoint], _BreakdownPoint, _BreakdownValues)
