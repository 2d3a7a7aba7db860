"""`placebench headline`: the published figures of Placement, and what every rung of the ladder does beside them."""

from argparse import ArgumentParser, Namespace

from placebench.commands import values
from placebench.commands.asking import REPEATS, add_sitting_options, ask, trees_asked

HELP = "reproduce the published headline: 10 requests by 1 client and 400 by 40, for every rung"
_TOPOLOGIES = ("nested-perfload", "flat-perfload")


def configure(parser: ArgumentParser) -> None:
    """The options of `headline`."""
    add_sitting_options(parser)
    parser.set_defaults(repeats=None)
    parser.add_argument("--services", metavar="A,B", help="only these (default: ladder, dedup, cached, placement)")
    parser.add_argument("--placement-python", type=values.path, metavar="PATH", help="of the environment of Placement")


def run(arguments: Namespace) -> int:
    """Measure; --quick once, on few trees, without the rungs between naive and tuned."""
    from placebench.experiment.published_study import PublishedStudy, find_services, services
    from placebench.seeding import find_topology

    trees = trees_asked(arguments)
    topologies = [find_topology(name, trees=trees, seed=arguments.seed) for name in _TOPOLOGIES]
    named = services(quick=arguments.quick) if arguments.services is None else arguments.services.split(",")
    study = PublishedStudy(find_services(named, placement_python=arguments.placement_python), topologies)
    usual = 1 if arguments.quick else REPEATS
    ask(arguments, topologies[0], study.spec(repeats=usual if arguments.repeats is None else arguments.repeats))
    return 0
