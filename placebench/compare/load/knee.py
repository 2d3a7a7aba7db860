"""The knee of a service: the arrival rate at which a percentile of the latency reaches a limit, and what was full.

`KneeLoad` makes the loads: a user who is alone, a search for the rate, the steps of a replicate around it, and users
that saturate the service. A replicate has five rates, spread over a factor of 1.8 around the rate found before, and its
knee is where the percentile crosses the limit among them (`placebench.stats.crossing_rate`). If it does not, five
higher or lower rates follow, until it does.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from placebench.addresses import service_address
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.load.load_steps import Knee, LoadStep, Objective, Saturated, knee_points
from placebench.compare.load.step_outcomes import highest_rate, judge_load
from placebench.compare.what.validity import LOAD_RULES, LoadRules
from placebench.errors import FailedRequestsError, LoadError
from placebench.meters.full_resource import UsageMeter, find_service, name_full
from placebench.stats import crossing_rate

PILOT_RESOLUTION, RESOLUTION = 0.2, 0.05
"""How far apart the highest rate that held and the lowest that did not may be, with replicates afterwards and without.

A share of the rate.
"""
RATES = 5
"""The number of rates of a replicate."""
_SPREAD = 0.6
"""The logarithm of the factor over which these rates are spread; the next higher or lower five follow on them."""
_MAX_RANGES = 5
"""The number of times that a replicate measures five rates: the capacity may be 11 times the guess, or a part of it."""
_ALONE_REQUESTS, _ALONE_WARMUP = 12, 2
_ALMOST_IDLE = 0.1
"""The share of the throughput of a user who is alone at which queues are too short to matter."""
_SPARE = 1.2
_SATURATING_USERS, _MORE_USERS = 32, 4
_SATURATION_STEPS = 2
_MAX_RESPONSE_S = _MAX_RESPONSE_TIMES_LIMIT = 10.0
"""A response has failed if it takes longer than 10 s and longer than 10 times the objective's limit."""


