"""What an experiment tries: changes by name, each a pair of arms, all of them in the same replicates.

    ladder      each rung against the rung before it
    ablation    each optimization alone (naive+x against naive) and missed (tuned against tuned-x)
    FILE.toml   your own: name, arms, trials, request, topology, trees, seed, replicates, rounds

The key pieces are `ladder_trials`, `ablation_trials` and `read_experiment`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from placebench.errors import PlacebenchError
from placebench.reference.variants import OPTIMIZATIONS, ladder


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


def ladder_trials() -> Experiment:
    """Every rung of the ladder against the one before it."""
    rungs = ladder()
    steps = zip(OPTIMIZATIONS, rungs[:-1], rungs[1:], strict=True)
    trials = tuple(Trial(each.name, "rung", before, after, each.why) for each, before, after in steps)
    return Experiment("ladder", rungs, trials)


def ablation_trials() -> Experiment:
    """Every optimization alone and missed, in the same replicates, so that what they do together can be seen."""
    alone = [Trial(each.name, "alone", "naive", f"naive+{each.name}", each.why) for each in OPTIMIZATIONS]
    missed = [Trial(each.name, "missed", f"tuned-{each.name}", "tuned", each.why) for each in OPTIMIZATIONS]
    arms = ("naive", "tuned", *(each.variant for each in alone), *(each.baseline for each in missed))
    return Experiment("ablation", arms, (*alone, *missed))


NAMED = {"ladder": ladder_trials, "ablation": ablation_trials}


def experiment_named(name: str) -> Experiment:
    """ladder, ablation, or the one in a TOML file; raises PlacebenchError for anything else."""
    if name in NAMED:
        return NAMED[name]()
    return read_experiment(Path(name))


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
        Trial(arm, "own", arms[0], arm) for arm in arms[1:]
    )
    return Experiment(**{**given, "name": given.get("name", path.stem), "arms": arms, "trials": trials})


_TYPES = {"name": str, "request": str, "topology": str, "trees": int, "seed": int, "replicates": int, "rounds": int}


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
    return Trial(**{"name": given["variant"], "kind": "own", **given})
