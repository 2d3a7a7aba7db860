"""Matrices as files: a job over every combination of the values of some axes, and the control they are held against.

The door is `matrix_named`; `names` are those that placebench brings.

    title = "What does the profiler cost?"
    repeats = 5                                  # also: topology, request, seed
    [axes]
    service = ["naive", "tuned"]                 # every axis in AXES that is left out has its one usual value
    profiler = ["light", "full"]
    [control]                                    # what the values are exchanged for
    profiler = "off"
    [[jobs]]
    requests = 16
    trees = 100
    [quick.axes]                                 # what --quick takes instead, and [[quick.jobs]]
    service = ["tuned"]
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from placebench.errors import PlacebenchError

THIS = "this"
INSTALLED = "installed"
AXES: Mapping[str, Any] = {
    "service": "tuned",
    "server": "uwsgi",
    "client": "http",
    "database": "postgresql",
    "python": THIS,
    "version": INSTALLED,
    "sqlalchemy": INSTALLED,
    "driver": INSTALLED,
    "users": 1,
    "threads": 1,
    "processes": 1,
    "profiler": "off",
}
"""What can be varied, each with its usual value."""
VERSIONS = ("version", "sqlalchemy", "driver")
"""Axes of versions: of the service, of SQLAlchemy, of the driver; `installed` is the one of the environment."""
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "server": ("uwsgi", "gunicorn", "wsgiref", "none"),
    "client": ("http", "in-process"),
    "database": ("postgresql", "sqlite", "none"),
    "profiler": ("off", "light", "full"),
}
_KEYS = {"title": str, "topology": str, "request": str, "seed": int, "repeats": int}
_TABLES = ("axes", "control", "jobs", "quick")
_HERE = Path(__file__).parent

Point = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """So many requests, each answered from so many trees."""

    requests: int
    trees: int


@dataclass(frozen=True)
class Matrix:
    """What a file asks; None where the command line or the topology decides."""

    name: str
    title: str
    axes: Mapping[str, Sequence[Any]]
    control: Mapping[str, Any]
    jobs: Sequence[Job]
    topology: str | None = None
    request: str | None = None
    seed: int | None = None
    repeats: int | None = None
    folder: Path = field(default=_HERE, compare=False)
    """Where the file lies; a relative python starts there."""

    @property
    def combinations(self) -> list[Point]:
        """Every combination for every job; an axis that only the control names has its usual value."""
        usual = {axis: AXES[axis] for axis in self.control}
        return [
            {**usual, **dict(zip(self.axes, values, strict=True)), "requests": job.requests, "trees": job.trees}
            for job, values in product(self.jobs, product(*self.axes.values()))
        ]

    @property
    def points(self) -> list[Point]:
        """The combinations, and each control after the first that needs it; nothing twice."""
        found: list[Point] = []
        for point in self.combinations:
            found.extend(each for each in (point, {**point, **self.control}) if each not in found)
        return found

    def scaled(self, trees: int | None) -> "Matrix":
        """The same with *trees* trees in the largest job, the others in proportion; None changes nothing."""
        if trees is None:
            return self
        most = max(job.trees for job in self.jobs)
        jobs = [Job(job.requests, max(1, round(job.trees * trees / most))) for job in self.jobs]
        return Matrix(**{**vars(self), "jobs": jobs})


def names() -> list[str]:
    """The matrices that placebench brings."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def matrix_named(name: str, *, quick: bool = False) -> Matrix:
    """The matrix of this name or in this file; raises PlacebenchError that names the file and the key."""
    path = _HERE / f"{name}.toml" if name in names() else Path(name)
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        known = ", ".join(names())
        raise PlacebenchError(f"no matrix {name!r} ({error.strerror}): expected {known} or a .toml file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlacebenchError(f"{path} is not TOML: {error}") from error
    _only(path, given, [*_KEYS, *_TABLES])
    shorter = _table(path, given, "quick")
    _only(path, shorter, ["axes", "jobs"], inside="quick")
    axes = _table(path, given, "axes")
    if quick:
        axes, given = {**axes, **_table(path, shorter, "axes")}, {**given, **shorter}
    return Matrix(
        name=path.stem,
        title=given.get("title", path.stem),
        axes=dict(_axes(path, axes)),
        control=dict(_control(path, _table(path, given, "control"))),
        jobs=[_job(path, each) for each in _jobs(path, given)],
        folder=path.resolve().parent,
        **{key: _typed(path, key, given.get(key), kind) for key, kind in _KEYS.items() if key != "title"},
    )


def _axes(path: Path, axes: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    _only(path, axes, list(AXES), inside="axes")
    for axis, values in axes.items():
        if not isinstance(values, list) or not values:
            raise PlacebenchError(f"{path}: {axis} is {values!r}, expected a list of values")
        for value in values:
            _fits(path, axis, value)
        yield axis, list(dict.fromkeys(values))


def _control(path: Path, control: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    _only(path, control, list(AXES), inside="control")
    for axis, value in control.items():
        _fits(path, axis, value)
        yield axis, value


def _jobs(path: Path, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    jobs = given.get("jobs")
    if not isinstance(jobs, list) or not jobs or not all(isinstance(each, dict) for each in jobs):
        raise PlacebenchError(f"{path}: no jobs, expected [[jobs]] with requests and trees")
    return jobs


def _job(path: Path, given: Mapping[str, Any]) -> Job:
    _only(path, given, ["requests", "trees"], inside="jobs")
    for key in ("requests", "trees"):
        _positive(path, f"{key} of a job", given.get(key))
    return Job(**given)


def _fits(path: Path, axis: str, value: Any) -> None:
    if isinstance(AXES[axis], int):
        _positive(path, axis, value)
    elif not isinstance(value, str):
        raise PlacebenchError(f"{path}: {axis} holds {value!r}, expected texts")
    elif axis in _CHOICES and value not in _CHOICES[axis]:
        raise PlacebenchError(f"{path}: {axis} holds {value!r}, expected one of {', '.join(_CHOICES[axis])}")


def _positive(path: Path, what: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PlacebenchError(f"{path}: {what} is {value!r}, expected a whole number from 1")


def _typed(path: Path, key: str, value: Any, kind: type) -> Any:
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        expected = "a whole number" if kind is int else "a text"
        raise PlacebenchError(f"{path}: {key} is {value!r}, expected {expected}")
    return value


def _table(path: Path, given: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = given.get(key, {})
    if not isinstance(table, dict):
        raise PlacebenchError(f"{path}: {key} is {table!r}, expected a table [{key}]")
    return table


def _only(path: Path, given: Mapping[str, Any], known: list[str], *, inside: str = "") -> None:
    for key in given:
        if key not in known:
            where = f" in [{inside}]" if inside else ""
            raise PlacebenchError(f"{path}: unknown key {key!r}{where}, expected one of {', '.join(known)}")
