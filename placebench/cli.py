"""The program `placebench`: parse the command line, run one command, return its exit code.

The main functions are `main` and `parser`. Exit codes: 0 success; 1 a gate failed or responses differ; 2 a mistake in
the call or in the environment; 3 inconclusive; 70 a bug; 130 interrupted; 141 the reader of the output is gone.
"""

import argparse
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from placebench import __version__
from placebench.commands import COMMANDS, Command, Entry, check_linux
from placebench.errors import PlacebenchError, UsageError, did_you_mean

_EXIT_BUG = 70
_EXIT_READER_GONE = 128 + 13  # of SIGPIPE, which Windows does not have
_DESCRIPTION = "Profile the SQL of a Python service, and compare versions of it with\nconfidence intervals."
_EXIT_CODES = """\
exit codes:
  0    success
  1    a gate failed, requests failed, or responses differ
  2    a mistake in the call or in the environment: one line says what to do
  3    inconclusive, or the run ended early
  70   a bug in placebench
  130  interrupted: what was measured until then is reported
"""
_ENVIRONMENT_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EPIPE, errno.EMFILE),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
}
"""Errors of the operating system that are not bugs: a full disk, missing permissions, a reader that is gone, a folder
in place of a file. A missing file is not among them: the command that needs the file has its own message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Escape characters that the terminal's encoding lacks, such as the µ of µs in ASCII
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = list(sys.argv[1:] if argv is None else argv)
    words = _words(given)
    name = " ".join(("placebench", *words))
    from placebench.commands import output
    from placebench.commands.interrupts import ReaderGone, interrupted_once

    try:
        with interrupted_once():
            if given == words and not (words and _entry(" ".join(words)).module):
                # As uv, ruff and click do: nothing was done, and a script that forgot the command has to notice.
                parser_of(" ".join(words)).print_help(sys.stderr)
                return UsageError.exit_code
            try:
                parsed = parser_of(" ".join(words)).parse_args(_check_text(given)[len(words) :])
            except UsageError as error:
                return _fail(_one_line(error), error.exit_code)
            from placebench.commands import options  # --help, which ended above, does without

            wanted = options.read(options.OutputOptions, parsed)
            output.set_verbosity(quiet=wanted.quiet, verbose=wanted.verbose)
            return _run(_command(parsed.command), parsed)
    except (PlacebenchError, ImportError, OSError) as error:
        if (explained := _explain(error)) is None:
            return _bug()
        if output.is_verbose():
            traceback.print_exc()
        return _fail(f"{name}: {explained}", getattr(error, "exit_code", PlacebenchError.exit_code))
    except ReaderGone:
        return _EXIT_READER_GONE
    except KeyboardInterrupt as error:
        return _interrupted(name, error)
    except Exception as error:  # noqa: BLE001  a bug leaves with its traceback, whatever it is
        if isinstance(error.__cause__, KeyboardInterrupt):  # before Python 3.12, where it came in a __set_name__
            return _interrupted(name, error.__cause__)
        return _bug()


def _run(command: Command[Any], parsed: argparse.Namespace) -> int:
    """Run a command on this machine, or on the machine of --host."""
    from placebench.commands import options

    if command.needs_linux:
        check_linux(command.needs_linux)
    given = options.read(command.options, parsed)
    if not (command.run_name and given.run.host):
        try:
            return command.run(given)
        except OSError as error:
            from placebench.paths import name_full_folder

            out = getattr(parsed, "out", None) or "."
            name_full_folder(error, Path(out), Path(os.environ.get("TMPDIR", "/tmp")))
            raise
    from placebench.commands.runs import run_there

    run_there(given, command.run_name, command.run)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line with all options; this imports the module of every command."""
    return _build("", deep=True)


def parser_of(words: str) -> argparse.ArgumentParser:
    """Return the parser of one command, or of a group without the options of its commands."""
    return _build(words, deep=False)


class _Parser(argparse.ArgumentParser):
    """A parser that reports a usage error on one line, like all other errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        from placebench.commands.output import print_to

        print_to(file or sys.stderr, message.rstrip("\n"))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Refuse a value that is not one of the choices, and suggest the choice that was probably meant."""
        if action.choices is not None and value not in action.choices:
            names = [str(each) for each in action.choices]
            question = did_you_mean(str(value), names)
            raise argparse.ArgumentError(action, f"there is no {value!r}: {question}expected one of {', '.join(names)}")


class _Help(argparse.HelpFormatter):
    """Does not break names at hyphens, so that names such as flat-hosts can be copied from the help."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        from textwrap import wrap

        return wrap(" ".join(text.split()), width, break_on_hyphens=False)


class _FirstHelp(_Help, argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks in the list of exit codes."""


class _PrintManPage(argparse.Action):
    """Prints the man page of all commands and exits, like --version."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from placebench.commands.man_page import man_page
        from placebench.commands.output import print_result

        print_result(man_page(_build("", deep=True), __version__))
        parser.exit()


class _PrintCompletion(argparse.Action):
    """Prints the completion script for a shell and exits, like --version."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, values: object, __: object = None) -> NoReturn:
        from placebench.commands.completion import completion_script
        from placebench.commands.output import print_result

        print_result(completion_script(_build("", deep=True), str(values)))
        parser.exit()


