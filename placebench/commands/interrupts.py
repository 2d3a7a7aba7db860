"""Signals that end a command: `interrupted_once` turns them into one KeyboardInterrupt, `stop_event` into an event."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_INTERRUPTED = 130
ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name))
"""The signals by which placebench ends itself if they have ended the command that it ran."""
_REPEATED_WITHIN_S = 1.0


class ReaderGone(KeyboardInterrupt):
    """The reader of stdout or stderr is gone, as after `| head`; the command ends as it does when interrupted."""


class ProgramInterrupted(KeyboardInterrupt):
    """A program that ran in this process was interrupted by signal *number*, which then has to end this process too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interrupts() -> list[signal.Signals]:
    """Return the signals that end a command: Ctrl-C, SIGTERM, SIGQUIT, and (except under nohup) SIGHUP.

    Windows has SIGBREAK in place of SIGQUIT, and no SIGHUP.
    """
    names = ("SIGINT", "SIGBREAK", "SIGQUIT", "SIGTERM", "SIGHUP")
    known = [number for number in (getattr(signal, name, None) for name in names) if number is not None]
    return [each for each in known if each.name != "SIGHUP" or signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first of `interrupts` and ignore further ones, because tox repeats them."""
    interrupted, numbers = False, interrupts()

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        leave_closed_streams()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def signals_of_program() -> Iterator[list[int]]:
    """Handle signals while a program runs in this process, so that they have their usual effect after its report.

    Ctrl-C is handled by Python. The other signals interrupt the program once, so that there is a report, and end the
    process if they are repeated, because the program may have caught the interrupt. Yields a list to which the received
    signals are added that the program does not handle itself. A further signal ends the report too, unless it comes
    within a second of the first: a terminal and tox both send the same Ctrl-C.
    """
    received: list[int] = []
    interrupted_at = float("inf")

    def interrupt(number: int, _: object) -> None:
        nonlocal interrupted_at
        received.append(number)
        interrupted_at = time.monotonic()
        signal.signal(number, signal.SIG_DFL)
        leave_closed_streams()
        raise KeyboardInterrupt

    def end_report(number: int, _: object) -> None:
        if time.monotonic() > interrupted_at + _REPEATED_WITHIN_S:
            end_by(number)

    after: dict[signal.Signals, Any] = {number: signal.getsignal(number) for number in interrupts()}
    for number in after:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else interrupt)
    try:
        yield received
    except KeyboardInterrupt:
        interrupted_at = min(interrupted_at, time.monotonic())
        raise
    finally:
        if interrupted_at < float("inf"):
            after = dict.fromkeys(after, end_report)
        for number, handler in after.items():
            signal.signal(number, handler)


def end_by(number: int) -> None:
    """End this process by signal *number*, as the operating system does without a handler.

    On Windows it ends with exit code 130.
    """
    if sys.platform == "win32":  # where `os.kill` would make the number the exit code
        os._exit(EXIT_INTERRUPTED)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def stop_event() -> threading.Event:
    """Return an event that is set by each of `interrupts`, so that requests in flight can be completed."""
    stopped = threading.Event()

    def stop(*_: object) -> None:
        leave_closed_streams()
        stopped.set()

    for number in interrupts():
        signal.signal(number, stop)
    return stopped


def leave_closed_streams() -> None:
    """Redirect stdout and stderr to the null device if their terminal or pipe is closed, instead of failing.

    Nothing happens on Windows, which does not tell.
    """
    if not hasattr(select, "poll"):
        return
    poller = select.poll()
    for descriptor in (1, 2):
        poller.register(descriptor, 0)
    closed = [descriptor for descriptor, events in poller.poll(0) if events & (select.POLLERR | select.POLLHUP)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in closed:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
