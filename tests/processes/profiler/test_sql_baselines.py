"""Baselines with ranges: counts that depend on caches, on the order of tests and on workers do not fail a suite."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOP = '''"""A shop with caches."""

import functools
import sqlite3

connection = sqlite3.connect(":memory:")
connection.executescript("create table rates (rate int); create table orders (id int); insert into orders values (1)")


@functools.lru_cache
def rates():
    return connection.execute("select rate from rates").fetchall()


known = {}


def settings():
    if "settings" not in known:
        known["settings"] = connection.execute("select count(*) from rates").fetchone()
    return known["settings"]


def orders(number):
    rates()
    for _ in range(number):
        connection.execute("select id from orders where id = ?", (_,)).fetchall()
'''
TESTS = '''"""Tests that share the caches of the shop."""

import os

import pytest
import shop


def test_one():
    shop.orders(1)


def test_two():
    shop.orders(2)
    shop.settings()


def test_three():
    shop.settings()
    shop.connection.execute("savepoint a")
    shop.orders(int(os.environ.get("MORE", "1")))
    shop.connection.execute("release a")


def test_of_nothing():
    assert True


@pytest.mark.parametrize("number", range(3))
def test_each(number):
    shop.rates()
'''


def run(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A run of the suite with its baseline."""
    plugins = ("-p", "no:cacheprovider", "-p", "placebench.pytest_plugin")
    command = [sys.executable, "-m", "pytest", *plugins, "--sql-baseline=sql.json", *options]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A suite whose baseline was learned from three runs."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(TESTS)
    made = run(folder, "--sql-learn", "3")
    assert made.returncode == 0, made.stdout
    assert "SQL baseline of 3 runs: ranges of 4 tests" in made.stdout
    yield folder
    shutil.rmtree(folder)


def ranges(folder: Path) -> dict[str, list[list[Any]]]:
    """The ranges of each test of the baseline."""
    tests = json.loads((folder / "sql.json").read_text())["tests"]
    return {name.partition("::")[2]: sorted(each.get("ranges", {}).values()) for name, each in tests.items()}


@pytest.mark.long
def test_a_range_has_its_reason(learned: Path) -> None:
    """The function that keeps its result where it is known, else the line that runs the statement in some runs."""
    found = ranges(learned)

    assert found["test_one"] == [[0, 1, "depends on the cache at shop.py:12 rates"]]
    assert found["test_of_nothing"] == []
    assert found["test_three"] == [[0, 1, "differs between runs at shop.py:20 settings"]]


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ("-p", "xdist", "-n", "2"),
        ("-p", "random_order.plugin", "--random-order", "--random-order-seed=7"),
        ("test_shop.py::test_two",),
    ],
    ids=" ".join,
)
def test_another_order_is_no_regression(learned: Path, options: tuple[str, ...]) -> None:
    """All tests, in other orders, by two workers, or one alone: counts within the ranges are those of the baseline."""
    if "--random-order" in options:
        pytest.importorskip("random_order")
    made = run(learned, *options)

    assert made.returncode == 0, made.stdout
    assert "regressions 0, tests with fewer statements 0, with other statements 0, new tests 0" in made.stdout


def test_a_statement_beyond_its_count_is_one(learned: Path) -> None:
    """The filled caches of its ranges do not hide it; each statement that came is told with its line."""
    made = run(learned, MORE="2")

    assert made.returncode == 1
    (regression,) = re.findall(r"^SQL regression: .*\n((?:    .*\n)*)", made.stdout, re.MULTILINE)
    assert regression == "    +1 × select id from orders where id = ? at shop.py:27 orders\n"


def test_a_statement_that_went_is_told_by_its_tables(learned: Path, tmp_path: Path) -> None:
    """The baseline has no text of it; another update keeps the ranges."""
    shutil.copytree(learned, tmp_path, dirs_exist_ok=True)
    source = SHOP.replace("select id from orders where id = ?", "select id from orders where id = ? or id is null")
    (tmp_path / "shop.py").write_text(source)

    source = source.replace(
        "    rates()\n    for", "    rates()\n    connection.execute('select 1 from rates')\n    for"
    )
    (tmp_path / "shop.py").write_text(source)
    made = run(tmp_path, "test_shop.py::test_one")
    lines = [line.strip() for line in made.stdout.splitlines()]
    assert made.returncode == 1
    assert "+1 × select ? from rates at shop.py:26 orders" in lines
    assert "−1 × select orders at shop.py orders" in lines

    assert run(tmp_path, "--sql-update").returncode == 0
    assert ranges(tmp_path) == ranges(learned)


def test_a_wrong_number_of_runs_is_one_line(learned: Path) -> None:
    """Before any test runs."""
    made = run(learned, "--sql-learn", "1")

    assert made.returncode == 4
    assert "ERROR: --sql-learn 1: expected a number of runs from 2 to 20" in made.stderr
