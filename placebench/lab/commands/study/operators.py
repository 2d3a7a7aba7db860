"""`placebench lab study operators`: what each setting of the real Placement is worth, on large inventories."""

from argparse import ArgumentParser, Namespace

from placebench.commands import Command, options
from placebench.lab.commands.study import add_study_options, run_study, trees_of

_REPLICATES = 6
_REQUESTS = 2
_TIMEOUT_S = 60.0


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--inventories",
        type=options.names,
        metavar="NAME,NAME",
        help="inventory data sets (default: cern,flat-hosts,gpu-hosts)",
    )
    parser.add_argument(
        "--requests",
        type=options.request_count,
        default=_REQUESTS,
        metavar="N",
        help="number of requests of each of four clients per measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        default=_TIMEOUT_S,
        metavar="S",
        help="seconds that a client waits for a response (default: 60)",
    )
    parser.add_argument(
        "--plan",
        type=options.path,
        metavar="FILE",
        help="TOML file with other inventories and settings (default: those of the documentation)",
    )
    options.add_placement(parser)
    options.add_size(parser)
    add_study_options(parser, replicates=_REPLICATES)


def _run(arguments: Namespace) -> int:
    """Measure every setting on every inventory."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.studies.operators import OperatorsStudy, read_plan
    from placebench.lab.variants import PLACEMENT

    plan = read_plan(arguments.plan)
    placement = read_variant(PLACEMENT, placement_python=arguments.placement_python)
    require_servers([placement])
    topologies = [
        find_topology(name, trees=trees_of(arguments), seed=arguments.seed)
        for name in arguments.inventories or plan.inventories
    ]
    study = OperatorsStudy(placement, topologies, plan.settings, arguments.requests, arguments.timeout)
    return run_study(arguments, topologies[0], study.spec(repeats=arguments.replicates or _REPLICATES))


COMMANDS = {"lab study operators": Command(_configure, _run, "operators")}
