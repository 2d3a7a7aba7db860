"""What an experiment compares: pairs of variants by name, from the catalogue of optimizations or from a TOML file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct, to_builtins

from placebench import limits
from placebench.decoding import Seed, check, read_toml
from placebench.errors import MissingExtraError, PlacebenchError, did_you_mean
from placebench.experiment.data_setup import DatabaseKind
from placebench.experiment.variants import VariantTable, VariantTables, check_tables
from placebench.experiment.workload import WorkloadKeys
from placebench.paths import is_file
from placebench.reference.optimizations.optimization import OBJECTS, Optimization
from placebench.reference.variants import CATALOGUE, OPTIMIZATIONS, cumulative, differing
from placebench.stats import COUNTED, METRICS

_ROUNDS, _ROUNDS_OF_A_STEP = 6, 12
"""Fewer than a pair of variants has: eleven variants and more take their time, and naive takes it too."""


@dataclass(frozen=True)
class Trial:
    """One change: does *variant* do better than *baseline*?"""

    name: str
    """Of the optimization, or what the file calls it."""
    kind: str
    """step, alone, leave_one_out, alternative or own."""
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
    variants: tuple[str, ...]
    trials: tuple[Trial, ...]
    workload: WorkloadKeys = WorkloadKeys()  # noqa: RUF009  frozen
    """What is sent."""
    topology: str | None = None
    trees: int | None = None
    seed: int | None = None
    replicates: int | None = None
    rounds: int | None = None
    utilization: float | None = None
    setup: str | None = None
    """A shell command that fills the database which the variants get copies of."""
    template_db: str | None = None
    """URL of a database that is copied first, and only read."""
    database: DatabaseKind | None = None
    may_change: tuple[str, ...] = ()
    """Tables of one's own data that requests may change."""
    superuser: bool = False
    """Whether the application connects to its database as a superuser."""
    tables: VariantTables = field(default_factory=VariantTables)
    """What the names of the variants mean."""
    folder: Path = Path()
    """Its own."""
    source: str = "the command line"
    """Where it is from, for messages."""


def _cumulative_trials() -> Experiment:
    """Each step of the cumulative series against the one before it."""
    series = cumulative()
    steps = zip(OPTIMIZATIONS, series[:-1], series[1:], strict=True)
    trials = tuple(Trial.of(each, "step", before, after) for each, before, after in steps)
    return Experiment("cumulative", series, trials, rounds=_ROUNDS)


def _leave_one_out_trials() -> Experiment:
    """Each optimization added alone and left out, in the same replicates, so that what they do together can be seen."""
    alone = [Trial.of(each, "alone", "naive", f"naive+{each.name}") for each in OPTIMIZATIONS]
    left_out = [Trial.of(each, "leave_one_out", f"tuned-{each.name}", "tuned") for each in OPTIMIZATIONS]
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
        yield Trial.of(step, "alone", "naive", f"naive+{step.name}")
        yield Trial.of(step, "leave_one_out", f"tuned-{step.name}", "tuned")
    elif step.alternative:
        for algorithm in step.algorithms:
            name = f"{step.name} of {algorithm}"
            yield Trial.of(step, "alternative", f"{algorithm}-{step.name}", algorithm, name=name)


def _further(step: Optimization) -> Iterator[Trial]:
    for way in step.further:
        if not way.missing_extra():
            name = f"{step.field}:{way.name}"
            yield Trial.of(step, "alternative", "tuned", f"tuned+{name}", name=name)


_METRICS = (*METRICS, *COUNTED)
_DATA = ("topology", "trees", "seed", "replicates", "rounds", "utilization")
OWN_DATA = ("setup", "template_db", "database", "may_change", "superuser")
_STEPS = {each.name: each for each in CATALOGUE}


