"""The plan of an experiment: pairs of variants by name, read from a TOML file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, to_builtins

from placebench import limits
from placebench.compare.keep.documents import Trial
from placebench.compare.what.data_setup import DatabaseKind
from placebench.compare.what.variants import VariantTable, VariantTables, check_tables, known_change
from placebench.compare.what.workload import WorkloadKeys
from placebench.decoding import Seed, check, read_toml
from placebench.errors import PlacebenchError
from placebench.paths import is_file
from placebench.stats import COUNTED, METRICS


@dataclass(frozen=True)
class Experiment:
    """A named set of trials; a field is None if the command line or the topology decides its value."""

    name: str
    variants: tuple[str, ...]
    trials: tuple[Trial, ...]
    workload: WorkloadKeys = WorkloadKeys()  # noqa: RUF009  frozen
    """The keys that say which requests are sent."""
    topology: str | None = None
    trees: int | None = None
    seed: int | None = None
    replicates: int | None = None
    rounds: int | None = None
    users: int | None = None
    """The number of users that send requests at the same time."""
    rate: float | None = None
    """The number of requests per second that arrive on a schedule."""
    utilization: float | None = None
    bound_s: float | None = None
    """What a slow request exceeds, in seconds."""
    warmup: int | None = None
    """The least number of requests to each process before anything is timed."""
    control: str | None = None
    """What the run must find in a copy of the baseline, as `placebench.compare.keep.control.Control` reads it."""
    setup: str | None = None
    """A shell command that fills the database from which each variant gets a copy."""
    template_db: str | None = None
    """URL of a database that is copied first; it is only read."""
    database: DatabaseKind | None = None
    may_change: tuple[str, ...] = ()
    """Tables of the user's own data that requests may change."""
    superuser: bool = False
    """Whether the application connects to its database as a superuser."""
    tables: VariantTables = field(default_factory=VariantTables)
    """The plan's tables of variants, which say what the variants' names mean."""
    folder: Path = Path()
    """The folder of the plan file."""
    source: str = "the command line"
    """The origin of the plan, for error messages."""


_METRICS = (*METRICS, *COUNTED)
_DATA = (
    "topology",
    "trees",
    "seed",
    "replicates",
    "rounds",
    "users",
    "rate",
    "utilization",
    "control",
    "bound_s",
    "warmup",
)
OWN_DATA = ("setup", "template_db", "database", "may_change", "superuser")


class _Trial(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One table of [[trials]]; missing keys are filled in if placebench knows the purpose of the change."""

    baseline: str
    variant: str
    name: str = ""
    kind: str = "own"
    why: str = ""
    shows_on: str = ""
    shows_in: str = ""


class _File(WorkloadKeys, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The keys of a plan file."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]+$", max_length=100)] | None = None
    variants: list[str] | dict[str, Any] = msgspec.field(default_factory=list)
    """Names of variants, or tables by name, which are checked separately."""
    app: VariantTable | None = None
    trials: list[_Trial] = msgspec.field(default_factory=list)
    topology: str | None = None
    trees: Annotated[int, Meta(ge=0, le=limits.TREES)] | None = None
    seed: Seed | None = None
    replicates: Annotated[int, Meta(ge=0, le=limits.REPLICATES)] | None = None
    rounds: Annotated[int, Meta(ge=1, le=limits.ROUNDS)] | None = None
    users: Annotated[int, Meta(ge=1, le=limits.COMPARED_USERS)] | None = None
    rate: Annotated[float, Meta(gt=0, le=limits.COMPARED_RATE_PER_S)] | None = None
    utilization: Annotated[float, Meta(ge=0, le=1)] | None = None
    control: str | None = None
    bound_s: Annotated[float, Meta(gt=0, le=limits.COMPARED_BOUND_S)] | None = None
    warmup: Annotated[int, Meta(ge=0, le=limits.REQUESTS)] | None = None
    setup: str | None = None
    template_db: str | None = None
    database: DatabaseKind | None = None
    may_change: tuple[str, ...] = ()
    superuser: bool = False


def read_plan(path: Path | None) -> Experiment:
    """Return the plan in a file, or in `[tool.placebench]` of the pyproject.toml in this folder or the nearest parent.

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
    """Return the nearest pyproject.toml with a table `[tool.placebench]`, and the table; else the file here and {}."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = Path("pyproject.toml") if folder == here else folder / "pyproject.toml"
        tool = read_toml(path, dict[str, Any], error=PlacebenchError).get("tool", {}) if is_file(path) else {}
        if isinstance(tool, dict) and "placebench" in tool:
            return path, tool["placebench"]
    return Path("pyproject.toml"), {}


def parse_plan(document: Mapping[str, Any], *, source: Path, folder: Path) -> Experiment:
    """Return the plan published in *source*; its paths are relative to *folder*. Raises as `read_plan` does."""
    given: _File = check(document, _File, str(source), at="plan", error=PlacebenchError)
    made = _experiment(source, given, name="reproduce", at="plan.variants")
    return replace(made, folder=folder, tables=replace(made.tables, folder=folder))


def _experiment(path: Path, given: _File, *, name: str, at: str = "variants") -> Experiment:
    names = tuple(given.variants)
    if twice := [each for each in names if names.count(each) > 1]:
        raise PlacebenchError(
            f"{path}: variants names {twice[0]!r} twice: `placebench compare` compares a variant with itself"
        )
    for trial in given.trials:
        for key, variant in (("baseline", trial.baseline), ("variant", trial.variant)):
            if variant not in names:
                raise PlacebenchError(f"{path}: {key} of a trial is {variant!r}, expected one of {', '.join(names)}")
        if trial.shows_in and trial.shows_in not in _METRICS:
            raise PlacebenchError(f"{path}: shows_in is {trial.shows_in!r}, expected one of {', '.join(_METRICS)}")
    own = [_own_trial(**to_builtins(each)) for each in given.trials]
    tables = check_tables(given.variants, str(path), at=at) if isinstance(given.variants, dict) else {}
    return Experiment(
        name=given.name or name,
        variants=names,
        trials=tuple(own) or tuple(_own_trial(names[0], variant) for variant in names[1:]),
        tables=VariantTables(tables, given.app, path.parent),
        workload=given,
        folder=path.parent,
        source=str(path),
        **{key: getattr(given, key) for key in (*_DATA, *OWN_DATA)},
    )


def _own_trial(baseline: str, variant: str, *, kind: str = "own", **said: str) -> Trial:
    """Return a trial of a plan; missing texts are filled in if the one difference of its variants is known."""
    change = known_change(baseline, variant)
    known: dict[str, Any] = (
        {"why": change.why, "shows_on": change.shows_on, "shows_in": change.shows_in} if change else {}
    )
    return Trial(kind=kind, baseline=baseline, variant=variant, **{"name": variant, **known, **said})
