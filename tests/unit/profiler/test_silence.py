"""What a recording does not have, and says so: open transactions, other profilers, drivers that nobody named."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import QueuePool

from placebench.profiler import Clocks, Recording, SqlProfiler

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")


@pytest.fixture
def profiler(clock: Any) -> Iterator[SqlProfiler]:
    """A profiler of sqlite3 by a clock that moves when it is told."""
    made = SqlProfiler.for_drivers("sqlite3", clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    yield made
    made.remove()


@pytest.mark.parametrize("end", ["", "commit", "rollback", "close"])
def test_a_transaction_that_is_open_at_the_end_has_waited_until_then(
    profiler: SqlProfiler, clock: Any, end: str
) -> None:
    """It is a finding, and a note names it, in a file and in a merge too; one that has ended or was closed is none."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (n)")
    with profiler.record("view") as recording:
        connection.execute("insert into t values (1)")
        if end:
            getattr(connection, end)()
        clock.advance(0.2)
    other = Recording("other", "full", requests=3, sql_s=0.0, timeline=[*recording.timeline] * 3)
    merged = Recording.merge([other, Recording.from_json(recording.to_json())])

    for each in (recording, merged):
        found = [(finding.kind, round(finding.seconds, 3)) for finding in each.findings() if "idle" in finding.kind]
        assert found == ([] if end else [("idle in transaction", 0.2)])
        assert [note for note in each.notes if "still open" in note] == (
            [] if end else ["1 transaction still open at the end of the recording: its COMMIT or ROLLBACK is not in it"]
        )
    assert list(merged.open_transactions) == ([] if end else [(4, 1)])


def test_a_connection_of_an_engine_that_is_committed_later(clock: Any, tmp_path: Path) -> None:
    """As by a dependency of FastAPI that commits after the response."""
    engine = create_engine(f"sqlite:///{tmp_path}/t.db", poolclass=QueuePool, future=True)
    profiler = SqlProfiler(engine, clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    with engine.connect() as connection:
        with profiler.record("view") as recording:
            connection.execute(text("create table t (n integer)"))
            connection.execute(text("insert into t values (1)"))
            clock.advance(0.3)
        connection.commit()
    profiler.remove()
    engine.dispose()

    assert [finding.kind for finding in recording.findings()] == ["idle in transaction"]
    assert recording.open_transactions == ((1, 1),)


def test_the_second_profiler_of_a_process_says_where_its_statements_are() -> None:
    """Connections are timed for one of them, which has all; the other one has a note."""
    makers = [SqlProfiler, lambda: SqlProfiler.for_drivers("sqlite3")]
    for first, second in (makers, makers[::-1]):
        profilers = [first(), second()]
        with profilers[0].record("one") as one, profilers[1].record("other") as other:
            sqlite3.connect(":memory:").execute("select 1").fetchall()
        for each in reversed(profilers):
            each.remove()

        noted = [any("another profiler" in note for note in each.notes) for each in (one, other)]
        assert sorted(len(each.statements) for each in (one, other)) == [0, 1]
        assert noted == [not each.statements for each in (one, other)]


@pytest.mark.processes
def test_a_driver_that_was_imported_and_not_named_is_told(tmp_path: Path) -> None:
    """One line instead of an empty report that means nothing."""
    tmp_path.joinpath("program.py").write_text(
        "import sqlite3\nsqlite3.connect(':memory:').execute('select 1').fetchall()\n"
    )
    called = [sys.executable, "-m", "placebench", "profile", "run", "--mode", "light", "--drivers", "psycopg2"]

    done = subprocess.run([*called, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "but not for sqlite3, which the program has imported and nobody has named" in done.stdout


def test_a_folder_may_be_a_text(profiler: SqlProfiler, tmp_path: Path) -> None:
    """As the settings of a framework have it."""

    def application(_environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b""]

    profiled = profiler.wsgi(application, folder=str(tmp_path / "recordings"))
    for part in profiled({"REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: None):
        assert part == b""

    assert (tmp_path / "recordings").is_dir()
