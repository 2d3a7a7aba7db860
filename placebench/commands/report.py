"""`placebench report`: build the page of a run again."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from placebench.commands.console import print_json, print_result, say

HELP = "build the page of a run again"


def configure(parser: ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="a run's folder (default: profiles/latest)")
    parser.add_argument("--json", action="store_true", help="what the page says as one JSON document on stdout")


def run(arguments: Namespace) -> int:
    """Write the page, and say where it is as the last line."""
    from placebench import paths, results
    from placebench.report import summary, terminal_table, write_index, write_report

    page = write_report(arguments.run or paths.profiles() / "latest")
    if page.parent.parent == paths.profiles():
        write_index(page.parent.parent)
    loaded = results.load(page.parent)
    if arguments.json:
        print_json(summary(loaded))
        say(page.as_uri())
    else:
        print_result(terminal_table(loaded))
        print_result(page.as_uri())
    return 0
