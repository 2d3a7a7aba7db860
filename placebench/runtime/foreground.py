"""A command of the user in the foreground: `foreground`, with the terminal, signals and exit code its own.

The command stays in the process group of placebench: what the terminal sends (Ctrl-C, Ctrl-Z, hang-up, a new size)
reaches both, and placebench waits. What somebody sends to placebench alone is passed on. If placebench is killed, a
guard ends the command with all its descendants: `python -I -S guard.py`, see there.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from placebench.errors import CommandNotExecutableError

_GUARD = Path(__file__).with_name("guard.py")
_SENT_BY_KERNEL = 0x80
_CHECKED_EVERY_S = 0.5
_FORWARDED = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGTTIN", "SIGTTOU")
    if hasattr(signal, name)
)
_BY_TERMINAL = frozenset(
    getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGHUP", "SIGWINCH") if hasattr(signal, name)
)


@contextmanager
def foreground() -> Iterator[Callable[..., int]]:
    """Keep signals for a command in the block; yields the function that runs it, see `_run`.

    No thread of this process may take a signal from it: threads are to be started inside of the block.
    """
    if not hasattr(os, "posix_spawn") or not hasattr(signal, "pthread_sigmask"):
        yield _run_simply
        return
    waited = {*_FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        yield partial(_run, waited, before)
    finally:
        if hasattr(signal, "sigtimedwait"):  # the terminal's Ctrl-C ended the command, and is not for its report
            while signal.sigtimedwait(waited, 0) is not None:
                pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(
    waited: set[signal.Signals],
    mask: set[signal.Signals | int],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    mark: str,
    stdout_to_stderr: bool = False,
    started: Callable[[], object] = lambda: None,
) -> int:
    """Run a command until it ends, and return its exit code, negative if a signal has ended it.

    program: the path of the file to execute. mark: text that the environment of the command's processes has, and of no
        others. started: called while the command runs. Raises CommandNotExecutableError if it cannot be executed.
    """
    try:
        pid = os.posix_spawn(
            program,
            [program, *arguments],
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else [],
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
        )
    except OSError as error:
        raise CommandNotExecutableError(f"{program} cannot be executed: {error.strerror}") from error
    guard = _Guard(pid, mark)
    try:
        started()
        return _wait(pid, waited)
    except BaseException:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        guard.end()


class _Guard:
    """The process that ends the command if this one is killed: it waits for the end of a pipe."""

    def __init__(self, pid: int, mark: str) -> None:
        reading, self._writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(pid)],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(reading)
        os.write(self._writing, f"{mark}\n".encode())  # every user can read command lines

    def end(self) -> None:
        """Have the guard end and leave alone what the command has left behind on purpose."""
        with suppress(BrokenPipeError):
            os.write(self._writing, b"end\n")
        os.close(self._writing)
        self._process.wait()


def _wait(pid: int, waited: set[signal.Signals]) -> int:
    """Wait for the end of a child; pass signals on that the terminal has not sent to it as well."""
    number: int
    while True:
        if hasattr(signal, "sigtimedwait"):
            information = signal.sigtimedwait(waited, _CHECKED_EVERY_S)
            if information is None:  # the kernel may give SIGCHLD to another thread, where it is ignored
                number, reached_it = signal.SIGCHLD, False
            else:
                number, reached_it = information.si_signo, information.si_code == _SENT_BY_KERNEL
        else:  # macOS does not say who has sent it
            number = signal.sigwait(waited)
            reached_it = number in _BY_TERMINAL and os.isatty(0)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
        elif not reached_it:
            os.kill(pid, number)


def _run_simply(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    mark: str,  # noqa: ARG001
    stdout_to_stderr: bool = False,
    started: Callable[[], object] = lambda: None,
) -> int:
    """Run the command on a system without signals of POSIX."""
    try:
        process = subprocess.Popen(
            [program, *arguments], env=dict(environment), stdout=sys.stderr if stdout_to_stderr else None
        )
    except OSError as error:
        raise CommandNotExecutableError(f"{program} cannot be executed: {error.strerror}") from error
    started()
    while True:
        with suppress(KeyboardInterrupt):  # the console sends it to the command too
            return process.wait()
