"""The load that a service can take: the highest arrival rate under an SLO, or the users until errors begin."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench import units
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.load.load_steps import PERCENTILES, LoadStep, Objective, Outcome, Saturation
from placebench.compare.what.validity import LOAD_RULES, LoadRules, load_problem
from placebench.stats import percentile

_RESOLUTION = 0.05
"""The search ends when the highest rate that held and the lowest rate that did not differ by at most this share."""
_MAX_BEHIND = 0.05
"""Maximum share by which the rate of responses may lie below the rate of arrivals.

Beyond it a queue grows, which a longer step would show. With few arrivals the rates differ by chance, so twice the
reciprocal root of the number of requests is always allowed.
"""
_MAX_STEPS = 30


def highest_rate(measure: Callable[[float], LoadStep], start: float) -> Iterator[LoadStep]:
    """Yield steps of doubled rates until one does not hold, then bisect until 5 % apart; at most 30 steps.

    A step in which the generator was the limit is repeated once; if it was the limit again, the search goes on below
    that rate.
    """
    held, above = 0.0, math.inf
    load = start
    for _ in range(_MAX_STEPS):
        step = yield from _step_twice(measure, load)
        if step.outcome == "held":
            held = load
        else:
            above = load
        if above <= held * (1 + _RESOLUTION):
            return
        load = 2 * held if above == math.inf else above / 2 if not held else math.sqrt(held * above)
        load = float(f"{load:.3g}")
        if load in (held, above):
            return


def until_errors(measure: Callable[[float], LoadStep], start: int, most: int) -> Iterator[LoadStep]:
    """Yield steps that double the users, from *start*, until requests fail or the next step would exceed *most*.

    A step in which the generator was the limit is repeated once; if it was the limit again, the search ends.
    """
    users = start
    step = yield from _step_twice(measure, users)
    while step.outcome == "held" and 2 * users <= most:
        users *= 2
        step = yield from _step_twice(measure, users)


def _step_twice(measure: Callable[[float], LoadStep], load: float) -> Generator[LoadStep, None, LoadStep]:
    """Yield one step, and a second one if the generator was its limit; returns the last step."""
    step = measure(load)
    yield step
    if step.outcome == "generator":
        step = measure(load)
        yield step
    return step


def judge_load(
    load: float, result: LoadResult, objective: Objective | None, *, at_once: int, rules: LoadRules = LOAD_RULES
) -> LoadStep:
    """Judge a load run: the service held or broke the objective, or the generator was the limit."""
    ordered = sorted(result.latency_s)
    percentiles = {name: percentile(ordered, share) for name, share in PERCENTILES.items()}
    outcome, why = _outcome(result, ordered, objective, at_once, rules)
    return LoadStep(
        load=load,
        requests=result.requests,
        failures=result.failures,
        throughput_per_s=result.throughput_per_s,
        latency_s=percentiles,
        client_cpu=result.client_cpu_s / result.elapsed_s if result.elapsed_s else 0.0,
        missed=result.missed,
        outcome=outcome,
        why=why,
        repeats=result.repeats,
    )


def _outcome(
    result: LoadResult, ordered: list[float], objective: Objective | None, at_once: int, rules: LoadRules
) -> tuple[Outcome, str]:
    if invalid := load_problem(result, at_once=at_once, rules=rules):
        return "generator", invalid
    if result.failures:
        first = f", first: {result.failure_messages[0]}" if result.failure_messages else ""
        return "broken", f"{result.failures} of {result.requests} requests failed{first}"
    if objective is None:
        return "held", ""
    place = math.ceil(PERCENTILES[objective.name] * len(ordered)) - 1
    seen_s = ordered[max(0, place)]
    if seen_s > objective.limit_s:
        return "broken", f"{objective.name} is {units.duration(seen_s)}"
    # The arrivals that were due instead of the nominal rate, because their number varies by chance.
    ends_s = (started + latency for started, latency in zip(result.started_s, result.latency_s, strict=True))
    came, done = _middle_rate(result.started_s), _middle_rate(ends_s)
    max_behind = max(_MAX_BEHIND, 2 / math.sqrt(result.requests))
    if done < (1 - max_behind) * came:
        return "broken", f"a queue grows: {units.rate(came)} arrived, {units.rate(done)} were served"
    return "held", ""


def _middle_rate(moments_s: Iterable[float]) -> float:
    """Return the events per second without the first and last tenth; infinite if all others are at one moment.

    Without the ends, neither a slow last response nor a constant latency lowers the rate.
    """
    ordered = sorted(moments_s)
    edge = len(ordered) // 10
    middle = ordered[edge : len(ordered) - edge]
    took_s = middle[-1] - middle[0]
    return (len(middle) - 1) / took_s if took_s else math.inf


_Report = Callable[[LoadStep], None]
_FIRST_REQUESTS = 10
_MAX_RESPONSE_S = _MAX_RESPONSE_TIMES_LIMIT = 10.0
"""A response has failed if it takes longer than 10 s and longer than 10 times the objective's limit."""


