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
from placebench.stats import samples_needed

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
        raise UsageError(f"objective {text!r}: expected a limit above 0 that is not exceeded, as 'p95 <= 500ms'")
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


def highest_held(steps: Iterable[LoadStep]) -> LoadStep | None:
    """Return the step with the highest load below every broken step; None if no step held."""
    steps = list(steps)
    limit = min((each.load for each in steps if each.outcome == "broken"), default=math.inf)
    held = (each for each in steps if each.outcome == "held" and each.load < limit)
    return max(held, key=lambda each: each.load, default=None)


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
        return highest_held(self.steps)

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

    def to_json(self) -> dict[str, Any]:
        """Return all fields, and the loads that held and broke."""
        found = {name: (step.load if step else None) for name, step in (("held", self.held), ("broken", self.broken))}
        limited_by = "generator" if self.unclear else "service" if self.broken else "nothing"
        return {**asdict(self), **found, "limited_by": limited_by}
