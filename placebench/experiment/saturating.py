"""The loads of a search for what a service takes, each kept before the next begins.

The key piece is `Saturating`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench.experiment.load import LoadSpec, run_load
from placebench.experiment.saturation import Objective, Saturation, Step, highest_rate, judged, until_errors

Tell = Callable[[Step], None]
_FIRST_LOOK = 10
_LONGEST_ANSWER = 10.0
"""How many times the objective's limit an answer may take before it is given up, and counts as failed."""


class Saturating:
    """One search in one folder."""

    def __init__(self, spec: LoadSpec, folder: Path, *, step_s: float, tell: Tell) -> None:
        """spec: what each step has of url, request, seed and answer_timeout_s. tell: is given each step."""
        self._spec = spec
        self._folder = folder
        self._step_s = step_s
        self._tell = tell
        self.made = Saturation(
            name=folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=spec.url,
            request=spec.request,
            kind="users",
            objective=None,
            seed=spec.seed,
        )

    def rate(self, objective: Objective, start: float | None) -> Saturation:
        """The highest rate of arrivals under *objective*; from half of what a single user gets, unless from *start*."""
        timeout_s = min(self._spec.answer_timeout_s, max(_LONGEST_ANSWER, _LONGEST_ANSWER * objective.limit_s))
        self._spec = replace(self._spec, kind="open", answer_timeout_s=timeout_s)
        self.made = replace(self.made, kind="rate", objective=str(objective))
        return self._searched(self._rates(objective, start))

    def users(self, start: int, most: int) -> Saturation:
        """Users doubled from *start* until errors or timeouts begin."""
        self._spec = replace(self._spec, kind="closed")
        return self._searched(until_errors(self._with_users, start, most))

    def _rates(self, objective: Objective, start: float | None) -> Iterator[Step]:
        yield from highest_rate(lambda rate: self._at_rate(rate, objective), start or self._start())

    def _searched(self, steps: Iterator[Step]) -> Saturation:
        status = "failed"
        try:
            for step in steps:
                self._keep(steps=[*self.made.steps, step])
                self._tell(step)
            status = "complete"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            self._keep(status=status)
        return self.made

    def _keep(self, **changes: Any) -> None:
        self.made = replace(self.made, **changes)
        self.made.save(self._folder / "saturation.json")

    def _start(self) -> float:
        """Half of what one user gets from the warm service: well below what it takes."""
        look = replace(self._spec, kind="closed", users=1, requests=_FIRST_LOOK, warmup=2, time_s=None)
        result = run_load(look, folder=self._folder / "log")
        return float(f"{result.throughput_per_s / 2:.3g}")

    def _at_rate(self, rate: float, objective: Objective) -> Step:
        time_s = max(self._step_s, 1.2 * objective.samples / rate)
        return self._step(rate, replace(self._spec, rate_per_s=rate, time_s=time_s), objective)

    def _with_users(self, users: float) -> Step:
        return self._step(users, replace(self._spec, users=int(users), time_s=self._step_s), None)

    def _step(self, load: float, spec: LoadSpec, objective: Objective | None) -> Step:
        result = run_load(spec, folder=self._folder / "log")
        result.save(self._folder / f"step-{len(self.made.steps) + 1:02}.json")
        return judged(load, result, objective, at_once=spec.at_once)
