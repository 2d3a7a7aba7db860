"""What `history` refuses, in one line with exit code 2 or 3, before anything is measured."""

import subprocess
from pathlib import Path

import pytest

from placebench.cli import main

COMMIT = "0" * 40


def entry(metrics: str = "{}") -> str:
    """A line of a history."""
    return (
        f'{{"kind":"entry","commit":"{COMMIT}","subject":"x","reference":"{COMMIT}","reference_name":"v1",'
        f'"measured_at":"","request":"/","metrics":{metrics},"machine":{{}},"versions":{{}}}}\n'
    )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a repository with one commit and a description of its application."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.placebench.app]\napp = "shop:app"\n')
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "One"]):
        subprocess.run(["git", *words], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["add"], 2, "placebench-history.jsonl has no reference yet: pin one with --reference"),
        (["add", "--reference", "v9"], 2, "no revision 'v9' in "),
        (["add", "--reference", "HEAD"], 2, "is the reference itself: name another revision"),
        (["backfill", "v1..HEAD", "--reference", "HEAD"], 2, "expected a branch, a tag or a commit"),
        (["check"], 2, "no history placebench-history.jsonl: "),
        (["show"], 2, "no history placebench-history.jsonl: "),
        (["check", "--metric", "latency"], 2, "argument --metric: there is no 'latency'"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what was seen and what to do; no history is begun."""
    assert code == main(["history", *arguments])

    (said,) = capsys.readouterr().err.splitlines()
    assert line in said
    assert not Path("placebench-history.jsonl").exists()


def test_a_history_needs_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside a project that describes one."""
    monkeypatch.chdir(tmp_path)

    assert 2 == main(["history", "add", "--reference", "v1"])

    assert "no table app in [tool.placebench] of ./pyproject.toml" in capsys.readouterr().err


def test_a_check_of_nothing_is_inconclusive(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry without an interval of the metric is not green."""
    (shop / "placebench-history.jsonl").write_text(entry())

    assert 3 == main(["history", "check"])

    assert "no commit has an interval of cpu_s" in capsys.readouterr().err


def test_a_commit_without_a_step_is_not_blessed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the steps that there are."""
    before = entry('{"cpu_s":{"ratio":1.0,"low":0.99,"high":1.01,"replicates":12}}')
    (shop / "placebench-history.jsonl").write_text(before)

    assert 2 == main(["history", "bless", "HEAD", "--reason", "why not"])

    assert "brings no step; the steps are: none" in capsys.readouterr().err
    assert (shop / "placebench-history.jsonl").read_text() == before
