"""What an experiment tries: changes by name, each a pair of arms, all of them in the same replicates.

    ladder      each rung against the rung before it
    ablation    each optimization alone (naive+x against naive) and missed (tuned against tuned-x)
    pruning     one step of the catalogue: alone, missed, and its further ways, on the request on which it should show
    few         a path of an algorithm beside the ladder: with and without it, in each algorithm that takes it

The key pieces are `Trial`, `Experiment`, `ladder_trials`, `ablation_trials` and `trials_of`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from placebench.errors import MissingExtraError
from placebench.reference.steps.optimization import LADDERS, Optimization
from placebench.reference.variants import OPTIMIZATIONS, ladder

_ROUNDS, _ROUNDS_OF_A_STEP = 6, 12
"""Fewer than a pair of arms has: eleven arms and more take their time, and naive takes it too."""


@dataclass(frozen=True)
class Trial:
    """One change: does *variant* do better than *baseline*?"""

    name: str
    """Of the optimization, or what the file calls it."""
    kind: str
    """rung, alone, missed, way or own."""
    baseline: str
    variant: str
    why: str = ""
    shows_on: str = ""
    """The request on which it should show; empty: nobody said."""
    shows_in: str = ""
    """The metric in which it should show first."""

    @classmethod
    def of(cls, optimization: Optimization, kind: str, baseline: str, variant: str, **said: str) -> Self:
        """A trial of one optimization, which says why, on what and in what; *said* goes over it."""
        explained = {"why": optimization.why, "shows_on": optimization.request, "shows_in": optimization.metric}
        given = {"name": optimization.name, **explained, **said}
        return cls(kind=kind, baseline=baseline, variant=variant, **given)


@dataclass(frozen=True)
class Experiment:
    """A named set of trials; None where the command line or the topology decides."""

    name: str
    arms: tuple[str, ...]
    trials: tuple[Trial, ...]
    request: str | None = None
    topology: str | None = None
    trees: int | None = None
    seed: int | None = None
    replicates: int | None = None
    rounds: int | None = None
    fill: float | None = None


def ladder_trials() -> Experiment:
    """Every rung of the ladder against the one before it."""
    rungs = ladder()
    steps = zip(OPTIMIZATIONS, rungs[:-1], rungs[1:], strict=True)
    trials = tuple(Trial.of(each, "rung", before, after) for each, before, after in steps)
    return Experiment("ladder", rungs, trials, rounds=_ROUNDS)


def ablation_trials() -> Experiment:
    """Every optimization alone and missed, in the same replicates, so that what they do together can be seen."""
    alone = [Trial.of(each, "alone", "naive", f"naive+{each.name}") for each in OPTIMIZATIONS]
    missed = [Trial.of(each, "missed", f"tuned-{each.name}", "tuned") for each in OPTIMIZATIONS]
    arms = ("naive", "tuned", *(each.variant for each in alone), *(each.baseline for each in missed))
    return Experiment("ablation", arms, (*alone, *missed), rounds=_ROUNDS)


def trials_of(step: Optimization) -> Experiment:
    """One step on its own request and data: alone and missed where one way is better, and each further way in tuned.

    Ways whose package is not installed are left out; MissingExtraError where nothing is left.
    """
    trials = (*_better(step), *_further(step))
    if not trials:
        raise MissingExtraError(next(lack for way in step.others if (lack := way.lack())))
    arms = dict.fromkeys(arm for trial in trials for arm in (trial.baseline, trial.variant))
    return Experiment(
        step.name,
        tuple(arms),
        trials,
        request=step.request,
        topology=step.topology,
        fill=step.fill,
        rounds=_ROUNDS_OF_A_STEP,
    )


def _better(step: Optimization) -> Iterator[Trial]:
    """Alone and missed on the ladder; an algorithm beside it has no plain variant: it is whole, or without the step."""
    if step.better and LADDERS in step.of:
        yield Trial.of(step, "alone", "naive", f"naive+{step.name}")
        yield Trial.of(step, "missed", f"tuned-{step.name}", "tuned")
    elif step.better:
        for algorithm in step.of:
            name = f"{step.name} of {algorithm}"
            yield Trial.of(step, "way", f"{algorithm}-{step.name}", algorithm, name=name)


def _further(step: Optimization) -> Iterator[Trial]:
    for way in step.others:
        if not way.lack():
            name = f"{step.step}:{way.name}"
            yield Trial.of(step, "way", "tuned", f"tuned+{name}", name=name)
