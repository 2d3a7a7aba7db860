"""`placebench lab study herd`: claims that schedulers lose to each other, with and without randomized candidates."""

from argparse import ArgumentParser, Namespace

from placebench import limits
from placebench.commands import Command, options
from placebench.errors import PlacebenchError
from placebench.lab.commands.study import REPLICATES, add_study_options, is_quick, run_study

_TOPOLOGIES = ("bare-metal", "flat-hosts")
_SCHEDULERS, _QUICK_SCHEDULERS = [1, 2, 5, 10, 20, 40], [1, 10]
_CLAIMS, _QUICK_CLAIMS = 80, 20
_TREES, _QUICK_TREES = 200, 50
_MOST_SCHEDULERS = 40


def _listed(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--schedulers",
        type=options.wholes(1, _MOST_SCHEDULERS),
        metavar="N,N",
        help=f"numbers of schedulers, up to {_MOST_SCHEDULERS} (default: {_listed(_SCHEDULERS)}; --preset quick: "
        f"{_listed(_QUICK_SCHEDULERS)})",
    )
    parser.add_argument(
        "--claims",
        type=options.whole(1, limits.TREES),
        metavar="N",
        help=f"number of claims per measurement (default: {_CLAIMS}; --preset quick: {_QUICK_CLAIMS})",
    )
    options.add_placement(parser)
    options.add_size(parser)
    add_study_options(parser)


def _run(arguments: Namespace) -> int:
    """Measure every number of schedulers on both inventories."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.studies.herd import HerdStudy
    from placebench.lab.variants import PLACEMENT

    quick = is_quick(arguments)
    placement = read_variant(PLACEMENT, placement_python=arguments.placement_python)
    require_servers([placement])
    trees = arguments.trees or (_QUICK_TREES if quick else _TREES)
    topologies = [find_topology(name, trees=trees, seed=arguments.seed) for name in _TOPOLOGIES]
    claims = arguments.claims or (_QUICK_CLAIMS if quick else _CLAIMS)
    if claims > trees:
        raise PlacebenchError(f"{claims} claims on {trees} hosts for one instance each: give --trees {claims} or more")
    schedulers = arguments.schedulers or (_QUICK_SCHEDULERS if quick else _SCHEDULERS)
    study = HerdStudy(placement, topologies, schedulers, claims)
    return run_study(arguments, topologies[0], study.spec(repeats=arguments.replicates or REPLICATES))


COMMANDS = {"lab study herd": Command(_configure, _run, "herd")}
