"""`placebench report`: build the page of a run again, or put two runs side by side."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from placebench.commands import values
from placebench.commands.console import emit_report, print_json, print_result, say
from placebench.commands.folders import list_run

HELP = "build the page of a run again, or put two runs side by side"


def configure(parser: ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument(
        "run", nargs="?", type=values.path, metavar="RUN", help="a run's folder (default: profiles/latest)"
    )
    parser.add_argument(
        "--diff",
        nargs=2,
        type=values.path,
        metavar="RUN",
        help="two runs side by side, the earlier one first",
    )
    parser.add_argument("--json", action="store_true", help="what the page says as one JSON document on stdout")
    parser.add_argument(
        "--figures", action="store_true", help="its figures alone as a small JSON document on stdout, to be published"
    )


def run(arguments: Namespace) -> int:
    """Write the report, and print where the page is as the last line."""
    from placebench import paths, results
    from placebench.report import build_report, is_study, published_document, published_text, write_report

    if arguments.diff:
        return _differ(*arguments.diff, as_json=arguments.json)
    folder = arguments.run or paths.profiles() / "latest"
    report = build_report(folder)
    page = write_report(report)
    list_run(page.parent)
    if arguments.figures and not (folder / "saturation.json").is_file():
        run = results.load(folder)
        print_result(published_text(dict(report.document) if is_study(run) else published_document(run)))
        say(page.as_uri())
    else:
        emit_report(report, as_json=arguments.json or arguments.figures)
    return 0


def _differ(before: Path, after: Path, *, as_json: bool) -> int:
    """Print what both runs measured; RunFolderError where one cannot be read."""
    from placebench import results
    from placebench.report import difference_report, render_text

    report = difference_report(results.load(before), results.load(after))
    if as_json:
        print_json(dict(report.document))
    else:
        print_result(render_text(report))
    return 0
