"""Repeat Placement's published measurements: 10 requests by 1 client, and 400 by 40, against nested providers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.decoding import Amount, Count, Positive
from placebench.errors import MissingExtraError
from placebench.lab.studies.commands import FEWER_REPLICATES, PublishedOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.page.row_charts import Estimate, forest
from placebench.report.model import Chart
from placebench.report.study_report import (
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    service_name,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval, percentile
from placebench.study.overheads import paired_ratio
from placebench.study.session import Measure, Point, study_kind

if TYPE_CHECKING:
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.compare.what.variants import Variant
    from placebench.lab.inventory.topology import Topology


class _PublishedPoint(TypedDict):
    service: str
    topology: str
    clients: Count


class _PublishedFigure(TypedDict):
    topology: str
    clients: Count
    before_per_s: Positive
    after_per_s: Positive


class _PublishedSettings(StudySettings[_PublishedPoint]):
    processes: Count
    threads: Count
    published: list[_PublishedFigure]
    published_trees: Count
    published_source: str
    published_machine: str


class _PublishedValues(TypedDict):
    elapsed_s: Positive
    rate_per_s: Positive
    latency_s_median: Amount
    latency_s: NotRequired[list[Amount]]
    """The latency of each request; absent in runs of earlier versions."""
    cpu_s: Amount | None
    body_bytes: Amount


# --- the command


_TOPOLOGIES = ("nested-perfload", "flat-perfload")


def run(given: PublishedOptions) -> int:
    """Measure the published loads."""
    from placebench.lab.inventory.seeding import find_topology

    trees = given.trees_or_preset(given.trees)
    topologies = [find_topology(name, trees=trees, seed=given.seed) for name in _TOPOLOGIES]
    study = PublishedStudy(
        find_services(given.variants or services(), placement_python=given.placement_python), topologies
    )
    repeats = given.replicates or given.default(FEWER_REPLICATES)
    return run_study(given, topologies[0], study.spec(repeats=repeats))


# --- the measurement


_SOURCE = (
    'Chris Dent, "Placement Performance Analysis", 2019: https://anticdent.org/placement-performance-analysis.html'
)
_MACHINE = "a virtual machine with 16 processors and 16 GB, PostgreSQL, uWSGI --http, 4 processes of 10 threads, ab"
_TREES = 1000


@dataclass(frozen=True)
class _Published:
    """Published responses per second, before and after an optimization."""

    before_per_s: float
    after_per_s: float


_PUBLISHED: Mapping[tuple[str, int], _Published] = {
    ("nested-perfload", 1): _Published(0.40, 0.70),
    ("nested-perfload", 40): _Published(1.46, 2.90),
    # Published as 1.2 s and 0.53 s for one request of the flat query.
    ("flat-perfload", 1): _Published(1 / 1.2, 1 / 0.53),
}
"""The published values, by topology and number of clients."""


_PROCESSES, _THREADS = 4, 10
_REQUESTS: Mapping[int, int] = {1: 10, 40: 400}
"""Number of requests, by number of clients."""


@dataclass(frozen=True)
class PublishedStudy:
    """Services under the load of the published measurements."""

    variants: "Mapping[str, Variant | str]"
    """The variant of each service, or the reason why there is none."""
    topologies: "Sequence[Topology]"
    """The inventories; the first is the run's."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study: every service with every topology and number of clients."""
        from placebench.compare.what.variants import Variant

        here = [name for name, each in self.variants.items() if isinstance(each, Variant)]
        missing = {name: each for name, each in self.variants.items() if isinstance(each, str)}
        topologies = [topology.name for topology in self.topologies]
        return StudySpec(
            "published",
            tuple(_points(here, topologies)),
            repeats,
            self._prepare,
            self.topologies[0].request,
            settings={
                "processes": _PROCESSES,
                "threads": _THREADS,
                "published": [
                    {"topology": topology, "clients": clients, **asdict(each)}
                    for (topology, clients), each in _PUBLISHED.items()
                ],
                "published_trees": _TREES,
                "published_source": _SOURCE,
                "published_machine": _MACHINE,
            },
            variants=tuple(here),
            impossible=tuple((point, missing[point["service"]]) for point in _points(list(missing), topologies)),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        from placebench.compare.what.variants import Variant

        topologies = {topology.name: topology for topology in self.topologies}
        same = {name: setup.same_responses() for name in topologies}

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            variant, name = self.variants[point["service"]], point["topology"]
            assert isinstance(variant, Variant)
            return _measure(setup, variant, topologies[name], same[name], int(point["clients"]), repeat)

        yield measure


def services() -> tuple[str, ...]:
    """Return the service before the optimizations and after them, the further algorithms and the real Placement."""
    from placebench.lab.reference.variants import ALGORITHMS
    from placebench.lab.variants import PLACEMENT

    return (_ORIGINAL, _BEST, *ALGORITHMS, PLACEMENT)


def find_services(names: Sequence[str], *, placement_python: Path | None = None) -> "dict[str, Variant | str]":
    """Return the variant of each name, or why it is not available; raise VariantError for an unknown name."""
    from placebench.compare.what.variants import find_variant, require_servers

    found: dict[str, Variant | str] = {}
    for name in names:
        variant, missing = find_variant(name, python=placement_python)
        found[name] = missing if variant is None else variant
        if variant is not None:
            try:
                require_servers([variant])
            except MissingExtraError as error:
                found[name] = str(error)
    return found


def _points(names: Sequence[str], topologies: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"service": name, "topology": topology, "clients": clients}
        for topology in topologies
        for clients in _REQUESTS
        if (topology, clients) in _PUBLISHED
        for name in names
    ]


