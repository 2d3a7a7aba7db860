"""The profiler beside coverage: the same lines and branches are covered, and the same statements recorded."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

coverage = pytest.importorskip("coverage")

_SHOP = """
import contextvars, sqlite3, threading

def total(count):
    connection, found = sqlite3.connect(":memory:"), 0
    for number in range(count):
        if number % 2:
            found += connection.execute("select ?", (number,)).fetchone()[0]
        else:
            found -= 1
    connection.close()
    return found

def numbers(count):
    for number in range(count):
        yield number

def never():
    return 1

def main():
    total(200)
    sum(numbers(20_000))
    thread = threading.Thread(target=contextvars.copy_context().run, args=(total, 4))
    thread.start()
    thread.join()
    if threading.active_count() > 1000:
        never()
"""
_STATEMENTS = 102

# Each order in which the two can begin and end.
_ORDERS = """
import runpy, sys, coverage
from placebench.profiler import SqlProfiler

_, mode, *orders = sys.argv
sys.path.insert(0, ".")
profiler = SqlProfiler()
for order in orders:
    tracer = coverage.Coverage(branch=True, data_file=order, include=["*/shop.py"])
    if order.startswith("coverage"):
        tracer.start()
    with profiler.record(order, mode=mode) as recording:
        if order.startswith("profiler"):
            tracer.start()
        sys.modules.pop("shop", None)
        runpy.run_path("program.py")
        if order.endswith("coverage"):
            tracer.stop()
    if order.endswith("profiler"):
        tracer.stop()
    tracer.save()
    print(sum(statement.sql == "select ?" for statement in recording.statements), *recording.notes)
"""
_COVERAGE = ("-m", "coverage", "run", "--branch", "--include=*/shop.py")
_PROFILE = ("-m", "placebench", "profile", "run")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the program."""
    tmp_path.joinpath("shop.py").write_text(_SHOP)
    tmp_path.joinpath("program.py").write_text("import shop\nshop.main()\n")
    tmp_path.joinpath("orders.py").write_text(_ORDERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return tmp_path


def python(*words: str, covered: str = "covered") -> str:
    """What Python prints on stdout with these arguments; coverage writes its data into the file *covered*."""
    environment = {**os.environ, "COVERAGE_FILE": covered}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def arcs(name: str) -> list[tuple[int, int]]:
    """The jumps from line to line of shop.py that coverage saw."""
    data = coverage.CoverageData(name)
    data.read()
    file = next(file for file in data.measured_files() if file.endswith("shop.py"))
    return sorted(data.arcs(file))


@pytest.fixture
def expected(folder: Path) -> list[tuple[int, int]]:
    """What coverage sees alone: hence independent of the profiler."""
    python(*_COVERAGE, "program.py", covered="alone")
    return arcs("alone")


def select_count(document: dict[str, Any]) -> int:
    """How many statements of the program a recording has."""
    return sum(group["calls"] for group in document["summary"]["groups"] if group["sql"] == "select ?")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["light", "full", "flame", "sampled"])
def test_coverage_sees_the_same_branches(mode: str, expected: list[tuple[int, int]]) -> None:
    """In every mode and order, around `profile run` and inside of it; and every statement is recorded."""
    run = (*_PROFILE, "--mode", mode, "--json")
    around = json.loads(python(*_COVERAGE, *run, "program.py", covered="around"))
    inside = json.loads(python(*run, *_COVERAGE, "program.py", covered="inside"))
    names = [f"{first}-{last}" for first in ("coverage", "profiler") for last in ("coverage", "profiler")]
    said = python("orders.py", mode, *names).splitlines()

    assert {name: arcs(name) for name in ("around", "inside", *names)} == dict.fromkeys(
        ("around", "inside", *names), expected
    )
    assert [select_count(around), select_count(inside)] == [_STATEMENTS] * 2
    assert [int(line.split()[0]) for line in said] == [_STATEMENTS] * 4
    # coverage keeps its data in SQLite; where it is the program, its statements are the program's.
    assert around["summary"]["statements"] == _STATEMENTS < inside["summary"]["statements"]


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--cov-context=test",)])
def test_tests_under_pytest_cov(folder: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same branches with `--sql` as without; what coverage writes of a test is not in that test's budget."""
    pytest.importorskip("pytest_cov")
    folder.joinpath("test_shop.py").write_text(
        "import pytest, shop\n"
        "@pytest.mark.sql_budget(statements=100)\ndef test_total(): shop.total(200)\n"
        "@pytest.mark.sql_budget(statements=0)\ndef test_none(): shop.never()\n"
        "@pytest.mark.sql_budget(statements=2)\ndef test_few(): shop.total(4)\n"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take most of the time
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_cov")
    words = (*words, "--cov=shop", "--cov-branch", "--cov-report=", *options)

    python(*words, covered="without")
    said = python(*words, "-p", "placebench.pytest_plugin", "--sql", covered="with")

    assert arcs("with") == arcs("without")
    assert "3 tests, 2 with SQL: 102 statements" in said
