"""Budgets, and the pytest plugin in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from placebench.errors import UsageError
from placebench.profiler import Recording, Statement
from placebench.profiler.analysis.budget import Budget
from placebench.profiler.model.statement import Caller

STATEMENT = Statement(
    "select ?", "f", 0.0, caller=Caller("/app/views.py", 7, "view"), row_count=2, round_trips=1, execute_s=0.001
)
RECORDING = Recording("GET /x", "full", statements=[STATEMENT] * 6)

TESTS = """
import pytest
from sqlalchemy import create_engine, text

engine = create_engine("sqlite://")


def ask(times):
    with engine.connect() as connection:
        for number in range(times):
            connection.execute(text("select :n"), {"n": number})


@pytest.mark.sql_budget(statements=2)
def test_within():
    ask(2)


@pytest.mark.sql_budget(statements=2, n_plus_one=0)
def test_beyond():
    ask(7)


def test_blocks(sql_budget):
    with sql_budget(statements=1) as recording:
        ask(1)
    assert recording.statement_count == 1
    with sql_budget(duplicates=0):
        ask(1)
        ask(1)


@pytest.mark.sql_budget(statements=0)
def test_its_own_error_goes_first():
    ask(1)
    assert "mine" == "yours"


@pytest.mark.sql_budget(queries=1)
def test_unknown():
    ask(1)
"""


def test_a_recording_within_its_budget_breaks_nothing() -> None:
    """The limit itself is allowed."""
    assert Budget.at_most(statements=6, rows=12, round_trips=6, n_plus_one=1).broken_by(RECORDING) == ""


def test_what_is_too_much_is_told_with_statement_and_place() -> None:
    """Each limit that was broken, then the statements."""
    broken = Budget.at_most(statements=3, rows=12, n_plus_one=0).broken_by(RECORDING)

    assert broken.splitlines() == [
        "GET /x: 6 statements, expected <= 3",
        "GET /x: 1 n+1, expected <= 0",
        "  6 x select ?",
        "      6 from /app/views.py:7 view",
    ]


def test_of_a_merged_recording_the_mean_request_counts() -> None:
    """Two requests of six statements are within a budget of six."""
    merged = Recording.merge([RECORDING, RECORDING])

    assert Budget.at_most(statements=6, n_plus_one=1).broken_by(merged) == ""
    assert Budget.at_most(statements=5).broken_by(merged).startswith("GET /x: 6 statements, expected <= 5")


@pytest.mark.parametrize("text", ["statements", "statements=3", "queries <= 3", "statements <= 1x"])
def test_a_budget_that_is_none_is_an_error_of_the_user(text: str) -> None:
    """It names what can be limited."""
    with pytest.raises(UsageError, match=text):
        Budget.parse([text])


def test_the_pytest_plugin_fails_a_test_that_broke_its_budget(tmp_path: Path) -> None:
    """With statement and call site; a test's own failure goes first; an unknown limit is named."""
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_it.py"]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    assert "4 failed, 1 passed" in output
    assert "test_beyond: 7 statements, expected <= 2" in output
    assert "test_beyond: 1 n+1, expected <= 0" in output
    assert "7 x select ?" in output
    assert "test_it.py:11 ask" in output
    assert "test_blocks: 1 duplicates, expected <= 0" in output
    assert "assert 'mine' == 'yours'" in output
    assert "sql_budget knows no queries" in output


def test_the_pytest_plugin_loads_nothing_until_it_is_asked() -> None:
    """It is imported in every run of pytest where placebench is installed."""
    code = (
        "import sys, placebench.profiler.integrations.pytest_plugin; print({'sqlalchemy', 'jinja2'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "set()\n"
