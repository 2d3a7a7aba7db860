"""The output of a command: its result on stdout (`emit`), and progress on stderr (`say`, `steps`, `progress`).

The result is text, one JSON document (`--json`) or Markdown (`--markdown`), alone on stdout, so that it can be piped.
Progress is a bar on a terminal and plain lines elsewhere; `--quiet` leaves it out.
"""

import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from placebench.commands.interrupts import ReaderGone, leave_closed_streams
from placebench.plain_text import escaped, printable

if TYPE_CHECKING:
    from placebench.commands.options import OutputOptions
    from placebench.report import Report

Advance = Callable[[int], None]
_PLAIN_LINE_EVERY_S = 5.0
_BEGAN_S = time.monotonic()
_verbosity = {"quiet": False, "verbose": False}


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Print as much from now on as --quiet and --verbose say."""
    _verbosity.update(quiet=quiet, verbose=verbose)


def is_verbose() -> bool:
    """Return whether --verbose was given."""
    return _verbosity["verbose"]


def emit(
    output: "OutputOptions",
    *,
    text: Callable[[], str],
    document: Callable[[], Mapping[str, Any]],
    markdown: Callable[[], str] | None = None,
    page: Path | None = None,
) -> None:
    """Print the result in the format that *output* names; only that one is rendered.

    The address of *page* is the last line: of stdout below text, of stderr else. With --open a browser opens it.
    """
    if output.json:
        print_json(document())
    elif markdown is not None and output.markdown:
        print_result(markdown().rstrip())
    else:
        print_result(text())
    if page is not None:
        (say if output.json or output.markdown else print_result)(page.resolve().as_uri())
        if output.open and not open_page(page):
            say("no browser on this machine: open the address above on another one")


def emit_report(output: "OutputOptions", report: "Report") -> None:
    """Print a report, and the address of its page."""
    from placebench.report import render_markdown, render_text

    emit(
        output,
        text=lambda: render_text(report, width=terminal_width()),
        document=lambda: report.document,
        markdown=lambda: render_markdown(report),
        page=report.page,
    )


def terminal_width() -> int | None:
    """Return how many characters fit in a line of stdout; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def open_page(page: Path) -> bool:
    """Open *page* in a graphical browser; return whether there is one."""
    import webbrowser

    has_screen = sys.platform == "darwin" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    return has_screen and webbrowser.open(page.resolve().as_uri())


def say(message: str) -> None:
    """Print one line of progress; --verbose adds the seconds since the command began."""
    if not _verbosity["quiet"]:
        elapsed = f"[{time.monotonic() - _BEGAN_S:8.3f} s] " if is_verbose() else ""
        warn(f"{elapsed}{message}")


def warn(message: str) -> None:
    """Print one line on stderr without secrets, with --quiet too."""
    from placebench.masking import mask

    print_to(sys.stderr, mask(message))


def print_result(text: str) -> None:
    """Print the result of the command, on stdout."""
    print_to(sys.stdout, text)


def print_to(stream: IO[str], text: str) -> None:
    """Print lines without control characters; raises ReaderGone if nobody reads them any more."""
    try:
        print(printable(text), file=stream, flush=True)
    except BrokenPipeError:
        leave_closed_streams()
        raise ReaderGone from None


def print_json(document: Mapping[str, Any]) -> None:
    """Print the result of the command as one JSON document; in ASCII if stdout may not have all letters."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a closed stdout is None
    written = json.dumps(document, indent=2, ensure_ascii=encoding.lower() != "utf-8")
    print_result(escaped(written))


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """Show work of *total* steps; yields `advance(done)`, to be called with how many steps are done so far."""
    if _has_bar():
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with _bar(*columns) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _plain_lines(label, total)


@contextmanager
def steps(label: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show work of *total* named steps; yields `announce(step)`, to be called as each begins.

    A step that fails and is repeated is announced once; `say` reports the failure, above the bar on a terminal.
    """
    if not _has_bar():
        numbers = itertools.count(1)
        yield lambda step: say(f"[{next(numbers)}/{total}] {step}")
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from placebench.masking import mask

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with _bar(*columns) as bar:
        task = bar.add_task(label, total=total)
        begun = itertools.count()
        yield lambda step: bar.update(task, completed=next(begun), description=printable(mask(step)))
        bar.update(task, completed=total, description="done")


def _has_bar() -> bool:
    return sys.stderr.isatty() and not _verbosity["quiet"]


def _bar(*columns: Any) -> Any:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True))


def _plain_lines(label: str, total: int) -> Advance:
    said_at = time.monotonic()

    def advance(done: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PLAIN_LINE_EVERY_S:
            said_at = time.monotonic()
            say(f"{label}: {done} of {total}")

    return advance
