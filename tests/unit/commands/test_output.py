"""What a command prints: its result in one format, and progress as much as is wanted."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from placebench.cli import main
from placebench.commands.options import OutputOptions
from placebench.commands.output import emit, progress, say, set_verbosity, steps
from placebench.profiler import Recording


@pytest.fixture(autouse=True)
def verbosity() -> Iterator[None]:
    """That of a command line without --quiet and --verbose, before and after."""
    set_verbosity()
    yield
    set_verbosity()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A saved recording."""
    path = tmp_path / "recording.json"
    Recording("GET /", "light").save(path)
    return path


def test_a_note_between_two_steps_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A message between the steps is printed without a number, and the steps keep theirs."""
    with steps("compare", 2) as announce:
        announce("seed")
        announce("replicate 1")
        say("the replicate was discarded")

    assert capsys.readouterr().err.splitlines() == ["[1/2] seed", "[2/2] replicate 1", "the replicate was discarded"]


def test_the_time_that_is_left_follows_from_the_steps_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step takes 50 s: after three of six 150 s are left, after five less than a minute, which is not said."""
    monkeypatch.setattr(time, "monotonic", iter([0.0, *(50.0 * step for step in range(6))]).__next__)
    with steps("study", 6) as announce:
        for number in range(6):
            announce(f"repeat {number}")

    said = capsys.readouterr().err.splitlines()
    assert said[2:] == [
        "[3/6] repeat 2",
        "[4/6] repeat 3, about 3 minutes left",
        "[5/6] repeat 4, about 2 minutes left",
        "[6/6] repeat 5",
    ]


@pytest.mark.parametrize(
    ("chosen", "printed"),
    [({}, "text"), ({"json": True}, '{\n  "n": 1\n}'), ({"markdown": True}, "# Markdown")],
    ids=["text", "json", "markdown"],
)
def test_one_format_is_alone_on_stdout(
    chosen: dict[str, bool], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address of the page is below the text, and elsewhere on stderr; other formats are not rendered."""
    rendered = []

    def render(name: str, value: object) -> object:
        rendered.append(name)
        return value

    emit(
        OutputOptions(**chosen),
        text=lambda: str(render("text", "text")),
        document=lambda: {"n": render("json", 1)},
        markdown=lambda: str(render("markdown", "# Markdown\n")),
        page=tmp_path / "index.html",
    )
    out, err = capsys.readouterr()
    address = f"{(tmp_path / 'index.html').as_uri()}\n"

    assert rendered == list(chosen) or ["text"]
    assert (out, err) == (f"{printed}\n{address}", "") if not chosen else (f"{printed}\n", address)


def test_quiet_prints_the_result_alone(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No progress; an error is printed all the same."""
    codes = [
        main(["profile", "show", str(recording), "--json", "-q"]),
        main(["profile", "show", "none.json", "--quiet"]),
    ]
    out, err = capsys.readouterr()
    set_verbosity(quiet=True)
    with progress("requests", 2) as advance, steps("compare", 1) as announce:
        advance(1)
        announce("seed")

    assert codes == [0, 2]
    assert json.loads(out)["summary"]["name"] == "GET /"
    (line,) = err.splitlines()
    assert line.startswith("placebench profile show: none.json")
    assert capsys.readouterr().err == ""


def test_verbose_prints_times_and_tracebacks(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seconds since the command began before each line of progress, and where an error comes from."""
    main(["profile", "show", str(recording), "--json", "--verbose"])
    (address,) = capsys.readouterr().err.splitlines()
    code = main(["profile", "show", "none.json", "-v"])
    *trace, line = capsys.readouterr().err.splitlines()

    assert address.startswith("[")
    assert " s] file://" in address
    assert (code, trace[0]) == (2, "Traceback (most recent call last):")
    assert line.startswith("placebench profile show: none.json")


@pytest.mark.processes
@pytest.mark.parametrize("browser", [True, False], ids=["a browser", "no browser"])
def test_open_starts_a_browser(browser: bool, recording: Path, tmp_path: Path) -> None:
    """With the address of the page; where there is none, a line says so and the exit code stays 0."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    done = subprocess.run(
        [sys.executable, "-m", "placebench", "profile", "show", str(recording), "--open"],
        env={**plain, "BROWSER": str(program)} if browser else plain,
        capture_output=True,
        text=True,
        check=True,
    )
    address = done.stdout.splitlines()[-1]

    if browser:
        assert (tmp_path / "opened").read_text() == f"{address}\n"
    else:
        assert "no browser on this machine" in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("format", ["--json", "--quiet"])
def test_letters_that_the_terminal_lacks_are_escaped(recording: Path, format: str) -> None:  # noqa: A002
    """In ASCII, ü is an escape: of JSON in a document, of Python in text."""
    recording.write_text(recording.read_text().replace("GET /", "GET /ü"))
    done = _show(recording, format, stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")

    assert done.returncode == 0
    if format == "--json":
        assert json.loads(done.stdout)["summary"]["name"] == "GET /ü"
    else:
        assert done.stdout.startswith(b"GET /\\xfc: ")


@pytest.mark.processes
@pytest.mark.parametrize(
    "line", [["profile", "show", "RECORDING", "--json"], ["--help"], ["--print-completion", "bash"]], ids=" ".join
)
def test_a_reader_that_ends_early_is_no_failure_to_explain(recording: Path, line: list[str]) -> None:
    """As in `placebench --help | true`: no line, and the exit code of a program that SIGPIPE ends."""
    theirs, ours = os.pipe()
    os.close(theirs)
    command = [sys.executable, "-m", "placebench", *(str(recording) if word == "RECORDING" else word for word in line)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(ours) as stdout:
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env=environ, check=False)

    assert (done.returncode, done.stderr) == (141, b"")


def _show(recording: Path, *options: str, stdout: IO[str] | int, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """The command on a recording, as a process of its own."""
    command = [sys.executable, "-m", "placebench", "profile", "show", str(recording), *options]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, **environ}, check=False)
