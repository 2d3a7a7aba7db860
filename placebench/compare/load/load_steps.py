"""Steps of a search for a service's capacity and the objective to meet: `Saturation`, `LoadStep`, `Objective`."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from placebench import limits
from placebench.compare.keep.records import Record
from placebench.decoding import Amount, Count, Positive, Seed
from placebench.errors import UsageError
from placebench.gates import SECONDS, parse_gate
from placebench.meters.readings import Full, Usage
from placebench.stats import hodges_lehmann, samples_needed
from placebench.stats.hodges_lehmann import MIN_REPLICATES, pseudo_median

Outcome = Literal["held", "broken", "generator"]
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Objective:
    """A percentile of the latency that must be within a limit."""

    name: str
    limit_s: float

    @property
    def samples(self) -> int:
        """The number of requests that a step needs to estimate the percentile."""
        return samples_needed(PERCENTILES[self.name])

    def __str__(self) -> str:
        return f"{self.name} <= {self.limit_s:g}s"


def parse_objective(text: str) -> Objective:
    """Return the objective that a gate such as 'p95 <= 500ms' states; raises UsageError for any other text."""
    gate = parse_gate(text, dict.fromkeys(PERCENTILES, SECONDS))
    if gate.operator not in ("<", "<=") or not 0 < gate.value <= limits.SECONDS:
        raise UsageError(f"objective {text!r}: expected a limit above 0 that is not exceeded, such as 'p95 <= 500ms'")
    return Objective(gate.metric, gate.value)


@dataclass(frozen=True)
class LoadStep:
    """One step of the search: a load and its outcome."""

    load: Positive
    """Arrivals per second, or number of users."""
    requests: Count
    failures: Count
    throughput_per_s: Amount
    latency_s: dict[str, Amount | None]
    """Latency percentiles in seconds by name; None if too few requests were slower."""
    client_cpu: Amount
    """Share of a core that the generator used."""
    missed: Count
    outcome: Outcome
    why: str
    """The reason for "broken" or "generator"; empty for a step that held."""
    repeats: Count = 0
    """The number of requests that were sent again because the server had closed a kept connection."""
    objective_s: Amount | None = None
    """The objective's percentile of the latency; None without an objective, if requests failed or if a queue grew."""

    @property
    def point(self) -> tuple[float, float]:
        """The load, and the objective's percentile there, infinite for what was too much."""
        return self.load, math.inf if self.objective_s is None else self.objective_s


@dataclass(frozen=True)
class Knee:
    """One replicate: the arrival rate at which the objective's percentile reaches its limit, by steps of its own."""

    rate_per_s: Positive | None
    """None if the steps do not show it, for the reason in `why`."""
    steps: list[LoadStep]
    why: str = ""


@dataclass(frozen=True)
class Saturated:
    """The service at its highest throughput, with users that wait for nothing but responses: what was full there."""

    users: Count
    throughput_per_s: Amount
    alone_s: Amount
    """The latency of a user who is alone, in seconds: the lower quartile."""
    client_cpu: Amount
    """Share of a core that the generator used."""
    full: Full
    why: str
    """The reading that shows what was full."""
    usage: Usage


def knee_points(knees: Iterable[Knee]) -> list[tuple[float, float]]:
    """Return the rate and the percentile of each step in which the load generator was not the limit."""
    return [step.point for knee in knees for step in knee.steps if step.outcome != "generator"]


@dataclass(frozen=True)
class Capacity:
    """The capacity over replicates, each with a knee of its own; limits are None for fewer than six."""

    rate_per_s: Positive
    low_per_s: Positive | None
    high_per_s: Positive | None
    n: Count


def capacity_of(rates_per_s: Iterable[float | None]) -> Capacity | None:
    """Return the capacity with its 95 % interval (Hodges-Lehmann); None if no replicate has a knee."""
    logs = [math.log(rate) for rate in rates_per_s if rate]
    if not logs:
        return None
    if len(logs) < MIN_REPLICATES:
        return Capacity(math.exp(pseudo_median(logs)), None, None, len(logs))
    found = hodges_lehmann(logs)
    return Capacity(math.exp(found.estimate), math.exp(found.low), math.exp(found.high), len(logs))


@dataclass(frozen=True)
class Saturation(Record):
    """A whole search; saturation.json, with the samples of each step in step-<n>.json beside it."""

    name: str
    started_at: str
    url: str
    request: str | None
    kind: Literal["rate", "users"]
    objective: str | None
    """The text of an objective that `parse_objective` reads; None for a search of users."""
    seed: Seed
    status: str = "running"
    steps: list[LoadStep] = field(default_factory=list)
    knees: list[Knee] = field(default_factory=list)
    """The replicates after the search."""
    saturated: Saturated | None = None
    step_s: Positive | None = None
    """The least duration of a step."""

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid objective, which the reader of a file reports with the file's name."""
        try:
            if self.objective is not None:
                parse_objective(self.objective)
        except UsageError as error:
            raise ValueError(str(error)) from error

    @property
    def held(self) -> LoadStep | None:
        """The step with the highest load that held below every broken step; None if no step held."""
        limit = min((each.load for each in self.steps if each.outcome == "broken"), default=math.inf)
        held = (each for each in self.steps if each.outcome == "held" and each.load < limit)
        return max(held, key=lambda each: each.load, default=None)

    @property
    def broken(self) -> LoadStep | None:
        """The step with the lowest load that was too much for the service; None if there is none."""
        return min((each for each in self.steps if each.outcome == "broken"), key=lambda each: each.load, default=None)

    @property
    def unclear(self) -> LoadStep | None:
        """The lowest step at which the generator was the limit, if that hides the service's limit; else None."""
        failed = [each for each in self.steps if each.outcome == "generator"]
        lowest = min(failed, key=lambda each: each.load, default=None)
        held, broken = self.held, self.broken
        if lowest is None or (held and lowest.load <= held.load) or (broken and broken.load <= lowest.load):
            return None
        return lowest

    @property
    def capacity(self) -> Capacity | None:
        """The capacity by the replicates; None without replicates."""
        return capacity_of(knee.rate_per_s for knee in self.knees)

    def to_json(self) -> dict[str, Any]:
        """Return all fields, the loads that held and broke, and the capacity by the replicates."""
        found = {name: (step.load if step else None) for name, step in (("held", self.held), ("broken", self.broken))}
        limited_by = "generator" if self.unclear else "service" if self.broken else "nothing"
        capacity = None if self.capacity is None else asdict(self.capacity)
        return {**asdict(self), **found, "limited_by": limited_by, "capacity": capacity}