def _words(argv: Sequence[str]) -> list[str]:
    """Return the leading words of *argv* that name a command or a group."""
    words: list[str] = []
    for word in argv:
        entry = None if word.startswith("-") else COMMANDS.get(" ".join((*words, word)))
        if entry is None:
            break
        words.append(word)
        if entry.module:
            break
    return words


def _entry(words: str) -> Entry:
    entry = COMMANDS.get(words)
    assert entry is not None
    return entry


def _build(words: str, *, deep: bool) -> argparse.ArgumentParser:
    """Return the parser of a command or group; deep: with the options of all commands below a group."""
    made = _Parser(
        prog=f"placebench {words}".rstrip(),
        description=_sentence(_entry(words).help) if words else _DESCRIPTION,
        epilog=None if words else _EXIT_CODES,
        formatter_class=_Help if words else _FirstHelp,
    )
    if not words:
        made.add_argument("--version", action="version", version=f"placebench {__version__}")
        made.add_argument(
            "--print-man-page", action=_PrintManPage, nargs=0, help="print the man page of all commands and exit"
        )
        made.add_argument(
            "--print-completion",
            action=_PrintCompletion,
            choices=("bash", "zsh", "fish"),
            help='print a script for shell completion and exit: eval "$(placebench --print-completion bash)"',
        )
    _fill(made, words, deep=deep)
    return made


def _fill(made: argparse.ArgumentParser, words: str, *, deep: bool) -> None:
    if words and _entry(words).module:
        command = _command(words)
        command.configure(made)
        if command.run_name:
            from placebench.commands import options

            options.add_host(made, client=False)
        made.set_defaults(command=words)
        return
    group = made.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, entry in COMMANDS.own.items():
        above, _, last = name.rpartition(" ")
        if above == words:
            sentence = _sentence(entry.help)
            below = group.add_parser(last, help=entry.help, description=sentence, formatter_class=_Help)
            if deep:
                _fill(below, name, deep=True)


def _command(words: str) -> Command[Any]:
    module = import_module(_entry(words).module)
    command: Command[Any] = module.COMMANDS[words]
    return command


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _check_text(argv: list[str]) -> list[str]:
    """Return the arguments; raise UsageError if one has bytes that are not UTF-8, which could not be printed."""
    for each in argv:
        if not each.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in each):
            raise UsageError(f"placebench: the argument {each!r} is not UTF-8 text")
    return argv


def _explain(error: PlacebenchError | ImportError | OSError) -> str | None:
    """Return one line on what went wrong; None if the error is a bug."""
    if isinstance(error, PlacebenchError):
        line = _one_line(error)
        if "could not extend file" not in line or "No space left" not in line:
            return line
        # PostgreSQL names its files below its own folder, which is gone by now.
        own = f"placebench's own PostgreSQL is in {os.environ.get('TMPDIR', '/tmp')}"
        return f"{line} Without --server or PLACEBENCH_DATABASE_URL, {own}: TMPDIR names a folder with more space."
    if isinstance(error, ModuleNotFoundError):
        if (error.name or "").startswith("placebench"):
            return None
        return f"the package {error.name!r} is needed and not installed: pip install 'placebench[bench]'"
    if isinstance(error, ImportError):
        return _explain_sqlalchemy() if (error.name or "").startswith("sqlalchemy") else None
    if "No usable temporary directory" in str(error):
        return f"{error.strerror}: set TMPDIR to a folder that you can write to, with space left"
    if error.errno not in _ENVIRONMENT_ERRORS:
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{error}: free some space, or write elsewhere; what was written whole until then is kept"
    return str(error)


def _explain_sqlalchemy() -> str | None:
    """Return a message if SQLAlchemy is too old for the command, else None; the profiler supports older versions."""
    import sqlalchemy

    if sqlalchemy.__version__.startswith(("1.", "2.0.")):
        return (
            f"this command needs SQLAlchemy 2.1 or later, and {sqlalchemy.__version__} is installed "
            "(which the profiler works with): pip install 'placebench[bench]' into an environment of its own"
        )
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _fail(message: str, exit_code: int) -> int:
    from placebench.masking import mask
    from placebench.plain_text import printable

    print(printable(mask(message)), file=sys.stderr, flush=True)  # noqa: T201
    return exit_code


def _interrupted(name: str, error: KeyboardInterrupt) -> int:
    """Report that the command was interrupted; if its program was ended by a signal, end this process by it too."""
    from placebench.commands.interrupts import EXIT_INTERRUPTED, ProgramInterrupted, end_by

    code = _fail(f"{name}: interrupted", EXIT_INTERRUPTED)
    if isinstance(error, ProgramInterrupted):
        end_by(error.number)
    return code


def _bug() -> int:
    traceback.print_exc()
    return _fail(
        f"placebench: this is a bug in placebench; please report it{_issues()} with the lines above", _EXIT_BUG
    )


def _issues() -> str:
    """Return where issues are reported, if the package metadata has an address for them; else ''."""
    from importlib import metadata

    try:
        urls = metadata.metadata("placebench").get_all("Project-URL") or ()
    except metadata.PackageNotFoundError:
        return ""
    named = (url.partition(", ") for url in urls)
    return next((f" at {address}" for label, _, address in named if label.lower() in ("issues", "bug tracker")), "")
