"""`placebench lab steps`: what each optimization brings, in the same replicates, with a table of what to keep."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from placebench.commands import Command, options
from placebench.commands.output import emit_run
from placebench.commands.runs import run_comparison

if TYPE_CHECKING:
    from placebench.experiment.trials import Experiment

T = TypeVar("T")


def _configure(parser: ArgumentParser) -> None:
    series = parser.add_mutually_exclusive_group()
    series.add_argument(
        "--leave-one-out",
        action="store_true",
        help="each optimization added alone, and left out alone (default: the cumulative series)",
    )
    series.add_argument("--only", metavar="NAME", help="one optimization, on its own request and data")
    series.add_argument("--plan", type=options.path, metavar="FILE", help="variants and trials of a .toml file")
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="NAME:ALTERNATIVE",
        help="implementation that every variant has, as driver:psycopg3; may be repeated",
    )
    parser.add_argument(
        "--pg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of PostgreSQL that every variant has, as jit=on; may be repeated",
    )
    options.add_placement(parser)
    options.add_data(parser, plan="plan")
    options.add_replicates(parser, "the plan's, or 12")
    options.add_rounds(parser, "the plan's, or 24; --only: 12; the series: 6")
    options.add_run(parser)
    options.add_output(parser, page=True)


def _run(arguments: Namespace) -> int:
    """Make the replicates and the table; what was measured is reported even when it is interrupted or fails."""
    from placebench.experiment.compare_run import ROUNDS, SCREEN, CompareSettings
    from placebench.experiment.variants import read_variants
    from placebench.seeding import find_topology

    plan = _plan(arguments)
    topology = find_topology(
        _first(arguments.topology, plan.topology, options.TOPOLOGY),
        trees=_first(arguments.trees, plan.trees),
        seed=_first(arguments.seed, plan.seed, options.SEED),
        utilization=_first(arguments.utilization, plan.utilization),
    )
    variants = read_variants(plan.variants, placement_python=arguments.placement_python)
    names = dict(zip(plan.variants, (variant.name for variant in variants), strict=True))
    settings = CompareSettings(
        variants=variants,
        request=arguments.request or plan.request or topology.request,
        replicates=_first(arguments.replicates, plan.replicates, SCREEN),
        rounds=_first(arguments.rounds, plan.rounds, ROUNDS),
        trials=tuple(
            replace(
                each,
                name=names.get(each.name, each.name),
                baseline=names[each.baseline],
                variant=names[each.variant],
            )
            for each in plan.trials
        ),
    )
    run_comparison(arguments, topology, settings, name=plan.name, emit=lambda folder: _emit(arguments, folder))
    return 0


def _plan(arguments: Namespace) -> "Experiment":
    from placebench.experiment.trials import experiment_named

    name = arguments.plan or arguments.only or ("leave-one-out" if arguments.leave_one_out else "cumulative")
    everywhere = "".join([*(f"+{each}" for each in arguments.add), *(f",pg:{each}" for each in arguments.pg)])
    return experiment_named(f"{name}{everywhere}")


def _first(*values: T) -> T:
    """The first that was given; the last where none was."""
    return next((value for value in values if value is not None), values[-1])


def _emit(arguments: Namespace, folder: Path) -> None:
    """Write the table of the results into the folder, and print it."""
    from placebench import results
    from placebench.report.optimizations import write_ledger

    write_ledger(results.load(folder))
    emit_run(arguments, folder)


COMMANDS = {"lab steps": Command(_configure, _run)}
