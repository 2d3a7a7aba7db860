"""The database for drivers without SQLAlchemy, and a profiler of the engine that a module defines."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from placebench.profiler import SqlProfiler


@pytest.fixture
def profiler(engine: Any) -> Iterator[SqlProfiler]:
    """A profiler on it, made before its first connection."""
    made = SqlProfiler(engine)
    yield made
    made.remove()


@pytest.fixture
def url(database_url: str) -> str:
    """The address as the drivers take it."""
    return make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
