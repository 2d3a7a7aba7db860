"""What a report says of the calibration that was kept before its run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_run import MANIFEST, FakeRun, write_run

from placebench.compare.keep.records import RunHead
from placebench.report import write_report
from placebench.report.calibration import calibration_sentences

CPU = {
    "metric": "cpu_s",
    "replicates": 60,
    "estimate": -0.002,
    "low": -0.0055,
    "high": 0.0024,
    "margin": 0.01,
    "passed": False,
    "runs_of_six": 10,
    "false_positives": 1,
    "power": {"12": {"0.01": 0.49, "0.02": 0.9875, "0.05": 1.0}, "30": {"0.01": 0.92, "0.02": 1.0, "0.05": 1.0}},
    "false_positive_rate": {"12": 0.02, "30": 0.06},
    "detectable": {"12": 0.0139, "30": 0.008},
}
WALL = {**CPU, "metric": "wall_s", "margin": 0.03, "passed": True, "false_positives": 0}


def head_of(folder: Path, **kept: Any) -> RunHead:
    """The head of a run on a machine that was calibrated."""
    document = {
        "made_at": "2026-11-21T22:43:48+00:00",
        "machine": MANIFEST["machine"]["processor"],
        "rounds": 64,
        "metrics": {"cpu_s": CPU, "wall_s": WALL},
    }
    head = RunHead.load(write_run(folder, FakeRun(variants=("naive", "tuned"))) / "run.json")
    made = replace(head, manifest={**head.manifest, "calibration": {**document, **kept}})
    made.save(folder / "run.json")
    return made


def test_it_says_what_was_resolved_and_what_was_not_accepted(tmp_path: Path) -> None:
    """Both metrics, each with its interval, its runs of six, and how often 1, 2 and 5 % are found."""
    head = head_of(tmp_path / "run")

    power = (
        "At n = 12 the MDE (80 % power) is 1.4 %; found injected effects: 1 % in 49 %, 2 % in 99 %, 5 % in 100 % runs. "
        "At n = 30 the MDE (80 % power) is 0.80 %; found injected effects: 1 % in 92 %, 2 % in 100 %, 5 % in 100 % "
        "runs."
    )
    assert calibration_sentences(head) == (
        "This machine was calibrated at 2026-11-21 22:43:48 UTC with 60 replicates of 64 rounds of identical variants "
        "(A/A). A/A check of server CPU failed: −0.20 % [95 % CI −0.55, +0.24], allowed ±0.5 %. "
        f"False positives: 1 of 10 comparisons of 6 replicates. {power} "
        "A/A check of wall time passed: −0.20 % [95 % CI −0.55, +0.24], allowed ±1.5 %. "
        f"False positives: 0 of 10 comparisons of 6 replicates. {power}"
    )
    assert "A/A check of server CPU failed" in write_report(tmp_path / "run").read_text()


def test_what_another_machine_resolved_is_said_to_be_of_another(tmp_path: Path) -> None:
    """A home that two machines share holds one calibration."""
    head = head_of(tmp_path / "run", machine="Some Xeon")

    assert calibration_sentences(head).startswith(
        "Another machine (Some Xeon, this one is AMD EPYC 7763 64-Core Processor) was calibrated at 2026"
    )


@pytest.mark.parametrize("kept", [{"metrics": {}}, {"metrics": {"pss_bytes": CPU}}])
def test_without_a_time_there_is_no_sentence(tmp_path: Path, kept: dict[str, Any]) -> None:
    """Nothing kept, nothing said."""
    assert calibration_sentences(head_of(tmp_path / "run", **kept)) == ""
