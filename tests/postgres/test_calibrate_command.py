"""`placebench calibrate` from the command line: what it says, keeps and shows, on replicates of a moment."""

import json
from pathlib import Path

import pytest

from placebench import results
from placebench.cli import main
from placebench.report.effects import METRIC_LABELS
from placebench.runtime.postgres import Server


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def calibrate(server: Server, folder: Path, *options: str) -> int:
    """The exit code of a calibration in replicates of one round of the control, which asks no database."""
    words = ["calibrate", "--server", server.url, "--trees", "1", "--variant", "noop", "--out", str(folder)]
    return main([*words, "--rounds", "1", *options])


@pytest.mark.long
def test_a_calibration_is_told_kept_and_shown(
    server: Server, tmp_path: Path, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each metric in words and as JSON; in the run's own manifest and page, and in the user's state folder."""
    first = calibrate(server, tmp_path / "run", "-n", "6")
    told = capsys.readouterr().out
    again = calibrate(server, tmp_path / "run", "-n", "6", "--resume", "--json")
    document, kept = json.loads(capsys.readouterr().out), state / "placebench" / "calibration.json"
    run = results.load(tmp_path / "run")

    assert (first, again) == (0, 0)
    expected = [f"A/A check of {METRIC_LABELS[name]}" for name in document["metrics"]]
    assert [line.split(":")[0].rpartition(" ")[0] for line in told.splitlines()[:-1]] == expected
    assert set(document["metrics"]) == {"cpu_s", "wall_s", "pss_bytes"}
    assert "of 1 comparisons of 6 replicates." in told
    assert (document["variant"], document["replicates"], document["invalidated"]) == ("noop", 6, 0)
    assert run.head.manifest["calibration"] == json.loads(kept.read_text())
    assert run.head.manifest["calibration"]["metrics"] == document["metrics"]
    assert "of identical variants" in (run.folder / "index.html").read_text()


def test_too_few_are_refused_before_anything_is_made(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, no folder."""
    assert calibrate(server, tmp_path / "run", "-n", "5") == 2

    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        "placebench calibrate: argument -n/--replicates: expected a whole number from 6 to 1000, saw '5'"
    )
    assert not (tmp_path / "run").exists()
