"""The studies of the laboratory, a command each; here is what they share: options, data and one run."""

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING

from placebench import limits
from placebench.commands import options
from placebench.commands.output import emit_report, say, steps
from placebench.commands.runs import reported, run_folder
from placebench.errors import PlacebenchError

if TYPE_CHECKING:
    from placebench.lab.inventory.topology import Topology
    from placebench.lab.studies.study import StudySpec

REPLICATES = 5
_QUICK_TREES = 50


def add_study_options(parser: ArgumentParser, *, replicates: int | str = REPLICATES) -> None:
    """--replicates, --preset, and those of a run and its result."""
    parser.add_argument(
        "-n",
        "--replicates",
        type=options.whole(1, limits.REPEATS),
        metavar="N",
        help=f"number of replicates per point (default: {replicates})",
    )
    options.add_preset(parser, quick=f"about a minute, on {_QUICK_TREES} trees unless --trees is given", default="all")
    options.add_run(parser)
    options.add_output(parser, markdown=True, page=True)


def is_quick(arguments: Namespace) -> bool:
    """Whether little is to be measured."""
    return bool(arguments.preset == "quick")


def trees_of(arguments: Namespace) -> int | None:
    """The number of trees; None where the topology decides."""
    trees: int | None = arguments.trees
    return _QUICK_TREES if is_quick(arguments) and trees is None else trees


def topology_of(arguments: Namespace) -> "Topology":
    """The topology that the options name."""
    from placebench.lab.inventory.seeding import find_topology

    return find_topology(
        arguments.topology, trees=trees_of(arguments), seed=arguments.seed, utilization=arguments.utilization
    )


def run_study(arguments: Namespace, topology: "Topology", spec: "StudySpec") -> int:
    """Measure the points of a study, in a new folder or the one to resume; return the exit code.

    What was measured is reported, with its page, however the study ends.
    """
    from placebench.lab.studies.study import StudyRun
    from placebench.runtime.postgres import open_server

    if not spec.points and spec.impossible:
        raise PlacebenchError(f"nothing of this can be measured: {spec.impossible[0][1]}")
    if spec.repeats < 1 or not spec.points or not topology.trees:
        seen = f"{spec.repeats} replicates of {len(spec.points)} points on {topology.trees} trees"
        raise PlacebenchError(f"{seen}: at least one of each is needed")
    run, output = options.read(options.RunOptions, arguments), options.read(options.OutputOptions, arguments)
    with run_folder(run, spec.command) as folder, open_server(run.server) as server:
        study = StudyRun(spec, topology, folder, server)
        with (
            steps(run.command, study.steps) as announce,
            reported(folder, partial(emit_report, output)),
        ):
            study.run(announce, note=say)
    return 0
