"""Command lines that cannot be: every option of every command, one line each, exit code 2, and nothing is started.

The options are found in the parser, so that a new one is held to the same. Where a value is not refused by its option
alone, the command goes on to a PostgreSQL or a service that is not there.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from placebench.cli import main, parser

NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e400", "1" + "0" * 30, "1" + "0" * 5000, "many", "")
TEXTS = ("é", "a\nb", "x" * 300, "[", "http://[::1", "http://127.0.0.1:99999", "postgresql://[::1", f"p95={'9' * 400}s")
PATHS = ("", "x" * 300, "/dev/null/x", "/proc/x")
NO_TEXT = "\udcff"
DATABASE, SERVICE = "postgresql://nobody@127.0.0.1:1/none", "http://127.0.0.1:1"
NEEDED = {
    "load": ["--url", SERVICE],
    "profile": ["--app", "no_such_module:app", "--request", "GET /"],
    "compare": ["naive", "tuned"],
    "experiment": ["cumulative"],
    "report": ["no_such_run"],
}
"""What a command cannot be called without."""


class Option(NamedTuple):
    """One option of one command, or a value by its place."""

    command: tuple[str, ...]
    action: argparse.Action
    others: frozenset[str]
    """The names of all options of the command."""

    def __str__(self) -> str:
        return " ".join((*self.command, *(self.action.option_strings or [self.action.dest])[-1:]))

    @property
    def kind(self) -> str:
        """number, path or text."""
        read = self.action.type if callable(self.action.type) else str
        try:
            value = read("1")
        except argparse.ArgumentTypeError:
            return "text"
        return "number" if isinstance(value, int | float) else "path" if isinstance(value, Path) else "text"

    def line(self, value: str, out: Path) -> list[str]:
        """The command with this value, and with what lets it come to its end at once."""
        needed = list(NEEDED.get(self.command[0], ()))
        name = self.action.option_strings[-1] if self.action.option_strings else ""
        if name in needed:
            del needed[needed.index(name) : needed.index(name) + 2]
        if not name:
            needed = ["naive"] if self.action.nargs == "+" else []
        safe = {"--db": DATABASE, "--out": str(out / "new.toml"), "--dir": str(out)}
        if self.command[0] == "topology" and name == "--api":
            del safe["--db"]
        rest = [f"{other}={given}" for other, given in safe.items() if other in self.others - {name}]
        given = [name, value, value] if self.action.nargs == 2 else [f"{name}={value}"]
        return [*self.command, *needed, *rest, *(given if name else ["--", value])]


def options(under: argparse.ArgumentParser, command: tuple[str, ...] = ()) -> Iterator[Option]:
    """Those of every command that take a value."""
    names = frozenset(name for action in under._actions for name in action.option_strings)
    for action in under._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from options(below, (*command, name))
        elif command and action.nargs != 0:
            yield Option(command, action, names)


OPTIONS = list(options(parser()))


def of_kind(kind: str) -> Sequence[Option]:
    """Those whose values are of this kind."""
    return [each for each in OPTIONS if each.kind == kind and not each.action.choices]


@pytest.mark.parametrize("option", of_kind("number"), ids=str)
def test_a_number_is_in_its_range(option: Option, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is finite and within bounds may be taken; all else is refused, with the option and what was expected."""
    assert callable(option.action.type)
    for text in NUMBERS:
        try:
            taken = option.action.type(text)
        except argparse.ArgumentTypeError:
            assert 2 == main(option.line(text, tmp_path))
            (line,) = capsys.readouterr().err.splitlines()
            assert line.startswith(
                f"placebench {' '.join(option.command)}: argument {option.action.option_strings[-1]}:"
            )
            assert " expected a " in line
        else:
            assert text in ("0", "-1")
            assert math.isfinite(taken)


@pytest.mark.parametrize("option", [*of_kind("text"), *of_kind("path")], ids=str)
def test_a_text_is_no_bug(
    option: Option, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is written there ends with a documented code and one line."""
    monkeypatch.chdir(tmp_path)
    for text in (*(PATHS if option.kind == "path" else TEXTS), NO_TEXT):
        code = main(option.line(text, tmp_path))
        said = capsys.readouterr().err.splitlines()

        assert len(said) == 1, (text, said)
        if code == 0:
            assert "did not run" in said[0]  # there is no server that could be stopped
        else:
            assert (code, said[0].startswith("placebench")) == (2, True), (text, said)


@pytest.mark.parametrize(
    "line",
    [[], ["no_such_command"], ["load"], ["compare"], ["report", "--no-such-option"], ["db", "--json"], ["topology"]],
    ids=" ".join,
)
def test_a_line_that_says_too_little(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is missing, and where to read more; no usage of twenty lines before it."""
    assert 2 == main(line)

    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("--help)")
