"""`pytest --sql` in a pytest of its own: what it shows, its baseline, its files, and that it changes no outcome."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy_version import since

SHOP = """
import asyncio
from threading import Thread

from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import StaticPool

engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})


def load(number):
    with engine.connect() as connection:
        return connection.execute(text("select :n as item"), {"n": number}).all()


def page(numbers):
    for number in numbers:
        load(number)


def in_thread():
    thread = Thread(target=load, args=(1,))
    thread.start()
    thread.join()


async def in_task():
    other = create_async_engine("sqlite+aiosqlite://")
    async with other.connect() as connection:
        await connection.execute(text("select 'async'"))
    await other.dispose()
"""

TESTS = """
import asyncio
import unittest
from os import environ

import pytest
import shop
from sqlalchemy import Column, Integer, MetaData, Table


def test_page():
    shop.page(range(int(environ.get("ITEMS", "6"))))


def test_duplicates():
    shop.page([1] * 3)


def test_without_sql():
    shop.page([])


def test_thread():
    shop.in_thread()


def test_async():
    asyncio.run(shop.in_task())


class TestCase(unittest.IsolatedAsyncioTestCase):
    async def test_in_an_event_loop_of_its_own(self):
        await shop.in_task()


def test_creating_tables():
    table = Table("made", MetaData(), Column("id", Integer, primary_key=True))
    table.create(shop.engine)
    table.drop(shop.engine)


@pytest.mark.sql_budget(statements=1)
def test_beyond_its_budget():
    shop.page([1, 2])


def test_failing():
    shop.load(1)
    assert "seen" == "expected"


def test_skipped():
    shop.load(1)
    pytest.skip("half way")


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    shop.load(1)
    raise ValueError
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs the suite in a folder of its own, without other plugins, which take half of its time."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "test_shop.py").write_text(TESTS)

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        variables = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
        ours = ["-p", "placebench.pytest_plugin"] if variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] else []
        options = ["-q", "-p", "no:cacheprovider", "--strict-markers", *ours]
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)

    return run


_NEEDS_AIOSQLITE = since(1, 4, 3, reason="its driver aiosqlite")
PASSING = ("-k", "not budget and not failing")
WITH_ALL_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
"""Those that are installed, ours among them by its entry point."""


def section(printed: str) -> list[str]:
    """The lines of the SQL profile."""
    return printed.partition(" SQL profile ")[2].splitlines()[1:]


@_NEEDS_AIOSQLITE
def test_the_outcome_of_each_test_is_that_without_it(run: Run) -> None:
    """Also of those that fail, skip, and break their budget."""
    without = run("-rA", "--tb=no", **WITH_ALL_PLUGINS)
    profiled = run("-rA", "--tb=no", "--sql", **WITH_ALL_PLUGINS)

    def outcomes(printed: str) -> list[str]:
        ends = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
        return sorted(line for line in printed.splitlines() if line.startswith(ends))

    assert outcomes(without.stdout) == outcomes(profiled.stdout)
    assert "2 failed, 7 passed, 1 skipped, 1 xfailed" in profiled.stdout
    assert (without.returncode, profiled.returncode) == (1, 1)


@_NEEDS_AIOSQLITE
def test_statements_are_shown_with_line_and_test(run: Run) -> None:
    """The most repeated ones, n+1 and duplicates; what threads, tasks and DDL ran is counted."""
    printed = run("--sql", *PASSING)

    lines = section(printed.stdout)
    shown = "\n".join(lines)
    assert lines[0].startswith("9 tests, 8 with SQL: 16 statements in ")
    assert "6 ×" in shown
    assert "n+1: shop.py:14 load, 6 × in test_shop.py::test_page" in shown
    assert "duplicate: shop.py:14 load, 2 × in test_shop.py::test_duplicates" in shown
    assert "not known" not in shown
    assert printed.returncode == 0


@pytest.mark.long
@_NEEDS_AIOSQLITE
def test_more_statements_than_in_the_baseline_are_one_line_and_exit_1(run: Run, tmp_path: Path) -> None:
    """With the test, both counts, the statement and its line; the file has no SQL text."""
    written = run("--sql-baseline", "sql.json", "--sql-update", *PASSING)
    same = run("--sql-baseline", "sql.json", *PASSING)
    more = run("--sql-baseline", "sql.json", *PASSING, ITEMS="8")
    fewer = run("--sql-baseline", "sql.json", *PASSING, ITEMS="5")

    regressions = [line for line in section(more.stdout) if line.startswith("SQL regression: ")]
    assert regressions == [
        (
            "SQL regression: test_shop.py::test_page: 8 statements (6 in the baseline); "
            "+2 × select ? as item at shop.py:14 load"
        )
    ]
    assert [each.returncode for each in (written, same, more, fewer)] == [0, 0, 1, 0]
    assert ["null in sql.json" in each.stdout for each in (same, more, fewer)] == [False, True, False]
    assert "tests with fewer statements 1" in fewer.stdout
    assert "as item" not in (tmp_path / "sql.json").read_text()


