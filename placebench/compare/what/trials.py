"""The plan of an experiment: pairs of variants by name, read from a TOML file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs, to_builtins

from placebench import limits
from placebench.compare.keep.documents import Trial
from placebench.compare.what.data_setup import DatabaseKind, OwnData, kind_of_template
from placebench.compare.what.variants import VariantTable, VariantTables, check_tables, known_change, own_python
from placebench.compare.what.workload import WorkloadKeys
from placebench.decoding import Seed, check, read_toml
from placebench.errors import PlacebenchError, UsageError
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
    has_trials: bool = False
    """Whether the plan itself names pairs of variants."""


_METRICS = (*METRICS, *COUNTED)
_NAME = re.compile(r"\{([A-Za-z_][\w-]*)\}")
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


def read_plan(path: Path | None, fill: Mapping[str, str] = {}) -> Experiment:
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

    fill: values by name; each replaces {NAME} in the plan's texts. Raises PlacebenchError that names the file and the
    key.
    """
    name, at = ("compare", "tool.placebench") if path is None else (path.stem, "")
    path, document = _read_document(path)
    given: _File = check(fill_in(document, fill), _File, str(path), at=at, error=PlacebenchError)
    return _experiment(path, given, name=name, at=".".join(filter(None, (at, "variants"))))


def plan_names(path: Path | None) -> set[str]:
    """Return the names in braces in the plan's texts, such as those that `read_plan` fills in."""
    return set(_NAME.findall(json.dumps(_read_document(path)[1], default=str)))


def fill_in(document: Any, values: Mapping[str, str]) -> Any:
    """Return the document with {NAME} in its texts replaced; braces in a value are not replaced in turn."""
    if isinstance(document, str):
        return _NAME.sub(lambda found: values.get(found[1], found[0]), document)
    if isinstance(document, dict):
        return {key: fill_in(value, values) for key, value in document.items()}
    return [fill_in(each, values) for each in document] if isinstance(document, list) else document


def own_data(plan: Experiment, *, seed: int) -> OwnData:
    """Return the data that the plan's own keys describe, for an application of the user's own.

    Raises PlacebenchError for a template that cannot be copied.
    """
    app, folder = plan.tables.app, plan.tables.folder
    kind = kind_of_template(plan.template_db) if plan.template_db else "postgresql"
    if plan.template_db and plan.database not in (None, kind):
        raise PlacebenchError(
            f'template_db {plan.template_db!r} with database = "{plan.database}": a template is copied to a database '
            f"of its own kind, here {kind}; leave one of them out, or fill the database by setup"
        )
    return OwnData(
        seed=seed,
        database=plan.database or kind,
        command=plan.setup or "",
        template=plan.template_db or "",
        folder=folder,
        python=own_python(app, folder) if app else None,
        variables=app.env if app else {},
        may_change=plan.may_change,
        superuser=plan.superuser,
    )


def with_python(plan: Experiment, python: Path, *, replaces: bool = False) -> Experiment:
    """Return the plan with *python* for each application that does not name a Python itself.

    replaces: whether it takes the place of a Python that the plan names. Raises UsageError without an application.
    """

    def named(table: VariantTable) -> VariantTable:
        is_own = table.app or table.command
        if is_own and (replaces or not table.python):
            return structs.replace(table, python=str(python.absolute()))
        return table

    tables = plan.tables
    app = named(tables.app) if tables.app else None
    variants = {name: named(table) for name, table in tables.variants.items()}
    if not any(each.app or each.command for each in (*tables.variants.values(), *([tables.app] if tables.app else []))):
        raise UsageError(
            "--python is for an application of your own: the plan has no table app, and no variant with one"
        )
    return replace(plan, tables=replace(tables, app=app, variants=variants))


def _read_document(path: Path | None) -> tuple[Path, Any]:
    """Return the plan's file and its document: that of the file, or of the nearest pyproject.toml for None."""
    if path is None:
        return _find_table()
    if not is_file(path):
        raise PlacebenchError(f"no plan {path}: expected a .toml file")
    return path, read_toml(path, dict[str, Any], error=PlacebenchError)


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


def _experiment(path: Path, given: _File, *, name: str, at: str) -> Experiment:
    names = tuple(given.variants)
    if twice := [each for each in names if names.count(each) > 1]:
        raise PlacebenchError(
            f"{path}: variants names {twice[0]!r} twice: leave one out; to compare a variant with itself, name it "
            "twice after `placebench compare`"
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
        has_trials=bool(own),
        **{key: getattr(given, key) for key in (*_DATA, *OWN_DATA)},
    )


def _own_trial(baseline: str, variant: str, *, kind: str = "own", **said: str) -> Trial:
    """Return a trial of a plan; missing texts are filled in if the one difference of its variants is known."""
    change = known_change(baseline, variant)
    known: dict[str, Any] = (
        {"why": change.why, "shows_on": change.shows_on, "shows_in": change.shows_in} if change else {}
    )
    return Trial(kind=kind, baseline=baseline, variant=variant, **{"name": variant, **known, **said})