def _measure(
    setup: StudySetup, variant: "Variant", topology: "Topology", same: "SameResponses", clients: int, repeat: int
) -> dict[str, Any]:
    """Measure one service under one load; raise GateFailedError if its response differs from the others'."""
    from placebench.compare.load.load_run import locust_job, warm_up
    from placebench.meters.meters import ServerMeter
    from placebench.runtime.application_servers import serve

    url = setup.data.of(topology, variant.revisions)
    log = setup.folder / "log" / f"uwsgi-{variant.name}.log"
    spec = replace(variant.spec(url, hash_seed=repeat, log=log), processes=_PROCESSES, threads=_THREADS)
    with serve(spec) as server:
        same.request(variant.name, topology.request, server.url)
        warm_up(server, topology.request, _PROCESSES)
        done = locust_job(
            server,
            topology.request,
            requests=_REQUESTS[clients],
            users=clients,
            meter=ServerMeter(server.metered_pids, url),
            folder=setup.folder,
        )
        server.check()
    return {
        "elapsed_s": done.duration_s,
        "rate_per_s": _REQUESTS[clients] / done.duration_s,
        "latency_s_median": median(done.latency_s),
        "latency_s": [round(each, 6) for each in done.latency_s],
        "cpu_s": done.cpu_s,
        "body_bytes": done.body_bytes / _REQUESTS[clients],
    }


# --- the report


_ORIGINAL = "naive"
_BEST = "tuned"


_COLUMNS = (
    measured("topology", "Topology"),
    measured("clients", "Clients", units.count),
    measured("requests", "Requests", units.count),
    *interval_columns("rate", "_per_s", "Throughput", units.rate),
    measured("n", "n", units.count),
    measured("latency_s_median", "p50", units.duration),
    measured("latency_s_p95", "p95", units.duration),
    measured("latency_s_p99", "p99", units.duration),
    measured("cpu_s_per_request", "Server CPU per request", units.duration),
    *interval_columns("times_naive", "", "× naive", units.times),
    measured("published_before_per_s", "Published, before", units.rate),
    measured("published_after_per_s", "Published, after", units.rate),
    measured("ratio", "× published", units.times),
)


def results(run: Run) -> StudyResults:
    """Return one row per service, topology and number of clients; one chart per topology and number of clients."""
    settings, rows = run.head.settings, _rows(run)
    same = run.head.trees == settings["published_trees"]
    other_data = (
        f"The published figures are of {units.count(settings['published_trees'])} trees, these of "
        f"{units.count(run.head.trees)}, so there is no ratio of the two."
    )
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["topology"], row["clients"]), []).append(row)
    return StudyResults(
        headline=_headline(rows, same=same),
        rows=rows,
        columns=[measured("service", "Service", partial(service_name, among=_services(rows))), *_COLUMNS],
        charts=[_chart(topology, clients, found, same=same) for (topology, clients), found in groups.items()],
        summary=[
            f"Published: {settings['published_source']}; on {settings['published_machine']}.",
            *([] if same else [other_data]),
        ],
        notes=(
            "Throughput: the number of requests over the time from the first start to the last end, as of ab.",
            "× published is the ratio to the published figure after Placement's optimizations of 2019.",
            f"Each measurement is a new uWSGI of {settings['processes']} processes with {settings['threads']} threads.",
            "The load generator is locust; every service gave the same response before it was loaded.",
        ),
        limits=(
            "The published machine, its Python and its PostgreSQL were others: compare services within this run.",
            "Client, service and PostgreSQL share this machine's processors.",
            "10 requests are few: with 1 client see the interval.",
            "p95 and p99 are those of the requests of all repeats together.",
        ),
    )


