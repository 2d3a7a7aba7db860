"""`placebench lab study published`: the published figures of Placement, and what every variant does beside them."""

from argparse import ArgumentParser, Namespace

from placebench.commands import Command, options
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study, trees_of

_TOPOLOGIES = ("nested-perfload", "flat-perfload")


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--variants",
        type=options.names,
        metavar="V,V",
        help="variants (default: the cumulative series, dedup, cached, placement)",
    )
    options.add_placement(parser)
    options.add_size(parser)
    add_study_options(parser, replicates=f"{REPLICATES}; --preset quick: 1")


def _run(arguments: Namespace) -> int:
    """Measure; with the preset quick without the steps between naive and tuned."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.studies.published import PublishedStudy, find_services, services

    topologies = [find_topology(name, trees=trees_of(arguments), seed=arguments.seed) for name in _TOPOLOGIES]
    is_small = is_quick(arguments)
    named = arguments.variants or services(quick=is_small)
    study = PublishedStudy(find_services(named, placement_python=arguments.placement_python), topologies)
    replicates = arguments.replicates or (1 if is_small else REPLICATES)
    return run_study(arguments, topologies[0], study.spec(repeats=replicates))


COMMANDS = {"lab study published": Command(_configure, _run, "published")}
