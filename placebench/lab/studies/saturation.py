"""The saturation study: the highest load at which each variant meets an objective (the knee), and twice that load.

The main class is `SaturationStudy`, the study of `placebench lab study saturation`. A measurement is a search over
arrival rates on a fresh server. Instances arrive on an open-loop schedule; each fetches candidates and claims one, and
an equal number of old instances is released (`locustfiles/instances.py`).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import LoadResult, Measurement
from placebench.compare.load.load_steps import LoadStep, Objective, highest_held, parse_objective
from placebench.compare.what.http_request import HEADERS, fetch, send
from placebench.decoding import Amount, AtLeastOne, Count, Meta, Positive
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.studies.commands import FEWER_REPLICATES, SATURATION_VARIANTS, STEP_S, SaturationOptions
from placebench.lab.studies.study import Measure, Point, StudySetup, StudySpec, run_study, study_kind
from placebench.page.axis_charts import Line, lines
from placebench.report.model import Chart, Table
from placebench.report.study_report import (
    CLIENT_IS_BUSY,
    StudyResults,
    interval_columns,
    interval_figures,
    measured,
    valid_points,
)
from placebench.results import Run
from placebench.stats import median_interval, percentile

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.runtime.running_server import RunningServer


class _SaturationPoint(TypedDict):
    variant: str


class _SaturationSettings(StudySettings[_SaturationPoint]):
    objective: str
    processes: AtLeastOne
    threads: AtLeastOne
    step_s: Positive
    timeout_s: Positive


class _SaturationStep(TypedDict):
    rate_per_s: Positive
    outcome: Literal["held", "broken", "generator"]
    why: str
    requests: AtLeastOne
    failures: Count
    statuses: dict[str, Count]
    elapsed_s: Positive
    client_cpu: Amount
    latency_s: Annotated[list[Amount], Meta(min_length=1)]


class _SaturationValues(TypedDict):
    steps: Annotated[list[_SaturationStep], Meta(min_length=1)]
    knee_per_s: Positive | None
    broken_per_s: Positive | None
    overload: _SaturationStep | None


# --- the command


def run(given: SaturationOptions) -> int:
    """Search the knee of every variant."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.variants import CONTROL

    topology = given.topology()
    names = given.variants or given.default(SATURATION_VARIANTS)
    if CONTROL in names:
        raise PlacebenchError(f"--variants {','.join(names)}: {CONTROL} has no candidates")
    variants = [read_variant(name, python=given.placement_python) for name in names]
    require_servers(variants)
    study = SaturationStudy(
        variants=variants,
        objective=parse_objective(given.slo),
        request=given.request or topology.request,
        workers=(given.processes, given.threads),
        step_s=given.time or given.default(STEP_S),
        timeout_s=given.response_timeout,
    )
    repeats = given.replicates or given.default(FEWER_REPLICATES)
    return run_study(given, topology, study.spec(repeats=repeats))


# --- the measurement


OVERLOAD = 2.0
"""The arrival rate of the last step of a search, as a multiple of the knee."""
_SAMPLES_SPARE = 1.2
_TIMED = 3


