"""The options of studies of an application, their axes, and the session that measures its cells."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from placebench import limits
from placebench.commands import options
from placebench.commands.output import say
from placebench.commands.runs import first_given, measure_study, refuse_unused_server, run_folder, say_impossible
from placebench.errors import UsageError

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from placebench.compare.what.data_setup import DatabaseKind
    from placebench.compare.what.trials import Experiment
    from placebench.http_session import Request
    from placebench.study.application_matrix import ApplicationMatrix
    from placebench.study.application_rig import Cell, CellSetup
    from placebench.study.session import Point, StudySpec

_SERVERS: Final = ("uwsgi", "gunicorn", "uvicorn", "hypercorn", "granian", "mod_wsgi")
_NOT_HERE: Final = {
    "trials": "placebench compare",
    "control": "placebench compare",
    "bound_s": "placebench compare",
    "routes": "placebench compare",
    "topology": "placebench lab study matrix",
    "trees": "placebench lab study matrix",
    "utilization": "placebench lab study matrix",
}
"""Keys of a plan that do not apply, each with the command where it does."""


@dataclass(frozen=True)
class ApplicationOptions:
    """The options that say which application a study measures, with which values of its axes."""

    requests: options.RequestOptions
    axis: tuple[str, ...] | None = None
    control: tuple[str, ...] | None = None
    plan: Path | None = None
    setup: str | None = None
    template_db: str | None = None
    database: "DatabaseKind | None" = None
    python: Path | None = None
    seed: int | None = None

    @property
    def overriding(self) -> dict[str, Any]:
        """The given options that override a key of the plan, by the name of the key."""
        given = {name: getattr(self, name, None) for name in ("setup", "template_db", "database", "users", "rate")}
        return {name: value for name, value in given.items() if value is not None}


def add_control(parser: ArgumentParser) -> None:
    """Add --control, the values that a combination of a study is compared with."""
    parser.add_argument(
        "--control",
        type=options.text,
        action="append",
        metavar="NAME=V",
        help="what a combination is compared with: itself with this value; repeatable (default: the first value of the "
        "first axis that has several)",
    )


def add_application(parser: ArgumentParser) -> "_ArgumentGroup":
    """Add the options of a plan's application, except for those of its load; return their group."""
    application = parser.add_argument_group("an application")
    options.add_plan(application)
    options.add_requests(parser, default="the plan's")
    options.add_login(parser)
    options.add_own_application(application)
    return application


def measure_saturation(
    given: options.RunCommandOptions,
    application: ApplicationOptions,
    *,
    slo: str | None,
    users: Sequence[int] = (),
    step_s: float,
    replicates: int | None,
    name: str,
) -> int:
    """Measure the capacity of an application's cells at an objective, or their throughput with numbers of users."""
    from placebench.compare.load.load_steps import parse_objective
    from placebench.study.saturation import ApplicationSaturation

    matrix, plan = read_application(application, "a study of saturation", without=("users", "rate", "rounds"))
    study = ApplicationSaturation(
        matrix=matrix,
        objective=parse_objective(slo) if slo else None,
        users=tuple(sorted(set(users))),
        step_s=step_s,
        say=say,
    )
    repeats = first_given(replicates, plan.replicates, default=options.STUDY_REPLICATES)
    return measure_cells(given, matrix, partial(study.spec, repeats=max(1, repeats)), name=name)


