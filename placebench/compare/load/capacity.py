"""The load that a service can take: the arrival rate up to which it meets an SLO, or the users until errors begin."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from placebench import units
from placebench.compare.keep.records import LoadResult
from placebench.compare.load.knee import PILOT_RESOLUTION, RESOLUTION, KneeLoad, measure_knee, next_guess
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.load.load_steps import LoadStep, Objective, Saturation
from placebench.compare.load.step_outcomes import judge_load, until_errors
from placebench.errors import LoadError

_Report = Callable[[str, LoadStep], None]


class CapacitySearch:
    """One search for capacity, saved in one folder."""

    def __init__(self, spec: LoadSpec, folder: Path, *, step_s: float, report: _Report) -> None:
        """Prepare a search; nothing is sent yet.

        spec: gives each step its url, request, seed and response_timeout_s. report: called after each step, with the
        number of its replicate, or "" during the search before.
        """
        self._spec = spec
        self._folder = folder
        self._step_s = step_s
        self._report = report
        self._steps = 0
        self.result = Saturation(
            name=folder.name,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            url=spec.url,
            request=", ".join(f"{each.method} {each.path}" for each in spec.workload) or spec.request,
            kind="users",
            objective=None,
            seed=spec.seed,
            step_s=step_s,
        )

    def rate(self, objective: Objective, start: float | None, *, replicates: int = 0, database_url: str = "") -> None:
        """Search for the highest arrival rate under *objective*, then measure replicates around it, and what was full.

        start: the first rate; None for half the throughput of a user who is alone.
        database_url: the service's PostgreSQL, whose sessions show what they wait for; empty if it is not known.
        """
        self.result = replace(self.result, kind="rate", objective=str(objective))
        load = KneeLoad(self._spec, objective, self._folder / "log", step_s=self._step_s, database_url=database_url)

        def measure(rate: float) -> LoadStep:
            step, result = load.step(rate, seed=self._spec.seed + self._steps)
            self._keep(result)
            return step

        def search() -> None:
            alone_s = load.alone()
            resolution = PILOT_RESOLUTION if replicates else RESOLUTION
            self._search(load.search(measure, alone_s=alone_s, start=start, resolution=resolution))
            held, broken = self.result.held, self.result.broken
            if held is None or broken is None:
                return
            guess = (held.load * broken.load) ** 0.5
            for number in range(replicates):

                def reported(rate: float, label: str = f"replicate {number + 1} of {replicates}, ") -> LoadStep:
                    step = measure(rate)
                    self._report(label, step)
                    return step

                guess = next_guess(guess, self.result.knees)
                knee = measure_knee(reported, guess, objective, seed=self._spec.seed + number)
                self._save(knees=[*self.result.knees, knee])
            self._save(saturated=load.saturate(alone_s))

        self._recorded(search)

    def users(self, start: int, most: int) -> None:
        """Double the users from *start* up to *most*, until errors or timeouts begin."""
        self._spec = replace(self._spec, kind="closed")

        def measure(users: float) -> LoadStep:
            spec = replace(self._spec, users=int(users), time_s=self._step_s)
            result = run_load(spec, folder=self._folder / "log")
            self._keep(result)
            return judge_load(users, result, None, at_once=spec.at_once)

        self._recorded(lambda: self._search(until_errors(measure, start, most)))

    def _search(self, steps: Iterator[LoadStep]) -> None:
        for step in steps:
            self._save(steps=[*self.result.steps, step])
            self._report("", step)

    def _recorded(self, search: Callable[[], None]) -> None:
        """Call *search*, and save how it ended; an error after the first load says after how many."""
        status = "failed"
        try:
            search()
            status = "complete"
        except LoadError as error:
            if not self._steps:
                raise
            raise LoadError(f"after {units.numbered(self._steps, 'load')} of this search: {error}") from error
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            self._save(status=status)

    def _save(self, **changes: Any) -> None:
        self.result = replace(self.result, **changes)
        self.result.save(self._folder / "saturation.json")

    def _keep(self, result: LoadResult) -> None:
        self._steps += 1
        result.save(self._folder / f"step-{self._steps:02}.json")