@dataclass(frozen=True)
class SaturationStudy:
    """The variants, and the load and objective of the search."""

    variants: "Sequence[Variant]"
    objective: Objective
    request: str
    workers: tuple[int, int]
    """Number of processes, and of threads in each process."""
    step_s: float
    """Minimum duration of a step in seconds; it is longer if the objective's percentile needs more samples."""
    timeout_s: float
    """Maximum time in seconds that a client waits for a response."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study: one search per variant and repeat.

        A measurement has `steps`, each with `rate_per_s`, `outcome` ("held", "broken", or "generator" if the load
        generator was the limit), `why`, `requests` (instances), `failures`, `statuses`, `elapsed_s`, `client_cpu` and
        `latency_s` of every instance; `knee_per_s`, the highest rate that held; `broken_per_s`, the lowest rate above
        it that did not hold; and `overload`, a step at twice the knee. Each of the last three is None if there is none.
        """
        return StudySpec(
            "saturation",
            tuple({"variant": variant.name} for variant in self.variants),
            repeats,
            self._prepare,
            self.request,
            settings={
                "objective": str(self.objective),
                "processes": self.workers[0],
                "threads": self.workers[1],
                "step_s": self.step_s,
                "timeout_s": self.timeout_s,
            },
            variants=tuple(variant.name for variant in self.variants),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        from placebench.runtime.application_servers import serve

        variants, same = {each.name: each for each in self.variants}, setup.same_responses()

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            variant, log = variants[point["variant"]], setup.folder / "log"
            url = setup.data.copy(variant.name, variant.revisions)
            spec = variant.spec(url, hash_seed=repeat, log=log / f"uwsgi-{variant.name}.log")
            processes, threads = self.workers
            with serve(replace(spec, processes=processes, threads=threads)) as server:
                same.request(variant.name, self.request, server.url)
                return _Search(self, server, url, _consumers(url), log, repeat).run()

        yield measure


@dataclass(frozen=True)
class _Search:
    """One search for the knee on one server."""

    study: SaturationStudy
    server: "RunningServer"
    database_url: str
    consumers: frozenset[str]
    """Consumers that had allocations before the search."""
    log: Path
    seed: int

    def run(self) -> dict[str, Any]:
        """Search the knee from the rate of a single client on, then load at twice the knee; return the measurement."""
        from placebench.compare.load.step_outcomes import highest_rate

        self._settle()
        taken_s = []
        for _ in range(_TIMED):
            began = time.perf_counter()
            fetch(self.server.url, self.study.request)
            taken_s.append(time.perf_counter() - began)
        start = float(2.0 ** math.floor(-math.log2(median(taken_s))))  # a power of two: the same rates in all repeats
        steps: list[dict[str, Any]] = []
        made = list(highest_rate(partial(self._step, steps), start))
        knee, broken = _knee(made)
        found: dict[str, Any] = {"steps": list(steps), "knee_per_s": knee, "broken_per_s": broken, "overload": None}
        if knee is not None and broken is not None:
            self._step(steps, OVERLOAD * knee)
            found["overload"] = steps[-1]
        return found

    def _step(self, steps: list[dict[str, Any]], rate: float) -> LoadStep:
        """Load the server at this rate, then restore its initial state; the step is appended to *steps*."""
        from placebench.compare.load.load_run import LoadSpec, run_load
        from placebench.compare.load.step_outcomes import judge_load
        from placebench.compare.what.validity import LoadRules

        study = self.study
        spec = LoadSpec(
            self.server.url,
            study.request,
            kind="instances",
            rate_per_s=rate,
            time_s=max(study.step_s, _SAMPLES_SPARE * study.objective.samples / rate),
            seed=1000 * self.seed + len(steps),
            response_timeout_s=study.timeout_s,
        )
        result = run_load(spec, folder=self.log)
        self.server.check()
        self._settle()
        # The generator shares the cores with a service that uses all of them: its late starts count as latency, not as
        # a limit.
        rules = LoadRules(late_at_most=1.0)
        judged = judge_load(rate, result, study.objective, at_once=spec.at_once, rules=rules)
        steps.append(_values(judged, result))
        return judged

    def _settle(self) -> None:
        """Wait until the server has finished abandoned requests, and release all claims."""
        from placebench.compare.load.load_run import responses_of, warm_up

        processes, threads = self.study.workers
        warm_up(self.server, self.study.request, processes * threads)

        def release(consumer: str) -> None:
            with responses_of(self.server):
                reply = send(self.server.url, "DELETE", f"/allocations/{consumer}", headers=HEADERS)
            if reply.status != HTTPStatus.NO_CONTENT:
                raise LoadError(f"DELETE /allocations/{consumer} returned {reply.status}, expected 204")

        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(release, _consumers(self.database_url) - self.consumers))


def _knee(made: Sequence[LoadStep]) -> tuple[float | None, float | None]:
    """Return the highest load that held below all broken ones, and the next load; None if the generator limited it."""
    held = highest_held(made)
    knee = held.load if held else None
    above = [step for step in reversed(made) if step.load > (knee or 0.0)]
    next_one = min(above, key=lambda step: step.load, default=None)
    return knee, next_one.load if next_one and next_one.outcome == "broken" else None


