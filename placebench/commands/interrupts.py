"""Signals that end a command: `interrupted_once` turns each into one KeyboardInterrupt, `stop_event` into an event."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EXIT_INTERRUPTED = 130
_REPEATED_WITHIN_S = 1.0


class ReaderGone(KeyboardInterrupt):
    """Nobody reads what the command prints, as after `| head`: it ends as it does when it is interrupted."""


class ProgramInterrupted(KeyboardInterrupt):
    """A program that ran in this process would have been ended by signal *number*: the process ends by it too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def interrupts() -> list[signal.Signals]:
    """Return the signals that end a command: Ctrl-C, SIGQUIT, kill, and the end of the terminal but under nohup."""
    closed = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, *closed]


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt once, at the first of `interrupts`; further ones are ignored, since tox repeats them."""
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
    """Around a program that runs in this process: signals do to it what they do without us, after its report.

    Ctrl-C is Python's own. The others interrupt the program once, so that there is a report, and end the process when
    they come again: the program may have caught the interrupt. Yields the list of the signals that came and that the
    program does not handle itself. A further signal ends the report as well, unless it comes within a second of the
    first: a terminal and tox both send the same Ctrl-C.
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
    """End this process by a signal, as the operating system does if nothing handles it."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def stop_event() -> threading.Event:
    """Return an event that each of `interrupts` sets from now on, while requests in flight come to their end."""
    stopped = threading.Event()

    def stop(*_: object) -> None:
        leave_closed_streams()
        stopped.set()

    for number in interrupts():
        signal.signal(number, stop)
    return stopped


def leave_closed_streams() -> None:
    """Discard what goes to a closed terminal or pipe, instead of failing."""
    poller = select.poll()
    for descriptor in (1, 2):
        poller.register(descriptor, 0)
    closed = [descriptor for descriptor, events in poller.poll(0) if events & (select.POLLERR | select.POLLHUP)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in closed:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
