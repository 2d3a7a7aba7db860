"""SQL budgets in pytest: the marker and the fixture `sql_budget`.

    @pytest.mark.sql_budget(statements=3, n_plus_one=0)
    def test_the_list_of_orders(client): ...

    def test_two_pages(client, sql_budget):
        with sql_budget(statements=3):
            client.get("/orders")

This module is imported in every run of pytest where placebench is installed: it loads nothing until a test has a
budget. Every engine of the process is profiled; connections made while the tests are collected are counted without
fetches.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from placebench.profiler.recording import Recording
    from placebench.profiler.sql_profiler import SqlProfiler

_PROFILER: "pytest.StashKey[SqlProfiler]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "sql_budget(statements, rows, round_trips, duplicates, n_plus_one): the most that the test's SQL may cost",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the profiler's hooks away."""
    profiler = config.stash.get(_PROFILER, None)
    if profiler is not None:
        profiler.remove()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the profiler before the first fixture connects, if a test has a budget."""
    if any(item.get_closest_marker("sql_budget") or "sql_budget" in _fixtures(item) for item in session.items):
        _profiler(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a test with the marker, and fail it if it passed and broke its budget."""
    marker = item.get_closest_marker("sql_budget")
    if marker is None:
        return (yield)
    with _within(item.config, item.name, marker.kwargs):
        return (yield)


@pytest.fixture
def sql_budget(request: pytest.FixtureRequest) -> Callable[..., "AbstractContextManager[Recording]"]:
    """Make blocks with a budget, such as `statements=3`, which give their recording."""

    def block(**limits: int) -> "AbstractContextManager[Recording]":
        return _within(request.config, request.node.name, limits)

    return block


@contextmanager
def _within(config: pytest.Config, name: str, limits: Mapping[str, int]) -> "Iterator[Recording]":
    """Record the block, and fail the test if it broke its budget; an error of its own takes precedence."""
    # Loaded here: most runs of pytest have no budget.
    from placebench.profiler.analysis.budget import METRICS, Budget

    unknown = set(limits) - set(METRICS)
    if unknown:
        raise pytest.UsageError(f"sql_budget knows no {', '.join(sorted(unknown))}: only {', '.join(METRICS)}")
    with _profiler(config).record(name) as recording:
        yield recording
    broken = Budget.at_most(**limits).broken_by(recording)
    if broken:
        pytest.fail(f"SQL budget broken\n{broken}", pytrace=False)


def _profiler(config: pytest.Config) -> "SqlProfiler":
    """The profiler of this run, made on first use."""
    from placebench.profiler.sql_profiler import SqlProfiler

    if _PROFILER not in config.stash:
        config.stash[_PROFILER] = SqlProfiler()
    return config.stash[_PROFILER]


def _fixtures(item: pytest.Item) -> Sequence[str]:
    """The names of the fixtures that a test uses."""
    return getattr(item, "fixturenames", ())
