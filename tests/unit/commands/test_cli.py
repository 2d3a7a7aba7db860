"""The command line: its help, its words, and command lines that are refused, in one line each with exit code 2.

The options are found in the parser, so that a new one is tried too. Where a value is not refused by its option
alone, the command goes on to a PostgreSQL or a service that is not there.
"""

import argparse
import collections
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import create_engine

from placebench import SqlProfiler, __version__
from placebench.cli import main, parser, parser_of
from placebench.commands import COMMANDS

NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e400", "1" + "0" * 30, "1" + "0" * 5000, "many", "")
URLS = ("http://[::1", "http://127.0.0.1:99999", "postgresql://[::1")
TEXTS = ("é", "a\nb", "x" * 300, "[", f"p95 <= {'9' * 400}s", *URLS)
PATHS = ("", "x" * 300, "/dev/null/x", "/proc/x")
NO_TEXT = "\udcff"
DATABASE, SERVICE = "postgresql://nobody@127.0.0.1:1/none", "http://127.0.0.1:1"
NEEDED = {
    "load": ([SERVICE], []),
    "profile run": (["no_such_module:app"], ["--request", "GET /"]),
    "profile check": (["no_such_module:app"], ["--request", "GET /", "--gate", "rows <= 1"]),
    "profile show": (["no_such_recording"], []),
    "profile diff": (["no_such_recording"] * 2, []),
    "profile attach": (["4194304"], []),
    "profile live": (["4194304"], []),
    "compare": (["naive", "tuned"], []),
    "history add": (["HEAD"], []),
    "history backfill": (["HEAD"], []),
    "history bless": (["HEAD"], ["--reason", "x"]),
    "report open": (["no_such_run"], []),
    "ci report": (["no_such_run"], []),
    "link": (["127.0.0.1:1"], []),
    "report list": (["no_such_folder"], []),
    "report diff": (["no_such_run"] * 2, []),
    "report export": (["no_such_run"], []),
    "report reproduce": (["no_such_result.json"], []),
    "telemetry show": (["no_such_folder"], []),
    "study matrix": (["no_such_program", "{size}"], ["--axis", "size=1,2"]),
    "study network": (["no_such_program"], []),
    "study saturation": ([], ["--users", "1"]),
    "study workers": (["no_such_module:function"], []),
    "lab study matrix": (["stack"], []),
}
"""What a command cannot be called without: by place, and by name."""