def read_application(
    given: ApplicationOptions, what: str, *, without: Sequence[str] = ()
) -> "tuple[ApplicationMatrix, Experiment]":
    """Return the axes of the plan's application, and the plan; raise UsageError if a key or an axis does not apply.

    what: the study, for error messages. without: axes and keys of the plan that it does not have.
    """
    from placebench.compare.what.trials import plan_names, read_plan
    from placebench.study.application_matrix import APP, AXES, RESERVED, ApplicationMatrix
    from placebench.study.axes import read_axes

    plan = read_plan(given.plan)
    for name, where in _NOT_HERE.items():
        if name == "trials" and not plan.has_trials:
            continue
        if getattr(plan, name, None) is not None or (name == "routes" and plan.workload.routes):
            raise UsageError(f"{plan.source}: {name} does not apply to {what}: {where} takes it")
    for name in without:
        if getattr(plan, name, None) is not None:
            say(f"{plan.source}: {name} does not apply to {what}, which makes loads of its own")
    overriding = given.overriding
    texts = [*(str(value) for value in overriding.values()), *given.requests.login]
    texts += [text for _, text in given.requests.requests_given]
    known = plan_names(given.plan).union(*(re.findall(r"\{([\w-]+)\}", text) for text in texts))
    read = partial(_read_values, is_command="server" in known)
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in read_axes(given.axis or ()).items():
        if name in RESERVED:
            raise UsageError(f"--axis {name}: {{{name}}} has a meaning of its own in a plan: choose another name")
        if name in without and name in AXES:
            raise UsageError(f"--axis {name} does not apply to {what}: placebench study matrix has it")
        if name not in AXES and name not in known:
            raise UsageError(
                f"--axis {name}: {plan.source} has no {{{name}}}, which the values are to replace; axes of every "
                f"application are {', '.join(axis for axis in AXES if axis not in without)}"
            )
        axes[name] = read(f"--axis {name}", name, values)
    if "variant" not in axes:
        if not plan.variants and plan.tables.app is None:
            raise UsageError(f"{plan.source} has no table [tool.placebench.app] with an application to measure")
        axes["variant"] = plan.variants or (APP,)
    said = [*overriding, *(["python"] if given.python else [])]
    if twice := [name for name in said if name in axes]:
        raise UsageError(f"--{twice[0].replace('_', '-')} and --axis {twice[0]}: leave one of them out")
    matrix = ApplicationMatrix(
        plan=given.plan,
        axes=axes,
        control=read_control(given.control, axes, read),
        given={**overriding, **dict.fromkeys(without)},
        requests=partial(_requests, given.requests),
        python=given.python,
        seed=first_given(given.seed, plan.seed, default=options.SEED),
    )
    return matrix, plan


def measure_cells(
    given: options.RunCommandOptions,
    matrix: "ApplicationMatrix",
    spec: "Callable[[Mapping[str, Cell], Sequence[tuple[Point, str]]], StudySpec[CellSetup]]",
    *,
    name: str,
) -> int:
    """Measure the cells of an application in a run folder named after *name*; return the exit code."""
    from placebench.runtime.postgres import open_server
    from placebench.study.application_rig import CellSession

    cells, impossible = matrix.read_cells()
    say_impossible(impossible)
    made = spec(cells, impossible)
    databases = [cell.data.database for cell in cells.values()]
    refuse_unused_server(given.run, databases)
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(given.run, name))
        server = stack.enter_context(open_server(given.run.server)) if "postgresql" in databases else None
        return measure_study(given, CellSession(made, next(iter(cells.values())).data, folder, server), folder)


def _requests(given: options.RequestOptions, values: Mapping[str, str]) -> "tuple[list[Request], list[Request]]":
    """Return the requests of the command line and of its login, with the values filled in."""
    from placebench.compare.what.trials import fill_in

    filled = replace(
        given,
        requests_given=tuple((option, fill_in(text, values)) for option, text in given.requests_given),
        login=tuple(fill_in(text, values) for text in given.login),
    )
    return filled.requests(), filled.logins()


def _read_values(option: str, axis: str, values: Sequence[str], *, is_command: bool) -> tuple[Any, ...]:
    """Return the values of an application's axis; raises UsageError, with the *option*, for one that it cannot have."""
    kinds: dict[str, Callable[[str], Any]] = {
        "processes": options.worker_count,
        "threads": options.worker_count,
        "users": options.whole(1, limits.COMPARED_USERS),
        "rate": options.number(0, limits.COMPARED_RATE_PER_S, above=True),
    }
    choices = {"database": options.DATABASES, **({} if is_command else {"server": _SERVERS})}
    try:
        found = tuple(map(kinds.get(axis, options.text), values))
    except ArgumentTypeError as error:
        raise UsageError(f"{option}: {error}") from error
    if strange := [value for value in found if axis in choices and value not in choices[axis]]:
        raise UsageError(f"{option}: expected {', '.join(choices[axis])}, saw {strange[0]!r}")
    return found


def read_control(
    given: Sequence[str] | None,
    axes: Mapping[str, Sequence[Any]],
    read: Callable[[str, str, Sequence[str]], tuple[Any, ...]] = lambda _option, _axis, values: tuple(values),
) -> dict[str, Any]:
    """Return the values of the control: those given, or the first value of the first axis that has several.

    read: returns the values that texts stand for, given an option for error messages, an axis and the texts.
    """
    control: dict[str, Any] = {}
    first = next((axis for axis, values in axes.items() if len(values) > 1), next(iter(axes)))
    for text in given or (f"{first}={axes[first][0]}",):
        name, _, value = text.partition("=")
        if name not in axes or name in control or not value:
            raise UsageError(f"--control {text!r}: expected NAME=V with an axis ({', '.join(axes)}), each once")
        (control[name],) = read(f"--control {text!r}", name, [value])
    return control
