"""Budgets, and the pytest plugin in a pytest of its own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from placebench.errors import ProfilerError, UsageError
from placebench.profiler import Recording, Statement
from placebench.profiler.analysis.budget import Budget
from placebench.profiler.model.recording_data import Unkept
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

EACH_METRIC = ("11 statements", "22 rows", "11 round trips", "2 duplicates", "1 n+1")
KNOWN = ("rows", "round_trips", "duplicates")

THREADS = """
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, text

early = create_engine("sqlite://", connect_args={"check_same_thread": False})
early.connect().close()
engine = create_engine("sqlite:///threads.db")


def ask(times=50):
    with engine.connect() as connection:
        for number in range(times):
            connection.execute(text("select :n"), {"n": number})


@pytest.mark.sql_budget(statements=0)
def test_thread():
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()


@pytest.mark.sql_budget(statements=0)
def test_pool():
    with ThreadPoolExecutor(2) as pool:
        pool.submit(ask).result()


class TestAsync(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.sql_budget(statements=0)
    async def test_async(self):
        ask()


@pytest.mark.sql_budget(statements=9)
def test_ddl():
    metadata = MetaData()
    Table("t", metadata, Column("id", Integer, primary_key=True))
    metadata.create_all(engine)


@pytest.mark.sql_budget(statements=0)
def test_after_ddl():
    ask()


@pytest.mark.sql_budget(rows=1000)
def test_rows_unknown():
    with early.connect() as connection:
        connection.execute(text("select 1")).all()


@pytest.mark.sql_budget(statements=50, rows=50, duplicates=0)
def test_within():
    ask()
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


@pytest.mark.parametrize(("number", "last"), [(10, "      1 from /app/views.py:7 view"), (22, "  and 12 more")])
def test_ten_statements_are_told_the_most_frequent_first(number: int, last: str) -> None:
    """Each statement is followed by its call sites, the most frequent first, without executions that have none."""
    there = replace(STATEMENT, fingerprint="often", sql="s" * 121, caller=Caller("/app/views.py", 9, "list"))
    often = [replace(there, caller=STATEMENT.caller), there, there, replace(there, caller=None)]
    others = [replace(STATEMENT, fingerprint=f"f{place}") for place in range(number - 1)]

    lines = Budget.at_most(statements=0).broken_by(Recording("x", "full", statements=[*others, *often])).splitlines()

    assert lines[1:4] == [
        f"  4 x {'s' * 119}…",
        "      2 from /app/views.py:9 list",
        "      1 from /app/views.py:7 view",
    ]
    assert (lines[-1], len(lines)) == (last, 1 + 3 + 2 * 9 + (number > 10))


def test_statements_that_were_not_kept_count() -> None:
    """Two that were kept and three that were not are five, which is known; a duplicate is one that ran again."""
    two = [STATEMENT, replace(STATEMENT, repeated=True)]
    recording = Recording("x", "full", statements=two, dropped=3, unkept=Unkept(3, row_count=2))

    assert Budget.at_most(statements=4).broken_by(recording).startswith("x: 5 statements, expected <= 4")
    assert Budget.at_most(statements=5).broken_by(recording) == ""
    assert Budget.at_most(duplicates=0).broken_by(recording).startswith("x: 1 duplicates, expected <= 0")
    assert Budget.at_most(rows=99).broken_by(recording) == ""
    assert "beyond the limit" in Budget.at_most(n_plus_one=0).broken_by(recording)


def test_a_light_recording_has_no_duplicates_to_count() -> None:
    """Its values are not compared, as they are in other modes; other gates can be checked."""
    with pytest.raises(ProfilerError, match="mode full"):
        Budget.at_most(statements=1, duplicates=0).check("light")
    for mode in ("full", "plans"):
        Budget.at_most(duplicates=0).check(mode)
    Budget.at_most(statements=1).check("light")


def test_what_ended_has_to_have_figures() -> None:
    """What failed or has no rows leaves nothing unknown; an uncounted write does, and a profiler that was off."""
    write = replace(STATEMENT, sql="create table t (i int)", row_count=None, repeated=None)
    update = replace(write, sql="update t set a = ?", row_count=1)
    failed = replace(STATEMENT, row_count=None, repeated=None, round_trips=None, error="OperationalError")
    read = replace(STATEMENT, row_count=None, repeated=False)
    budget = Budget.at_most(rows=9, duplicates=9, round_trips=9)

    assert budget.broken_by(Recording("x", "full", statements=[write, update, failed], sql_s=1.0)) == ""
    for each in (read, replace(update, row_count=None)):
        assert "1 of 2 statements have no figure" in budget.broken_by(Recording("x", "full", statements=[each, failed]))
    assert "the profiler was off" in budget.broken_by(Recording("x", "full"))


def test_of_a_merged_recording_the_mean_request_counts() -> None:
    """Two requests of six statements are within a budget of six, and one more is half a statement too many."""
    merged = Recording.merge([RECORDING, RECORDING])
    more = Recording.merge([RECORDING, Recording("GET /x", "full", statements=[STATEMENT] * 7)])

    assert Budget.at_most(statements=6, n_plus_one=1).broken_by(merged) == ""
    assert Budget.at_most(statements=5, n_plus_one=0).broken_by(merged).splitlines()[:2] == [
        "GET /x: 6 statements, expected <= 5",
        "GET /x: 1 n+1, expected <= 0",
    ]
    assert Budget.at_most(statements=6).broken_by(more).startswith("GET /x: 6.5 statements, expected <= 6")


def test_each_metric_counts_its_own_findings() -> None:
    """Two statements that ran again and missed the cache count twice, one line with N+1 once, others not at all."""
    redundant = replace(STATEMENT, sql="select a", fingerprint="a", redundant_rows=1000, repeated=False, pool_wait_s=1)
    again = replace(STATEMENT, sql="select b", fingerprint="b", repeated=True, cache_hit=False)
    statements = [*[redundant] * 3, *[again] * 2, *[replace(STATEMENT, repeated=False, cache_hit=True)] * 6]
    limits = Budget.at_most(statements=0, rows=0, round_trips=0, duplicates=0, n_plus_one=0)

    broken = limits.broken_by(Recording("x", "full", statements=statements)).splitlines()[:5]

    assert broken == [f"x: {text}, expected <= 0" for text in EACH_METRIC]
    nothing = Budget.parse(["rows > 0", "round_trips > 0"]).broken_by(Recording("x", "full", sql_s=0.0))
    assert nothing.splitlines() == ["x: 0 rows, expected > 0", "x: 0 round trips, expected > 0"]


def test_a_gap_breaks_each_budget_but_an_empty_one() -> None:
    """It is told though the limit holds."""
    recording = Recording("x", "full", sql_s=0.0, failed_hooks=("fetch: ValueError",))

    assert Budget.at_most(statements=9).broken_by(recording) == (
        "x: a hook failed, what it measures is missing: fetch: ValueError"
    )
    assert Budget(()).broken_by(recording) == ""


@pytest.mark.parametrize("text", ["statements", "statements=3", "queries <= 3", "statements <= 1x"])
def test_a_budget_that_is_none_is_an_error_of_the_user(text: str) -> None:
    """It names what can be limited."""
    with pytest.raises(UsageError, match=text):
        Budget.parse([text])


def test_the_pytest_plugin_fails_a_test_that_broke_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With statement and call site; a test's own failure goes first; an unknown limit is named."""
    (tmp_path / "test_it.py").write_text(TESTS)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the plugins of others take most of the time
    plugins = ("-p", "no:cacheprovider", "-p", "placebench.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--strict-markers", "test_it.py"]
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
    code = "import sys, placebench.pytest_plugin; print({'sqlalchemy', 'jinja2'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "set()\n"


def test_what_was_missed_or_not_measured_breaks_a_budget() -> None:
    """A figure that is not known is not below a limit."""
    unknown = replace(STATEMENT, row_count=None, round_trips=None, repeated=None)
    broken = [
        Budget.at_most(statements=9).broken_by(Recording("x", "full", missed=798)),
        Budget.at_most(statements=9).broken_by(Recording("x", "full", failed_hooks=("hook: ValueError",))),
        *(
            Budget.at_most(**{name: 9}).broken_by(Recording("x", "full", statements=[unknown], sql_s=1.0))
            for name in KNOWN
        ),
        Budget.at_most(rows=9).broken_by(Recording("x", "full", dropped=1, sql_s=1.0)),
    ]

    firsts = [text.splitlines()[0] for text in broken]
    assert [any(word in first for word in ("798", "hook", "not measured")) for first in firsts] == [True] * 6
    assert Budget.at_most(rows=0, round_trips=0, duplicates=0).broken_by(Recording("x", "full", sql_s=0.0)) == ""


@pytest.mark.long
def test_statements_of_threads_break_the_budget_of_a_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With plain threads, pools of threads and asyncio's test case; DDL in one test costs the next one nothing."""
    (tmp_path / "test_threads.py").write_text(THREADS)

    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "no:cacheprovider", "-p", "placebench.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "test_threads.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    failed = [line.partition("::")[2].split()[0] for line in printed.splitlines() if line.startswith("FAILED")]
    assert failed == ["test_thread", "test_pool", "TestAsync::test_async", "test_after_ddl", "test_rows_unknown"]
