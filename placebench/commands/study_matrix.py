"""`placebench study matrix`: a command, or an application, with each combination of some values, against a control."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit_report, say, steps
from placebench.commands.runs import first_given, reported, run_folder
from placebench.commands.study import (
    FUNCTION,
    JOBS,
    MAX_JOBS,
    QUICK_JOBS,
    TIMEOUT_S,
    OwnStudyOptions,
    add_measurement,
    check_count,
    measure_work,
    read_work,
)
from placebench.errors import UsageError

if TYPE_CHECKING:
    from placebench.compare.what.data_setup import DatabaseKind
    from placebench.http_session import Request

_SERVERS: Final = ("uwsgi", "gunicorn", "uvicorn", "hypercorn", "granian")
_DATABASES: Final = ("postgresql", "sqlite", "none")
_OF_COMMANDS: Final = ("jobs", "timeout")
_OF_APPLICATIONS: Final = ("plan", "setup", "template_db", "database", "users", "rate", "python", "rounds")
_OVERRIDING: Final = ("setup", "template_db", "database", "users", "rate")
"""Options that override a key of the plan."""
_NOT_HERE: Final = {
    "trials": "placebench compare",
    "control": "placebench compare",
    "bound_s": "placebench compare",
    "topology": "placebench lab study matrix",
    "trees": "placebench lab study matrix",
    "utilization": "placebench lab study matrix",
}
"""Keys of a plan that do not apply, each with the command where it does."""


@dataclass(frozen=True)
class StudyMatrixOptions(OwnStudyOptions):
    """The options of `placebench study matrix`; work: the words of a command with {AXIS} in them, or none."""

    requests: options.RequestOptions
    work: tuple[str, ...]
    axis: tuple[str, ...]
    control: tuple[str, ...] | None
    jobs: int | None
    count: str | None
    plan: Path | None
    setup: str | None
    template_db: str | None
    database: "DatabaseKind | None"
    users: int | None
    rate: float | None
    python: Path | None
    rounds: int | None


def _configure(parser: ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [options] --axis NAME=V,V [-- COMMAND {{NAME}}]"
    parser.add_argument(
        "work",
        nargs="*",
        metavar="COMMAND",
        help="the command, with {NAME} for the value of an axis (default: the application of the plan)",
    )
    parser.add_argument(
        "--axis",
        type=options.text,
        action="append",
        required=True,
        metavar="NAME=V,V",
        help="an axis and its values; repeatable, every combination is measured. Of an application: variant, server, "
        "processes, threads, users, rate, python, database, setup, template_db, or a name in braces in the plan",
    )
    parser.add_argument(
        "--control",
        type=options.text,
        action="append",
        metavar="NAME=V",
        help="what a combination is compared with: itself with this value; repeatable (default: the first value of the "
        "first axis)",
    )
    parser.add_argument(
        "--jobs",
        type=options.whole(1, MAX_JOBS),
        metavar="N",
        help=f"runs of the command per measurement (default: {JOBS}; --preset quick: {QUICK_JOBS})",
    )
    parser.add_argument(
        "--count",
        type=options.text,
        metavar="PATTERN",
        help="count the results in what the command printed, or in a response, as placebench study workers does",
    )
    application = parser.add_argument_group("an application")
    options.add_plan(application)
    options.add_requests(parser, default="the plan's")
    options.add_login(parser)
    application.add_argument(
        "--setup",
        type=options.text,
        metavar="COMMAND",
        help="shell command that fills the database at $DATABASE_URL (default: the plan's)",
    )
    application.add_argument(
        "--template-db",
        type=options.text,
        metavar="URL",
        help="database, PostgreSQL or SQLite, that is copied and stays as it is (default: the plan's)",
    )
    application.add_argument(
        "--database",
        choices=_DATABASES,
        help="where the data lies (default: the plan's, or that of --template-db, or postgresql)",
    )
    application.add_argument(
        "--users",
        type=options.whole(1, limits.COMPARED_USERS),
        metavar="N",
        help="number of users that send requests at the same time (default: the plan's, or 1)",
    )
    application.add_argument(
        "--rate",
        type=options.number(0, limits.COMPARED_RATE_PER_S, above=True),
        metavar="R",
        help="requests that arrive per second, whatever the responses (default: the plan's)",
    )
    application.add_argument(
        "--python",
        type=options.path,
        metavar="PATH",
        help="Python of the environment that the application is in, for tables that name none (default: this one)",
    )
    options.add_rounds(parser, "the plan's, or 8; 2 with several users or a rate")
    options.add_server(parser)
    add_measurement(parser, quick=f"{QUICK_JOBS} runs of the command, or half as many rounds")


def _run(given: StudyMatrixOptions) -> int:
    """Measure each combination; those that cannot be measured are named."""
    if not given.work:
        return _measure_application(given)
    named = [f"--{name.replace('_', '-')}" for name in _OF_APPLICATIONS if getattr(given, name) is not None]
    named += ["--server"] if given.run.server else []
    named += ["--login"] if given.requests.login else []
    named += [option for option, _ in given.requests.requests_given]
    if named:
        raise UsageError(f"{named[0]} is for an application, and a command was given: leave one of the two away")
    return _measure_command(given)


def _measure_command(given: StudyMatrixOptions) -> int:
    from placebench.study.axes import read_axes
    from placebench.study.matrix import CommandMatrix
    from placebench.study.workers import Work

    axes = read_axes(given.axis, given.work)
    control = _read_control(given.control, axes)
    if "://" in given.work[0] or FUNCTION.fullmatch(given.work[0]):
        raise UsageError(
            f"{given.work[0]} is no command: versions of an application are an axis, as --axis variant=main,HEAD "
            "without a command, or are compared by placebench compare; a function with several workers is measured by "
            "placebench study workers"
        )
    _, command = read_work(given.work)
    check_count(given.count)
    jobs = given.jobs or (QUICK_JOBS if given.preset == "quick" else JOBS)
    work = Work(command=command, count=given.count or "", timeout_s=given.timeout or TIMEOUT_S)
    return measure_work(given, CommandMatrix(work, axes, control, jobs))


def _measure_application(given: StudyMatrixOptions) -> int:
    """Measure the application of the plan; measurements are reported even if the run is interrupted or fails."""
    from placebench.compare.what.trials import plan_names, read_plan
    from placebench.runtime.postgres import open_server
    from placebench.study.application_matrix import APP, AXES, RESERVED, ApplicationMatrix
    from placebench.study.application_rig import CellSession
    from placebench.study.axes import read_axes

    for name in _OF_COMMANDS:
        if getattr(given, name) is not None:
            raise UsageError(f"--{name} is for a command, and none was given after --: leave it away, or name one")
    plan = read_plan(given.plan)
    for name, where in _NOT_HERE.items():
        if name == "trials" and not plan.has_trials:
            continue
        if getattr(plan, name) is not None:
            raise UsageError(f"{plan.source}: {name} does not apply to an application's matrix: {where} takes it")
    if plan.database == "mariadb":
        raise UsageError(f'{plan.source}: database = "mariadb": placebench lab study matrix has it')
    check_count(given.count)
    texts = [given.setup or "", given.template_db or "", *given.requests.login]
    texts += [text for _, text in given.requests.requests_given]
    known = plan_names(given.plan).union(*(re.findall(r"\{([\w-]+)\}", text) for text in texts))
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in read_axes(given.axis).items():
        if name in RESERVED:
            raise UsageError(f"--axis {name}: {{{name}}} has a meaning of its own in a plan: choose another name")
        if name not in AXES and name not in known:
            raise UsageError(
                f"--axis {name}: {plan.source} has no {{{name}}}, which the values are to replace; axes of every "
                f"application are {', '.join(AXES)}"
            )
        axes[name] = _read_values(name, values, is_command="server" in known)
    if "variant" not in axes:
        if not plan.variants and plan.tables.app is None:
            raise UsageError(
                f"no command was given, and {plan.source} has no table [tool.placebench.app] with an application"
            )
        axes["variant"] = plan.variants or (APP,)
    said = {name: value for name in _OVERRIDING if (value := getattr(given, name)) is not None}
    if twice := [name for name in (*said, *(["python"] if given.python else [])) if name in axes]:
        raise UsageError(f"--{twice[0].replace('_', '-')} and --axis {twice[0]}: leave one of them away")
    matrix = ApplicationMatrix(
        plan=given.plan,
        axes=axes,
        control=_read_control(given.control, axes),
        given=said,
        requests=partial(_requests, given.requests),
        python=given.python,
        seed=given.seed,
        rounds=given.rounds,
        count=given.count or "",
        is_quick=given.preset == "quick",
    )
    cells, impossible = matrix.read_cells()
    for reason in dict.fromkeys(reason for _, reason in impossible):
        points = (point for point, why in impossible if why == reason)
        say(f"not measured: {', '.join(' '.join(map(str, point.values())) for point in points)}: {reason}")
    repeats = first_given(given.replicates, plan.replicates, default=options.STUDY_REPLICATES)
    spec = matrix.spec(cells, impossible, repeats=max(1, repeats))

    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(given.run, "study-matrix"))
        needs_server = any(cell.data.database == "postgresql" for cell in cells.values())
        server = stack.enter_context(open_server(given.run.server)) if needs_server else None
        session = CellSession(spec, next(iter(cells.values())).data, folder, server)
        with (
            steps(given.run.command, session.steps) as announce,
            reported(folder, partial(emit_report, given.output)),
        ):
            session.run(announce, note=say)
    return 0


def _requests(given: options.RequestOptions, values: Mapping[str, str]) -> "tuple[list[Request], list[Request]]":
    """Return the requests of the command line and of its login, with the values filled in."""
    from placebench.compare.what.trials import fill_in

    filled = replace(
        given,
        requests_given=tuple((option, fill_in(text, values)) for option, text in given.requests_given),
        login=tuple(fill_in(text, values) for text in given.login),
    )
    return filled.requests(), filled.logins()


def _read_values(axis: str, values: Sequence[str], *, is_command: bool) -> tuple[Any, ...]:
    """Return the values of an application's axis; raises UsageError for one that the axis cannot have."""
    kinds: dict[str, Callable[[str], Any]] = {
        "processes": options.worker_count,
        "threads": options.worker_count,
        "users": options.whole(1, limits.COMPARED_USERS),
        "rate": options.number(0, limits.COMPARED_RATE_PER_S, above=True),
    }
    choices = {"database": _DATABASES, **({} if is_command else {"server": _SERVERS})}
    try:
        found = tuple(map(kinds.get(axis, options.text), values))
    except ArgumentTypeError as error:
        raise UsageError(f"--axis {axis}: {error}") from error
    if strange := [value for value in found if axis in choices and value not in choices[axis]]:
        raise UsageError(f"--axis {axis}: expected {', '.join(choices[axis])}, saw {strange[0]!r}")
    return found


def _read_control(given: Sequence[str] | None, axes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the values of the control: those given, or the first value of the first axis."""
    control: dict[str, Any] = {}
    first = next(iter(axes))
    for text in given or (f"{first}={axes[first][0]}",):
        name, _, value = text.partition("=")
        if name not in axes or name in control or not value:
            raise UsageError(f"--control {text!r}: expected NAME=V with an axis ({', '.join(axes)}), each once")
        control[name] = next((each for each in axes[name] if str(each) == value), value)
    return control


COMMANDS: dict[str, Command[Any]] = {
    "study matrix": Command(_configure, _run, options=StudyMatrixOptions, needs_linux=STARTS_SERVERS),
}
