"""`placebench study saturation`: how much load an application takes, and what is full, over arrival rates or users."""

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Any

from placebench import limits
from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.study_application import ApplicationOptions, add_application, add_control, measure_saturation

_STEP_S, _QUICK_STEP_S = 10.0, 3.0


@dataclass(frozen=True)
class StudySaturationOptions(options.RunCommandOptions):
    """The options of `placebench study saturation`."""

    application: ApplicationOptions
    slo: str | None
    users: tuple[int, ...] | None
    time: float | None
    replicates: int | None
    preset: str | None


def _configure(parser: ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--slo",
        metavar="EXPR",
        help="find the highest arrival rate at which this holds, such as 'p95 <= 500ms', as placebench load --slo does",
    )
    kind.add_argument(
        "--users",
        type=options.wholes(1, limits.USERS),
        metavar="N",
        help="number of users who wait for responses, or several, such as 1,4,16: the throughput and the latency "
        "with each",
    )
    parser.add_argument(
        "--axis",
        type=options.text,
        action="append",
        metavar="NAME=V,V",
        help="an axis and its values; repeatable, every combination is measured: variant, server, processes, threads, "
        "python, database, setup, template_db, or a name in braces in the plan (default: the plan's variants)",
    )
    add_control(parser)
    parser.add_argument(
        "--time",
        type=options.seconds,
        metavar="S",
        help=f"seconds of each step, at least (default: {_STEP_S:g}; --preset quick: {_QUICK_STEP_S:g})",
    )
    add_application(parser)
    options.add_replicates(parser, options.STUDY_REPLICATES, at_least=1)
    options.add_preset(parser, quick=f"steps of {_QUICK_STEP_S:g} s", default="all")
    options.add_seed(parser, "seed of the order of the measurements and of the arrivals", plan="plan")
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


def _run(given: StudySaturationOptions) -> int:
    """Measure each combination; those that cannot be measured are named."""
    return measure_saturation(
        given,
        given.application,
        slo=given.slo,
        users=given.users or (),
        step_s=given.time or (_QUICK_STEP_S if given.preset == "quick" else _STEP_S),
        replicates=given.replicates,
        name="study-saturation",
    )


COMMANDS: dict[str, Command[Any]] = {
    "study saturation": Command(_configure, _run, options=StudySaturationOptions, needs_linux=STARTS_SERVERS)
}
