"""`placebench calibrate` as a user calls it, as small as it gets."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_what_is_found_out_is_kept_and_shown(tmp_path: Path) -> None:
    """Six short replicates of the smallest cloud: both metrics on stdout, the same in the state folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PLACEBENCH_DATABASE_URL"}
    command = [sys.executable, "-m", "placebench", "calibrate", "--aa", "6", "--trees", "1", "--rounds", "1"]
    ended = subprocess.run(
        [*command, "--json", "--out", str(tmp_path / "run")],
        env={**environment, "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    document = json.loads(ended.stdout)
    kept = json.loads((tmp_path / "state" / "placebench" / "calibration.json").read_text())

    assert (ended.returncode, document["replicates"], document["variant"]) == (0, 6, "tuned")
    assert set(document["metrics"]) == {"cpu_s", "wall_s"}
    assert (document["metrics"]["cpu_s"]["sixes"], document["metrics"]["cpu_s"]["margin"]) == (1, 0.01)
    assert set(document["metrics"]["cpu_s"]["power"]["12"]) == {"0.01", "0.02", "0.05"}
    assert kept["metrics"] == document["metrics"]
