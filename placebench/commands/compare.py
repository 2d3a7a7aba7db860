"""`placebench compare`: two variants or more, interleaved; by how much they differ, and how sure that is."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from placebench import limits
from placebench.commands import values
from placebench.commands.console import print_json, print_result, say, steps
from placebench.commands.folders import reported, run_folder
from placebench.errors import PlacebenchError, TooFewReplicatesError

if TYPE_CHECKING:
    from placebench.experiment.compare_run import CompareSettings
    from placebench.report.gates import Gate
    from placebench.topology import Topology

HELP = "compare two or more variants in interleaved blocks, with an interval and a verdict"
TOPOLOGY, SEED = "nested-perfload", 1
_NEEDED = 6


def configure(parser: ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument(
        "variants",
        nargs="+",
        metavar="VARIANT",
        help="the baseline, then others: a variant, noop, placement, or app=module:callable,python=PATH,rev=REVISION; "
        "each of them with settings of PostgreSQL if wanted: tuned,pg:work_mem=64kB",
    )
    add_measuring_options(parser)
    number = parser.add_mutually_exclusive_group()
    number.add_argument("--replicates", type=values.replicates, metavar="R", help="how many that count (default: 12)")
    number.add_argument("--screen", action="store_true", help="12 replicates")
    number.add_argument("--publish", action="store_true", help="30 replicates")
    number.add_argument(
        "--looks", action="store_true", help="sequentially: may stop at 12, 24 or 36, with intervals of 97.79 %%"
    )
    parser.add_argument(
        "--placement-python", type=values.path, metavar="PATH", help="of the environment of the variant placement"
    )
    parser.add_argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="GATE",
        help="'statements > 18' or 'cpu_s slower 3%%': exit code 1 where it holds, 3 where that cannot be decided",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or the newest one")


def add_measuring_options(parser: ArgumentParser) -> None:
    """Those of every command that makes replicates."""
    parser.add_argument(
        "--db", type=values.text, metavar="URL", help="a PostgreSQL to work beside; default: one of its own"
    )
    parser.add_argument("--topology", default=TOPOLOGY, help=f"name or .toml file (default: {TOPOLOGY})")
    parser.add_argument(
        "--trees", type=values.trees, metavar="N", help="how many trees (default: the topology's, 1000)"
    )
    parser.add_argument(
        "--utilization",
        type=values.share,
        metavar="0..1",
        help="of the inventories by consumers (default: the topology's)",
    )
    parser.add_argument(
        "--seed", type=values.seed, default=SEED, metavar="S", help=f"of ids and every random choice (default: {SEED})"
    )
    parser.add_argument(
        "--request", type=values.request, metavar="PATH", help="path and query that is asked (default: the topology's)"
    )
    parser.add_argument(
        "--rounds",
        type=values.whole(1, limits.ROUNDS),
        metavar="N",
        help="a replicate (24; calibrate 64, step 12, cumulative, leave-one-out 6)",
    )
    parser.add_argument(
        "--out", type=values.path, metavar="DIR", help="the run's folder (default: a new one in profiles/)"
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON document on stdout")


def run(arguments: Namespace) -> int:
    """Compare; what was measured is reported even when it is interrupted or fails."""
    from placebench.experiment.compare_run import PUBLISH, ROUNDS, SCREEN, CompareSettings
    from placebench.experiment.variants import read_variants
    from placebench.report.gates import held_to, read_gate
    from placebench.seeding import find_topology

    gates = [read_gate(text) for text in arguments.fail_if]
    topology = find_topology(
        arguments.topology, trees=arguments.trees, seed=arguments.seed, utilization=arguments.utilization
    )
    replicates = PUBLISH if arguments.publish else SCREEN if arguments.replicates is None else arguments.replicates
    settings = CompareSettings(
        variants=read_variants(arguments.variants, placement_python=arguments.placement_python),
        request=arguments.request or topology.request,
        replicates=replicates,
        sequential=arguments.looks,
        rounds=ROUNDS if arguments.rounds is None else arguments.rounds,
    )
    sit(
        topology,
        settings,
        arguments,
        tell=lambda folder: _tell(folder, gates, as_json=arguments.json),
        hold=lambda folder: held_to(gates, folder),
    )
    return 0


def sit(
    topology: "Topology",
    settings: "CompareSettings",
    arguments: Namespace,
    *,
    name: str = "compare",
    tell: Callable[[Path], None] = lambda _: None,
    hold: Callable[[Path], object] = lambda _: None,
) -> Path:
    """One sitting, with its page, in a new folder called after *name* or the one to resume; returns the folder.

    tell: is given the folder at the end, however the sitting ended; hold: after one that came to its end, to raise what
    a gate says. Raises TooFewReplicatesError when too few replicates count then: a gate that failed goes before it.
    """
    from placebench.experiment.compare_run import CompareRun
    from placebench.experiment.databases import check_settings
    from placebench.runtime.postgres import open_server

    if topology.trees < 1:
        raise PlacebenchError(f"--trees {topology.trees} leaves nothing to ask for: give 1 or more")
    with run_folder(arguments, name) as folder, open_server(arguments.db) as server:
        check_settings(settings.variants, server)
        sitting = CompareRun(topology, settings, folder, server)
        with steps(arguments.command, sitting.steps) as announce, reported(folder, tell):
            sitting.run(announce, note=say)
    hold(folder)
    valid, lost = len(sitting.replicates.valid()), len(sitting.replicates.invalid())
    if settings.replicates and valid < _NEEDED:
        thrown_away = f" ({lost} do not count: --resume makes others in their place)" if lost else ""
        raise TooFewReplicatesError(f"inconclusive: {valid} replicates, {_NEEDED} needed{thrown_away}")
    return folder


def _tell(folder: Path, gates: "Sequence[Gate]", *, as_json: bool) -> None:
    """What was measured, on stdout and for CI; the address of the page is the last line."""
    from placebench import results
    from placebench.report import comparison_table, summary
    from placebench.report.ci_files import hand_over

    hand_over(folder, gates)
    loaded, page = results.load(folder), (folder / "index.html").as_uri()
    if as_json:
        print_json(summary(loaded))
        say(page)
    else:
        print_result(comparison_table(loaded))
        print_result(page)
