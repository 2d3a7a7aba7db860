"""`placebench lab study matrix`: a job over services, servers, clients and databases, against a control."""

from argparse import ArgumentParser, Namespace

from placebench.commands import Command, options
from placebench.commands.runs import first_given
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, trees_of


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "matrix",
        nargs="?",
        default="stack",
        metavar="NAME|FILE",
        help="latency, mariadb, profiler, pythons, sqlite, stack or a .toml file (default: stack)",
    )
    options.add_placement(parser)
    options.add_data(parser, plan="matrix", utilization=False)
    add_study_options(parser, replicates=f"the matrix's, or {REPLICATES}")


def _run(arguments: Namespace) -> int:
    """Measure every combination."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.studies.combinations import combine
    from placebench.lab.studies.matrix import matrix_study
    from placebench.lab.studies.matrix_plan import matrix_named

    matrix = matrix_named(arguments.matrix, quick=is_quick(arguments)).scaled(trees_of(arguments))
    topology = find_topology(
        first_given(arguments.topology, matrix.topology, default=options.TOPOLOGY),
        trees=max(job.trees for job in matrix.jobs),
        seed=first_given(arguments.seed, matrix.seed, default=options.SEED),
    )
    spec = matrix_study(
        matrix,
        combine(matrix, placement_python=arguments.placement_python),
        request=first_given(arguments.request, matrix.request, default=topology.request),
        repeats=first_given(arguments.replicates, matrix.repeats, default=REPLICATES),
    )
    return run_study(arguments, topology, spec)


COMMANDS = {"lab study matrix": Command(_configure, _run, "matrix")}
