"""`placebench study matrix`: a command with each combination of some values, against a control."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from placebench.cli import main

EXPORT = """
import sys
import time

plugin, rows = sys.argv[1:]
if plugin == "broken":
    sys.exit("no such plug-in")
if plugin == "on":
    time.sleep(0.2)
print(f"{rows} orders")
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The user's command with the places of two axes, in a folder that is the current one."""
    (tmp_path / "export.py").write_text(EXPORT)
    monkeypatch.chdir(tmp_path)
    return ["--", sys.executable, "-S", "export.py", "{plugin}", "{rows}"]


def study(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON document (empty without one) and the lines on standard error."""
    capsys.readouterr()
    code = main(["study", "matrix", "-q", "--json", *words])
    printed = capsys.readouterr()
    return code, json.loads(printed.out or "{}"), printed.err


@pytest.mark.long
def test_an_overhead_is_that_over_the_same_combination(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A plug-in that waits 0.2 s costs this in each run, for few and for many rows, and less per row of many."""
    axes = ("--axis", "plugin=off,on", "--axis", "rows=2,8", "--jobs", "1", "--count", r"(\d+) orders")

    code, document, _ = study(capsys, *axes, *command)

    rows = {(row["axes"]["plugin"], row["axes"]["rows"]): row for row in document["rows"]}
    assert (0, 4) == (code, len(rows))
    assert [True, True, False, False] == [rows[plugin, n]["is_control"] for plugin in ("off", "on") for n in "28"]
    assert rows["off", "2"]["overhead_s"] is None
    for n in (2, 8):
        row = rows["on", str(n)]
        assert (6, n) == (row["n"], row["results"])
        assert row["overhead_low_s"] <= row["overhead_s"] <= row["overhead_high_s"]
        assert row["overhead_s"] == row["overhead_per_run_s"] == pytest.approx(n * row["overhead_per_result_s"])
        assert row["elapsed_s"] >= 0.2


def test_a_combination_that_fails_is_named(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With what the command wrote; the control that another combination needs is measured although no axis has it."""
    words = ("--axis", "plugin=on,broken", "--axis", "rows=1", "--control", "plugin=off", "--jobs", "1", "-n", "1")

    code, document, _ = study(capsys, *words, *command)

    (broken,) = document["impossible"]
    assert (0, {"plugin": "broken", "rows": "1"}) == (code, broken["point"])
    assert "exit code 1: no such plug-in" in broken["reason"]
    assert ["off", "on"] == [row["axes"]["plugin"] for row in document["rows"]]


def test_a_command_whose_results_are_not_found_shows_what_it_printed(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside zeros in the table, which names the control: the first value of the first axis that has several."""
    words = ("--axis", "rows=1", "--axis", "plugin=off,no", "--jobs", "1", "-n", "1", "--count", r"(\d+) books")

    code = main(["study", "matrix", "-q", *words, *command])

    printed = capsys.readouterr().out
    rows = {words[1]: words for words in map(str.split, printed.splitlines()) if words[1:2] in (["off"], ["no"])}
    assert 0 == code
    assert r"counted no result: compare the pattern with what was returned, '1 orders\n'." in printed
    assert [True, False] == ["control" in rows[plugin] for plugin in ("off", "no")]


def test_a_command_that_always_fails_is_one_line(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And leaves no run."""
    code, _, said = study(capsys, "--axis", "plugin=broken", "--axis", "rows=1", *command)

    assert (2, 1) == (code, len(said.splitlines()))
    assert "exit code 1: no such plug-in" in said
    assert not Path("profiles").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--axis", "plugin"], "expected NAME=V,V"),
        (["--axis", "plugin=on,on"], "different names and values"),
        (["--axis", "plugin=on,off", "--axis", "users=1,2"], "the command has no {users}"),
        (["--axis", "plugin=on,off", "--control", "users=1"], "an axis (plugin)"),
        (["--axis", "plugin=on,off", "--count", "$items"], "not a JSON path"),
    ],
)
def test_what_does_not_apply_is_refused(
    words: list[str], reason: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that has what was expected."""
    code, _, said = study(capsys, *words, *command)

    assert (2, 1) == (code, len(said.splitlines()))
    assert reason in said


@pytest.mark.parametrize(
    ("word", "reason"), [("shop:{size}", "placebench study workers"), ("http://{size}", "placebench compare")]
)
def test_what_is_no_command_names_the_one_that_takes_it(
    word: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function and a service."""
    code, _, said = study(capsys, "--axis", "size=small", "--", word.format(size="small"), "{size}")

    assert (2, 1) == (code, len(said.splitlines()))
    assert reason in said


def test_braces_in_a_value_are_no_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each place is replaced once, and other braces stay."""
    words = (
        "--axis",
        "first={second}",
        "--axis",
        "second=x",
        "--jobs",
        "1",
        "-n",
        "1",
        "--count",
        r"\{second\} x \{\}",
    )

    code, document, _ = study(capsys, *words, "--out", str(tmp_path / "run"), "--", "echo", "{first}", "{second}", "{}")

    assert (0, [1]) == (code, [row["results"] for row in document["rows"]])
