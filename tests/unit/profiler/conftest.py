"""A clock that moves only when told, and an SQLite engine whose functions move it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from manual_clock import ManualClock
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Engine
from sqlalchemy.pool import StaticPool

from placebench.profiler import Clocks, SqlProfiler
from placebench.profiler.drivers.driver_hooks import _UNSUPPORTED


@pytest.fixture(autouse=True)
def no_modules_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers without hooks are in the notes of recordings, and event loops of notebooks are not watched.

    Other tests have imported them in this process.
    """
    for name in (*_UNSUPPORTED, "ipykernel"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def clock() -> ManualClock:
    """A clock at 100 s."""
    return ManualClock()


@pytest.fixture
def make_engine(clock: ManualClock) -> Iterator[Callable[..., Engine]]:
    """Makes SQLite engines in memory with a function wait(seconds) that moves the clock inside the driver."""
    engines: list[Engine] = []

    def make(**arguments: object) -> Engine:
        chosen = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}, **arguments}
        engine = create_engine("sqlite://", **chosen, future=True)
        engines.append(engine)

        @event.listens_for(engine, "connect")
        def add_wait(connection: object, record: object) -> None:
            connection.create_function("wait", 1, clock.advance)

        return engine

    yield make
    for engine in engines:
        engine.dispose()


@pytest.fixture
def engine(make_engine: Callable[..., Engine]) -> Engine:
    """One SQLite engine."""
    return make_engine()


@pytest.fixture
def make_profiler() -> Iterator[Callable[..., SqlProfiler]]:
    """Makes profilers, which are removed when the test has ended."""
    with ExitStack() as made:

        def make(engine: Engine | None = None, **settings: Any) -> SqlProfiler:
            profiler = SqlProfiler(engine, **settings)
            made.callback(profiler.remove)
            return profiler

        yield make


@pytest.fixture
def profiler(engine: Engine, clock: ManualClock, make_profiler: Callable[..., SqlProfiler]) -> SqlProfiler:
    """A profiler on that engine by that clock; its connection is made already."""
    made = make_profiler(engine, clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    engine.connect().close()
    return made
