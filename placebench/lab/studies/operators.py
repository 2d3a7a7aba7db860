"""The effect of each setting of the real Placement, on inventories as large as those of operators.

The main class is `OperatorsStudy`, the study of `placebench lab study operators`; `read_plan` reads the settings.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, TypedDict
from urllib.parse import parse_qsl, urlencode, urlsplit

from placebench import limits, units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.compare.what.http_request import Reply, get
from placebench.decoding import AtLeastOne, Count, Meta, Positive, Struct, read_toml
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.studies.commands import OperatorsOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.report.study_report import StudyResults, interval_columns, measured, valid_points
from placebench.results import Run
from placebench.study.overheads import control_measurements, paired_ratio
from placebench.study.session import Measure, Point, study_kind

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.lab.inventory.topology import Topology
    from placebench.runtime.running_server import RunningServer, ServerSpec


class _OperatorsPoint(TypedDict):
    topology: str
    setting: str


class _OperatorsSettings(StudySettings[_OperatorsPoint]):
    clients: Count
    timeout_s: Positive
    base: str
    trees: dict[str, Count]


class _OperatorsValues(TypedDict):
    requests: AtLeastOne
    unanswered: Count
    candidates: Count | None
    hosts: Count | None
    elapsed_s: Positive | None
    latency_s: Positive | None
    cpu_s: Positive | None


# --- the command


def run(given: OperatorsOptions) -> int:
    """Measure every setting on every inventory."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.variants import PLACEMENT

    plan = read_plan(given.plan)
    placement = read_variant(PLACEMENT, python=given.placement_python)
    require_servers([placement])
    trees = given.trees_or_preset(given.trees)
    topologies = [find_topology(name, trees=trees, seed=given.seed) for name in given.inventories or plan.inventories]
    study = OperatorsStudy(placement, topologies, plan.settings, given.requests, given.timeout)
    return run_study(given, topologies[0], study.spec(repeats=given.repeats))


# --- the measurement


CLIENTS = 4
"""Number of clients; each sends its next request after the previous response."""
TIMES = ("elapsed_s", "latency_s", "cpu_s")
"""Values of a measurement in seconds; None if a request got no response in time."""
_PLAN = Path(__file__).with_name("operators.toml")
_FROZEN = "frozen_placement:application"
_Number = Annotated[int, Meta(ge=1, le=limits.WORKERS)]


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """One setting of Placement, or several combined."""

    name: str
    limit: Annotated[int, Meta(ge=1)] | None = None
    """Limit of the request; None for that of the inventory's request."""
    processes: _Number = 1
    threads: _Number = 1
    freeze: bool = False
    """Whether gc.freeze() is called after the start."""
    options: dict[str, dict[str, str | int | bool]] = {}  # noqa: RUF012  a Struct copies its empty defaults
    """Options of placement.conf, by group and name."""

    def request(self, request: str) -> str:
        """Return the request with the setting's limit."""
        if self.limit is None:
            return request
        path, query = urlsplit(request).path, dict(parse_qsl(urlsplit(request).query))
        return f"{path}?{urlencode({**query, 'limit': self.limit}, safe=':,')}"

    def spec(self, placement: "Variant", url: str, *, hash_seed: int, log: Path) -> "ServerSpec":
        """Return the spec of a Placement server with the setting."""
        from placebench.runtime.application_servers import STANDALONE

        variables = {
            f"OS_{group}__{name}".upper(): str(value)
            for group, values in self.options.items()
            for name, value in values.items()
        }
        if self.freeze:
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STANDALONE), os.environ.get("PYTHONPATH"))))
        spec = placement.spec(url, hash_seed=hash_seed, log=log)
        return replace(
            spec,
            module=_FROZEN if self.freeze else spec.module,
            environment={**spec.environment, **variables},
            processes=self.processes,
            threads=self.threads,
            grace_s=1.0,  # a request that nobody waits for any more may have minutes to go
        )


class OperatorsPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """The inventories and settings to measure."""

    inventories: Annotated[list[str], Meta(min_length=1)]
    """Names of topologies."""
    settings: Annotated[list[Setting], Meta(min_length=1)]
    """The settings; the first is the base that the others are compared with."""


