"""What a machine can resolve is kept for its reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_run import FakeRun, write_run

from placebench import results
from placebench.compare.keep.environment import (
    calibration_document,
    calibration_file,
    keep_calibration,
    read_calibration,
)
from placebench.stats.calibration import calibrate


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def document(tmp_path: Path, *, rounds: int, machine: str = "EPYC") -> dict[str, Any]:
    """A calibration by six replicates."""
    head = results.load(write_run(tmp_path / f"run{rounds}{machine}", FakeRun())).head
    made = calibrate([0.001, -0.002, 0.003, -0.001, 0.002, -0.003], "cpu_s", margin=0.01, seed=1)
    manifest = {"machine": {"processor": machine}}
    return calibration_document([made], replace(head, settings={"rounds": rounds}, manifest=manifest))


def test_what_was_found_out_is_read_again(tmp_path: Path) -> None:
    """Metric by metric, with the variant, the rounds of a replicate and the machine it was found on."""
    made = document(tmp_path, rounds=24)

    assert keep_calibration(made)
    assert read_calibration() == made
    assert calibration_file() == tmp_path / "state" / "placebench" / "calibration.json"
    assert (made["variant"], made["rounds"], made["machine"]) == ("naive", 24, "EPYC")
    assert made["metrics"]["cpu_s"]["replicates"] == 6


def test_a_quick_one_does_not_replace_one_that_rests_on_more(tmp_path: Path) -> None:
    """Unless it was made on another machine; one that rests on as much is newer."""
    long, quick = document(tmp_path, rounds=64), document(tmp_path, rounds=2)
    elsewhere = document(tmp_path, rounds=2, machine="Xeon")

    assert (keep_calibration(quick), keep_calibration(long), keep_calibration(quick)) == (True, True, False)
    assert read_calibration() == long
    assert (keep_calibration({**long, "made_at": "later"}), keep_calibration(elsewhere)) == (True, True)
    assert read_calibration() == elsewhere


def test_nothing_kept_is_nothing_shown() -> None:
    """A machine that was never calibrated, and a file that cannot be read."""
    assert read_calibration() is None
    calibration_file().parent.mkdir(parents=True)
    calibration_file().write_text("half a fi")
    assert read_calibration() is None
