"""The experiments that a command line can ask for: by the name of what is tried, or in a TOML file of one's own.

    ladder, ablation, or a name of the catalogue such as pruning
    ladder+driver:psycopg3,pg:jit=on   with a choice in every arm, or on a PostgreSQL with settings of its own
    FILE.toml                          name, arms, trials, request, topology, trees, seed, replicates, rounds, fill

The key piece is `experiment_named`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from placebench.compare import COUNTED, METRICS
from placebench.errors import PlacebenchError
from placebench.experiment.trials import Experiment, Trial, ablation_trials, ladder_trials, trials_of
from placebench.reference.variants import CATALOGUE, differing

_METRICS = (*METRICS, *COUNTED)
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SUFFIX = re.compile(r"([a-z]+)([+,].*)")
_STEPS = {each.name: each for each in CATALOGUE}


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
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        expected = f"ladder, ablation, a file, or one of {', '.join(_STEPS)}"
        raise PlacebenchError(f"no experiment {str(path)!r} ({error.strerror}): expected {expected}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlacebenchError(f"{path} is not TOML: {error}") from error
    _only_known(path, given, Experiment)
    arms, name = _texts(path, given, "arms"), given.get("name", path.stem)
    if not _NAME.fullmatch(name):
        raise PlacebenchError(f"{path}: name is {name!r}, expected a folder's name: letters, digits, _ . -")
    trials = tuple(_trial(path, each, arms) for each in _tables(path, given, "trials")) or tuple(
        _own(arms[0], arm) for arm in arms[1:]
    )
    return Experiment(**{**given, "name": name, "arms": arms, "trials": trials})


_TEXTS = ("name", "request", "topology", "kind", "baseline", "variant", "why", "shows_on", "shows_in")
_NUMBERS = ("trees", "seed", "replicates", "rounds")
_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(_TEXTS, (str, "a text")),
    **dict.fromkeys(_NUMBERS, (int, "a whole number")),
    "fill": ((int, float), "a number from 0 to 1"),
}


def _only_known(path: Path, given: Mapping[str, Any], kind: type) -> None:
    known = [each.name for each in fields(kind)]
    for key, value in given.items():
        if key not in known:
            raise PlacebenchError(f"{path}: unknown key {key!r}, expected one of {', '.join(known)}")
        wanted, expected = _TYPES.get(key, (object, ""))
        if not isinstance(value, wanted) or (expected and isinstance(value, bool)):
            raise PlacebenchError(f"{path}: {key} is {value!r}, expected {expected}")


def _texts(path: Path, given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = given.get(key)
    if not isinstance(texts, list) or len(texts) < 2 or not all(isinstance(each, str) for each in texts):
        raise PlacebenchError(f"{path}: {key} is {texts!r}, expected a list of two names or more")
    if twice := [each for each in texts if texts.count(each) > 1]:
        raise PlacebenchError(f"{path}: {key} names {twice[0]!r} twice: `placebench compare` holds a program to itself")
    return tuple(texts)


def _tables(path: Path, given: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    tables = given.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise PlacebenchError(f"{path}: {key} is {tables!r}, expected tables, as in [[{key}]]")
    return tables


def _trial(path: Path, given: Mapping[str, Any], arms: tuple[str, ...]) -> Trial:
    _only_known(path, given, Trial)
    for key in ("baseline", "variant"):
        if given.get(key) not in arms:
            raise PlacebenchError(f"{path}: {key} of a trial is {given.get(key)!r}, expected one of {', '.join(arms)}")
    if (metric := given.get("shows_in")) and metric not in _METRICS:
        raise PlacebenchError(f"{path}: shows_in is {metric!r}, expected one of {', '.join(_METRICS)}")
    return _own(**given)


def _own(baseline: str, variant: str, *, kind: str = "own", **said: str) -> Trial:
    """A trial of a file, explained by the catalogue where its arms differ in just one step of it."""
    said = {"name": variant, **said}
    steps = differing(baseline, variant)
    return (
        Trial.of(steps[0], kind, baseline, variant, **said)
        if len(steps) == 1
        else Trial(kind=kind, baseline=baseline, variant=variant, **said)
    )
