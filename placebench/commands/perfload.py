"""`placebench perfload`: the whole story, from an empty database to the page with the profiles."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from placebench.commands import values
from placebench.commands.console import print_json, print_result, say, steps
from placebench.commands.folders import reported, run_folder
from placebench.errors import PlacebenchError

HELP = "seed, serve, load, profile and compare the ladder of variants, and write the report"
_QUICK_TREES = 50


def configure(parser: ArgumentParser) -> None:
    """The options of `perfload`."""
    parser.add_argument(
        "--quick", action="store_true", help=f"naive, tuned, dedup, cached on {_QUICK_TREES} trees, about a minute"
    )
    parser.add_argument(
        "--db",
        type=values.text,
        metavar="URL",
        help="a PostgreSQL to work beside; default: an embedded one, thrown away",
    )
    parser.add_argument("--topology", default="nested-perfload", help="name or .toml file (default: %(default)s)")
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
        "--seed", type=values.seed, default=1, metavar="S", help="of ids and of every random choice (default: 1)"
    )
    parser.add_argument(
        "--out", type=values.path, metavar="DIR", help="the run's folder (default: a new one in profiles/)"
    )
    parser.add_argument(
        "--telemetry", action="store_true", help="durations and figures of workers, client and backends too"
    )
    parser.add_argument(
        "--placement-python",
        type=values.path,
        metavar="PATH",
        help="of the environment of the real Placement, which then takes part (default: that of `tox -e oracle`)",
    )
    parser.add_argument("--json", action="store_true", help="the result as one JSON document on stdout")


def run(arguments: Namespace) -> int:
    """Make the run and its report; what was measured is reported even when it is interrupted or fails."""
    from placebench.experiment.perfload import PerfloadRun, PerfloadSettings
    from placebench.runtime.postgres import open_server
    from placebench.seeding import find_topology

    trees = arguments.trees if arguments.trees is not None else (_QUICK_TREES if arguments.quick else None)
    topology = find_topology(arguments.topology, trees=trees, seed=arguments.seed, utilization=arguments.utilization)
    if not topology.trees:
        raise PlacebenchError("--trees 0 leaves nothing to ask for: give 1 or more")
    settings = replace(
        PerfloadSettings.quick() if arguments.quick else PerfloadSettings.default(), telemetry=arguments.telemetry
    )
    placement = _placement(arguments.placement_python)
    if placement is not None:
        settings = settings.with_placement(placement)
    with (
        run_folder(arguments, "perfload") as folder,
        open_server(arguments.db) as server,
        steps("perfload", settings.steps) as announce,
    ):
        if placement is None:
            say("the real Placement takes no part: `tox -e oracle` installs it, or --placement-python names it")
        with reported(folder, lambda folder: _tell(folder, as_json=arguments.json)):
            PerfloadRun(topology, settings, folder, server).run(announce, note=say)
    return 0


def _placement(python: Path | None) -> str | None:
    """The Python of the real Placement: the one that is named, or the oracle's; None without either."""
    from placebench.experiment.variants import PLACEMENT, read_variant, require_uwsgi

    try:
        variant = read_variant(PLACEMENT, python)
        require_uwsgi([variant])
    except PlacebenchError:
        if python is not None:
            raise
        return None
    return variant.python


def _tell(folder: Path, *, as_json: bool) -> None:
    """What was measured, on stdout and for CI; the address of the page is the last line.

    Nothing is said where nothing was measured.
    """
    from placebench import results
    from placebench.report import summary, terminal_table
    from placebench.report.ci_files import hand_over

    run, page = results.load(folder), (folder / "index.html").as_uri()
    if not run.closed:
        return
    hand_over(folder, ())
    if as_json:
        print_json(summary(run))
        say(page)
    else:
        print_result(terminal_table(run))
        print_result(page)
