"""What a machine can resolve is kept for its reports."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

from placebench import results
from placebench.compare.calibration import calibrate
from placebench.experiment.calibrated import keep, kept, state_file


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_was_found_out_is_read_again(tmp_path: Path) -> None:
    """Metric by metric, with the variant, the rounds of a replicate and the machine it was found on."""
    head = replace(results.load(write_run(tmp_path / "run", FakeRun())).head, settings={"rounds": 24})
    made = calibrate([0.001, -0.002, 0.003, -0.001, 0.002, -0.003], "cpu_s", margin=0.01, seed=1)

    path = keep([made], head)
    document = kept()

    assert path == state_file() == tmp_path / "state" / "placebench" / "calibration.json"
    assert document is not None
    assert (document["variant"], document["rounds"]) == ("naive", 24)
    assert document["metrics"] == {"cpu_s": made.to_json()}


def test_nothing_kept_is_nothing_shown() -> None:
    """A machine that was never calibrated, and a file that cannot be read."""
    assert kept() is None
    state_file().parent.mkdir(parents=True)
    state_file().write_text("half a fi")
    assert kept() is None
