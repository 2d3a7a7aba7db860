"""The pytest plugin: `pytest --sql` profiles a whole suite, and the marker and fixture `sql_budget` limit one test.

    @pytest.mark.sql_budget(statements=3, n_plus_one=0)
    def test_the_list_of_orders(client): ...

    def test_two_pages(client, sql_budget):
        with sql_budget(statements=3):
            client.get("/orders")

This module is imported in every run of pytest where placebench is installed: it loads `pytest_session`, and with it the
profiler, only for `--sql` and for a test with a budget. PYTEST_DONT_REWRITE: it asserts nothing.
"""

import argparse
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from placebench.profiler.integrations.pytest_session import SqlSession
    from placebench.profiler.recording import Recording

_SESSION: "pytest.StashKey[SqlSession]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sql` and its options; each of these but `--sql-top` also turns it on."""
    group = parser.getgroup("sql", "SQL profile of the suite (placebench)")
    group.addoption("--sql", action="store_true", help="profile the SQL of each test: slow and repeated statements")
    for name, metavar, text in (
        ("--sql-page", "FILE", "HTML page of --sql (default: pytest-sql.html)"),
        ("--sql-baseline", "FILE", "exit with 1 if a test runs more statements than in this file"),
        ("--sql-markdown", "FILE", "write the change per test as Markdown, for a comment on a pull request"),
    ):
        group.addoption(name, metavar=metavar, help=text)
    group.addoption("--sql-update", action="store_true", help="write the counts of this run into --sql-baseline")
    text = "run the suite N times, the second time in reverse and then in random orders, and write ranges of counts"
    group.addoption("--sql-learn", metavar="N", type=int, default=0, help=text)
    # The further runs of --sql-learn: the order of their tests, and the file that they write their tests to.
    group.addoption("--sql-order", type=int, default=1, help=argparse.SUPPRESS)
    group.addoption("--sql-run", help=argparse.SUPPRESS)
    group.addoption("--sql-top", metavar="N", type=int, default=5, help="lines of each list (default: 5)")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `sql_budget` and, with `--sql`, start profiling."""
    config.addinivalue_line(
        "markers",
        "sql_budget(statements, rows, round_trips, duplicates, n_plus_one): the most that the test's SQL may cost",
    )
    if any(map(config.getoption, ("sql", "sql_page", "sql_baseline", "sql_markdown", "sql_update", "sql_learn"))):
        from placebench.profiler.integrations.pytest_session import SuitePlugin

        # Its profiler is made here, before anything connects.
        config.pluginmanager.register(SuitePlugin(config, _session(config)), "placebench_suite")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the profiler's hooks."""
    if _SESSION in config.stash:
        config.stash[_SESSION].remove()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the profiler before the first fixture connects, if a test has a budget."""
    name = "sql_budget"
    if any(item.get_closest_marker(name) or name in getattr(item, "fixturenames", ()) for item in session.items):
        _session(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the test if it has the marker or `--sql` is on; fail a test that passed but broke its budget."""
    marker = item.get_closest_marker("sql_budget")
    if marker is None and not item.config.pluginmanager.has_plugin("placebench_suite"):
        return (yield)
    with _session(item.config).record_test(item, marker.kwargs if marker else {}):
        return (yield)


@pytest.fixture
def sql_budget(request: pytest.FixtureRequest) -> Callable[..., "AbstractContextManager[Recording]"]:
    """Return a function that makes `with` blocks with a budget, such as `statements=3`; each yields its recording."""

    def block(**limits: int) -> "AbstractContextManager[Recording]":
        return _session(request.config).record(request.node.name, limits)

    return block


def _session(config: pytest.Config) -> "SqlSession":
    """Return the profiler of this run, made when it is first needed."""
    if _SESSION not in config.stash:
        from placebench.profiler.integrations.pytest_session import SqlSession

        config.stash[_SESSION] = SqlSession()
    return config.stash[_SESSION]
