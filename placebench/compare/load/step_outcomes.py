"""The steps of a search for capacity: their order, and the outcome of each."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator

from placebench import units
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_steps import PERCENTILES, LoadStep, Objective, Outcome
from placebench.compare.what.validity import LOAD_RULES, LoadRules, load_problem
from placebench.stats import percentile

_MAX_BEHIND = 0.05
"""Maximum share by which the rate of responses may lie below the rate of arrivals.

Beyond it a queue grows, which a longer step would show. With few arrivals the rates differ by chance, so twice the
reciprocal root of the number of requests is always allowed.
"""
_MAX_STEPS = 30
_MAX_LIMITED = 3
"""Maximum number of rates in a row at which the generator was the limit, if no rate held: lower ones would not help."""


def highest_rate(measure: Callable[[float], LoadStep], start: float, resolution: float = 0.05) -> Iterator[LoadStep]:
    """Yield steps of doubled rates until one does not hold, then bisect until *resolution* apart; at most 30 steps.

    resolution: a share of the rate, 5 % unless given.

    A step in which the generator was the limit is repeated once; if it was the limit again, the search goes on below
    that rate. It ends if the generator was the limit at three rates in a row and no rate held: the machine is too busy.
    """
    held, above, limited = 0.0, math.inf, 0
    load = start
    for _ in range(_MAX_STEPS):
        step = yield from _step_twice(measure, load)
        limited = limited + 1 if step.outcome == "generator" else 0
        if step.outcome == "held":
            held = load
        else:
            above = load
        if limited == _MAX_LIMITED and not held:
            return
        if above <= held * (1 + resolution):
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
    outcome, why, objective_s = _outcome(result, ordered, objective, at_once, rules)
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
        objective_s=objective_s,
    )


def _outcome(
    result: LoadResult, ordered: list[float], objective: Objective | None, at_once: int, rules: LoadRules
) -> tuple[Outcome, str, float | None]:
    """Return the outcome, its reason, and the objective's percentile unless requests failed or a queue grew."""
    if invalid := load_problem(result, at_once=at_once, rules=rules):
        return "generator", invalid, None
    if result.failures:
        first = f", first: {result.failure_messages[0]}" if result.failure_messages else ""
        return "broken", f"{result.failures} of {result.requests} requests failed{first}", None
    if objective is None:
        return "held", "", None
    place = math.ceil(PERCENTILES[objective.name] * len(ordered)) - 1
    seen_s = ordered[max(0, place)]
    if seen_s > objective.limit_s:
        return "broken", f"{objective.name} is {units.duration(seen_s)}", seen_s
    # The arrivals that were due instead of the nominal rate, because their number varies by chance.
    ends_s = (started + latency for started, latency in zip(result.started_s, result.latency_s, strict=True))
    came, done = _middle_rate(result.started_s), _middle_rate(ends_s)
    max_behind = max(_MAX_BEHIND, 2 / math.sqrt(result.requests))
    if done < (1 - max_behind) * came:
        return "broken", f"a queue grows: {units.rate(came)} arrived, {units.rate(done)} were served", None
    return "held", "", seen_s


def _middle_rate(moments_s: Iterable[float]) -> float:
    """Return the events per second without the first and last tenth; infinite if all others are at one moment.

    Without the ends, neither a slow last response nor a constant latency lowers the rate.
    """
    ordered = sorted(moments_s)
    edge = len(ordered) // 10
    middle = ordered[edge : len(ordered) - edge]
    took_s = middle[-1] - middle[0]
    return (len(middle) - 1) / took_s if took_s else math.inf
