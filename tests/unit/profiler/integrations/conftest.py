"""An SQLite database in a file to query, and the process's profiler taken away after each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kept_recordings import Kept
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Engine

from placebench.profiler import SqlProfiler
from placebench.profiler.integrations.frameworks import record_frameworks
from placebench.profiler.integrations.process_profiler import process_profiler


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Its first connection is made by the application."""
    made = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", connect_args={"check_same_thread": False})
    yield made
    made.dispose()


@pytest.fixture
def query(engine: Engine) -> "Query":
    """A function that runs so many statements."""
    return Query(engine)


class Query:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, count: int) -> None:
        with self.engine.connect() as connection:
            for number in range(count):
                connection.execute(text("select :n"), {"n": number}).all()


@pytest.fixture
def sent(engine: Engine) -> list[str]:
    """The text of each statement, as the driver gets it."""
    texts: list[str] = []
    event.listen(engine, "connect", lambda connection, _record: connection.set_trace_callback(texts.append))
    return texts


@pytest.fixture
def kept() -> Iterator[Kept]:
    """What a process records whose frameworks and task queues are hooked."""
    kept = Kept()
    hooks = record_frameworks(SqlProfiler(), kept, "light")
    yield kept
    hooks.remove()


@pytest.fixture
def nothing_is_lost(kept: Kept, sent: list[str]) -> Iterator[None]:
    """The recordings have what sqlite3 traced, all of it and once."""
    yield
    assert len(sent) == sum(each.statement_count for each in kept.recordings)
    assert not any(each.missed for each in kept.recordings)


@pytest.fixture(autouse=True)
def unprofiled() -> Iterator[None]:
    """The next test has a profiler of its own."""
    yield
    process_profiler().remove()
