"""`placebench compare`: versions of a service, measured in interleaved blocks, with an interval and a verdict each."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from placebench.commands import Command, options
from placebench.commands.output import emit_report
from placebench.commands.runs import run_comparison
from placebench.errors import UsageError

if TYPE_CHECKING:
    from placebench.experiment.trials import Experiment
    from placebench.gates import Gate

T = TypeVar("T")
_REPLICATES = {"quick": 6, "default": 12, "publish": 30}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "base", nargs="?", metavar="BASE", help="variant that the others are compared with (default: all of the plan)"
    )
    parser.add_argument(
        "variants",
        nargs="*",
        metavar="VARIANT",
        help="variant: a table of the plan, a git revision if the plan has a table app, a variant of the reference "
        "service, noop, or placement",
    )
    options.add_plan(parser)
    amount = parser.add_mutually_exclusive_group()
    options.add_replicates(amount, "the plan's, or 12")
    amount.add_argument(
        "--sequential",
        action="store_true",
        help="interim analyses: may stop after 12, 24 or 36 replicates, with confidence intervals of 97.79 %%",
    )
    options.add_preset(parser, **{name: f"{number} replicates" for name, number in _REPLICATES.items()})
    add_comparison(parser, rounds="the plan's, or 24")
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="EXPR",
        help="what must hold: 'statements <= 18', or 'cpu_s < 1.03x' of the base; exit code 1 where it does not, "
        "3 where that is inconclusive; may be repeated",
    )


def add_comparison(parser: ArgumentParser, *, rounds: str) -> None:
    """The options of every comparison of a plan but how many replicates it has."""
    options.add_data(parser, plan="plan")
    options.add_rounds(parser, rounds)
    options.add_placement(parser)
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


def _run(arguments: Namespace) -> int:
    """Compare; what was measured is reported even when the run is interrupted or fails."""
    from placebench.experiment.trials import read_plan
    from placebench.report import parse_gates

    gates = parse_gates(arguments.gate)
    plan = read_plan(arguments.plan)
    if arguments.base is not None:
        plan = replace(plan, variants=(arguments.base, *arguments.variants), trials=())
    if len(plan.variants) < 2:
        where = arguments.plan or "[tool.placebench] of ./pyproject.toml"
        raise UsageError(f"two variants are needed, the base first: name them, or describe them in {where}")
    if arguments.preset and arguments.replicates is None:
        plan = replace(plan, replicates=_REPLICATES[arguments.preset])
    compare_plan(arguments, plan, gates=gates, sequential=arguments.sequential)
    return 0


def compare_plan(
    arguments: Namespace,
    plan: "Experiment",
    *,
    postgres: Mapping[str, str] = {},
    gates: "Sequence[Gate]" = (),
    sequential: bool = False,
) -> None:
    """Compare the variants of *plan*; the options override what it says.

    postgres: settings of PostgreSQL that every variant has too.
    """
    from placebench.experiment.compare_run import ROUNDS, CompareSettings
    from placebench.experiment.variants import read_variants
    from placebench.seeding import find_topology

    topology = find_topology(
        _first(arguments.topology, plan.topology, options.TOPOLOGY),
        trees=_first(arguments.trees, plan.trees),
        seed=_first(arguments.seed, plan.seed, options.SEED),
        utilization=_first(arguments.utilization, plan.utilization),
    )
    variants = read_variants(plan.variants, plan.tables, placement_python=arguments.placement_python)
    names = dict(zip(plan.variants, (each.name for each in variants), strict=True)) if plan.trials else {}
    settings = CompareSettings(
        variants=tuple(replace(each, postgres={**each.postgres, **postgres}) for each in variants),
        request=arguments.request or plan.request or topology.request,
        replicates=_first(arguments.replicates, plan.replicates, _REPLICATES["default"]),
        sequential=sequential,
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
    emit = partial(emit_report, arguments)
    run_comparison(arguments, topology, settings, name=plan.name, gates=gates, emit=emit)


def _first(*values: T) -> T:
    """The first that was given; the last where none was."""
    return next((value for value in values if value is not None), values[-1])


COMMANDS = {"compare": Command(_configure, _run)}
