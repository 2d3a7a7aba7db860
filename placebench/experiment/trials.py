"""What an experiment tries: changes by name, each a pair of arms, all of them in the same replicates.

    ladder      each rung against the rung before it
    ablation    each optimization alone (naive+x against naive) and missed (tuned against tuned-x)
    FILE.toml   your own: name, arms, trials, request, topology, trees, seed, replicates, rounds, claims

    ladder+driver:psycopg3,pg:jit=on      every rung with a choice, or on a PostgreSQL with settings of its own

The key pieces are `ladder_trials`, `ablation_trials` and `read_experiment`.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from placebench.compare import COUNTED, METRICS
from placebench.errors import PlacebenchError
from placebench.reference.steps.optimization import Optimization
from placebench.reference.variants import OPTIMIZATIONS, differing, ladder

_METRICS = (*METRICS, *COUNTED)
_ROUNDS = 6
"""Fewer than a pair of arms has: eleven arms and more take their time."""
_SUFFIX = re.compile(r"([a-z]+)([+,].*)")


@dataclass(frozen=True)
class Trial:
    """One change: does *variant* do better than *baseline*?"""

    name: str
    """Of the optimization, or what the file calls it."""
    kind: str
    """rung, alone, missed or own."""
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
    claims: int | None = None


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


NAMED = {"ladder": ladder_trials, "ablation": ablation_trials}


def experiment_named(name: str) -> Experiment:
    """ladder or ablation, with what every arm shall have, or the one in a TOML file.

    Raises PlacebenchError for anything else.
    """
    found = _SUFFIX.fullmatch(name)
    base, suffix = found.groups() if found else (name, "")
    if base in NAMED:
        return _everywhere(NAMED[base](), suffix)
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
        raise PlacebenchError(
            f"no experiment {str(path)!r} ({error.strerror}): expected ladder, ablation or a file"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise PlacebenchError(f"{path} is not TOML: {error}") from error
    _only_known(path, given, Experiment)
    arms = _texts(path, given, "arms")
    trials = tuple(_trial(path, each, arms) for each in given.get("trials", ())) or tuple(
        _own(arms[0], arm) for arm in arms[1:]
    )
    return Experiment(**{**given, "name": given.get("name", path.stem), "arms": arms, "trials": trials})


_TYPES = {
    "name": str,
    "request": str,
    "topology": str,
    "trees": int,
    "seed": int,
    "replicates": int,
    "rounds": int,
    "claims": int,
}


def _only_known(path: Path, given: Mapping[str, Any], kind: type) -> None:
    known = [each.name for each in fields(kind)]
    for key, value in given.items():
        if key not in known:
            raise PlacebenchError(f"{path}: unknown key {key!r}, expected one of {', '.join(known)}")
        if key in _TYPES and (not isinstance(value, _TYPES[key]) or isinstance(value, bool)):
            expected = "a whole number" if _TYPES[key] is int else "a text"
            raise PlacebenchError(f"{path}: {key} is {value!r}, expected {expected}")


def _texts(path: Path, given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = given.get(key)
    if not isinstance(texts, list) or len(texts) < 2 or not all(isinstance(each, str) for each in texts):
        raise PlacebenchError(f"{path}: {key} is {texts!r}, expected a list of two names or more")
    return tuple(texts)


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
