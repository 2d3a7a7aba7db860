"""`placebench report`: show a run, list runs, compare two runs, export a run, or reproduce an exported run."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from placebench.commands import STARTS_SERVERS, Command, options
from placebench.commands.output import emit, emit_report, open_page, print_result, say, terminal_width
from placebench.commands.runs import compare_plan, list_run
from placebench.errors import PlacebenchError, RunFolderError, TooFewReplicatesError, UndecidedError, UsageError


@dataclass(frozen=True)
class OpenOptions:
    """The options of `placebench report open`."""

    output: options.OutputOptions
    run: Path | None


@dataclass(frozen=True)
class ListOptions:
    """The options of `placebench report list`."""

    output: options.OutputOptions
    folder: Path | None


@dataclass(frozen=True)
class DiffOptions:
    """The options of `placebench report diff`."""

    output: options.OutputOptions
    before: Path
    after: Path


@dataclass(frozen=True)
class ExportOptions:
    """The options of `placebench report export`."""

    run: Path | None
    out: Path | None


@dataclass(frozen=True)
class ReproduceOptions:
    """The options of `placebench report reproduce`."""

    comparison: options.ComparisonOptions
    result: Path
    folder: Path


def _configure_open(parser: ArgumentParser) -> None:
    _add_run(parser)
    options.add_output(parser, markdown=True)


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


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", type=options.path, metavar="RUN", help="folder of a run (default: profiles/latest)"
    )


def _open(given: OpenOptions) -> int:
    """Rebuild the page, print the result, and open the page if the command runs on a terminal."""
    from placebench.report.building import build_report, write_report

    report = build_report(_folder(given.run))
    write_report(report)
    list_run(report.folder)
    emit_report(given.output, report)
    if sys.stdout.isatty() and not (given.output.json or given.output.markdown):
        open_page(report.page)
    return 0


def _list(given: ListOptions) -> int:
    """List the runs of a folder, newest first, and write the page with this list."""
    from placebench import paths
    from placebench.report.run_list import listed_runs, write_index

    if given.folder and not given.folder.is_dir():
        raise RunFolderError(f"no folder {given.folder}: name one that runs are in")
    folder = (given.folder or paths.profiles_folder()).resolve()
    runs = listed_runs(folder)
    page = write_index(folder) if runs else None
    emit(
        given.output,
        text=lambda: "\n".join(f"{each.name}  {each.status:<11}  {each.headline}" for each in runs) or "no runs yet",
        document=lambda: {"runs": [asdict(each) for each in runs]},
        page=page,
    )
    return 0


def _diff(given: DiffOptions) -> int:
    """Show the measurements of two runs side by side."""
    from placebench import results
    from placebench.report.renderers import render_text
    from placebench.report.run_difference import difference_report

    report = difference_report(results.load(given.before), results.load(given.after))
    emit(given.output, text=lambda: render_text(report, width=terminal_width()), document=lambda: report.document)
    return 0


def _export(given: ExportOptions) -> int:
    """Write the results of a run as JSON for publication, one item per line."""
    from placebench.report.building import export_figures

    folder = _folder(given.run)
    figures = export_figures(folder)
    if given.out:
        given.out.write_text(f"{figures}\n", encoding="utf-8")
        say(f"figures of {folder} in {given.out}")
    else:
        print_result(figures)
    if hidden := _hidden(json.loads(figures).get("plan", {})):
        say(f"not published: {hidden}; whoever reproduces the run needs values of their own")
    return 0


def _reproduce(given: ReproduceOptions) -> int:
    """Repeat a published run, and report for each claim whether it is reproduced.

    Too few replicates leave a claim undecided.
    """
    from placebench import results
    from placebench.compare.what.trials import parse_plan
    from placebench.report.reproduction import raise_for_claims, read_published, reproduction_report

    published = read_published(given.result)
    if hidden := _hidden(published.plan):
        raise UsageError(f"{given.result}: not published: {hidden}: write values of your own into a copy of it")
    folders: list[Path] = []
    undecided: UndecidedError | None = None
    try:
        plan = parse_plan(published.plan, source=given.result, folder=given.folder)
        compare_plan(given.comparison, plan, emit=lambda report: folders.append(report.folder))
    except TooFewReplicatesError as error:
        say(str(error))
    except UndecidedError as error:
        if not folders:
            raise
        undecided = error
    except PlacebenchError as error:
        if folders or error.exit_code != PlacebenchError.exit_code:
            raise
        raise PlacebenchError(f"{given.result} cannot be reproduced here: {error}") from error
    report = reproduction_report(published, results.load(folders[-1]))
    (report.folder / "reproduction.json").write_text(json.dumps(report.document, ensure_ascii=False), encoding="utf-8")
    emit_report(given.comparison.output, report)
    raise_for_claims(report)
    if undecided:
        raise undecided
    return 0


def _hidden(plan: Mapping[str, Any]) -> str:
    """Return the places of a published plan whose values are masked, as text; empty if there are none."""
    from placebench.report.reproduction import hidden_places

    return ", ".join(hidden_places(plan))


def _folder(run: Path | None) -> Path:
    from placebench import paths

    return run or paths.profiles_folder() / "latest"


COMMANDS: dict[str, Command[Any]] = {
    "report open": Command(_configure_open, _open, options=OpenOptions),
    "report list": Command(_configure_list, _list, options=ListOptions),
    "report diff": Command(_configure_diff, _diff, options=DiffOptions),
    "report export": Command(_configure_export, _export, options=ExportOptions),
    "report reproduce": Command(_configure_reproduce, _reproduce, options=ReproduceOptions, needs_linux=STARTS_SERVERS),
}
