"""Loads on one queue of a known law, simulated: what `run_load` would return, without a service."""

import random
from collections.abc import Callable
from itertools import takewhile

from made_records import load_result

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LoadSpec
from placebench.loadgen.options import arrivals

Law = Callable[[random.Random], float]


def served(spec: LoadSpec, taken_s: Law) -> LoadResult:
    """The load of *spec* on one queue: each request begins when it is due and the one before has ended."""
    chance = random.Random(f"times of {spec.seed}")  # not the draws of the arrivals
    free = 0.0
    due: list[float] = []
    latency: list[float] = []
    if spec.kind == "open":
        assert spec.rate_per_s is not None
        assert spec.time_s is not None
        end_s = spec.time_s
        due = list(takewhile(lambda at: at < end_s, arrivals(spec.rate_per_s, spec.seed)))
    alone = range(spec.requests or 0)
    due += [float(number) for number in alone]
    while spec.kind == "closed" and spec.time_s is not None and free < spec.time_s:
        due.append(free)  # the users wait together: one begins when another has its response
        free += taken_s(chance)
        latency.append(spec.users * (free - due[-1]))
    for at in due[len(latency) :]:
        free = max(free, at) + taken_s(chance)
        latency.append(free - at)
    return load_result(
        latency,
        kind=spec.kind,
        users=spec.users,
        rate_per_s=spec.rate_per_s,
        seed=spec.seed,
        elapsed_s=max(at + taken for at, taken in zip(due, latency, strict=True)),
        started_s=due,
        client_cpu_s=0.0,
    )


def exponential(mean_s: float) -> Law:
    """M/M/1: service times from the exponential distribution."""
    return lambda chance: chance.expovariate(1 / mean_s)


def constant(mean_s: float) -> Law:
    """M/D/1: all service times are equal."""
    return lambda _: mean_s
