"""The fuzzer of the account: a few programs of each mode, and a fault that it has to find."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

FUZZ = Path(__file__).parents[2] / "fuzz" / "fuzz.py"
LOSES_ROWS = """
import runpy, sys
from placebench.profiler.capture.pending_statement import PendingStatement

rows = PendingStatement.rows
PendingStatement.rows = lambda pending: (rows(pending) or 1) - 1
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.timeout(300)  # each program opens its connections anew
@pytest.mark.parametrize(
    ("options", "programs"), [(["--sqlite"], 12), ([], 6), (["--gevent"], 6)], ids=["sqlite", "postgresql", "gevent"]
)
def test_recordings_of_random_programs_are_accounts(options: list[str], programs: int) -> None:
    """On SQLite each mode with and without an event loop, in greenlets each mode."""
    if options == ["--gevent"]:
        pytest.importorskip("gevent")
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--seed", "1", "--programs", str(programs), *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_fault_is_found_and_made_small() -> None:
    """A statement that reports a row less: the program that shows it is one statement."""
    done = subprocess.run(
        [sys.executable, "-c", LOSES_ROWS, str(FUZZ), "--seed", "49", "--programs", "1", "--sqlite"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert "program 0, mode light, without an event loop:\n[('" in done.stdout
    assert "light: breach: " in done.stdout
