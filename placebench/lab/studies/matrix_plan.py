"""Matrices as files: jobs over all combinations of the values of some axes, compared with a control.

The main function is `matrix_named`; `names` lists the matrices that placebench includes.

    title = "What does the profiler cost?"
    repeats = 5                                  # also: topology, request, seed
    [axes]
    service = ["naive", "tuned"]                 # an axis of AXES that is left out has its default value
    profiler = ["light", "full"]
    [control]                                    # the combination that each one is compared with
    profiler = "off"
    [[jobs]]
    requests = 16
    trees = 100
    [quick.axes]                                 # used by --preset quick instead; also [[quick.jobs]]
    service = ["tuned"]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from placebench import limits
from placebench.addresses import REQUEST
from placebench.compare.what.pythons import find_pythons
from placebench.compare.what.variants import VariantTables, check_tables
from placebench.decoding import Seed, check, read_toml
from placebench.errors import PlacebenchError
from placebench.paths import is_file

THIS = "this"
EVERY = "every"
"""Value of the axis python: each Python on this machine."""
INSTALLED = "installed"
_Workers = Annotated[int, Meta(ge=1, le=limits.WORKERS)]
_HERE = Path(__file__).with_name("matrices")

Point = dict[str, Any]


class Stack(Struct, forbid_unknown_fields=True):
    """The axes that can be varied: the type and the default value of each."""

    service: str = "tuned"
    server: Literal["uwsgi", "gunicorn", "mod_wsgi", "granian", "uvicorn", "wsgiref", "none"] = "uwsgi"
    client: Literal["http", "in-process"] = "http"
    database: Literal["postgresql", "mariadb", "sqlite", "none"] = "postgresql"
    python: str = THIS
    version: str = INSTALLED
    sqlalchemy: str = INSTALLED
    driver: str = INSTALLED
    users: _Workers = 1
    threads: _Workers = 1
    processes: _Workers = 1
    latency_ms: Annotated[float, Meta(ge=0, le=limits.LATENCY_MS)] = 0
    """Latency of the emulated network between service and database."""
    proxies: Annotated[int, Meta(ge=1, le=limits.PROXIES)] = 1
    """Number of proxies of that network."""
    profiler: Literal["off", "light", "full"] = "off"


AXES: Mapping[str, Any] = {axis.name: axis.default for axis in structs.fields(Stack)}


class Job(Struct, frozen=True, forbid_unknown_fields=True):
    """A number of requests on a database with a number of trees."""

    requests: Annotated[int, Meta(ge=1, le=limits.REQUESTS)]
    trees: Annotated[int, Meta(ge=1, le=limits.TREES)]


@dataclass(frozen=True)
class Matrix:
    """A matrix as its file defines it; a field that is None is decided by the command line or the topology."""

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
    """Folder of the file; relative paths of Pythons start there."""
    tables: VariantTables = field(default_factory=VariantTables)
    """The variant tables for names on the axis service."""
    columns: str | None = None
    """The axis whose values become the columns of a pivot table, next to the control."""
    constraints: Mapping[str, str] = field(default_factory=dict)
    """Files of packages to install with a version of the service, by version; paths are relative to `folder`."""

    @property
    def combinations(self) -> list[Point]:
        """All combinations for every job; an axis that only the control names has its default value."""
        usual = {axis: AXES[axis] for axis in self.control}
        return [
            {**usual, **dict(zip(self.axes, values, strict=True)), "requests": job.requests, "trees": job.trees}
            for job, values in product(self.jobs, product(*self.axes.values()))
        ]

    @property
    def points(self) -> list[Point]:
        """The combinations, each control after the first combination that needs it, without duplicates."""
        found: list[Point] = []
        for point in self.combinations:
            found.extend(each for each in (point, {**point, **self.control}) if each not in found)
        return found

    def scaled(self, trees: int | None) -> "Matrix":
        """Return the matrix with *trees* trees in the largest job, the others in proportion; None changes nothing."""
        if trees is None:
            return self
        most = max(job.trees for job in self.jobs)
        jobs = [Job(job.requests, max(1, round(job.trees * trees / most))) for job in self.jobs]
        return Matrix(**{**vars(self), "jobs": jobs})


_AXES: Any = defstruct(
    "axes",
    [
        (axis.name, Annotated[list[axis.type], Meta(min_length=1)] | UnsetType, UNSET)  # type: ignore[name-defined]
        for axis in structs.fields(Stack)
    ],
    forbid_unknown_fields=True,
)
_JOBS = Annotated[list[Job], Meta(min_length=1)]
_QUICK: Any = defstruct(
    "quick", [("axes", _AXES | UnsetType, UNSET), ("jobs", _JOBS | UnsetType, UNSET)], forbid_unknown_fields=True
)
_FILE: Any = defstruct(
    "matrix",
    [
        ("title", str | UnsetType, UNSET),
        ("topology", str | UnsetType, UNSET),
        ("request", Annotated[str, Meta(pattern=f"^{REQUEST}$")] | UnsetType, UNSET),
        ("seed", Seed | UnsetType, UNSET),
        ("repeats", Annotated[int, Meta(ge=1, le=limits.REPEATS)] | UnsetType, UNSET),
        ("axes", _AXES | UnsetType, UNSET),
        ("control", Stack | UnsetType, UNSET),
        ("jobs", _JOBS),
        ("columns", Literal[tuple(AXES)] | UnsetType, UNSET),
        ("constraints", dict[str, str] | UnsetType, UNSET),
        ("quick", _QUICK | UnsetType, UNSET),
        ("variants", dict[str, Any] | UnsetType, UNSET),
    ],
    kw_only=True,
    forbid_unknown_fields=True,
)
"""A whole file; the document itself is used after validation, because its axes keep their order."""


def names() -> list[str]:
    """Return the names of the matrices that placebench includes."""
    return sorted(path.stem for path in _HERE.glob("*.toml"))


def matrix_named(name: str, *, quick: bool = False) -> Matrix:
    """Return the matrix with this name or in this file; raise PlacebenchError, with file and key, if not valid."""
    path = _HERE / f"{name}.toml" if name in names() else Path(name)
    if not is_file(path):
        raise PlacebenchError(f"no matrix {name!r}: expected {', '.join(names())} or a .toml file")
    given = read_toml(path, dict[str, Any], error=PlacebenchError)
    check(given, _FILE, str(path), error=PlacebenchError)
    tables = check_tables(given.get("variants", {}), str(path))
    if migrated := next((each for each, table in tables.items() if table.migrate), None):
        raise PlacebenchError(
            f"{path}: variants.{migrated}.migrate: a matrix serves every service on the data set of its jobs and "
            "migrates no database; leave the key out, or use placebench compare"
        )
    shorter = given.get("quick", {}) if quick else {}
    axes = {**given.get("axes", {}), **shorter.get("axes", {})}
    if EVERY in axes.get("python", ()):
        axes["python"] = [each for value in axes["python"] for each in (find_pythons() if value == EVERY else [value])]
    return Matrix(
        name=path.stem,
        title=given.get("title", path.stem),
        axes={axis: list(dict.fromkeys(values)) for axis, values in axes.items()},
        control=given.get("control", {}),
        columns=given.get("columns"),
        constraints=given.get("constraints", {}),
        jobs=[Job(**each) for each in shorter.get("jobs", given["jobs"])],
        folder=path.resolve().parent,
        tables=VariantTables(tables, folder=path.resolve().parent),
        **{key: given.get(key) for key in ("topology", "request", "seed", "repeats")},
    )
