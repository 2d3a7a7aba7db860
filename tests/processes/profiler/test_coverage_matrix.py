"""The coverage matrix: no figure of a recording differs from an independent count, and the page says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MATRIX = Path(__file__).parents[2] / "coverage_matrix" / "matrix.py"


def run(*options: str) -> str:
    """What the program says, if anything is wrong."""
    done = subprocess.run([sys.executable, str(MATRIX), *options], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_the_page_has_no_wrong_cell() -> None:
    """It is computed from its raw file, in which every recording agrees with its independent count."""
    assert run("--check") == ""


@pytest.mark.long
def test_no_operation_is_counted_wrong(tmp_path: Path) -> None:
    """Statements, transaction steps and rows, each operation in a recording of its own.

    Other modes are exact where `full` is: `plans` sends statements of its own, which are in no figure.
    """
    out = tmp_path / "coverage.json"
    drivers = ("psycopg2", "psycopg 3.3", "psycopg 3.3, async", "asyncpg", "sqlite3", "aiosqlite")

    assert run("--drivers", *drivers, "--parts", "operations", "--out", str(out)) == ""
    assert run("--drivers", "psycopg2", "--parts", "modes", "--modes", "light", "plans", "--out", str(out)) == ""

    found = json.loads(out.read_text())
    assert [driver for driver in drivers if len(found["operations"][driver]["done"]) < 8] == []
    assert [(each["psycopg2"]["as_in_full"], each["psycopg2"]["done"]) for each in found["modes"].values()] == [
        (found["modes"]["light"]["psycopg2"]["operations"], {})
    ] * 2


@pytest.mark.long
def test_no_way_to_run_is_counted_wrong(tmp_path: Path) -> None:
    """Four jobs at the same time, in threads and in tasks; and processes, which their parent's recording only notes."""
    out, models = tmp_path / "coverage.json", ("threads", "asyncio", "parent")
    drivers = ("psycopg2", "psycopg 3.3", "asyncpg", "sqlite3")

    wrong = run("--drivers", *drivers, "--parts", "models", "--models", *models, "--out", str(out))

    assert wrong == ""
    found = json.loads(out.read_text())["models"]
    for driver in drivers:
        assert [found[driver][model].get("of_each") for model in models] == [[4] * 4, [4] * 4, [0]]
