"""The saturation study of an application: throughput, percentiles and what was full over arrival rates or users.

The main class is `ApplicationSaturation`. A measurement is one replicate of one cell of an application's axes
(`placebench.study.application_matrix`), on a fresh server. With an objective it is a knee, as `placebench load --slo`
measures it: a search in the first repeat, then five rates around the capacity found before. With numbers of users it is
one load for each of them. Both end with users that saturate the service, and name what was full.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from placebench.compare.load.knee import PILOT_RESOLUTION, KneeLoad, measure_knee, next_guess
from placebench.compare.load.load_run import LoadSpec
from placebench.compare.load.load_steps import Knee, LoadStep, Objective
from placebench.compare.what.workload import Workload
from placebench.errors import LoadError, UsageError
from placebench.http_session import Request
from placebench.masking import mask_document
from placebench.runtime.application_servers import serve
from placebench.study.application_matrix import ApplicationMatrix
from placebench.study.application_rig import Cell, CellRig, CellSetup, prepare_cells
from placebench.study.session import Measure, Point, StudySpec, UnmeasurableError

_FIRST_ERROR = 400
_RESPONSE_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ApplicationSaturation:
    """The cells, and the loads on each of them."""

    matrix: ApplicationMatrix
    objective: Objective | None
    """What must hold; None for loads of users."""
    users: tuple[int, ...]
    """The numbers of users, in ascending order; empty with an objective."""
    step_s: float
    """The least duration of a step, in seconds."""
    say: Callable[[str], object] = lambda _: None
    """Is called with a line after each step."""

    def spec(
        self, cells: Mapping[str, Cell], impossible: Sequence[tuple[Point, str]], *, repeats: int
    ) -> StudySpec[CellSetup]:
        """Return the spec of the study of these cells; raise UsageError for requests that a load cannot send."""
        for cell in cells.values():
            _requests(cell.workload)
        first, matrix = next(iter(cells.values())), self.matrix
        return StudySpec(
            command="study-saturation",
            points=tuple(point for name, point in matrix.names.items() if name in cells),
            repeats=repeats,
            prepare=lambda setup: self._prepare(setup, cells),
            request=first.workload.title,
            settings={
                "control": dict(matrix.control),
                "objective": "" if self.objective is None else str(self.objective),
                "users": list(self.users),
                "step_s": self.step_s,
                "cells": mask_document({name: cell.to_json() for name, cell in cells.items()}),
            },
            variants=tuple(dict.fromkeys(str(point["variant"]) for point in matrix.points)),
            impossible=tuple(impossible),
        )

    def _prepare(self, setup: CellSetup, cells: Mapping[str, Cell]) -> AbstractContextManager[Measure]:
        capacities = CapacitySeries(self.objective, self.say) if self.objective else None

        def measure(rig: CellRig, name: str, repeat: int) -> Mapping[str, Any]:
            ready, cell = rig.ready(name), rig.cells[name]
            url, (requests, login) = ready.prepared.databases[name], _requests(cell.workload)
            variant, log = ready.prepared.named[name], setup.folder / "log"
            with serve(variant.spec(url, hash_seed=repeat + 1, log=log / f"server-{name}.log")) as server:
                spec = LoadSpec(
                    server.url,
                    workload=requests,
                    login=login,
                    warmup=cell.warmup,
                    seed=1000 * (setup.seed + repeat),
                    response_timeout_s=_RESPONSE_TIMEOUT_S,
                )
                load = KneeLoad(spec, self.objective, log, step_s=self.step_s, database_url=url)
                alone_s = load.alone()
                if capacities is None:
                    steps, rate = [load.closed(users) for users in self.users], None
                else:
                    rate, steps = capacities.replicate(name, load, alone_s, seed=spec.seed)
                saturated = load.saturate(alone_s)
                server.check()
            rig.check(name, ready)
            return {
                "knee_per_s": rate,
                "max_per_s": saturated.throughput_per_s,
                "steps": [asdict(step) for step in steps],
                "saturated": asdict(saturated),
            }

        return prepare_cells(setup, cells, self.matrix.names, self.matrix.control, measure)


class CapacitySeries:
    """The replicates of each cell: a search in the first, then five rates around the capacity found before."""

    def __init__(self, objective: Objective, say: Callable[[str], object] = lambda _: None) -> None:
        """*say* is called with a line after each step."""
        self._objective, self._say = objective, say
        self._guesses: dict[str, float] = {}
        self._knees: dict[str, list[Knee]] = {}

    def replicate(self, name: str, load: KneeLoad, alone_s: float, *, seed: int) -> tuple[float, list[LoadStep]]:
        """Return the knee of the cell *name* in arrivals per second, and all steps that were made for it.

        Raises UnmeasurableError if no rate meets the objective, LoadError if the steps do not show the knee.
        """
        steps: list[LoadStep] = []

        def measure(rate: float) -> LoadStep:
            step, _ = load.step(rate, seed=seed + len(steps))
            steps.append(step)
            self._say(f"{rate:g} arrivals/s: {step.outcome}{step.why and f', {step.why}'}")
            return step

        knees = self._knees.setdefault(name, [])
        if name not in self._guesses:
            made = list(load.search(measure, alone_s=alone_s, start=None, resolution=PILOT_RESOLUTION))
            self._guesses[name] = self._between(made)
        knee = measure_knee(measure, next_guess(self._guesses[name], knees), self._objective, seed=seed)
        if knee.rate_per_s is None:
            raise LoadError(knee.why)
        knees.append(knee)
        return knee.rate_per_s, steps

    def _between(self, made: Sequence[LoadStep]) -> float:
        """Return the rate between the highest that held and the lowest above it that did not."""
        held, broken = 0.0, 0.0
        for step in made:
            if step.outcome == "held":
                held = max(held, step.load)
            elif step.outcome == "broken":
                broken = min(broken or step.load, step.load)
        last = made[-1]
        if not held and last.outcome == "generator":
            raise LoadError(f"{last.why}, even at {last.load:.3g} arrivals/s")
        if not held:
            raise UnmeasurableError(f"{self._objective} does not hold even at {last.load:.3g} arrivals/s: {last.why}")
        if not broken:
            raise LoadError(f"no rate was too much, up to {held:g} arrivals/s{last.why and f': {last.why}'}")
        return float((held * broken) ** 0.5)


def _requests(workload: Workload) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """Return the requests of a cycle and those of the login; raise UsageError if a load cannot send them."""
    if workload.script:
        raise UsageError(f"the script {workload.script} is one user's: a study of saturation needs requests")
    for call in (*workload.calls, *workload.login):
        if call.expect_status is not None and call.expect_status >= _FIRST_ERROR:
            raise UsageError(
                f"{call.label} expects status {call.expect_status}, which is a failure in a load: leave it out"
            )
    cycle = [workload.calls[number] for number in workload.cycle]
    requests, login = (
        tuple(Request(each.method, each.path, each.headers, each.body) for each in calls)
        for calls in (cycle, workload.login)
    )
    return requests, login
