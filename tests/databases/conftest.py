"""A profiler of the engine that each module here defines."""

from collections.abc import Iterator
from typing import Any

import pytest

from placebench.profiler import SqlProfiler


@pytest.fixture
def profiler(engine: Any) -> Iterator[SqlProfiler]:
    """A profiler on it, made before its first connection."""
    made = SqlProfiler(engine)
    yield made
    made.remove()