def read_plan(path: Path | None = None) -> OperatorsPlan:
    """Return the plan in the file, or placebench's own; raise PlacebenchError, with file and key, if not valid."""
    plan: OperatorsPlan = read_toml(path or _PLAN, OperatorsPlan, error=PlacebenchError)
    return plan


@dataclass
class _Sent:
    """Responses and times as the clients saw them."""

    replies: list[Reply | None] = field(default_factory=list)
    """The responses; None for each that did not arrive in time."""
    latency_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    def values(self) -> dict[str, Any]:
        """Return counts for the measurement; candidates and hosts are None without a response."""
        replies = [reply for reply in self.replies if reply is not None]
        counted: dict[str, Any] = {"requests": len(self.replies), "unanswered": len(self.replies) - len(replies)}
        if not replies:
            return {**counted, "candidates": None, "hosts": None}
        response = json.loads(replies[-1].body)
        summaries, found = response["provider_summaries"], response["allocation_requests"]
        hosts = {summaries[uuid]["root_provider_uuid"] for each in found for uuid in each["allocations"]}
        return {**counted, "candidates": len(found), "hosts": len(hosts)}


@dataclass(frozen=True)
class OperatorsStudy:
    """The settings, and the inventories on which they are measured."""

    placement: "Variant"
    topologies: "Sequence[Topology]"
    """The inventories; the first is the run's."""
    settings: Sequence[Setting]
    """The settings, the base first."""
    requests: int
    """Number of requests per client in a measurement."""
    timeout_s: float
    """Maximum time in seconds that a client waits for a response."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study: every setting on every inventory.

        A measurement has `requests`, `unanswered` (requests without a response in time), `candidates` and `hosts`
        (distinct trees) of the last response, and TIMES: total duration, median latency, and the CPU of Placement and
        PostgreSQL's backends.
        """
        from placebench.lab.variants import PLACEMENT

        points = tuple(
            {"topology": topology.name, "setting": setting.name}
            for topology in self.topologies
            for setting in self.settings
        )
        settings = {
            "clients": CLIENTS,
            "timeout_s": self.timeout_s,
            "base": self.settings[0].name,
            "trees": {topology.name: topology.trees for topology in self.topologies},
            "requests": {topology.name: topology.request for topology in self.topologies},
        }
        return StudySpec(
            "operators",
            points,
            repeats,
            self._prepare,
            self.topologies[0].request,
            settings=settings,
            variants=(PLACEMENT,),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        topologies = {topology.name: topology for topology in self.topologies}
        settings = {setting.name: setting for setting in self.settings}

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            return self._measure(setup, topologies[point["topology"]], settings[point["setting"]], repeat)

        yield measure

    def _measure(self, setup: StudySetup, topology: "Topology", setting: Setting, repeat: int) -> dict[str, Any]:
        from placebench.compare.load.load_run import responses_of
        from placebench.meters.meters import ServerMeter
        from placebench.runtime.application_servers import serve

        url, request = setup.data.of(topology), setting.request(topology.request)
        spec = setting.spec(self.placement, url, hash_seed=repeat, log=setup.folder / "log" / "uwsgi-placement.log")
        with serve(spec) as server, responses_of(server):
            warm = self._send(server, request, clients=setting.processes * setting.threads, requests=1)
            if None in warm.replies:
                return {**warm.values(), **dict.fromkeys(TIMES)}
            with ServerMeter(server.metered_pids, url) as meter:
                sent = self._send(server, request, clients=CLIENTS, requests=self.requests)
            server.check()
        if None in sent.replies:
            return {**sent.values(), **dict.fromkeys(TIMES)}
        times = zip(TIMES, (sent.elapsed_s, median(sent.latency_s), meter.read().cpu_s), strict=True)
        return {**sent.values(), **dict(times)}

    def _send(self, server: "RunningServer", request: str, *, clients: int, requests: int) -> "_Sent":
        """Let *clients* send *requests* each; a client that gets no response in time stops."""
        sent = _Sent()

        def use() -> None:
            for _ in range(requests):
                began = time.perf_counter()
                try:
                    reply = get(server.url, request, timeout_s=self.timeout_s)
                except TimeoutError:
                    sent.replies.append(None)
                    return
                if reply.status != HTTPStatus.OK:
                    raise LoadError(f"{request} returned {reply.status}, expected 200")
                sent.latency_s.append(time.perf_counter() - began)
                sent.replies.append(reply)

        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            for each in [pool.submit(use) for _ in range(clients)]:
                each.result()
        sent.elapsed_s = time.perf_counter() - began
        return sent


# --- the report


_COLUMNS = (
    measured("topology", "inventory"),
    measured("setting", "setting"),
    measured("n", "n", units.count),
    measured("cpu_s_per_request", "CPU per request", units.duration),
    *interval_columns("cpu_ratio", "", "CPU, change", units.signed_percent),
    measured("latency_s", "median latency", units.duration),
    measured("throughput_per_s", "throughput", units.rate),
    measured("unanswered", "unanswered", units.count),
    measured("requests", "of requests", units.count),
    measured("candidates", "candidates", units.count),
    measured("hosts", "hosts among them", units.count),
)


def results(run: Run) -> StudyResults:
    """Return one row per inventory and setting."""
    settings, found = run.head.settings, list(valid_points(run))
    base = {"setting": settings["base"]}
    rows = [_row(point, made, control_measurements(point, base, found)) for point, made in found]
    return StudyResults(
        headline=_headline(rows, settings["base"]),
        rows=rows,
        columns=_COLUMNS,
        summary=[
            f"{row['setting']} on {row['topology']}: {row['unanswered']} of {row['requests']} requests had no "
            f"response within {units.duration(settings['timeout_s'])}."
            for row in rows
            if row["unanswered"]
        ],
        notes=(
            f"Each measurement is a new Placement of one worker, or as set, and {settings['clients']} clients.",
            f"Change: against {settings['base']} in the same repeat; 95 % intervals from six repeats on.",
            "CPU is that of Placement's workers and PostgreSQL's backends.",
        ),
        limits=(
            "Throughput and latency of a machine with more processors, or with other work on it.",
            "Another request: what a setting is worth depends on how many candidates there are.",
        ),
    )


def _cpu_per_request(made: Sequence[Measurement]) -> dict[int, float]:
    """Return seconds by repeat, of repeats in which all requests had a response and all CPU could be read."""
    return {
        each.repeat: each.values["cpu_s"] / each.values["requests"] for each in made if each.values["cpu_s"] is not None
    }


def _row(point: Mapping[str, Any], made: Sequence[Measurement], base: Sequence[Measurement]) -> dict[str, Any]:
    values, cpu = [each.values for each in made], _cpu_per_request(made)
    elapsed_s, latency_s, _ = TIMES
    answered = [each for each in values if each[elapsed_s] is not None]
    return {
        **point,
        "n": len(values),
        "requests": sum(each["requests"] for each in values),
        "unanswered": sum(each["unanswered"] for each in values),
        "cpu_s_per_request": _median(list(cpu.values())),
        **paired_ratio("cpu_ratio", cpu, _cpu_per_request(base)),
        "latency_s": _median([each[latency_s] for each in answered]),
        "throughput_per_s": _median([each["requests"] / each[elapsed_s] for each in answered]),
        "candidates": _median([each["candidates"] for each in values if each["candidates"] is not None]),
        "hosts": _median([each["hosts"] for each in values if each["hosts"] is not None]),
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _headline(rows: Sequence[Mapping[str, Any]], base: str) -> str:
    """Return a sentence on the setting that saves most CPU among those whose interval is below 1."""
    sure = [row for row in rows if row["cpu_ratio_high"] is not None and row["cpu_ratio_high"] < 1]
    best = min(sure, key=lambda row: float(row["cpu_ratio"]), default=None)
    if best is None:
        return f"No setting of Placement is known to reduce the CPU of {base}."
    limits = f"[{units.signed_percent(best['cpu_ratio_low'])}, {units.signed_percent(best['cpu_ratio_high'])}]"
    return (
        f"{best['setting']} saves most: {units.signed_percent(best['cpu_ratio'])} CPU {limits} on {best['topology']}."
    )


KIND = study_kind(__name__, _OperatorsSettings, _OperatorsPoint, _OperatorsValues)
