"""The profiler beside others that stand in the way of imports: wrapt's hooks, ddtrace, lazy loaders, reloads."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_DRIVERS = ("sqlite3", "psycopg", "psycopg2", "asyncpg", "pymysql")
_HOOKS = f"""
import wrapt
for name in {_DRIVERS}: wrapt.register_post_import_hook(lambda module: called.append(module.__name__), name)
"""
_PROFILER = """
from placebench.profiler import SqlProfiler
profiler = SqlProfiler.for_drivers()
"""
_DDTRACE = """
import ddtrace.trace
ddtrace.trace.tracer.enabled = False
ddtrace.patch(sqlite3=True, raise_errors=True)
"""
_USE = """
import sqlite3
with profiler.record("use") as recording: sqlite3.connect(":memory:").execute("select 1").fetchall()
assert (len(recording.statements), recording.failed_hooks, recording.notes) == (1, (), ()), recording
"""


def run(program: str) -> str:
    """What a Python of its own prints; it may print no error."""
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("first", ["wrapt", "profiler"])
def test_hooks_of_wrapt_are_called_once_and_the_drivers_are_as_before_afterwards(first: str) -> None:
    """Whoever comes first: every driver can be imported, is watched, and has its own functions and loader back."""
    for package in ("wrapt", "pymysql"):
        pytest.importorskip(package)
    order = _HOOKS + _PROFILER if first == "wrapt" else _PROFILER + _HOOKS
    program = f"""
called = []
{order}
import asyncpg.connect_utils, psycopg, psycopg2, pymysql
{_USE}
changed = [psycopg.connect, psycopg.Connection.connect.__func__, psycopg2._connect, asyncpg.connect_utils._connect]
changed += [pymysql.connect, pymysql.Connect, sqlite3.connect, sqlite3.dbapi2.connect]
profiler.remove()
print([hasattr(each, "placebench_before") for each in changed] == [True] * 8, sorted(called) == {sorted(_DRIVERS)})
print([each.__loader__.__class__.__name__ for each in (asyncpg, psycopg, psycopg2, pymysql, sqlite3)])
own = [psycopg.connect, psycopg.Connection.connect.__func__, psycopg2._connect, asyncpg.connect_utils._connect]
own += [pymysql.connect, pymysql.Connect, sqlite3.connect, sqlite3.dbapi2.connect]
print([hasattr(each, "placebench_before") for each in own] == [False] * 8)
"""

    assert run(program).splitlines() == ["True True", str(["SourceFileLoader"] * 5), "True"]


@pytest.mark.parametrize("first", ["ddtrace", "profiler"])
def test_ddtrace_traces_and_the_profiler_records(first: str) -> None:
    """Whoever comes first, an import raises nothing."""
    pytest.importorskip("ddtrace")
    order = _DDTRACE + _PROFILER if first == "ddtrace" else _PROFILER + _DDTRACE

    assert run(f"{order}{_USE}\nprint(type(sqlite3.connect(':memory:')).__module__.partition('.')[0])") == "ddtrace"


def test_a_module_that_is_loaded_again_is_watched_again(tmp_path: Path) -> None:
    """By reload, which gives psycopg2 its own function back, and by an import after it was forgotten."""
    program = f"""
