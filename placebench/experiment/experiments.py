"""The experiments that a command line can ask for: by the name of what is tried, or in a TOML file of one's own.

    ladder, ablation, or a name of the catalogue such as pruning
    ladder+driver:psycopg3,pg:jit=on   with a choice in every arm, or on a PostgreSQL with settings of its own
    FILE.toml                          name, arms, trials, request, topology, trees, seed, replicates, rounds, fill

The key piece is `experiment_named`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import asdict

from placebench import limits
from placebench.compare import COUNTED, METRICS
from placebench.decoding import Seed, read_toml
from placebench.errors import PlacebenchError
from placebench.experiment.trials import Experiment, Trial, ablation_trials, ladder_trials, trials_of
from placebench.paths import is_file
from placebench.reference.variants import CATALOGUE, differing
from placebench.urls import REQUEST

_METRICS = (*METRICS, *COUNTED)
_SUFFIX = re.compile(r"([a-z]+)([+,].*)")
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


class _File(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole file."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)] | None = None
    arms: Annotated[list[str], Meta(min_length=2)]
    trials: list[_Trial] = []
    request: Annotated[str, Meta(pattern=f"^{REQUEST}$")] | None = None
    topology: str | None = None
    trees: Annotated[int, Meta(ge=0, le=limits.TREES)] | None = None
    seed: Seed | None = None
    replicates: Annotated[int, Meta(ge=0, le=limits.REPLICATES)] | None = None
    rounds: Annotated[int, Meta(ge=1, le=limits.ROUNDS)] | None = None
    fill: Annotated[float, Meta(ge=0, le=1)] | None = None


def experiment_named(name: str) -> Experiment:
    """ladder, ablation or a step of the catalogue, with what every arm shall have, or the one in a TOML file.

    Raises PlacebenchError for anything else.
    """
    found = _SUFFIX.fullmatch(name)
    base, suffix = found.groups() if found else (name, "")
    if base in _STEPS:
        return _everywhere(trials_of(_STEPS[base]), suffix)
    if made := {"ladder": ladder_trials, "ablation": ablation_trials}.get(base):
        return _everywhere(made(), suffix)
    return read_experiment(Path(name))


def _everywhere(made: Experiment, suffix: str) -> Experiment:
    """The same experiment with *suffix* at every arm: +step:way, or ,pg:NAME=VALUE."""
    trials = (replace(each, baseline=each.baseline + suffix, variant=each.variant + suffix) for each in made.trials)
    return replace(made, arms=tuple(arm + suffix for arm in made.arms), trials=tuple(trials))


def read_experiment(path: Path) -> Experiment:
    """The experiment in a TOML file; raises PlacebenchError that names the file and the key.

    name = "containers"
    arms = ["naive", "naive+sets"]
    trees = 500
    [[trials]]
    name = "sets"
    baseline = "naive"
    variant = "naive+sets"
    """
    if not is_file(path):
        expected = f"ladder, ablation, a file, or one of {', '.join(_STEPS)}"
        raise PlacebenchError(f"no experiment {str(path)!r}: expected {expected}")
    given = read_toml(path, _File, error=PlacebenchError)
    if twice := [each for each in given.arms if given.arms.count(each) > 1]:
        raise PlacebenchError(f"{path}: arms names {twice[0]!r} twice: `placebench compare` holds a program to itself")
    for each in given.trials:
        _check_trial(path, each, given.arms)
    own = [_own(**to_builtins(each)) for each in given.trials]
    trials = tuple(own) or tuple(_own(given.arms[0], arm) for arm in given.arms[1:])
    return Experiment(**{**asdict(given), "name": given.name or path.stem, "arms": tuple(given.arms), "trials": trials})


def _check_trial(path: Path, trial: _Trial, arms: Sequence[str]) -> None:
    for key, arm in (("baseline", trial.baseline), ("variant", trial.variant)):
        if arm not in arms:
            raise PlacebenchError(f"{path}: {key} of a trial is {arm!r}, expected one of {', '.join(arms)}")
    if trial.shows_in and trial.shows_in not in _METRICS:
        raise PlacebenchError(f"{path}: shows_in is {trial.shows_in!r}, expected one of {', '.join(_METRICS)}")


def _own(baseline: str, variant: str, *, kind: str = "own", **said: str) -> Trial:
    """A trial of a file, explained by the catalogue where its arms differ in just one step of it."""
    said = {"name": variant, **said}
    steps = differing(baseline, variant)
    return (
        Trial.of(steps[0], kind, baseline, variant, **said)
        if len(steps) == 1
        else Trial(kind=kind, baseline=baseline, variant=variant, **said)
    )
