"""The catalogue of optimizations as experiments: the cumulative series, leave-one-out, or one optimization."""

from collections.abc import Iterator
from dataclasses import replace

from placebench.compare.keep.documents import Trial
from placebench.compare.what.trials import Experiment
from placebench.compare.what.workload import WorkloadKeys
from placebench.errors import MissingExtraError, PlacebenchError, did_you_mean
from placebench.lab.reference.domain.optimization import OBJECTS, Optimization
from placebench.lab.reference.variants import CATALOGUE, OPTIMIZATIONS, cumulative

_ROUNDS, _ROUNDS_OF_A_STEP = 6, 12
"""Fewer than a pair of variants has: eleven variants and more take their time, and naive takes it too."""
_STEPS = {each.name: each for each in CATALOGUE}


def experiment_named(name: str, *, everywhere: str = "") -> Experiment:
    """Return the experiment of the catalogue: cumulative, leave-one-out, or the name of one optimization.

    everywhere: what every variant has too, such as "+driver:psycopg3". Raises PlacebenchError for another name.
    """
    series = {"cumulative": _cumulative_trials, "leave-one-out": _leave_one_out_trials}
    if name in series:
        made = series[name]()
    elif name in _STEPS:
        made = _step_trials(_STEPS[name])
    else:
        expected = f"{did_you_mean(name, _STEPS)}expected one of {', '.join(_STEPS)}"
        raise PlacebenchError(f"no optimization {name!r}: {expected}")
    trials = (
        replace(each, baseline=each.baseline + everywhere, variant=each.variant + everywhere) for each in made.trials
    )
    return replace(made, variants=tuple(variant + everywhere for variant in made.variants), trials=tuple(trials))


def _trial(optimization: Optimization, kind: str, baseline: str, variant: str, *, name: str = "") -> Trial:
    """A trial of one optimization, which says why, on what and in what it should show."""
    return Trial(
        name or optimization.name,
        kind,
        baseline,
        variant,
        why=optimization.why,
        shows_on=optimization.request,
        shows_in=optimization.metric,
    )


def _cumulative_trials() -> Experiment:
    """Each step of the cumulative series against the one before it."""
    series = cumulative()
    steps = zip(OPTIMIZATIONS, series[:-1], series[1:], strict=True)
    trials = tuple(_trial(each, "step", before, after) for each, before, after in steps)
    return Experiment("cumulative", series, trials, rounds=_ROUNDS)


def _leave_one_out_trials() -> Experiment:
    """Each optimization added alone and left out, in the same replicates, so that what they do together can be seen."""
    alone = [_trial(each, "alone", "naive", f"naive+{each.name}") for each in OPTIMIZATIONS]
    left_out = [_trial(each, "leave_one_out", f"tuned-{each.name}", "tuned") for each in OPTIMIZATIONS]
    variants = ("naive", "tuned", *(each.variant for each in alone), *(each.baseline for each in left_out))
    return Experiment("leave-one-out", variants, (*alone, *left_out), rounds=_ROUNDS)


def _step_trials(step: Optimization) -> Experiment:
    """One step on its own request and data: added alone and left out, or each further way in tuned.

    Ways whose package is not installed are left out; MissingExtraError where nothing is left.
    """
    trials = (*_better(step), *_further(step))
    if not trials:
        raise MissingExtraError(next(lack for way in step.further if (lack := way.missing_extra())))
    variants = dict.fromkeys(variant for trial in trials for variant in (trial.baseline, trial.variant))
    return Experiment(
        step.name,
        tuple(variants),
        trials,
        workload=WorkloadKeys(request=step.request),
        topology=step.topology,
        utilization=step.utilization,
        rounds=_ROUNDS_OF_A_STEP,
    )


def _better(step: Optimization) -> Iterator[Trial]:
    """Added alone and left out of tuned; an algorithm beside it is whole, or without the step."""
    if step.alternative and OBJECTS in step.algorithms:
        yield _trial(step, "alone", "naive", f"naive+{step.name}")
        yield _trial(step, "leave_one_out", f"tuned-{step.name}", "tuned")
    elif step.alternative:
        for algorithm in step.algorithms:
            name = f"{step.name} of {algorithm}"
            yield _trial(step, "alternative", f"{algorithm}-{step.name}", algorithm, name=name)


def _further(step: Optimization) -> Iterator[Trial]:
    for way in step.further:
        if not way.missing_extra():
            name = f"{step.field}:{way.name}"
            yield _trial(step, "alternative", "tuned", f"tuned+{name}", name=name)
