"""`placebench study matrix`: a command, or an application, with each combination of some values, against a control."""

from argparse import ArgumentParser
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.runs import first_given
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
from placebench.commands.study_application import (
    ApplicationOptions,
    add_application,
    add_control,
    measure_cells,
    read_application,
    read_control,
)
from placebench.errors import UsageError

_OF_APPLICATIONS: Final = (
    *("plan", "setup", "template_db", "database", "users", "rate", "python", "rounds", "server", "login"),
    "requests_given",
)


@dataclass(frozen=True)
class LoadedApplicationOptions(ApplicationOptions):
    """The options of an application that is measured under a load of the user's choice."""

    users: int | None = None
    rate: float | None = None


@dataclass(frozen=True)
class StudyMatrixOptions(OwnStudyOptions):
    """The options of `placebench study matrix`; work: the words of a command with {AXIS} in them, or none."""

    application: LoadedApplicationOptions
    work: tuple[str, ...]
    jobs: int | None
    count: str | None
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
    add_control(parser)
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
    application = add_application(parser)
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
    options.add_rounds(parser, "the plan's, or 8; 2 with several users or a rate")
    options.add_server(parser)
    add_measurement(parser, quick=f"{QUICK_JOBS} runs of the command, or half as many rounds", plan="plan")


def _run(given: StudyMatrixOptions) -> int:
    """Measure each combination; those that cannot be measured are named."""
    if not given.work:
        return _measure_application(given)
    options.refuse(given, _OF_APPLICATIONS, "is for an application, and a command was given: leave one of the two out")
    return _measure_command(given)


def _measure_command(given: StudyMatrixOptions) -> int:
    from placebench.study.axes import read_axes
    from placebench.study.matrix import CommandMatrix
    from placebench.study.workers import Work

    axes = read_axes(given.application.axis or (), given.work)
    control = read_control(given.application.control, axes)
    if "://" in given.work[0] or FUNCTION.fullmatch(given.work[0]):
        raise UsageError(
            f"{given.work[0]} is not a command: versions of an application are an axis, as --axis variant=main,HEAD "
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
    options.refuse(
        given, ("jobs", "timeout"), "is for a command, and none was given after --: leave it out, or name one"
    )
    check_count(given.count)
    matrix, plan = read_application(given.application, "an application's matrix")
    matrix = replace(matrix, rounds=given.rounds, count=given.count or "", is_quick=given.preset == "quick")
    repeats = first_given(given.replicates, plan.replicates, default=options.STUDY_REPLICATES)
    return measure_cells(given, matrix, partial(matrix.spec, repeats=max(1, repeats)), name="study-matrix")


COMMANDS: dict[str, Command[Any]] = {
    "study matrix": Command(_configure, _run, options=StudyMatrixOptions, needs_linux=STARTS_SERVERS)
}