def _values(step: LoadStep, result: LoadResult) -> dict[str, Any]:
    return {
        "rate_per_s": step.load,
        "outcome": step.outcome,
        "why": step.why,
        "requests": result.requests,
        "failures": result.failures,
        "statuses": result.statuses,
        "elapsed_s": result.elapsed_s,
        "client_cpu": step.client_cpu,
        "latency_s": [round(each, 4) for each in result.latency_s],
    }


def _consumers(url: str) -> frozenset[str]:
    """Return the consumers that have allocations in the database."""
    from sqlalchemy import text

    from placebench.runtime.postgres import open_connection

    with open_connection(url) as connection:
        return frozenset(connection.execute(text("SELECT DISTINCT consumer_id FROM allocations")).scalars())


# --- the report


_PERCENTILES = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99, "p999_s": 0.999}
_REFUSED = "409"


_LATENCIES = (
    measured("p50_s", "p50", units.duration),
    measured("p90_s", "p90", units.duration),
    measured("p95_s", "p95", units.duration),
    measured("p99_s", "p99", units.duration),
    measured("p999_s", "p99.9", units.duration),
)
_COLUMNS = (
    measured("variant", "variant"),
    measured("n", "n", units.count),
    *interval_columns("knee", "_per_s", "knee", units.rate),
    measured("limited_by", "limited by"),
    *_LATENCIES,
    measured("refused_share", "claimed after 409", units.percent),
    *interval_columns("overload", "_per_s", "claimed at twice the knee", units.rate),
    measured("overload_failed", "failed there", units.percent),
    measured("overload_timeouts", "without a response there", units.percent),
    measured("client_cpu", "generator CPU", units.percent),
)
_RATE_COLUMNS = (
    measured("variant", "variant"),
    measured("rate_per_s", "offered", units.rate),
    measured("repeats", "steps", units.count),
    measured("held", "held", units.count),
    measured("requests", "instances", units.count),
    measured("claimed_per_s", "claimed", units.rate),
    *_LATENCIES,
    measured("failed", "failed", units.percent),
)


def results(run: Run) -> StudyResults:
    """Return one row per variant, and a table and charts of all offered rates."""
    settings, found = run.head.settings, list(valid_points(run))
    rows = [_row(point["variant"], made) for point, made in found]
    rates = [rate for point, made in found for rate in _rates(point["variant"], made)]
    return StudyResults(
        headline=_headline(rows, settings["objective"]),
        rows=rows,
        columns=_COLUMNS,
        charts=list(_charts(rates, settings["objective"])),
        tables=[Table("Rates", _RATE_COLUMNS, rates, id="rates")] if rates else [],
        document={"rates": rates},
        summary=list(_summary(rows)),
        notes=(
            f"Knee: the highest rate of arrivals with {settings['objective']}, no failure and no queue that grew.",
            f"The search ends within 5 %. Steps last {settings['step_s']:g} s or more.",
            f"The service has {settings['processes']} processes of {settings['threads']} threads.",
            "An instance: candidates, the claim of one drawn from them, and the release of an old one.",
            "Latency runs from when an instance was due until its claim was accepted.",
            f"A client gives a request up after {settings['timeout_s']:g} s, an instance after three refused claims.",
            "Percentiles are of the instances of all repeats; a dash: too few for it.",
            "From and to: interval of the median over the repeats, 93.75 % with five.",
        ),
        limits=(
            "A generator on another machine: here it shares the cores, and its late starts are in the latency.",
            "Longer overload, and clients that send a failed request again.",
            "Rates beyond twice the knee.",
        ),
    )


def _row(variant: str, made: Sequence[Measurement]) -> dict[str, Any]:
    values = [each.values for each in made]
    knees = [each["knee_per_s"] for each in values if each["knee_per_s"] is not None]
    knee = median_interval(knees) if knees else None
    at_knee = [step for each in values for step in each["steps"] if step["rate_per_s"] == each["knee_per_s"]]
    overloads = [each["overload"] for each in values if each["overload"]]
    claimed = median_interval([_claimed_per_s(each) for each in overloads]) if overloads else None
    is_limited = all(each["broken_per_s"] is not None for each in values)
    return {
        "variant": variant,
        "n": len(knees),
        **interval_figures("knee", "_per_s", knee),
        "confidence": knee and knee.confidence,
        "limited_by": "service" if is_limited else "generator",
        **_latencies(at_knee),
        "refused_share": _share_of(
            at_knee, lambda step: _count_statuses(step, lambda status: status.endswith(_REFUSED))
        ),
        **interval_figures("overload", "_per_s", claimed),
        "overload_failed": _share_of(overloads, _failures),
        # A status that is an identifier is the name of an exception: a timeout, or a refused or closed connection.
        "overload_timeouts": _share_of(overloads, lambda step: _count_statuses(step, str.isidentifier)),
        "client_cpu": max((step["client_cpu"] for step in at_knee), default=None),
    }


