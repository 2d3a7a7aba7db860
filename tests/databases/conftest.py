"""The database for drivers without SQLAlchemy, and a profiler of the engine that a module defines, or of everything."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from placebench.profiler import SqlProfiler


@pytest.fixture
def engine() -> Any:
    """No engine, so that all drivers and engines are profiled."""
    return None


@pytest.fixture
def profiler(engine: Any) -> Iterator[SqlProfiler]:
    """A profiler of the engine, made before its first connection."""
    made = SqlProfiler(engine)
    yield made
    made.remove()


@pytest.fixture
def url(database_url: str) -> str:
    """The address as the drivers take it."""
    return make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
