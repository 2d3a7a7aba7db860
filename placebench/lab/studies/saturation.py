"""The saturation study: how many instances per second each variant takes under an objective, and twice as many.

The main class is `SaturationStudy`, the study of `placebench lab study saturation`. It measures as
`placebench study saturation` does (`placebench.study.saturation`). Instances arrive on an open-loop schedule; each
fetches candidates and claims one, and an equal number of old instances is released (`locustfiles/instances.py`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypedDict

from placebench import units
from placebench.commands.output import say
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import LoadResult, Measurement
from placebench.compare.load.load_steps import Objective, parse_objective
from placebench.compare.what.http_request import HEADERS, send
from placebench.decoding import AtLeastOne, Count, Positive
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.studies.commands import FEWER_REPLICATES, SATURATION_VARIANTS, STEP_S, SaturationOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.report.study_report import StudyResults, measured, valid_points
from placebench.results import Run
from placebench.study import saturation_report
from placebench.study.saturation_report import SaturationValues
from placebench.study.session import Measure, Point, study_kind

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.runtime.running_server import RunningServer


class _SaturationPoint(TypedDict):
    variant: str


class _InstancesSettings(StudySettings[_SaturationPoint]):
    control: _SaturationPoint
    objective: str
    users: list[AtLeastOne]
    processes: AtLeastOne
    threads: AtLeastOne
    step_s: Positive
    timeout_s: Positive


class _InstancesValues(SaturationValues):
    statuses: dict[str, Count]
    """How the instances of the steps below the overload ended."""
    overload_statuses: dict[str, Count]
    overload_failures: Count


# --- the command


def run(given: SaturationOptions) -> int:
    """Measure the capacity of every variant."""
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
"""The arrival rate of the last load on a server, as a multiple of the knee."""


@dataclass(frozen=True)
class SaturationStudy:
    """The variants, and the load and objective of the search."""

    variants: "Sequence[Variant]"
    """The variants; the others are compared with the first."""
    objective: Objective
    request: str
    workers: tuple[int, int]
    """Number of processes, and of threads in each process."""
    step_s: float
    """Minimum duration of a step in seconds; it is longer if the objective's percentile needs more samples."""
    timeout_s: float
    """Maximum time in seconds that a client waits for a response."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study: one server per variant and repeat.

        A measurement has the values of `placebench study saturation`, of which `saturated` is a load at twice the knee,
        and how the instances ended: `statuses`, `overload_statuses` and `overload_failures`.
        """
        points = tuple({"variant": variant.name} for variant in self.variants)
        return StudySpec(
            "saturation",
            points,
            repeats,
            self._prepare,
            self.request,
            settings={
                "control": points[0],
                "objective": str(self.objective),
                "users": [],
                "processes": self.workers[0],
                "threads": self.workers[1],
                "step_s": self.step_s,
                "timeout_s": self.timeout_s,
            },
            variants=tuple(variant.name for variant in self.variants),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        from placebench.compare.load.knee import KneeLoad
        from placebench.compare.load.load_run import LoadSpec, responses_of, warm_up
        from placebench.compare.what.validity import LoadRules
        from placebench.runtime.application_servers import serve
        from placebench.study.saturation import CapacitySeries

        variants, same = {each.name: each for each in self.variants}, setup.same_responses()
        capacities, log = CapacitySeries(self.objective, say), setup.folder / "log"
        processes, threads = self.workers

        def restore(server: "RunningServer", database_url: str, initial: frozenset[str]) -> None:
            """Wait until the server has finished abandoned requests, and release all claims but the *initial* ones."""
            server.check()
            warm_up(server, self.request, processes * threads)

            def release(consumer: str) -> None:
                with responses_of(server):
                    reply = send(server.url, "DELETE", f"/allocations/{consumer}", headers=HEADERS)
                if reply.status != HTTPStatus.NO_CONTENT:
                    raise LoadError(f"DELETE /allocations/{consumer} returned {reply.status}, expected 204")

            with ThreadPoolExecutor(processes) as pool:
                list(pool.map(release, _consumers(database_url) - initial))

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            variant = variants[point["variant"]]
            url = setup.data.copy(variant.name, variant.revisions)
            initial, statuses = _consumers(url), Counter[str]()
            spec = variant.spec(url, hash_seed=repeat, log=log / f"uwsgi-{variant.name}.log")
            with serve(replace(spec, processes=processes, threads=threads)) as server:
                same.request(variant.name, self.request, server.url)

                def after_step(result: LoadResult) -> None:
                    statuses.update(result.statuses)
                    restore(server, url, initial)

                load_spec = LoadSpec(server.url, self.request, response_timeout_s=self.timeout_s)
                load = KneeLoad(
                    load_spec,
                    self.objective,
                    log,
                    step_s=self.step_s,
                    database_url=url,
                    arrivals="instances",
                    # The generator shares the cores with a service that uses all of them: its late starts count as
                    # latency, not as a limit.
                    rules=LoadRules(late_at_most=1.0),
                    after_step=after_step,
                )
                alone_s = load.alone()
                knee_per_s, steps = capacities.replicate(variant.name, load, alone_s, seed=1000 * repeat)
                beyond = load.at_rate(OVERLOAD * knee_per_s, seed=1000 * repeat + len(steps))
                saturated, overload = load.name_full(beyond, alone_s, users=beyond.at_once)
                restore(server, url, initial)
            return {
                "knee_per_s": knee_per_s,
                "max_per_s": saturated.throughput_per_s,
                "steps": [asdict(step) for step in steps],
                "saturated": asdict(saturated),
                "statuses": dict(statuses),
                "overload_statuses": overload.statuses,
                "overload_failures": overload.failures,
            }

        yield measure


def _consumers(url: str) -> frozenset[str]:
    from sqlalchemy import text

    from placebench.runtime.postgres import open_connection

    with open_connection(url) as connection:
        return frozenset(connection.execute(text("SELECT DISTINCT consumer_id FROM allocations")).scalars())


# --- the report


_FIGURES = (
    measured("refused_share", "claimed after 409", units.percent),
    measured("overload_failed", "failed at twice the knee", units.percent),
    measured("overload_timeouts", "without a response there", units.percent),
)
_REFUSED = "409"


def results(run: Run) -> StudyResults:
    """Return the rows of `placebench study saturation`, with how the instances ended."""
    settings, found = run.head.settings, saturation_report.results(run)
    ended = {point["variant"]: _ended(made) for point, made in valid_points(run)}
    rows = [{"variant": row["axes"]["variant"], **row, **ended[row["axes"]["variant"]]} for row in found.rows]
    return replace(
        found,
        rows=rows,
        columns=[*found.columns, *_FIGURES],
        notes=(
            f"Capacity, the knee: the rate of arrivals at which {settings['objective']} is crossed, among five rates.",
            "Effects are ratios of the knees to that of the first variant in the same repeat.",
            "The highest throughput is that of claims at twice the knee, where the named resource was full.",
            f"The service has {settings['processes']} processes of {settings['threads']} threads.",
            "An instance: candidates, the claim of one drawn from them, and the release of an old one.",
            "Latency runs from when an instance was due until its claim was accepted; alone, it is that of candidates.",
            f"A client gives a request up after {settings['timeout_s']:g} s, an instance after three refused claims.",
        ),
        limits=(
            "A generator on another machine: here it shares the cores, and its late starts are in the latency.",
            "Longer overload, and clients that send a failed request again.",
            "Rates beyond twice the knee.",
        ),
        axes=lambda point: {**point, "axes": point},
    )


def _ended(made: Sequence[Measurement]) -> dict[str, Any]:
    """Return the shares of instances that were claimed after a conflict, and that failed at twice the knee."""
    statuses, overload = Counter[str](), Counter[str]()
    for each in made:
        statuses.update(each.values["statuses"])
        overload.update(each.values["overload_statuses"])
    failures = sum(each.values["overload_failures"] for each in made)
    return {
        "refused_share": _share(statuses, [status for status in statuses if status.endswith(_REFUSED)]),
        "overload_failed": failures / overload.total() if overload else None,
        # A status that is an identifier is the name of an exception: a timeout, or a refused or closed connection.
        "overload_timeouts": _share(overload, [status for status in overload if status.isidentifier()]),
    }


def _share(statuses: Mapping[str, int], counted: Sequence[str]) -> float | None:
    total = sum(statuses.values())
    return sum(statuses[each] for each in counted) / total if total else None


KIND = study_kind(__name__, _InstancesSettings, _SaturationPoint, _InstancesValues)