def _rows(run: Run) -> list[dict[str, Any]]:
    published = {(each["topology"], each["clients"]): each for each in run.head.settings["published"]}
    same = run.head.trees == run.head.settings["published_trees"]
    measured_rates = {
        _key(point): {each.repeat: each.values["rate_per_s"] for each in made} for point, made in valid_points(run)
    }
    rows = []
    for point, made in valid_points(run):
        known = published.get((point["topology"], point["clients"]), {})
        rates = measured_rates[_key(point)]
        rate, after = median_interval(list(rates.values())), known.get("after_per_s")
        requests = round(made[0].values["rate_per_s"] * made[0].values["elapsed_s"])
        cpu = [each.values["cpu_s"] for each in made if each.values["cpu_s"] is not None]
        latency_s = sorted(one for each in made for one in each.values.get("latency_s", ()))
        rows.append(
            {
                **point,
                "requests": requests,
                "trees": run.head.trees,
                "elapsed_s": median([each.values["elapsed_s"] for each in made]),
                **interval_figures("rate", "_per_s", rate),
                "confidence": rate.confidence,
                "n": rate.n,
                "latency_s_median": median([each.values["latency_s_median"] for each in made]),
                "latency_s_p95": percentile(latency_s, 0.95),
                "latency_s_p99": percentile(latency_s, 0.99),
                "cpu_s_per_request": median(cpu) / requests if cpu else None,
                "body_bytes": made[0].values["body_bytes"],
                **paired_ratio("times_naive", rates, measured_rates.get((_ORIGINAL, *_key(point)[1:]), {})),
                "published_before_per_s": known.get("before_per_s"),
                "published_after_per_s": after,
                "ratio": rate.median / after if after and same else None,
            }
        )
    return rows


def _headline(rows: Sequence[Mapping[str, Any]], *, same: bool) -> str:
    """Return the throughput of tuned, or of the first service, with 40 clients, next to naive and the published one."""
    found = {row["service"]: row for row in rows if row["clients"] == 40 and row["topology"] == "nested-perfload"}
    best = found.get(_BEST) or next(iter(found.values()), None)
    if best is None:
        return "The reference request was not measured with 40 clients."
    said = f"{best['service']} serves {units.rate(best['rate_per_s'])} of the reference request with 40 clients"
    if best["times_naive"] is not None and best["service"] != _ORIGINAL:
        said += f", {units.times(best['times_naive'])} the throughput of {_ORIGINAL}"
    if "placement" in found:
        said += f"; the real Placement {units.rate(found['placement']['rate_per_s'])}"
    if same:
        return f"{said}; published: {units.rate(best['published_after_per_s'])}, on another machine."
    return f"{said}."


def _chart(topology: str, clients: int, rows: Sequence[Mapping[str, Any]], *, same: bool) -> tuple[str, Chart]:
    drawn = [
        Estimate(
            service_name(row["service"], _services(rows)),
            units.rate(row["rate_per_s"]),
            row["rate_per_s"],
            row["rate_low_per_s"],
            row["rate_high_per_s"],
            "baseline" if row["service"] == _ORIGINAL else "variant" if row["service"] == _BEST else "between",
        )
        for row in rows
    ]
    first = rows[0]
    if same and first["published_after_per_s"] is not None:
        drawn += [
            _published("before", first["published_before_per_s"]),
            _published("after", first["published_after_per_s"]),
        ]
    users = units.numbered(clients, "client")
    svg = forest(
        drawn,
        title=f"Requests per second, {topology}, {users}",
        description=", ".join(f"{each.label} {each.text}" for each in drawn),
        show=units.rate,
    )
    requests = units.count(first["requests"])
    caption = f"Exactly {requests} requests. Further right is better; equal distances are equal factors."
    return f"{topology}, {users}", Chart(svg, caption)


def _published(when: str, rate_per_s: float) -> Estimate:
    return Estimate(f"published, {when}", units.rate(rate_per_s), rate_per_s)


def _services(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["service"] for row in rows]


def _key(point: Mapping[str, Any]) -> tuple[str, str, int]:
    return point["service"], point["topology"], point["clients"]


KIND = study_kind(__name__, _PublishedSettings, _PublishedPoint, _PublishedValues)
