"""`placebench calibrate` from the command line: what it says, keeps and shows, on replicates of a moment."""

import json
import os
import subprocess
import sys
from pathlib import Path

from placebench import results
from placebench.report.effects import METRIC_LABELS
from placebench.runtime.postgres import Server


def calibrate(server: Server, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Six replicates of one round of the control, which asks no database."""
    command = [
        sys.executable,
        "-m",
        "placebench",
        "calibrate",
        "--server",
        server.url,
        "--trees",
        "1",
        "--variant",
        "noop",
    ]
    return subprocess.run(
        [*command, "--out", str(folder), "--rounds", "1", *options],
        env={**os.environ, "XDG_STATE_HOME": str(folder.parent / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_a_calibration_is_told_kept_and_shown(server: Server, tmp_path: Path) -> None:
    """Each metric in words and as JSON; in the run's own manifest and page, and in the user's state folder."""
    told = calibrate(server, tmp_path / "run", "-n", "6")
    again = calibrate(server, tmp_path / "run", "-n", "6", "--resume", "--json")
    document, kept = json.loads(again.stdout), tmp_path / "state" / "placebench" / "calibration.json"
    run = results.load(tmp_path / "run")

    assert (told.returncode, again.returncode) == (0, 0)
    expected = [f"A/A check of {METRIC_LABELS[name]}" for name in document["metrics"]]
    assert [line.split(":")[0].rpartition(" ")[0] for line in told.stdout.splitlines()[:-1]] == expected
    assert set(document["metrics"]) == {"cpu_s", "wall_s", "pss_bytes"}
    assert "of 1 comparisons of 6 replicates." in told.stdout
    assert (document["variant"], document["replicates"], document["invalidated"]) == ("noop", 6, 0)
    assert run.head.manifest["calibration"] == json.loads(kept.read_text())
    assert run.head.manifest["calibration"]["metrics"] == document["metrics"]
    assert "of identical variants" in (run.folder / "index.html").read_text()


def test_too_few_are_refused_before_anything_is_made(server: Server, tmp_path: Path) -> None:
    """One line, exit code 2, no folder."""
    refused = calibrate(server, tmp_path / "run", "-n", "5")

    assert refused.returncode == 2
    (said,) = refused.stderr.splitlines()
    assert said.startswith(
        "placebench calibrate: argument -n/--replicates: expected a whole number from 6 to 1000, saw '5'"
    )
    assert not (tmp_path / "run").exists()
