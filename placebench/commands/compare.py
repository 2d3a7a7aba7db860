"""`placebench compare`: versions of a service, measured in interleaved blocks, with an interval and a verdict each."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placebench.commands import Command, options
from placebench.commands.output import emit_run
from placebench.commands.runs import run_comparison

if TYPE_CHECKING:
    from placebench.gates import Gate

_REPLICATES = {"quick": 6, "default": 12, "publish": 30}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="variant that the others are compared with")
    parser.add_argument(
        "variants",
        nargs="+",
        metavar="VARIANT",
        help="a variant of the reference service, noop, placement, or app=module:callable,python=PATH,rev=REVISION; "
        "each with settings of PostgreSQL if wanted: tuned,pg:work_mem=64kB",
    )
    options.add_data(parser)
    amount = parser.add_mutually_exclusive_group()
    options.add_replicates(amount, "12, or the preset's")
    amount.add_argument(
        "--sequential",
        action="store_true",
        help="interim analyses: may stop after 12, 24 or 36 replicates, with confidence intervals of 97.79 %%",
    )
    options.add_preset(parser, **{name: f"{number} replicates" for name, number in _REPLICATES.items()})
    options.add_rounds(parser, 24)
    parser.add_argument(
        "--gate",
        action="append",
        default=[],
        metavar="EXPR",
        help="what must hold: 'statements <= 18', or 'cpu_s < 1.03x' of the base; exit code 1 where it does not, "
        "3 where that is inconclusive; may be repeated",
    )
    options.add_placement(parser)
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


def _run(arguments: Namespace) -> int:
    """Compare; what was measured is reported even when the run is interrupted or fails."""
    from placebench.experiment.compare_run import ROUNDS, CompareSettings
    from placebench.experiment.variants import read_variants
    from placebench.report.gates import check_gates, parse_gates
    from placebench.seeding import find_topology

    gates = parse_gates(arguments.gate)
    topology = find_topology(
        arguments.topology, trees=arguments.trees, seed=arguments.seed, utilization=arguments.utilization
    )
    settings = CompareSettings(
        variants=read_variants([arguments.base, *arguments.variants], placement_python=arguments.placement_python),
        request=arguments.request or topology.request,
        replicates=_REPLICATES[arguments.preset] if arguments.replicates is None else arguments.replicates,
        sequential=arguments.sequential,
        rounds=ROUNDS if arguments.rounds is None else arguments.rounds,
    )
    run_comparison(
        arguments,
        topology,
        settings,
        name="compare",
        emit=lambda folder: _emit(arguments, folder, gates),
        check=lambda folder: check_gates(gates, folder),
    )
    return 0


def _emit(arguments: Namespace, folder: Path, gates: "Sequence[Gate]") -> None:
    """Write the files for CI, and print the result."""
    from placebench.report.ci_files import hand_over

    hand_over(folder, gates)
    emit_run(arguments, folder)


COMMANDS = {"compare": Command(_configure, _run)}
