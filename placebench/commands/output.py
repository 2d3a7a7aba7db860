"""The output of a command: the result on stdout (`emit`), and progress on stderr (`say`, `steps`, `progress`).

The result is text, one JSON document (`--json`) or Markdown (`--markdown`). It is the only output on stdout, so that it
can be piped. Progress is a bar on a terminal and plain lines elsewhere; `--quiet` omits it.
"""

import errno
import itertools
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from placebench import units
from placebench.commands.interrupts import ReaderGone, leave_closed_streams
from placebench.plain_text import escaped, printable

if TYPE_CHECKING:
    from placebench.commands.options import OutputOptions
    from placebench.report import Report

Advance = Callable[[int], None]
_PLAIN_LINE_EVERY_S = 5.0
_STEPS_TO_JUDGE = 3
_BEGAN_S = time.monotonic()
_verbosity = {"quiet": False, "verbose": False}


def set_verbosity(*, quiet: bool = False, verbose: bool = False) -> None:
    """Set how much is printed from now on, by the options --quiet and --verbose."""
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
    """Print the result in the format that *output* selects; the other formats are not rendered.

    The URL of *page* is the last line: of stdout after text, of stderr after JSON and Markdown. With --open a browser
    opens the page.
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
    """Print a report in the selected format, and the URL of its page."""
    from placebench.report import render_markdown, render_text

    emit(
        output,
        text=lambda: render_text(report, width=terminal_width()),
        document=lambda: report.document,
        markdown=lambda: render_markdown(report),
        page=report.page,
    )


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def open_page(page: Path) -> bool:
    """Open *page* in a graphical browser; return whether there is one."""
    return open_address(page.resolve().as_uri())


def open_address(address: str) -> bool:
    """Open a URL in a graphical browser; return whether there is one."""
    import webbrowser

    has_screen = sys.platform in ("darwin", "win32") or any(
        map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    )
    return has_screen and webbrowser.open(address)


def say(message: str) -> None:
    """Print one line of progress; with --verbose it has the seconds since the start of the command."""
    if not _verbosity["quiet"]:
        elapsed = f"[{time.monotonic() - _BEGAN_S:8.3f} s] " if is_verbose() else ""
        warn(f"{elapsed}{message}")


def warn(message: str) -> None:
    """Print one line on stderr without secrets, even with --quiet."""
    from placebench.masking import mask

    print_to(sys.stderr, mask(message))


def print_result(text: str) -> None:
    """Print the result of the command on stdout."""
    print_to(sys.stdout, text)


def print_to(stream: IO[str], text: str) -> None:
    """Print *text* without control characters; raise ReaderGone if the stream's reader is gone."""
    try:
        print(printable(text), file=stream, flush=True)
    except OSError as error:
        if error.errno != (errno.EINVAL if sys.platform == "win32" else errno.EPIPE):
            raise
        leave_closed_streams()
        raise ReaderGone from None


def print_json(document: Mapping[str, Any]) -> None:
    """Print the result as one JSON document, in ASCII if stdout's encoding is not UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a closed stdout is None
    written = json.dumps(document, indent=2, ensure_ascii=encoding.lower() != "utf-8")
    print_result(escaped(written))


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """Show the progress of *total* steps; yields `advance(done)`, to be called with the number of completed steps."""
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
    """Show the progress of *total* named steps; yields `announce(step)`, to be called when a step begins.

    A step that fails and is repeated is announced once. The failure is reported by `say`, above the bar on a terminal.
    """
    if not _has_bar():
        numbers, began_s = itertools.count(1), time.monotonic()

        def announce(step: str) -> None:
            number = next(numbers)
            say(f"[{number}/{total}] {step}{_time_left(time.monotonic() - began_s, number - 1, total)}")

        yield announce
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from placebench.masking import mask

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with _bar(*columns) as bar:
        task = bar.add_task(label, total=total)
        begun, began_s = itertools.count(), time.monotonic()

        def show(step: str) -> None:
            done = next(begun)
            left = _time_left(time.monotonic() - began_s, done, total)
            bar.update(task, completed=done, description=printable(mask(f"{step}{left}")))

        yield show
        bar.update(task, completed=total, description="done")


def _time_left(elapsed_s: float, done: int, total: int) -> str:
    """Return how long the steps that are left will take, if it is a minute or more and three steps show it."""
    left_s = elapsed_s / done * (total - done) if done >= _STEPS_TO_JUDGE else 0.0
    return f", about {units.numbered(math.ceil(left_s / 60), 'minute')} left" if left_s >= 60 else ""


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