class _Trial(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of [[trials]]; what is not said is the catalogue's."""

    baseline: str
    variant: str
    name: str = ""
    kind: str = "own"
    why: str = ""
    shows_on: str = ""
    shows_in: str = ""


class _File(WorkloadKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole file."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)] | None = None
    variants: list[str] | dict[str, Any] = msgspec.field(default_factory=list)
    """By name, or tables by name, which are checked by themselves."""
    app: VariantTable | None = None
    trials: list[_Trial] = msgspec.field(default_factory=list)
    topology: str | None = None
    trees: Annotated[int, Meta(ge=0, le=limits.TREES)] | None = None
    seed: Seed | None = None
    replicates: Annotated[int, Meta(ge=0, le=limits.REPLICATES)] | None = None
    rounds: Annotated[int, Meta(ge=1, le=limits.ROUNDS)] | None = None
    utilization: Annotated[float, Meta(ge=0, le=1)] | None = None
    setup: str | None = None
    template_db: str | None = None
    database: DatabaseKind | None = None
    may_change: tuple[str, ...] = ()
    superuser: bool = False


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


def read_plan(path: Path | None) -> Experiment:
    """Return the plan in a file, or in `[tool.placebench]` of a pyproject.toml, of this folder or the nearest above.

    name = "containers"
    trees = 500

    [variants.naive]
    [variants."naive+sets"]
    [variants.little-memory]
    variant = "naive"
    pg = { work_mem = "64kB" }

    [[trials]]
    name = "sets"
    baseline = "naive"
    variant = "naive+sets"

    Raises PlacebenchError that names the file and the key.
    """
    if path is None:
        path, table = _find_table()
        given: _File = check(table, _File, str(path), at="tool.placebench", error=PlacebenchError)
        return _experiment(path, given, name="compare", at="tool.placebench.variants")
    if not is_file(path):
        raise PlacebenchError(f"no plan {path}: expected a .toml file")
    return _experiment(path, read_toml(path, _File, error=PlacebenchError), name=path.stem)


def _find_table() -> tuple[Path, Any]:
    """The pyproject.toml with a table `[tool.placebench]`, and that table; without one, the file of this folder."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = Path("pyproject.toml") if folder == here else folder / "pyproject.toml"
        tool = read_toml(path, dict[str, Any], error=PlacebenchError).get("tool", {}) if is_file(path) else {}
        if isinstance(tool, dict) and "placebench" in tool:
            return path, tool["placebench"]
    return Path("pyproject.toml"), {}


def parse_plan(document: Mapping[str, Any], *, source: Path, folder: Path) -> Experiment:
    """Return the plan that was published in *source*; its paths start in *folder*. Raises as `read_plan` does."""
    given: _File = check(document, _File, str(source), at="plan", error=PlacebenchError)
    made = _experiment(source, given, name="reproduce", at="plan.variants")
    return replace(made, folder=folder, tables=replace(made.tables, folder=folder))


def _experiment(path: Path, given: _File, *, name: str, at: str = "variants") -> Experiment:
    names = tuple(given.variants)
    if twice := [each for each in names if names.count(each) > 1]:
        raise PlacebenchError(
            f"{path}: variants names {twice[0]!r} twice: `placebench compare` compares a variant with itself"
        )
    for each in given.trials:
        _check_trial(path, each, names)
    own = [_own(**to_builtins(each)) for each in given.trials]
    tables = check_tables(given.variants, str(path), at=at) if isinstance(given.variants, dict) else {}
    return Experiment(
        name=given.name or name,
        variants=names,
        trials=tuple(own) or tuple(_own(names[0], variant) for variant in names[1:]),
        tables=VariantTables(tables, given.app, path.parent),
        workload=given,
        folder=path.parent,
        source=str(path),
        **{key: getattr(given, key) for key in (*_DATA, *OWN_DATA)},
    )


def _check_trial(path: Path, trial: _Trial, variants: Sequence[str]) -> None:
    for key, variant in (("baseline", trial.baseline), ("variant", trial.variant)):
        if variant not in variants:
            raise PlacebenchError(f"{path}: {key} of a trial is {variant!r}, expected one of {', '.join(variants)}")
    if trial.shows_in and trial.shows_in not in _METRICS:
        raise PlacebenchError(f"{path}: shows_in is {trial.shows_in!r}, expected one of {', '.join(_METRICS)}")


def _own(baseline: str, variant: str, *, kind: str = "own", **said: str) -> Trial:
    """A trial of a file, explained by the catalogue where its variants differ in just one step of it."""
    said = {"name": variant, **said}
    steps = differing(baseline, variant)
    return (
        Trial.of(steps[0], kind, baseline, variant, **said)
        if len(steps) == 1
        else Trial(kind=kind, baseline=baseline, variant=variant, **said)
    )
