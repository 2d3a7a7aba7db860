"""What a command says while it works, on stderr: a progress bar on a terminal, plain lines elsewhere.

The result of a command goes to stdout (`print_result`), so that `--json` can be piped. What ends a command before its
time (`interrupts`) may have closed the terminal.
"""

import itertools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]
_PLAIN_LINE_EVERY_S = 5.0


def interrupts() -> list[signal.Signals]:
    """The signals that end a command: of Ctrl-C, SIGQUIT, kill, and the end of the terminal; not that under nohup."""
    closed = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, *closed]


def leave_closed_streams() -> None:
    """Have what goes to a terminal or a pipe that nobody reads any more go nowhere, instead of failing."""
    poller = select.poll()
    for descriptor in (1, 2):
        poller.register(descriptor, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor, events in poller.poll(0):
        if events & (select.POLLERR | select.POLLHUP):
            os.dup2(nowhere, descriptor)
    os.close(nowhere)


def say(message: str) -> None:
    """One line of progress for the user."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201


def print_result(text: str) -> None:
    """The result of the command, on stdout."""
    print(text, flush=True)  # noqa: T201


def print_json(document: dict[str, Any]) -> None:
    """The result of the command under --json: one document, alone on stdout."""
    print_result(json.dumps(document, indent=2, ensure_ascii=False))


@contextmanager
def progress(label: str, total: int) -> Iterator[Advance]:
    """Show work of *total* steps; yields `advance(done)`, to be called with how many steps are done so far."""
    if sys.stderr.isatty():
        with _bar(label, total) as advance:
            yield advance
    else:
        yield _plain_lines(label, total)


@contextmanager
def steps(label: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show work of *total* named steps; yields `announce(step)`, to be called as each begins.

    A step that fails and is made again is announced once; `say` tells of the failure, above the bar on a terminal.
    """
    if sys.stderr.isatty():
        with _step_bar(label, total) as announce:
            yield announce
    else:
        yield _numbered_lines(total)


@contextmanager
def _step_bar(label: str, total: int) -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        begun = 0

        def announce(step: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, description=step)
            begun += 1

        yield announce
        bar.update(task, completed=total, description="done")


def _numbered_lines(total: int) -> Callable[[str], None]:
    numbers = itertools.count(1)

    def announce(step: str) -> None:
        say(f"[{next(numbers)}/{total}] {step}")

    return announce


@contextmanager
def _bar(label: str, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)


def _plain_lines(label: str, total: int) -> Advance:
    said_at = time.monotonic()

    def advance(done: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _PLAIN_LINE_EVERY_S:
            said_at = time.monotonic()
            say(f"{label}: {done} of {total}")

    return advance