class CapacitySearch:
    """One search for capacity, saved in one folder."""

    def __init__(self, spec: LoadSpec, folder: Path, *, step_s: float, report: _Report) -> None:
        """spec: gives each step its url, request, seed and response_timeout_s. report: called after each step."""
        self._spec = spec
        self._folder = folder
        self._step_s = step_s
        self._report = report
        self.result = Saturation(
            name=folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=spec.url,
            request=", ".join(f"{each.method} {each.path}" for each in spec.workload) or spec.request,
            kind="users",
            objective=None,
            seed=spec.seed,
        )

    def rate(self, objective: Objective, start: float | None) -> Saturation:
        """Search for the highest arrival rate under *objective*, from *start* or half the throughput of one user."""
        max_response_s = max(_MAX_RESPONSE_S, _MAX_RESPONSE_TIMES_LIMIT * objective.limit_s)
        timeout_s = min(self._spec.response_timeout_s, max_response_s)
        self._spec = replace(self._spec, kind="open", response_timeout_s=timeout_s)
        self.result = replace(self.result, kind="rate", objective=str(objective))

        def measure(rate: float) -> LoadStep:
            time_s = max(self._step_s, 1.2 * objective.samples / rate)
            return self._step(rate, replace(self._spec, rate_per_s=rate, time_s=time_s), objective)

        def steps() -> Iterator[LoadStep]:
            first_rate = start
            if not first_rate:  # half of one user's throughput, once warm, is well below the capacity
                first = replace(self._spec, kind="closed", users=1, requests=_FIRST_REQUESTS, warmup=2, time_s=None)
                throughput_per_s = run_load(first, folder=self._folder / "log").throughput_per_s
                first_rate = float(f"{throughput_per_s / 2:.3g}")
            yield from highest_rate(measure, first_rate)

        return self._search(steps())

    def users(self, start: int, most: int) -> Saturation:
        """Double the users from *start* up to *most*, until errors or timeouts begin."""
        self._spec = replace(self._spec, kind="closed")

        def measure(users: float) -> LoadStep:
            return self._step(users, replace(self._spec, users=int(users), time_s=self._step_s), None)

        return self._search(until_errors(measure, start, most))

    def _search(self, steps: Iterator[LoadStep]) -> Saturation:
        status = "failed"
        try:
            for step in steps:
                self._save(steps=[*self.result.steps, step])
                self._report(step)
            status = "complete"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            self._save(status=status)
        return self.result

    def _save(self, **changes: Any) -> None:
        self.result = replace(self.result, **changes)
        self.result.save(self._folder / "saturation.json")

    def _step(self, load: float, spec: LoadSpec, objective: Objective | None) -> LoadStep:
        result = run_load(spec, folder=self._folder / "log")
        result.save(self._folder / f"step-{len(self.result.steps) + 1:02}.json")
        return judge_load(load, result, objective, at_once=spec.at_once)
