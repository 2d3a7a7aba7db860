"""`placebench report`: build the page of a run again, or put two runs side by side."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from placebench.commands import values
from placebench.commands.console import print_json, print_result, say
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
    """Write the page, and say where it is as the last line."""
    from placebench import paths, results
    from placebench.report import document_of, published, text_of, write_report
    from placebench.report.export import in_lines
    from placebench.report.studies import is_survey

    if arguments.diff:
        return _differ(*arguments.diff, as_json=arguments.json)
    folder = arguments.run or paths.profiles_folder() / "latest"
    if (folder / "saturation.json").is_file():
        return _search(folder, as_json=arguments.json or arguments.figures)
    loaded = results.load(folder)
    page = write_report(loaded)
    list_run(page.parent)
    if arguments.json:
        print_json(document_of(loaded))
        say(page.as_uri())
    elif arguments.figures:
        print_result(in_lines(document_of(loaded) if is_survey(loaded) else published(loaded)))
        say(page.as_uri())
    else:
        print_result(text_of(loaded))
        print_result(page.as_uri())
    return 0


def _search(folder: Path, *, as_json: bool) -> int:
    """The page of a search for what a service takes."""
    from placebench.experiment.capacity import Saturation
    from placebench.report.capacity import result_line, saturation_document, write_saturation

    page, made = write_saturation(folder), Saturation.load(folder / "saturation.json")
    if as_json:
        print_json(saturation_document(folder, made))
        say(page.as_uri())
    else:
        print_result(result_line(made))
        print_result(page.as_uri())
    return 0


def _differ(before: Path, after: Path, *, as_json: bool) -> int:
    """What both runs measured; RunFolderError where one cannot be read."""
    from placebench import results
    from placebench.report import difference_document, difference_table

    runs = results.load(before), results.load(after)
    if as_json:
        print_json(difference_document(*runs))
    else:
        print_result(difference_table(*runs))
    return 0
