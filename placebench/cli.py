"""The program `placebench`: reads the command line, runs one command, turns its outcome into an exit code.

Exit codes: 0 well; 1 a gate failed or answers differ; 2 the user's mistake or the environment; 3 undecided; 70 a bug.
"""

import argparse
import errno
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import NoReturn, cast

from placebench import __version__
from placebench.commands import NAMES, Command
from placebench.commands.console import interrupts, leave_closed_streams
from placebench.errors import PlacebenchError, UsageError

EXIT_INTERRUPTED = 130
EXIT_BUG = 70
_ENVIRONMENT_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EPIPE, errno.EMFILE),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
}
"""Of the operating system's errors, those that are nobody's bug: a full disk, no rights, a reader that went away, a
folder where a file has to be. A file that is missing is none of them: who needs it has to say so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        arguments = parser().parse_args(_texts(sys.argv[1:] if argv is None else argv))
    except UsageError as error:
        return _fail(_one_line(error), error.exit_code)
    try:
        with _interrupted_once():
            return _command(arguments.command).run(arguments)
    except PlacebenchError as error:
        return _fail(f"placebench {arguments.command}: {_one_line(error)}", error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("placebench"):
            return _bug()
        needs = f"placebench {arguments.command} needs the package {error.name!r}, which is not installed"
        return _fail(f"{needs}: pip install 'placebench[bench]'", PlacebenchError.exit_code)
    except KeyboardInterrupt:
        return _fail(f"placebench {arguments.command}: interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in _ENVIRONMENT_ERRORS:
            return _bug()
        return _fail(f"placebench {arguments.command}: {_told(error)}", PlacebenchError.exit_code)
    except Exception:  # noqa: BLE001  a bug leaves with its traceback, whatever it is
        return _bug()


@contextmanager
def _interrupted_once() -> Iterator[None]:
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


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line, as everything else does."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")


def _texts(argv: Sequence[str]) -> Sequence[str]:
    """The same arguments; raises UsageError for one that holds bytes that are no text: nothing could print it."""
    for each in argv:
        if not each.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in each):
            raise UsageError(f"placebench: the argument {each!r} is no text in UTF-8")
    return argv


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    made = _Parser(
        prog="placebench",
        description="Profile the SQL of Python services, and compare two versions of a service.",
    )
    made.add_argument("--version", action="version", version=f"placebench {__version__}")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in NAMES:
        module = _command(name)
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.configure(command)
    return made


def _command(name: str) -> Command:
    return cast(Command, import_module(f"placebench.commands.{name}"))


def _told(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error}: free some space, or write elsewhere; what was written whole until then is kept"
    return str(error)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _fail(message: str, exit_code: int) -> int:
    print(message, file=sys.stderr, flush=True)  # noqa: T201
    return exit_code


def _bug() -> int:
    traceback.print_exc()
    return _fail("placebench: this is a bug in placebench; please report it with the lines above", EXIT_BUG)