import importlib, sys
{_PROFILER}
import psycopg2, sqlite3
def layers(function): return 1 + layers(function.__wrapped__) if hasattr(function, "placebench_before") else 0
found = [layers(psycopg2._connect), layers(sqlite3.connect)]
for _ in range(2): importlib.reload(psycopg2); importlib.reload(sqlite3)
found += [layers(psycopg2._connect), layers(sqlite3.connect)]
old = sys.modules.pop("psycopg2")
import psycopg2
found += [psycopg2 is not old, layers(psycopg2._connect)]
profiler.remove()
print(found, [layers(each) for each in (old._connect, psycopg2._connect, sqlite3.connect)])
"""

    assert run(program) == "[1, 1, 1, 1, True, 1] [0, 0, 0]"


_LAZY = """
import importlib.util, sys
def lazily(name):
    spec = importlib.util.find_spec(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
def is_loaded(module): return type(module) is not importlib.util._LazyModule
"""
_LAZY_FINDER = """
from importlib.machinery import PathFinder
class Finder:
    def find_spec(self, name, path, target=None):
        spec = PathFinder.find_spec(name, path) if name == "sqlite3" else None
        if spec is not None: spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec
"""


@pytest.mark.parametrize(
    "order",
    [
        _LAZY + _PROFILER + "module = lazily('sqlite3')",
        _LAZY + "module = lazily('sqlite3')" + _PROFILER,
        _LAZY + _LAZY_FINDER + "sys.meta_path.insert(0, Finder())" + _PROFILER + "import sqlite3 as module",
        _LAZY + _LAZY_FINDER + _PROFILER + "sys.meta_path.insert(0, Finder())\nimport sqlite3 as module",
    ],
    ids=["profiler-first", "module-first", "finder-first", "finder-last"],
)
def test_a_module_that_is_to_be_loaded_later_is_loaded_later(order: str) -> None:
    """By `LazyLoader`: the profiler does not load it, and its first use is recorded."""
    if "insert(0, Finder())\n" in order:
        order += "\nassert not is_loaded(module)"  # nobody was asked: the import is found when it is used
        order = order.replace("import sqlite3 as module", "import sqlite3 as module; profiler.remove()")
        assert run(order + "\nprint(module.connect.__name__, is_loaded(module))") == "connect True"
        return

    program = f"{order}\nbefore = is_loaded(module){_USE}\nprint(before, is_loaded(module), sqlite3 is module)"

    assert run(program) == "False True True"


@pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports came with Python 3.15")
@pytest.mark.parametrize("order", ["lazy import sqlite3" + _PROFILER, _PROFILER + "lazy import sqlite3"])
def test_a_lazy_import_stays_lazy_and_its_first_use_is_recorded(order: str) -> None:
    """Before or after the profiler, which does not load the module either (PEP 810)."""
    used = _USE.replace("import sqlite3\n", "before = 'sqlite3' in sys.modules\n")

    assert run(f"import sys\n{order}\n{used}\nprint(before, 'sqlite3' in sys.modules)") == "False True"


def test_what_wraps_the_profilers_functions_stays_when_it_is_removed() -> None:
    """A plain function over ours calls it for good; ours then passes on, and the next profiler is above both."""
    program = f"""
import functools, sqlite3
{_PROFILER}
below, calls = sqlite3.connect, []
def counted(*args, **kwargs): calls.append(args); return below(*args, **kwargs)
sqlite3.connect = functools.wraps(below)(counted)
profiler.remove()
assert sqlite3.connect is not below and type(sqlite3.connect(":memory:")) is sqlite3.Connection
profiler = SqlProfiler.for_drivers()
{_USE}
profiler.remove()
print(len(calls), sqlite3.connect.__wrapped__ is below)
"""

    assert run(program) == "2 True"


@pytest.mark.parametrize("removed", [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
def test_profilers_can_be_removed_in_any_order(removed: list[int]) -> None:
    """The driver has its own function back after the last one, and not before."""
    program = f"""
import psycopg, sqlite3
from placebench.profiler import SqlProfiler
def found(): return vars(psycopg.Connection)["connect"], psycopg.connect, sqlite3.connect
before = found()
profilers = [SqlProfiler.for_drivers() for _ in range(3)]
for number in {removed}:
    assert found() != before
    profilers[number].remove()
print(found() == before)
"""

    assert run(program) == "True"


_ENGINE = """
engine = sqlalchemy.create_engine("sqlite://")
with engine.begin() as connection: connection.execute(sqlalchemy.text("select 2")).all()
"""


def test_sqlalchemy_is_not_imported_to_profile_programs_without_it() -> None:
    """Its engines are recorded from the moment at which the program imports it, also within a recording."""
    program = f"""
import sqlite3, sys
from placebench.profiler import SqlProfiler
profiler = SqlProfiler()
profiler.collect_statistics()
with profiler.record("whole", mode="full") as whole:
    alone = sqlite3.connect(":memory:")
    with profiler.record("alone"): alone.execute("select 1").fetchall()
    assert "sqlalchemy" not in sys.modules
    import sqlalchemy
{textwrap.indent(_ENGINE, "    ")}
    alone.execute("select 3").fetchall()
assert (whole.breaches, whole.failed_hooks, whole.missed) == ((), (), 0), whole
print([each.row_count for each in whole.statements], len(whole.checkouts))
print([each.count for each in profiler.statistics()])
profiler.remove()
with profiler.record("after") as after:
{textwrap.indent(_ENGINE, "    ")}
print(len(after.statements), [each for each in sys.meta_path if type(each).__module__.startswith("placebench")])
"""

    assert run(program).splitlines() == [
        "[1, 1, 1] 1",
        "[3]",
        "0 []",
    ]


def test_statements_get_comments_also_if_sqlalchemy_was_not_imported() -> None:
    """To ask for comments imports it; a profiler that was removed waits for it no longer."""
    program = """
import sys
from placebench.profiler import SqlProfiler
profiler, removed = SqlProfiler(), SqlProfiler()
removed.remove()
profiler.comment_statements()
import sqlalchemy
engine, sent = sqlalchemy.create_engine("sqlite://"), []
with profiler.tagged("/orders"), engine.connect() as connection:
    connection.connection.driver_connection.set_trace_callback(sent.append)
    connection.execute(sqlalchemy.text("select 2")).all()
print(sent, removed.active)
"""

    assert run(program) == """["select 2 /*route='/orders'*/"] False"""
