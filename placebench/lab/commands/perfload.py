"""`placebench lab perfload`: the whole benchmark, from an empty database to the page with the profiles."""

from argparse import ArgumentParser
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit_report, say, steps
from placebench.commands.runs import reported, run_folder
from placebench.errors import PlacebenchError

_QUICK_TREES = 50


@dataclass(frozen=True)
class PerfloadOptions(options.RunCommandOptions):
    """The options of `placebench lab perfload`."""

    data: options.DataOptions
    preset: str | None
    record_telemetry: bool
    placement_python: Path | None


def _configure(parser: ArgumentParser) -> None:
    options.add_preset(
        parser,
        quick=f"naive, tuned, dedup and cached on {_QUICK_TREES} trees, about two minutes",
        default="every variant, about five minutes",
    )
    options.add_topology(parser)
    options.add_utilization(parser)
    options.add_size(parser)
    parser.add_argument(
        "--record-telemetry", action="store_true", help="record the durations of workers, client and backends too"
    )
    options.add_placement(parser)
    options.add_run(parser, resume=False)
    options.add_output(parser, markdown=True, page=True)


def _run(given: PerfloadOptions) -> int:
    """Make the run and its report; measurements are reported even if the run is interrupted or fails."""
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.perfload.run import PerfloadRun, PerfloadSettings
    from placebench.runtime.postgres import open_server

    is_quick, data = given.preset == "quick", given.data
    trees = _QUICK_TREES if is_quick and data.trees is None else data.trees
    topology = find_topology(data.topology, trees=trees, seed=data.seed, utilization=data.utilization)
    if not topology.trees:
        raise PlacebenchError("--trees 0 leaves nothing to request: give 1 or more")
    settings = replace(
        PerfloadSettings.quick() if is_quick else PerfloadSettings.default(), telemetry=given.record_telemetry
    )
    placement = _placement(given.placement_python)
    if placement is not None:
        settings = settings.with_placement(placement)
    with (
        run_folder(given.run, "perfload") as folder,
        open_server(given.run.server) as server,
        steps(given.run.command, settings.steps) as announce,
    ):
        if placement is None:
            say("the real Placement takes no part: `tox -e oracle` installs it, or --placement-python names it")
        with reported(folder, partial(emit_report, given.output)):
            PerfloadRun(topology, settings, folder, server).run(announce, note=say)
    return 0


def _placement(python: Path | None) -> str | None:
    """Return the Python of the real Placement: *python*, else that of `tox -e oracle`; None if there is none."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.variants import PLACEMENT

    try:
        variant = read_variant(PLACEMENT, python=python)
        require_servers([variant])
    except PlacebenchError:
        if python is not None:
            raise
        return None
    return variant.python


COMMANDS = {"lab perfload": Command(_configure, _run, PerfloadOptions, "perfload", needs_linux=STARTS_SERVERS)}