def _rates(variant: str, made: Sequence[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield one row per offered rate, in ascending order, with the steps of all repeats combined."""
    by_rate: dict[float, list[dict[str, Any]]] = {}
    for each in made:
        for step in [*each.values["steps"], *filter(None, [each.values["overload"]])]:
            by_rate.setdefault(step["rate_per_s"], []).append(step)
    for rate, steps in sorted(by_rate.items()):
        yield {
            "variant": variant,
            "rate_per_s": rate,
            "repeats": len(steps),
            "held": sum(step["outcome"] == "held" for step in steps),
            "requests": sum(step["requests"] for step in steps),
            "claimed_per_s": median_interval([_claimed_per_s(step) for step in steps]).median,
            **_latencies(steps),
            "failed": _share_of(steps, _failures),
        }


def _claimed_per_s(step: Mapping[str, Any]) -> float:
    return float((step["requests"] - step["failures"]) / step["elapsed_s"])


def _latencies(steps: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    ordered = sorted(latency for step in steps for latency in step["latency_s"])
    return {name: percentile(ordered, share) for name, share in _PERCENTILES.items()}


def _share_of(steps: Sequence[Mapping[str, Any]], count: Callable[[Mapping[str, Any]], int]) -> float | None:
    requests = sum(step["requests"] for step in steps)
    return sum(count(step) for step in steps) / requests if requests else None


def _failures(step: Mapping[str, Any]) -> int:
    return int(step["failures"])


def _count_statuses(step: Mapping[str, Any], is_counted: Callable[[str], bool]) -> int:
    return sum(count for status, count in step["statuses"].items() if is_counted(status))


def _headline(rows: Sequence[Mapping[str, Any]], objective: str) -> str:
    known = [row for row in rows if row["knee_per_s"] is not None]
    if not known:
        return f"Saturation: no rate was found at which {objective} holds."
    said = ", ".join(
        f"{row['variant']} {'at least ' if row['limited_by'] == 'generator' else ''}{units.rate(row['knee_per_s'])}"
        for row in known
    )
    return f"Instances per second with {objective}: {said}."


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["overload_per_s"] is not None:
            yield (
                f"{row['variant']} at {OVERLOAD:g} times its knee: {units.rate(row['overload_per_s'])} claimed, "
                f"{units.percent(row['overload_failed'])} failed."
            )
    if busy := [row["variant"] for row in rows if (row["client_cpu"] or 0) > CLIENT_IS_BUSY]:
        yield f"The load generator took more than {units.round_percent(CLIENT_IS_BUSY)} of a core: {', '.join(busy)}."


def _charts(rates: Sequence[Mapping[str, Any]], objective: str) -> Iterator[tuple[str, Chart]]:
    name = parse_objective(objective).name
    for value, heading, show in (
        ("claimed_per_s", "Throughput over offered rate", units.rate),
        (f"{name}_s", f"{name} over offered rate", units.duration),
    ):
        drawn = [
            Line(
                variant,
                [(rate["rate_per_s"], rate[value]) for rate in rates if rate["variant"] == variant and rate[value]],
            )
            for variant in dict.fromkeys(rate["variant"] for rate in rates)
        ]
        svg = lines(
            drawn,
            title=heading,
            description="A line for each variant; a point for each rate that was offered. Both axes are logarithmic.",
            show=show,
            show_where=units.rate,
            logarithmic=True,
        )
        yield heading, Chart(svg, "Instances per second that were offered, on logarithmic axes.")


KIND = study_kind(__name__, _SaturationSettings, _SaturationPoint, _SaturationValues)