@pytest.mark.long
@_NEEDS_AIOSQLITE
def test_the_same_counts_are_the_same_file(run: Run, tmp_path: Path) -> None:
    """Every test that passed is in it, by name, those without SQL too."""
    files = []
    for name in ("one.json", "two.json"):
        run("--sql-baseline", name, "--sql-update")
        files.append((tmp_path / name).read_text())

    tests = json.loads(files[0])["tests"]
    assert files[0] == files[1]
    assert tests["test_shop.py::test_without_sql"] == {}
    assert {name.rpartition("::")[2] for name in tests} == {
        "test_page",
        "test_duplicates",
        "test_without_sql",
        "test_thread",
        "test_async",
        "test_in_an_event_loop_of_its_own",
        "test_creating_tables",
    }


@pytest.mark.long
def test_an_update_keeps_tests_that_did_not_run_and_those_that_are_excluded(run: Run, tmp_path: Path) -> None:
    """A null is not compared and stays; a test whose file is gone goes."""
    baseline = tmp_path / "sql.json"
    before = {"gone.py::test": {}, "test_shop.py::test_page": None, "test_shop.py::test_thread": {"duplicates": 9}}
    baseline.write_text(json.dumps({"format_version": 1, "tests": before}))

    compared = run("--sql-baseline", "sql.json", "-k", "test_page")
    run("--sql-baseline", "sql.json", "--sql-update", "-k", "test_page or test_without")

    assert compared.returncode == 0
    assert json.loads(baseline.read_text())["tests"] == {
        "test_shop.py::test_page": None,
        "test_shop.py::test_thread": {"duplicates": 9},
        "test_shop.py::test_without_sql": {},
    }


@pytest.mark.long
@_NEEDS_AIOSQLITE
def test_workers_of_xdist_hand_their_results_to_the_controller(run: Run, tmp_path: Path) -> None:
    """The same counts, and the same exit code, as in one process."""
    pytest.importorskip("xdist")
    run("--sql-baseline", "one.json", "--sql-update", *PASSING)

    spread = run("-p", "xdist", "-n", "2", "--sql-baseline", "two.json", "--sql-update", *PASSING)
    more = run("-n", "1", "--sql-baseline", "two.json", *PASSING, ITEMS="8", **WITH_ALL_PLUGINS)

    assert section(spread.stdout)[0].startswith("9 tests, 8 with SQL: 16 statements in ")
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()
    assert more.returncode == 1


WITHOUT_SQLALCHEMY = """
import asyncio
import sqlite3

import aiosqlite
import django
from django.conf import settings
from django.test import TestCase
from django.test.utils import setup_databases, setup_test_environment

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
setup_test_environment()
setup_databases(0, False)

from django.contrib.contenttypes.models import ContentType


class TestDjango(TestCase):
    def test_orm(self):
        with self.assertNumQueries(6):
            for number in range(6):
                assert ContentType.objects.filter(pk=90 + number).first() is None


def test_by_hand():
    connection = sqlite3.connect(":memory:")
    for number in (1, 1):
        connection.execute("select ?", (number,)).fetchall()


async def awaited():
    async with aiosqlite.connect(":memory:") as connection:
        return await connection.execute_fetchall("select 'awaited'")


def test_awaited():
    assert asyncio.run(awaited()) == [("awaited",)]
"""


def test_suites_without_sqlalchemy_are_seen(run: Run, tmp_path: Path) -> None:
    """Django's ORM, sqlite3 and aiosqlite by hand: statements, n+1 and duplicates with their lines.

    Django's log of queries, which `assertNumQueries` reads, has a SELECT for the values of each: not counted.
    """
    pytest.importorskip("django")
    pytest.importorskip("aiosqlite")
    (tmp_path / "test_shop.py").write_text(WITHOUT_SQLALCHEMY)

    printed = run("--sql")

    page = re.sub("<[^>]+>", "", (tmp_path / "pytest-sql.html").read_text())
    # Django's own teardown has one more.
    assert section(printed.stdout)[0].startswith("3 tests, 3 with SQL: 10 statements in ")
    assert ["test_shop.py:26" in page, "test_shop.py:32" in page, "n+1" in page] == [True] * 3
    assert printed.returncode == 0


