"""A short life of an application in production: the bench's soak, of a size that a test can have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

psutil = pytest.importorskip("psutil")

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"
STATEMENTS = 12_000


def test_memory_and_files_do_not_grow(tmp_path: Path) -> None:
    """In the second half of 12 000 statements RSS grows by less than 100 bytes per statement; files are bounded.

    Caches of bounded size fill and are emptied meanwhile; the bench's soak has the slope of more statements.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(SOAK), str(STATEMENTS), str(tmp_path)]

    found = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

    memory = found["rss_bytes"]
    assert memory[-1] - memory[len(memory) // 2] < 100 * STATEMENTS / 2
    assert found["files"] <= 202
    assert found["bytes"] <= 1.01e6
    commits, pragmas = STATEMENTS // 10, 1  # of each request, and of SQLAlchemy at the first connection
    assert found["counted"] == STATEMENTS + commits + pragmas
