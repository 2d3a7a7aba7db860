"""`placebench experiment`: many changes in the same replicates, and a ledger of what to keep."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from placebench.commands import values
from placebench.commands.compare import SEED, TOPOLOGY, add_measuring_options, sit
from placebench.commands.console import print_json, print_result, say

HELP = "try many changes at once (cumulative, leave-one-out or your own), and keep a ledger of their effects"


def configure(parser: ArgumentParser) -> None:
    """The options of `experiment`."""
    parser.add_argument(
        "name",
        metavar="cumulative|leave-one-out|STEP|FILE.toml",
        help="what to try: all, one step of the catalogue (pruning), or your own; cumulative+driver:psycopg3 or "
        "cumulative,pg:jit=on has that in every variant",
    )
    add_measuring_options(parser)
    parser.set_defaults(topology=None, seed=None)  # what is said here goes over the experiment's own
    parser.add_argument("--replicates", type=values.replicates, metavar="R", help="how many that count (default: 12)")
    parser.add_argument(
        "--placement-python", type=values.path, metavar="PATH", help="of the environment of the variant placement"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or the newest one")


def run(arguments: Namespace) -> int:
    """Make the replicates and the ledger; what was measured is reported even when it is interrupted or fails."""
    from placebench.experiment.compare_run import ROUNDS, SCREEN, CompareSettings
    from placebench.experiment.trials import experiment_named
    from placebench.experiment.variants import read_variants
    from placebench.seeding import find_topology

    asked = experiment_named(arguments.name)
    topology = find_topology(
        arguments.topology or asked.topology or TOPOLOGY,
        trees=arguments.trees if arguments.trees is not None else asked.trees,
        seed=next(each for each in (arguments.seed, asked.seed, SEED) if each is not None),
        utilization=arguments.utilization if arguments.utilization is not None else asked.utilization,
    )
    variants = read_variants(asked.variants, placement_python=arguments.placement_python)
    names = dict(zip(asked.variants, (variant.name for variant in variants), strict=True))
    replicates = asked.replicates if arguments.replicates is None else arguments.replicates
    settings = CompareSettings(
        variants=variants,
        request=arguments.request or asked.request or topology.request,
        replicates=SCREEN if replicates is None else replicates,
        rounds=next(each for each in (arguments.rounds, asked.rounds, ROUNDS) if each is not None),
        trials=tuple(
            replace(
                each,
                name=names.get(each.name, each.name),
                baseline=names[each.baseline],
                variant=names[each.variant],
            )
            for each in asked.trials
        ),
    )
    sit(topology, settings, arguments, name=asked.name, tell=lambda folder: _tell(folder, as_json=arguments.json))
    return 0


def _tell(folder: Path, *, as_json: bool) -> None:
    """The ledger, in the folder and on stdout; the address of the page is the last line."""
    from placebench import results
    from placebench.report import document_of, text_of
    from placebench.report.optimizations import write_ledger

    loaded, page = results.load(folder), (folder / "index.html").as_uri()
    write_ledger(loaded)
    if as_json:
        print_json(document_of(loaded))
        say(page)
    else:
        print_result(text_of(loaded))
        print_result(page)
