"""Signals that end a command: `interrupted_once` turns each into one KeyboardInterrupt, `stop_event` into an event."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_INTERRUPTED = 130


class ReaderGone(KeyboardInterrupt):
    """Nobody reads what the command prints, as after `| head`: it ends as it does when it is interrupted."""


def interrupts() -> list[signal.Signals]:
    """The signals that end a command: of Ctrl-C, SIGQUIT, kill, and the end of the terminal; not that under nohup."""
    closed = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, *closed]


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Each of `interrupts` interrupts once; further ones are ignored to the end, since tox repeats them."""
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
def signals_of_program() -> Iterator[None]:
    """Around a program that runs in this process: signals do to it what they do without us, after its report.

    Ctrl-C is Python's own. The others interrupt the program once, so that there is a report, and end the process when
    they come again: the program may have caught the interrupt. Once it is interrupted, nothing ends the report.
    """

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        leave_closed_streams()
        raise KeyboardInterrupt

    after = {number: signal.getsignal(number) for number in interrupts()}
    for number in after:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else end)
    try:
        yield
    except KeyboardInterrupt:
        after = dict.fromkeys(after, signal.SIG_IGN)
        raise
    finally:
        for number, handler in after.items():
            signal.signal(number, handler)


def stop_event() -> threading.Event:
    """An event that each of `interrupts` sets from now on; further ones change nothing while requests in flight end."""
    stopped = threading.Event()

    def stop(*_: object) -> None:
        leave_closed_streams()
        stopped.set()

    for number in interrupts():
        signal.signal(number, stop)
    return stopped


def leave_closed_streams() -> None:
    """Send what goes to a closed terminal or pipe to nowhere, instead of failing."""
    poller = select.poll()
    for descriptor in (1, 2):
        poller.register(descriptor, 0)
    closed = [descriptor for descriptor, events in poller.poll(0) if events & (select.POLLERR | select.POLLHUP)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in closed:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
