"""How much load each variant takes and how it breaks: the knee of throughput under an objective, and twice the knee.

The main class is `SaturationStudy`, the study of `placebench lab study saturation`. A measurement is a fresh server and
a search over arrival rates: instances arrive on an open-loop schedule, each fetches candidates and claims one, and as
many old ones are released (`locustfiles/instances.py`).
"""

import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import text

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.capacity import highest_rate, judge_load
from placebench.compare.load.load_run import LoadSpec, responses_of, run_load, warm_up
from placebench.compare.load.load_steps import LoadStep, Objective, highest_held
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.http_request import HEADERS, fetch, send
from placebench.compare.what.validity import LoadRules
from placebench.compare.what.variants import Variant
from placebench.errors import LoadError
from placebench.lab.studies.study import Measure, Point, StudySetup, StudySpec
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import open_connection
from placebench.runtime.running_server import RunningServer

OVERLOAD = 2.0
"""The last step of a search has so many times the arrivals of the knee."""
_RULES = LoadRules(late_at_most=1.0)
"""The generator shares the cores with a service that uses them all: its late starts are latency, not a limit."""
_SAMPLES_SPARE = 1.2
_TIMED = 3
_CONSUMERS = text("SELECT DISTINCT consumer_id FROM allocations")


@dataclass(frozen=True)
class SaturationStudy:
    """Which variants are loaded, and how."""

    variants: Sequence[Variant]
    objective: Objective
    request: str
    workers: tuple[int, int]
    """Processes, and threads in each."""
    step_s: float
    """A step lasts so long, or as long as the objective's percentile takes."""
    timeout_s: float
    """After which a client gives a request up."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured: each variant, a search in every repeat.

        A measurement has `steps`, each with `rate_per_s`, `outcome` ("held", "broken", or "generator" where the load
        generator was the limit), `why`, `requests` (instances), `failures`, `statuses`, `elapsed_s`, `client_cpu` and
        `latency_s` of every instance; `knee_per_s`, the highest rate that held; `broken_per_s`, the lowest that did
        not; and `overload`, a step at twice the knee. Each of the three is None where there is none.
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
        variants, same = {each.name: each for each in self.variants}, setup.same_responses()

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            return self._measure(setup, variants[point["variant"]], same, repeat)

        yield measure

    def _measure(self, setup: StudySetup, variant: Variant, same: SameResponses, repeat: int) -> dict[str, Any]:
        url = setup.data.copy(variant.name, variant.revisions)
        spec = variant.spec(url, hash_seed=repeat, log=setup.folder / "log" / f"uwsgi-{variant.name}.log")
        processes, threads = self.workers
        with serve(replace(spec, processes=processes, threads=threads)) as server:
            same.request(variant.name, self.request, server.url)
            search = _Search(self, server, url, _consumers(url), setup.folder / "log", repeat)
            return search.run()


@dataclass(frozen=True)
class _Search:
    """One search on one server."""

    study: SaturationStudy
    server: RunningServer
    database_url: str
    consumers: frozenset[str]
    """Those whose allocations were there before."""
    log: Path
    seed: int

    def run(self) -> dict[str, Any]:
        """Search the knee from what one client gets, then double the load; returns the measurement."""
        self._settle()
        steps: list[dict[str, Any]] = []
        made = list(highest_rate(partial(self._step, steps), self._start()))
        knee, broken = _knee(made)
        found: dict[str, Any] = {"steps": list(steps), "knee_per_s": knee, "broken_per_s": broken, "overload": None}
        if knee is not None and broken is not None:
            self._step(steps, OVERLOAD * knee)
            found["overload"] = steps[-1]
        return found

    def _step(self, steps: list[dict[str, Any]], rate: float) -> LoadStep:
        """Load the server at this rate, and put it back as it was; the step is appended to *steps*."""
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
        judged = judge_load(rate, result, study.objective, at_once=spec.at_once, rules=_RULES)
        steps.append(_values(judged, result))
        return judged

    def _settle(self) -> None:
        """Wait until the server has worked off what nobody waits for any more, and release what was claimed."""
        processes, threads = self.study.workers
        warm_up(self.server, self.study.request, processes * threads)
        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(self._release, _consumers(self.database_url) - self.consumers))

    def _release(self, consumer: str) -> None:
        with responses_of(self.server):
            reply = send(self.server.url, "DELETE", f"/allocations/{consumer}", headers=HEADERS)
        if reply.status != HTTPStatus.NO_CONTENT:
            raise LoadError(f"DELETE /allocations/{consumer} returned {reply.status}, expected 204")

    def _start(self) -> float:
        """The power of two below what a single client gets: the same rates in all repeats."""
        taken_s = []
        for _ in range(_TIMED):
            began = time.perf_counter()
            fetch(self.server.url, self.study.request)
            taken_s.append(time.perf_counter() - began)
        return float(2.0 ** math.floor(-math.log2(median(taken_s))))


def _knee(made: Sequence[LoadStep]) -> tuple[float | None, float | None]:
    """The highest load that held below all that was broken; and the next one, None where the generator ended there."""
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
    """Those with allocations in the database."""
    with open_connection(url) as connection:
        return frozenset(connection.execute(_CONSUMERS).scalars())
