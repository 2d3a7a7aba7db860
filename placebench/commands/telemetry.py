"""`placebench telemetry show`: tables and a page with charts over time, of a folder of telemetry."""

from argparse import ArgumentParser
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from placebench.commands import Command, options
from placebench.commands.output import emit, terminal_width
from placebench.errors import UsageError

_PAGE = "telemetry.html"


@dataclass(frozen=True)
class TelemetryShowOptions:
    """The options of `placebench telemetry show`."""

    output: options.OutputOptions
    folder: Path
    out: Path | None


def _configure_show(parser: ArgumentParser) -> None:
    parser.add_argument("folder", type=options.path, metavar="DIR", help="folder that the telemetry was written to")
    options.add_out(parser, f"page to write (default: {_PAGE} in DIR)", metavar="FILE")
    options.add_output(parser, markdown=True, page=True)


def _show(given: TelemetryShowOptions) -> int:
    """Print the tables, and write the page; a file that is not a page of placebench is not replaced."""
    from placebench.page import description_of
    from placebench.report.renderers import render_html, render_markdown, render_text, write_page
    from placebench.report.telemetry import telemetry_report
    from placebench.telemetry import load

    report = telemetry_report(given.folder, load(given.folder))
    folder = given.folder if given.folder.is_dir() else given.folder.parent
    page = given.out or folder / _PAGE
    if page.is_dir():
        raise UsageError(f"{page} is a folder: --out takes the file that the page is written to")
    if page.exists() and description_of(page) is None:
        raise UsageError(f"{page} exists and is not a page of placebench: name another file with --out")
    write_page(page, render_html(report))
    emit(
        given.output,
        text=partial(render_text, report, width=terminal_width()),
        document=lambda: report.document,
        markdown=partial(render_markdown, report),
        page=page,
    )
    return 0


COMMANDS: dict[str, Command[Any]] = {"telemetry show": Command(_configure_show, _show, options=TelemetryShowOptions)}
