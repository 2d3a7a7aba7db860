"""`placebench report`: the runs that were made: show one, list them, compare two, export one, reproduce an export."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from placebench.commands import Command, options
from placebench.commands.output import emit, emit_report, open_page, print_result, say, terminal_width
from placebench.commands.runs import compare_plan, list_run
from placebench.errors import PlacebenchError, RunFolderError, TooFewReplicatesError, UsageError


def _configure_open(parser: ArgumentParser) -> None:
    _add_run(parser)
    options.add_output(parser, markdown=True)
    parser.set_defaults(open=False)


def _configure_list(parser: ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=options.path, metavar="DIR", help="folder of the runs (default: profiles/)"
    )
    options.add_output(parser, page=True)


def _configure_diff(parser: ArgumentParser) -> None:
    parser.add_argument("before", type=options.path, metavar="A", help="folder of the earlier run")
    parser.add_argument("after", type=options.path, metavar="B", help="folder of the later run")
    options.add_output(parser)


def _configure_export(parser: ArgumentParser) -> None:
    _add_run(parser)
    options.add_out(parser, "file to write (default: standard output)", metavar="FILE")


def _configure_reproduce(parser: ArgumentParser) -> None:
    parser.add_argument(
        "result", type=options.path, metavar="RESULT.json", help="figures that `placebench report export` wrote"
    )
    parser.add_argument(
        "--folder",
        type=options.path,
        default=Path(),
        metavar="DIR",
        help="folder that the paths of the plan start in, such as a checkout of the application (default: the current "
        "one)",
    )
    options.add_replicates(parser, "as many as were published")
    options.add_placement(parser)
    options.add_run(parser)
    options.add_host(parser)
    options.add_output(parser, markdown=True, page=True)
    parser.set_defaults(topology=None, trees=None, seed=None, utilization=None, rounds=None)


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", type=options.path, metavar="RUN", help="folder of a run (default: profiles/latest)"
    )


def _open(arguments: Namespace) -> int:
    """Build the page again, print the result, and open the page where the command runs on a terminal."""
    from placebench.report.building import build_report, write_report

    report = build_report(_folder(arguments))
    write_report(report)
    list_run(report.folder)
    emit_report(arguments, report)
    if sys.stdout.isatty() and not (arguments.json or arguments.markdown):
        open_page(report.page)
    return 0


def _list(arguments: Namespace) -> int:
    """List the runs of a folder, newest first, and write the page that lists them."""
    from placebench import paths
    from placebench.report.run_list import listed_runs, write_index

    if arguments.folder and not arguments.folder.is_dir():
        raise RunFolderError(f"no folder {arguments.folder}: name one that runs are in")
    folder = (arguments.folder or paths.profiles_folder()).resolve()
    runs = listed_runs(folder)
    page = write_index(folder) if runs else None
    emit(
        arguments,
        text=lambda: "\n".join(f"{each.name}  {each.status:<11}  {each.headline}" for each in runs) or "no runs yet",
        document=lambda: {"runs": [asdict(each) for each in runs]},
        page=page,
    )
    return 0


def _diff(arguments: Namespace) -> int:
    """Show what both runs measured."""
    from placebench import results
    from placebench.report.renderers import render_text
    from placebench.report.run_difference import difference_report

    report = difference_report(results.load(arguments.before), results.load(arguments.after))
    emit(arguments, text=lambda: render_text(report, width=terminal_width()), document=lambda: report.document)
    return 0


def _export(arguments: Namespace) -> int:
    """Write the figures of a run alone, a line each."""
    from placebench.report.building import export_figures

    folder = _folder(arguments)
    figures = export_figures(folder)
    if arguments.out:
        arguments.out.write_text(f"{figures}\n", encoding="utf-8")
        say(f"figures of {folder} in {arguments.out}")
    else:
        print_result(figures)
    if hidden := _hidden(json.loads(figures).get("plan", {})):
        say(f"not published: {hidden}; whoever reproduces the run needs values of their own")
    return 0


def _reproduce(arguments: Namespace) -> int:
    """Run a published plan here, and say of each claim whether it is reproduced; too few replicates decide none."""
    from placebench import results
    from placebench.compare.what.trials import parse_plan
    from placebench.report.reproduction import raise_for_claims, read_published, reproduction_report

    published = read_published(arguments.result)
    if hidden := _hidden(published.plan):
        raise UsageError(f"{arguments.result}: not published: {hidden}: write values of your own into a copy of it")
    folders: list[Path] = []
    try:
        plan = parse_plan(published.plan, source=arguments.result, folder=arguments.folder)
        compare_plan(arguments, plan, emit=lambda report: folders.append(report.folder))
    except TooFewReplicatesError as error:
        say(str(error))
    except PlacebenchError as error:
        if folders or error.exit_code != PlacebenchError.exit_code:
            raise
        raise PlacebenchError(f"{arguments.result} cannot be reproduced here: {error}") from error
    report = reproduction_report(published, results.load(folders[-1]))
    (report.folder / "reproduction.json").write_text(json.dumps(report.document, ensure_ascii=False), encoding="utf-8")
    emit_report(arguments, report)
    raise_for_claims(report)
    return 0


def _hidden(plan: Mapping[str, Any]) -> str:
    """The places of a published plan whose values were not published; empty where all were."""
    from placebench.report.reproduction import hidden_places

    return ", ".join(hidden_places(plan))


def _folder(arguments: Namespace) -> Path:
    from placebench import paths

    folder: Path = arguments.run or paths.profiles_folder() / "latest"
    return folder


COMMANDS = {
    "report open": Command(_configure_open, _open),
    "report list": Command(_configure_list, _list),
    "report diff": Command(_configure_diff, _diff),
    "report export": Command(_configure_export, _export),
    "report reproduce": Command(_configure_reproduce, _reproduce),
}