@pytest.mark.parametrize("words", [[], ["lab"], ["profile"], ["lab", "study"]])
def test_without_a_command_the_help_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error with exit code 2, as by uv, ruff and click: a script that forgot the command has to notice."""
    exit_code = main(words)

    printed = capsys.readouterr()
    assert (exit_code, printed.out) == (2, "")
    assert printed.err.startswith(f"usage: {' '.join(['placebench', *words])} ")
    assert "commands:" in printed.err


class Option(NamedTuple):
    """One option of one command, or a value by its place."""

    command: str
    action: argparse.Action
    place: int
    """Of a value without a name."""
    others: frozenset[str]
    """The names of all options of the command."""

    def __str__(self) -> str:
        return f"{self.command} {(self.action.option_strings or [self.action.dest])[-1]}"

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
        by_place, by_name = (list(each) for each in NEEDED.get(self.command, ([], [])))
        name = self.action.option_strings[-1] if self.action.option_strings else ""
        if name in by_name:
            del by_name[by_name.index(name) : by_name.index(name) + 2]
        safe = {"--server": DATABASE, "--db": DATABASE, "--out": str(out / "new.toml"), "--dir": str(out)}
        if name == "--api" or self.command == "load":
            del safe["--db"]
        rest = [f"{other}={given}" for other, given in safe.items() if other in self.others - {name}]
        if name:
            rest.append(f"{name}={value}")
        else:
            by_place[self.place] = value
        return [*self.command.split(), *by_name, *rest, "--", *by_place]


def options() -> Iterator[Option]:
    """Those of every command that take a value."""
    for name, entry in COMMANDS.own.items():
        if entry.module:
            actions = parser_of(name)._actions
            names = frozenset(option for action in actions for option in action.option_strings)
            places = [action for action in actions if not action.option_strings]
            for action in actions:
                if action.nargs != 0:
                    place = places.index(action) if action in places else -1
                    yield Option(name, action, place, names)


OPTIONS = list(options())


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
            names = "/".join(option.action.option_strings) or option.action.metavar
            assert line.startswith(f"placebench {option.command}: argument {names}:")
            assert " expected a " in line
        else:
            assert text in ("0", "-1")
            assert math.isfinite(taken)


@pytest.mark.processes
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
            assert "was not running" in said[0]  # there is no server that could be stopped
        else:
            assert code in (2, 126, 127), (text, said)
            assert said[0].startswith("placebench"), (text, said)


@pytest.mark.parametrize(
    "line",
    [["no_such_command"], ["load"], ["report", "--no-such"], ["db", "--json"]],
    ids=" ".join,
)
def test_a_line_that_says_too_little(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line that ends with the command whose --help says more."""
    assert 2 == main(line)

    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("--help)")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["compar"], "compare"),
        (["lab", "study", "netwerk"], "network"),
        (["profile", "run", "--mode", "ful", "x.py"], "full"),
        pytest.param(["compare", "niave", "tuned"], "naive", marks=pytest.mark.processes),  # git may know the name
        pytest.param(["compare", "naive", "tuned-orjsn"], "tuned-orjson", marks=pytest.mark.processes),
        (["compare", "naive", "tuned", "--topology", "flat-host"], "flat-hosts"),
        (["compare", "naive", "tuned", "--gate", "statments <= 3"], "statements"),
        (["lab", "steps", "--only", "prunning"], "pruning"),
        (["lab", "seed", "--option", "usage_total"], "usage_totals"),
    ],
)
def test_a_misspelt_name_is_recognised(line: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The one line names what was probably meant."""
    assert 2 == main(line)

    (said,) = capsys.readouterr().err.splitlines()
    assert f"did you mean {meant!r}? " in said


@pytest.mark.parametrize(
    ("line", "named"), [(["compare", "naive", "tuned"], "--host or --client-host\n"), (["lab", "perfload"], "--host\n")]
)
def test_hosts_that_no_option_uses_are_refused(line: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--hosts alone would compare on this machine without a word; the options that the command has are named."""
    assert 2 == main([*line, "--hosts", "machines.toml"])

    assert capsys.readouterr().err.endswith(f" {named}")


def test_the_table_of_commands_is_what_the_modules_define() -> None:
    """Each command in the table is in its module, and each command of a module is in the table."""
    modules = {entry.module for entry in COMMANDS.own.values() if entry.module}
    defined = {name: module for module in modules for name in import_module(module).COMMANDS}

    assert {name: entry.module for name, entry in COMMANDS.own.items() if entry.module} == defined


def test_the_front_door_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    """`placebench --help` lists what most users need, and the laboratory last."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = re.findall(r"^    (\w+)", capsys.readouterr().out, re.MULTILINE)

    assert [
        "profile",
        "compare",
        "load",
        "study",
        "telemetry",
        "history",
        "ci",
        "calibrate",
        "report",
        "db",
        "link",
        "mcp",
        "doctor",
        "lab",
    ] == shown


@pytest.fixture(scope="module")
def whole_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line, with the options of all commands."""
    return parser()


@pytest.mark.parametrize("words", ["", *COMMANDS.own])
def test_every_command_explains_itself(
    words: str,
    whole_parser: argparse.ArgumentParser,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """--help prints each option with a help text in 80 columns, as the parser of the whole command line does."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--help"])
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        whole_parser.parse_args([*words.split(), "--help"])

    assert ended.value.code == 0
    assert max(map(len, alone.splitlines())) <= 80
    assert alone == capsys.readouterr().out
    assert [action.dest for action in parser_of(words)._actions if not action.help] == [
        *(["==SUPPRESS=="] if words not in COMMANDS.own or not COMMANDS.own[words].module else [])
    ]


def test_an_option_is_the_same_everywhere() -> None:
    """One name has one metavar and one destination in all commands, and a short option has one long name."""
    seen = collections.defaultdict(set)
    for name, entry in COMMANDS.own.items():
        for action in parser_of(name)._actions if entry.module else ():
            for option in action.option_strings:
                seen[option].add((action.dest, tuple(action.option_strings), action.metavar))
    differing = {option: meant for option, meant in seen.items() if len(meant) > 1}

    # A folder or a file; a path or a method and a path; an address here, or a machine; a number of hosts, or a file; a
    # folder, or a process too; an amount to slow down by, or a value of an axis.
    assert {"-o", "--out", "--request", "--host", "--hosts", "--profile", "--control"} == differing.keys()


@pytest.mark.processes
def test_the_help_imports_nothing_heavy() -> None:
    """No module of a command, no metadata of packages, nothing but argparse, what it needs, and what prints."""
    script = "import sys; from placebench.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    script += "print(*(name for name in sys.modules if name.startswith('placebench')), file=sys.stderr)\n"
    script += "print(*({'importlib.metadata', 'rich', 'sqlalchemy', 'jinja2'} & sys.modules.keys()), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules, heavy = done.stderr.splitlines()

    commands = {"commands", "commands.interrupts", "commands.output", "lab", "lab.commands", "lab.studies"}
    light = {"cli", "errors", "plain_text", "registries", "units"}
    expected = {*commands, *light}
    assert {"placebench", *(f"placebench.{name}" for name in expected)} == set(modules.split())
    assert heavy == ""


@pytest.mark.processes
def test_a_recording_is_shown_without_asyncio(tmp_path: Path) -> None:
    """Its import takes a tenth of a second, and nothing waits in an event loop there."""
    with SqlProfiler(engine := create_engine("sqlite://")).record("orders") as recording, engine.connect():
        pass
    recording.save(tmp_path / "recording.json")
    script = "import sys; from placebench.cli import main; main(sys.argv[1:])\n"
    script += "print(*({'asyncio', 'sqlalchemy'} & sys.modules.keys()), file=sys.stderr)"
    argv = [sys.executable, "-c", script, "profile", "show", str(tmp_path / "recording.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert "\n" == done.stderr


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    """It is that of the package."""
    with pytest.raises(SystemExit):
        main(["--version"])

    assert capsys.readouterr().out == f"placebench {__version__}\n"
