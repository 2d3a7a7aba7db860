"""What the commands that ask a survey share: their options, and one sitting with its page.

The key pieces are `add_asking_options` and `ask`.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from placebench import limits
from placebench.commands import values
from placebench.commands.console import print_json, print_result, say, steps
from placebench.commands.folders import reported, run_folder
from placebench.errors import PlacebenchError

if TYPE_CHECKING:
    from placebench.experiment.study import StudySpec
    from placebench.topology import Topology

REPEATS = 5
QUICK_TREES = 50


def add_asking_options(parser: ArgumentParser) -> None:
    """--topology, --utilization and --request, and those of `add_sitting_options`."""
    parser.add_argument("--topology", default="nested-perfload", help="name or .toml file (default: %(default)s)")
    parser.add_argument(
        "--utilization",
        type=values.share,
        metavar="0..1",
        help="of the inventories by consumers (default: the topology's)",
    )
    parser.add_argument(
        "--request", type=values.request, metavar="PATH", help="path and query that is asked (default: the topology's)"
    )
    add_sitting_options(parser)


def add_sitting_options(parser: ArgumentParser) -> None:
    """--trees, --seed, --db, --repeats, --out, --quick, --json and --resume."""
    parser.add_argument(
        "--db", type=values.text, metavar="URL", help="a PostgreSQL to work beside; default: one of its own"
    )
    parser.add_argument(
        "--trees", type=values.trees, metavar="N", help="how many trees (default: the topology's, 1000)"
    )
    parser.add_argument(
        "--seed", type=values.seed, default=1, metavar="S", help="of ids and every random choice (default: 1)"
    )
    parser.add_argument(
        "--repeats",
        type=values.whole(1, limits.REPEATS),
        default=REPEATS,
        metavar="N",
        help="a point (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=values.path, metavar="DIR", help="the run's folder (default: a new one in profiles/)"
    )
    parser.add_argument("--quick", action="store_true", help=f"about a minute, on {QUICK_TREES} trees unless named")
    parser.add_argument("--json", action="store_true", help="the rows as one JSON document on stdout")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, or the newest one")


def topology_asked(arguments: Namespace) -> "Topology":
    """The topology that the options name."""
    from placebench.seeding import find_topology

    return find_topology(
        arguments.topology, trees=trees_asked(arguments), seed=arguments.seed, utilization=arguments.utilization
    )


def trees_asked(arguments: Namespace) -> int | None:
    """How many trees; None where the topology decides."""
    return QUICK_TREES if arguments.quick and arguments.trees is None else arguments.trees


def ask(arguments: Namespace, topology: "Topology", spec: "StudySpec") -> Path:
    """One sitting of *spec*, in a new folder or the one to resume; returns the folder.

    What was measured is told, with its page, however the sitting ends.
    """
    from placebench.experiment.study import StudyRun
    from placebench.runtime.postgres import open_server

    def tell(folder: Path) -> None:
        _tell(folder, as_json=arguments.json)

    if not spec.points and spec.impossible:
        raise PlacebenchError(f"nothing of this can be measured: {spec.impossible[0][1]}")
    if spec.repeats < 1 or not spec.points or not topology.trees:
        seen = f"{spec.repeats} repeats of {len(spec.points)} points on {topology.trees} trees"
        raise PlacebenchError(f"{seen}: at least one of each is needed")
    with run_folder(arguments, spec.command) as folder, open_server(arguments.db) as server:
        study = StudyRun(spec, topology, folder, server)
        with steps(arguments.command, study.steps) as announce, reported(folder, tell):
            study.run(announce, note=say)
    return folder


def _tell(folder: Path, *, as_json: bool) -> None:
    from placebench import results
    from placebench.report import document_of, text_of

    loaded, page = results.load(folder), (folder / "index.html").as_uri()
    if as_json:
        print_json(document_of(loaded))
        say(page)
    else:
        print_result(text_of(loaded))
        print_result(page)