class KneeLoad:
    """The loads that find the knee of the service at one URL."""

    def __init__(
        self,
        spec: LoadSpec,
        objective: Objective | None,
        folder: Path,
        *,
        step_s: float,
        database_url: str = "",
        arrivals: str = "open",
        rules: LoadRules = LOAD_RULES,
        after_step: Callable[[LoadResult], object] = lambda _: None,
    ) -> None:
        """Prepare the loads; nothing is sent yet.

        objective: None for loads of users only.
        spec: the requests, and the longest time for a response. folder: where locust's log is written.
        step_s: the least duration of a step; it is longer if the objective's percentile needs more samples.
        database_url: the service's PostgreSQL, whose sessions show what they wait for; empty if it is not known.
        arrivals: the kind of the load at a rate, as in `LoadSpec.kind`. rules: when the load generator was the limit.
        after_step: called with the samples of each step, before the next load.
        """
        limit_s = objective.limit_s if objective else 0.0
        timeout_s = min(spec.response_timeout_s, max(_MAX_RESPONSE_S, _MAX_RESPONSE_TIMES_LIMIT * limit_s))
        self._spec = replace(spec, kind="closed", users=1, rate_per_s=None, response_timeout_s=timeout_s)
        self._objective = objective
        self._folder = folder
        self._step_s = step_s
        self._database_url = database_url
        self._arrivals, self._rules, self._after_step = arrivals, rules, after_step

    def alone(self) -> float:
        """Return the latency in seconds of a user who is alone, once warm.

        It is the lower quartile, which other programs on the machine change less than the median. Raises
        FailedRequestsError if all requests fail.
        """
        spec = replace(
            self._spec, requests=_ALONE_REQUESTS, warmup=max(_ALONE_WARMUP, self._spec.warmup), processes=1, time_s=None
        )
        result = run_load(spec, folder=self._folder)
        if not result.latency_s:
            raise FailedRequestsError(
                f"every request of a user who is alone failed, first: {result.failure_messages[0]}"
            )
        return max(sorted(result.latency_s)[len(result.latency_s) // 4], 1e-6)

    def step(self, rate: float, *, seed: int) -> tuple[LoadStep, LoadResult]:
        """Load the service at this rate; return the judged step and its samples."""
        assert self._objective is not None
        spec = self.at_rate(rate, seed=seed)
        result = run_load(spec, folder=self._folder)
        self._after_step(result)
        return judge_load(rate, result, self._objective, at_once=spec.at_once, rules=self._rules), result

    def at_rate(self, rate: float, *, seed: int) -> LoadSpec:
        """Return a load at this rate that has enough samples for the objective."""
        samples = self._objective.samples if self._objective else 0
        time_s = max(self._step_s, _SPARE * samples / rate)
        return replace(self._spec, kind=self._arrivals, rate_per_s=rate, time_s=time_s, requests=None, seed=seed)

    def closed(self, users: int) -> LoadStep:
        """Load the service with users who wait for responses; a step is broken if requests fail."""
        spec = replace(self._spec, users=users, time_s=self._step_s, requests=None)
        result = run_load(spec, folder=self._folder)
        return judge_load(users, result, None, at_once=spec.at_once)

    def search(
        self, measure: Callable[[float], LoadStep], *, alone_s: float, start: float | None, resolution: float
    ) -> Iterator[LoadStep]:
        """Yield the steps of a search from *start*, or from half the throughput of a user who is alone.

        It ends early if the objective is not met even when the service is almost idle.
        """
        assert self._objective is not None
        if alone_s > self._objective.limit_s:
            why = f"a user who is alone waits {alone_s * 1000:.3g} ms"
            yield LoadStep(1 / alone_s, 1, 0, 1 / alone_s, {"p50": alone_s, "p95": None}, 0.0, 0, "broken", why)
            return
        for step in highest_rate(measure, start or float(f"{0.5 / alone_s:.3g}"), resolution):
            yield step
            if step.outcome == "broken" and step.load < _ALMOST_IDLE / alone_s:
                return

    def saturate(self, alone_s: float) -> Saturated:
        """Load the service with users who wait only for responses, and name the resource that was full."""
        users = max(_SATURATING_USERS, self._spec.processes)
        for attempt in range(_SATURATION_STEPS):
            spec = replace(self._spec, users=users, time_s=self._step_s, requests=None)
            saturated, _ = self.name_full(spec, alone_s, users=users)
            if saturated.full != "nothing" or attempt == _SATURATION_STEPS - 1:
                break
            users *= _MORE_USERS
        return saturated

    def name_full(self, spec: LoadSpec, alone_s: float, *, users: int) -> tuple[Saturated, LoadResult]:
        """Make a load with *users* requests at once, at most; return what was full, and the samples."""
        address = service_address(spec.url, error=LoadError)
        port = address.port or (443 if address.scheme == "https" else 80)
        with UsageMeter(find_service(address.hostname, port), self._database_url) as meter:
            result = run_load(spec, folder=self._folder)
        usage = meter.read(result.elapsed_s)
        busiest_cpu_s = max((each.client_cpu_s or 0.0 for each in result.workers), default=result.client_cpu_s)
        client_cpu = busiest_cpu_s / result.elapsed_s if result.elapsed_s else 0.0
        per_s = result.throughput_per_s
        full, why = name_full(usage, users=users, throughput_per_s=per_s, alone_s=alone_s, client_cpu=client_cpu)
        return Saturated(users, per_s, alone_s, client_cpu, full, why, usage), result


def rates_around(rate: float, *, seed: int) -> list[float]:
    """Return the rates of a replicate around *rate*, in a random order."""
    rates = [float(f"{rate * math.exp(_SPREAD * ((place + 0.5) / RATES - 0.5)):.4g}") for place in range(RATES)]
    return random.Random(seed).sample(rates, RATES)


def find_knee(steps: Sequence[LoadStep], objective: Objective) -> Knee:
    """Return the knee that the steps of one replicate show; without a rate if they do not."""
    made = list(steps)
    limited = [step for step in made if step.outcome == "generator"]
    if 2 * len(limited) > len(made):
        return Knee(None, made, limited[0].why)
    rate = crossing_rate(knee_points([Knee(None, made)]), objective.limit_s)
    return Knee(rate, made, "" if rate else f"{objective.name} does not cross the limit at these rates")


def measure_knee(measure: Callable[[float], LoadStep], guess: float, objective: Objective, *, seed: int) -> Knee:
    """Measure one replicate: five rates around *guess*, and the next higher or lower five until the limit is crossed.

    The knee has all steps. It has no rate, and `why` says why, if the load generator was the limit or if none of five
    ranges crossed the limit.
    """
    made: list[LoadStep] = []
    for _ in range(_MAX_RANGES):
        made += [measure(rate) for rate in rates_around(guess, seed=seed)]
        last = made[-RATES:]
        outcomes = [step.outcome for step in last]
        # The crossing may also be between this range and the one before.
        knees = [find_knee(steps, objective) for steps in (last, made[-2 * RATES :])]
        knee = next((each for each in knees if each.rate_per_s), knees[0])
        if knee.rate_per_s or 2 * outcomes.count("generator") > RATES:
            return replace(knee, steps=made)
        guess *= math.exp(_SPREAD if outcomes.count("held") > outcomes.count("broken") else -_SPREAD)
    rates = sorted(step.load for step in made)
    why = f"{objective.name} does not cross the limit from {rates[0]:.3g} to {rates[-1]:.3g} arrivals/s"
    return Knee(None, made, why)


def next_guess(guess: float, knees: Sequence[Knee]) -> float:
    """Return the rate around which the next replicate is measured: the geometric mean of the knees until then."""
    logs = [math.log(knee.rate_per_s) for knee in knees if knee.rate_per_s]
    return math.exp(fmean(logs)) if logs else guess
