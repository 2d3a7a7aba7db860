"""How much load a service takes: the highest arrival rate under an SLO, or the users until errors begin."""

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
"""The highest rate that holds and the lowest that does not lie so close at the end."""
_BEHIND_AT_MOST = 0.05
"""So far the rate of the responses may lie below that of the arrivals; beyond it a queue grows, which a longer step
would show. Few arrivals lie further apart by chance: twice the root of their number is always allowed."""
_MOST_STEPS = 30


def highest_rate(measure: Callable[[float], LoadStep], start: float) -> Iterator[LoadStep]:
    """Steps by doubling until one does not hold, then between the two, until they lie 5 % apart; 30 loads at the most.

    A step in which the generator was the limit is made once more; if it was again, the search goes on below it.
    """
    held, above = 0.0, math.inf
    load = start
    for _ in range(_MOST_STEPS):
        step = yield from _step_twice(measure, load)
        if step.outcome == "held":
            held = load
        else:
            above = load
        if above <= held * (1 + _RESOLUTION):
            return
        load = _three_digits(2 * held if above == math.inf else above / 2 if not held else math.sqrt(held * above))
        if load in (held, above):
            return


def until_errors(measure: Callable[[float], LoadStep], start: int, most: int) -> Iterator[LoadStep]:
    """Steps of twice as many users each, from *start*, until requests fail or the next would have more than *most*.

    A step in which the generator was the limit is made once more; if it was again, the search ends.
    """
    users = start
    step = yield from _step_twice(measure, users)
    while step.outcome == "held" and 2 * users <= most:
        users *= 2
        step = yield from _step_twice(measure, users)


def _step_twice(measure: Callable[[float], LoadStep], load: float) -> Generator[LoadStep, None, LoadStep]:
    """One step, and once more where the generator was its limit; returns the last."""
    step = measure(load)
    yield step
    if step.outcome == "generator":
        step = measure(load)
        yield step
    return step


def judge_load(
    load: float, result: LoadResult, objective: Objective | None, *, at_once: int, rules: LoadRules = LOAD_RULES
) -> LoadStep:
    """What a load run says about the service: held, broken, or nothing because the generator was the limit."""
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
    came, done = _middle_rates(result)
    behind_at_most = max(_BEHIND_AT_MOST, 2 / math.sqrt(result.requests))
    if done < (1 - behind_at_most) * came:
        return "broken", f"a queue grows: {units.rate(came)} arrived, {units.rate(done)} were served"
    return "held", ""


def _middle_rates(result: LoadResult) -> tuple[float, float]:
    """Arrivals and responses per second, without the first and the last tenth of each.

    Arrivals that were due, and not the nominal rate: by chance more or fewer come. Without their ends neither a slow
    last response counts nor a latency that stays the same. Infinite where one moment was the whole middle.
    """
    ends_s = (started + latency for started, latency in zip(result.started_s, result.latency_s, strict=True))
    return _middle_rate(result.started_s), _middle_rate(ends_s)


def _middle_rate(moments_s: Iterable[float]) -> float:
    ordered = sorted(moments_s)
    edge = len(ordered) // 10
    middle = ordered[edge : len(ordered) - edge]
    took_s = middle[-1] - middle[0]
    return (len(middle) - 1) / took_s if took_s else math.inf


def _three_digits(load: float) -> float:
    return float(f"{load:.3g}")


_Report = Callable[[LoadStep], None]
_FIRST_REQUESTS = 10
_LONGEST_RESPONSE = 10.0
"""How many times the objective's limit a response may take before it is given up, and counts as failed."""


class CapacitySearch:
    """One search in one folder."""

    def __init__(self, spec: LoadSpec, folder: Path, *, step_s: float, report: _Report) -> None:
        """spec: what each step has of url, request, seed and response_timeout_s. report: is called with each step."""
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
        """The highest rate of arrivals under *objective*; from half of what a single user gets, unless from *start*."""
        timeout_s = min(self._spec.response_timeout_s, max(_LONGEST_RESPONSE, _LONGEST_RESPONSE * objective.limit_s))
        self._spec = replace(self._spec, kind="open", response_timeout_s=timeout_s)
        self.result = replace(self.result, kind="rate", objective=str(objective))
        return self._search(self._rates(objective, start))

    def users(self, start: int, most: int) -> Saturation:
        """Users doubled from *start* until errors or timeouts begin."""
        self._spec = replace(self._spec, kind="closed")
        return self._search(until_errors(self._with_users, start, most))

    def _rates(self, objective: Objective, start: float | None) -> Iterator[LoadStep]:
        yield from highest_rate(lambda rate: self._at_rate(rate, objective), start or self._start())

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

    def _start(self) -> float:
        """Half of what one user gets from the warm service: well below what it takes."""
        first = replace(self._spec, kind="closed", users=1, requests=_FIRST_REQUESTS, warmup=2, time_s=None)
        result = run_load(first, folder=self._folder / "log")
        return float(f"{result.throughput_per_s / 2:.3g}")

    def _at_rate(self, rate: float, objective: Objective) -> LoadStep:
        time_s = max(self._step_s, 1.2 * objective.samples / rate)
        return self._step(rate, replace(self._spec, rate_per_s=rate, time_s=time_s), objective)

    def _with_users(self, users: float) -> LoadStep:
        return self._step(users, replace(self._spec, users=int(users), time_s=self._step_s), None)

    def _step(self, load: float, spec: LoadSpec, objective: Objective | None) -> LoadStep:
        result = run_load(spec, folder=self._folder / "log")
        result.save(self._folder / f"step-{len(self.result.steps) + 1:02}.json")
        return judge_load(load, result, objective, at_once=spec.at_once)
