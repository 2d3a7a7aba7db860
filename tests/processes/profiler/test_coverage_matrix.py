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
@pytest.mark.parametrize("driver", ["psycopg2", "psycopg 3.3", "psycopg 3.3, async", "asyncpg", "sqlite3", "aiosqlite"])
def test_no_operation_is_counted_wrong(driver: str, tmp_path: Path) -> None:
    """Statements, transaction steps and rows, each operation in a recording of its own."""
    out = tmp_path / "coverage.json"

    wrong = run("--drivers", driver, "--parts", "operations", "--out", str(out))

    assert wrong == ""
    assert len(json.loads(out.read_text())["operations"][driver]["done"]) >= 8


@pytest.mark.long
@pytest.mark.parametrize("driver", ["psycopg2", "psycopg 3.3", "asyncpg", "sqlite3"])
def test_no_way_to_run_is_counted_wrong(driver: str, tmp_path: Path) -> None:
    """Four jobs at the same time, in threads and in tasks; and processes, which their parent's recording only notes."""
    out = tmp_path / "coverage.json"

    wrong = run(
        *("--drivers", driver, "--parts", "models", "--models", "threads", "asyncio", "parent", "--out", str(out))
    )

    assert wrong == ""
    cells = json.loads(out.read_text())["models"][driver]
    assert [cells[model].get("of_each") for model in ("threads", "asyncio", "parent")] == [[4] * 4, [4] * 4, [0]]


@pytest.mark.long
def test_other_modes_are_exact_where_full_is(tmp_path: Path) -> None:
    """Mode `plans` sends statements of its own, which are in no figure."""
    out = tmp_path / "coverage.json"

    wrong = run(
        *("--drivers", "psycopg2", "--parts", "operations", "modes", "--modes", "light", "plans", "--out", str(out))
    )

    assert wrong == ""
    modes = json.loads(out.read_text())["modes"]
    assert [(each["psycopg2"]["as_in_full"], each["psycopg2"]["done"]) for each in modes.values()] == [
        (modes["light"]["psycopg2"]["operations"], {})
    ] * 2