def test_a_suite_without_statements_says_what_was_looked_for(run: Run, tmp_path: Path) -> None:
    """In one line, instead of a silent 0."""
    (tmp_path / "test_shop.py").write_text("def test_it():\n    pass\n")

    lines = section(run("--sql").stdout)

    assert ["SQLAlchemy" in line and "psycopg2" in line for line in lines if "no statement was seen" in line] == [True]


def test_a_suite_whose_fixtures_fail_is_not_said_to_have_no_statements(run: Run, tmp_path: Path) -> None:
    """Drivers that were looked for are not the reason."""
    failing = "import pytest\n\n@pytest.fixture\ndef db():\n    raise OSError\n\n\ndef test_it(db):\n    pass\n"
    (tmp_path / "test_shop.py").write_text(failing)

    (line,) = (line for line in section(run("--sql").stdout) if "no statement was seen" in line)

    assert "no test ran" in line


@pytest.mark.long
def test_page_and_markdown_are_written_and_escape_what_they_show(run: Run, tmp_path: Path) -> None:
    """The page loads and runs nothing; the step summary is appended to what is there."""
    (tmp_path / "test_shop.py").write_text(
        "import pytest, shop\n\n\n"
        "@pytest.mark.parametrize('name', ['<script>', 'a|b', '`'])\n"
        "def test_named(name):\n    shop.page(range(6))\n"
    )
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")

    run("--sql", "--sql-page", "page.html", "--sql-markdown", "change.md", GITHUB_STEP_SUMMARY=str(summary))

    page, markdown = (tmp_path / "page.html").read_text(), (tmp_path / "change.md").read_text()
    assert [word for word in ("<script", "http:", "https:", "<link", "url(") if word in page] == []
    assert "test_named[&lt;script&gt;]" in page
    assert "<script" not in markdown
    assert {line.count("|") for line in markdown.splitlines() if line.startswith("| n+1")} == {6}
    assert summary.read_text() == f"before\n{markdown}"


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        (("--sql-update",), "--sql-update needs --sql-baseline FILE"),
        (("--sql-baseline", "none.json"), "--sql-baseline none.json: there is no such file; --sql-update writes it"),
        (("--sql-baseline", "conftest.py"), "conftest.py: cannot be read: "),
        (("--sql-page", "nowhere/page.html"), "there is no folder nowhere"),
    ],
)
def test_a_wrong_option_ends_the_run_before_the_first_test(run: Run, arguments: tuple[str, ...], seen: str) -> None:
    """One line, and pytest's exit code for usage."""
    printed = run(*arguments)

    assert seen in printed.stderr
    assert "Traceback" not in printed.stderr
    assert printed.returncode == pytest.ExitCode.USAGE_ERROR


@pytest.mark.long
def test_a_baseline_outside_of_the_suite_does_not_move_its_root(run: Run, tmp_path: Path) -> None:
    """pytest takes a word that it does not know yet for a test: the tests would have other names than in the file."""
    outside = tmp_path.parent / f"{tmp_path.name}.json"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    written = run("--sql-baseline", str(outside), "--sql-update", "-k", "page")
    as_word = run("--sql-baseline", str(outside))
    with_sign = run(f"--sql-baseline={outside}", "-k", "page", ITEMS="9")

    assert written.returncode == 0
    assert f"--sql-baseline={outside}" in as_word.stderr
    assert as_word.returncode == pytest.ExitCode.USAGE_ERROR
    assert "SQL regression: test_shop.py::test_page: 9 statements (6 in the baseline)" in with_sign.stdout
    assert with_sign.returncode == pytest.ExitCode.TESTS_FAILED


def test_without_the_option_nothing_is_loaded(run: Run, tmp_path: Path) -> None:
    """Neither the profiler nor SQLAlchemy, and no file is written."""
    (tmp_path / "test_shop.py").write_text(
        "import sys\n\n\ndef test_it():\n    loaded = [name for name in sys.modules if 'placebench' in name]\n"
        "    assert {'sqlalchemy', 'jinja2', 'rich'} & set(sys.modules) == set()\n    assert sorted(loaded) == [\n"
        "        'placebench', 'placebench.pytest_plugin',\n    ]\n"
    )

    printed = run()

    assert "1 passed" in printed.stdout
    assert "SQL profile" not in printed.stdout
    assert not (tmp_path / "pytest-sql.html").exists()


def test_the_documented_options_are_those_of_the_plugin(run: Run) -> None:
    """docs/howto/pytest.md has each, and no other."""
    page = (Path(__file__).parents[3] / "docs/howto/pytest.md").read_text(encoding="utf-8")

    helped = run("--help").stdout

    assert set(re.findall(r"--sql[a-z-]*", page)) == set(re.findall(r"^ +(--sql[a-z-]*)", helped, re.MULTILINE))
