"""The benchmark of the profiler's cost per statement."""

import json
import subprocess
import sys
from pathlib import Path

from placebench.profiler.capture.options import MODES

SCRIPT = Path(__file__).parents[2] / "bench" / "statement_cost.py"


def test_each_mode_has_its_cost() -> None:
    """Beside that of the statement itself; a mode may seem to cost nothing in one round of a busy machine."""
    printed = subprocess.run([sys.executable, SCRIPT, "sqlite://", "1"], stdout=subprocess.PIPE, check=True).stdout

    found = json.loads(printed)

    assert {"bare", "idle", "statistics", "loop", *MODES} - set(found) == {"plans"}
    assert all(found[name]["during_s"] > 0 for name in ("bare", "flame", "loop alone"))
