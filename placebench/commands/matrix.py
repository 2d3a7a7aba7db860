"""`placebench matrix`: a job over every combination of service, server, client and database, against a control."""

from argparse import ArgumentParser, Namespace
from typing import TypeVar

from placebench.commands import values
from placebench.commands.asking import REPEATS, add_asking_options, ask, trees_asked

T = TypeVar("T")

HELP = "what each part costs: a job over services, servers, clients and databases, against a control"


def configure(parser: ArgumentParser) -> None:
    """The options of `matrix`."""
    parser.add_argument(
        "matrix",
        nargs="?",
        default="stack",
        metavar="NAME|FILE.toml",
        help="which one; see docs/lab/matrix.md (default: stack)",
    )
    add_asking_options(parser)
    parser.set_defaults(topology=None, seed=None, repeats=None)
    parser.add_argument("--placement-python", type=values.path, metavar="PATH", help="of the environment of Placement")


def run(arguments: Namespace) -> int:
    """Measure, and tell what was measured however it ends."""
    from placebench.experiment.combinations import combine
    from placebench.experiment.matrix_plan import matrix_named
    from placebench.experiment.matrix_study import matrix_study
    from placebench.seeding import find_topology

    asked = matrix_named(arguments.matrix, quick=arguments.quick)
    asked = asked.scaled(trees_asked(arguments))
    topology = find_topology(
        _first(arguments.topology, asked.topology, "nested-perfload"),
        trees=max(job.trees for job in asked.jobs),
        seed=_first(arguments.seed, asked.seed, 1),
    )
    question = matrix_study(
        asked,
        combine(asked, placement_python=arguments.placement_python),
        request=_first(arguments.request, asked.request, topology.request),
        repeats=_first(arguments.repeats, asked.repeats, REPEATS),
    )
    ask(arguments, topology, question)
    return 0


def _first(*values: T | None) -> T:
    """The first that was said."""
    return next(value for value in values if value is not None)
