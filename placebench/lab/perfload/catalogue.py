"""The catalogue of optimizations as experiments: the cumulative series, leave-one-out, or one optimization."""

from dataclasses import replace

from placebench.compare.keep.documents import Trial
from placebench.compare.what.trials import Experiment
from placebench.compare.what.workload import WorkloadKeys
from placebench.errors import MissingExtraError, PlacebenchError, did_you_mean
from placebench.lab.reference.domain.optimization import OBJECTS, Optimization
from placebench.lab.reference.variants import CATALOGUE, OPTIMIZATIONS, cumulative

_ROUNDS, _ROUNDS_OF_A_STEP = 6, 12
"""Numbers of rounds below the default of a pair of variants, because a replicate of many variants takes long."""
_STEPS = {each.name: each for each in CATALOGUE}


def experiment_named(name: str, *, everywhere: str = "") -> Experiment:
    """Return an experiment of the catalogue; *name*: cumulative, leave-one-out, or the name of one optimization.

    everywhere: a suffix for the name of every variant, such as "+driver:psycopg3". Raises PlacebenchError for an
    unknown name.
    """
    if name == "cumulative":
        series = cumulative()
        steps = zip(OPTIMIZATIONS, series[:-1], series[1:], strict=True)
        each_step = tuple(_trial(each, "step", before, after) for each, before, after in steps)
        made = Experiment(name, series, each_step, rounds=_ROUNDS)
    elif name == "leave-one-out":  # both ways in the same replicates, so that interactions can be seen
        alone = [_trial(each, "alone", "naive", f"naive+{each.name}") for each in OPTIMIZATIONS]
        left_out = [_trial(each, "leave_one_out", f"tuned-{each.name}", "tuned") for each in OPTIMIZATIONS]
        variants = ("naive", "tuned", *(each.variant for each in alone), *(each.baseline for each in left_out))
        made = Experiment(name, variants, (*alone, *left_out), rounds=_ROUNDS)
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
    """Return the trial of one optimization, with the reason, request and metric of its expected effect."""
    return Trial(
        name or optimization.name,
        kind,
        baseline,
        variant,
        why=optimization.why,
        shows_on=optimization.request,
        shows_in=optimization.metric,
    )


def _step_trials(step: Optimization) -> Experiment:
    """Return the experiment of one step on its own request and data.

    The step is added alone and left out of tuned; further implementations are compared within tuned. For a step of
    another algorithm, the whole algorithm is compared with the algorithm without the step. Implementations whose
    package is not installed are left out; raises MissingExtraError if nothing remains.
    """
    trials = []
    if step.alternative and OBJECTS in step.algorithms:
        trials.append(_trial(step, "alone", "naive", f"naive+{step.name}"))
        trials.append(_trial(step, "leave_one_out", f"tuned-{step.name}", "tuned"))
    elif step.alternative:
        for algorithm in step.algorithms:
            name = f"{step.name} of {algorithm}"
            trials.append(_trial(step, "alternative", f"{algorithm}-{step.name}", algorithm, name=name))
    for way in step.further:
        if not way.missing_extra():
            name = f"{step.field}:{way.name}"
            trials.append(_trial(step, "alternative", "tuned", f"tuned+{name}", name=name))
    if not trials:
        raise MissingExtraError(next(lack for way in step.further if (lack := way.missing_extra())))
    variants = dict.fromkeys(variant for trial in trials for variant in (trial.baseline, trial.variant))
    return Experiment(
        step.name,
        tuple(variants),
        tuple(trials),
        workload=WorkloadKeys(request=step.request),
        topology=step.topology,
        utilization=step.utilization,
        rounds=_ROUNDS_OF_A_STEP,
    )
