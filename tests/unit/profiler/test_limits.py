"""What a recording keeps beyond its limit of statements: sums, and no more."""

import gc
import sqlite3
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.pool import NullPool, QueuePool

from placebench import units
from placebench.profiler import Clocks, Recording, SqlProfiler
from placebench.profiler.analysis.budget import Budget

pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
_SUMS = [
    *("elapsed_s", "cpu_s", "sql_s", "python_s", "compile_s", "pool_wait_s", "connect_s", "execute_s", "fetch_s"),
    *("transactions_s", "statements", "row_count", "round_trips", "bytes_sent", "bytes_received"),
]


class TickingClock:
    """Each reading is a millisecond after the one before, so that equal programs have equal times."""

    def __init__(self) -> None:
        self._readings = 0

    def __call__(self) -> float:
        self._readings += 1
        return self._readings / 1024  # exact in binary: sums do not depend on their order


def work(engine: Engine, profiler: SqlProfiler) -> None:
    """Reads, writes, transactions, nested records, cursors that outlive others, and errors."""
    for number in range(12):
        with engine.connect() as connection:
            rows = connection.execute(text("select 1 union select 2 union select :n"), {"n": number})
            connection.execute(text("insert into t values (:n)"), [{"n": number}, {"n": number}])
            assert len(rows.all()) >= 2
            connection.commit()
    own = sqlite3.connect(":memory:")
    late = own.execute("select 1 union select 2 union select 3")
    with profiler.record("inner"), profiler.timed("span"):
        for number in range(8):
            own.execute("select ?", (number,)).fetchall()
    with pytest.raises(sqlite3.OperationalError):
        own.execute("select nothing")
    assert len(late.fetchall()) == 3


@pytest.mark.parametrize("pool", [QueuePool, NullPool])
def test_the_sums_do_not_depend_on_the_limit(pool: Any) -> None:
    """Of all statements and steps, also after the recording was saved and merged; a note says what is not kept."""
    found = []
    for limit in (10_000, 10, 0):
        engine = create_engine("sqlite:///file:limits?mode=memory&cache=shared&uri=true", poolclass=pool, future=True)
        keeper = sqlite3.connect("file:limits?mode=memory&cache=shared", uri=True)
        keeper.execute("create table t (n integer)")
        profiler = SqlProfiler(clocks=Clocks(elapsed=TickingClock(), cpu=lambda: 0.0))
        gc.disable()  # whose pauses are readings of the clock
        try:
            with profiler.record("limited", max_statements=limit) as recording:
                work(engine, profiler)
        finally:
            gc.enable()
            profiler.remove()
            engine.dispose()
            keeper.close()
        read = Recording.from_json(recording.to_json())
        sums = [{name: asdict(each.summary())[name] for name in _SUMS} for each in (recording, read)]
        twice = asdict(Recording.merge([recording, read]).summary())
        assert sums[0] == sums[1]
        assert twice["statements"], twice["execute_s"] == (2 * sums[0]["statements"], 2 * sums[0]["execute_s"])
        assert bool(recording.dropped) == any("beyond the limit" in note for note in recording.notes) == (limit <= 10)
        found.append(sums[0])

    assert found[0]["statements"] == 12 * 2 + 1 + 8 + 1
    assert found[1] == found[2] == found[0]


def patterns(profiler: SqlProfiler) -> None:
    """A loop, one read of equal values, pages, chunks, writes one by one, and a loop in a nested record."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (n integer)")
    connection.executemany("insert into t values (?)", [(number,) for number in range(95)])
    for number in range(12):
        connection.execute("select * from t where n = ?", (number,)).fetchall()
    for _ in range(7):
        connection.execute("select count(*) from t").fetchall()
    for start in range(0, 100, 10):
        connection.execute("select * from t order by n limit 10 offset ?", (start,)).fetchall()
    for start in range(6):
        values = range(start, start + 60)
        connection.execute(f"select * from t where n in ({','.join('?' * 60)})", tuple(values)).fetchall()
    for number in range(8):
        connection.execute("update t set n = n + 1 where n = ?", (number,))
    for _ in range(2):
        with profiler.record("inner", max_statements=3):
            for number in range(5):
                connection.execute("select n + 1 from t where n = ?", (number,)).fetchall()
    connection.close()


def test_loops_and_duplicates_do_not_depend_on_the_limit() -> None:
    """Nor does a budget of them: an N+1 whose first statement comes after the limit breaks it, and is named."""
    found, broken = [], []
    for limit in (10_000, 25, 16, 3, 0):
        profiler = SqlProfiler(clocks=Clocks(elapsed=TickingClock(), cpu=lambda: 0.0))
        gc.disable()  # whose pauses are readings of the clock
        try:
            with profiler.record("limited", max_statements=limit) as recording:
                patterns(profiler)
        finally:
            gc.enable()
            profiler.remove()
        read = Recording.from_json(recording.to_json())
        twice = Recording.merge([recording, read])
        for each in (recording, read, twice):
            kinds = [finding for finding in each.findings() if finding.kind in ("n+1", "duplicate")]
            told = sorted((one.kind, one.title, one.count, one.seconds, one.place) for one in kinds)
            found.append([*told, "twice"] if each is twice else told)
        broken.append(Budget.at_most(n_plus_one=0, duplicates=0).broken_by(recording))

    kinds = [(kind, title, count) for kind, title, count, *_ in found[0]]
    assert kinds == [
        ("duplicate", "ran again with the same values 6 times", 6),
        ("n+1", "10 times from one line, with different values", 10),
        ("n+1", "12 times from one line, with different values", 12),
        ("n+1", "8 times from one line, 4.50 rows at a time", 8),
    ]
    assert found == found[:3] * 5
    assert broken == broken[:1] * 5
    assert "12 x select * from t where n = ?" in broken[0]


def test_a_loop_over_more_places_than_are_kept_is_not_measured(make_profiler: Callable[..., SqlProfiler]) -> None:
    """Beyond the limit a thousand places are counted; of what came after them a budget says that it is not known."""
    profiler = make_profiler()
    connection = sqlite3.connect(":memory:")

    with profiler.record("places", "light", max_statements=0) as recording:
        for number in range(1200):
            connection.execute(f"select 1 as column_{number}").fetchall()
    connection.close()

    assert (len(recording.unkept_places), recording.statement_count) == (1000, 1200)
    assert f"200 statements at more than {units.count(1000)} places are in no finding" in recording.notes
    assert "n+1 not measured" in Budget.at_most(n_plus_one=0).broken_by(recording)


def test_nested_records_and_connections_leave_no_more_than_the_limit(make_profiler: Callable[..., SqlProfiler]) -> None:
    """Spans and checkouts of inner records, the state of each connection that NullPool makes, unkept statements."""
    engine = create_engine("sqlite://", poolclass=NullPool, future=True)
    profiler = make_profiler(engine)

    with profiler.record("outer", max_statements=10) as recording:
        for _ in range(30):
            with profiler.record("inner", max_statements=10):
                with profiler.timed("span"):
                    pass
                with engine.connect() as connection:
                    connection.execute(text("select 1"))
        gc.collect()
        active = profiler._hooks.current.get()
        with engine.connect() as connection:
            for _ in range(100):
                connection.execute(text("select 1")).all()
        held = [len(each) for each in (active._states, active._kept, active._connections, active._unkept)]

    lists = recording.statements, recording.transactions, recording.spans, recording.checkouts
    assert [len(each) for each in lists] == [10, 10, 10, 10]
    assert max(held[:3]) <= 5
    assert held[3] <= 16  # the latest results, in which a loop looks for the rows of its parents
    assert recording.statement_count == 130


@pytest.mark.parametrize("cells", [[100_000], [1] * 2 + [100_000] * 3, [900] * 19])
@pytest.mark.parametrize("fetch", ["all", "one"])
def test_rows_of_all_results_but_the_latest_are_freed(
    make_profiler: Callable[..., SqlProfiler], cells: list[int], fetch: str
) -> None:
    """Long cells are not kept at all: one row, rows after short ones, and many short cells; *cells* are lengths."""
    profiler = make_profiler()
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (body text)")
    connection.executemany("insert into t values (?)", [("x" * length,) for length in cells])
    gc.collect()
    tracemalloc.start()
    gc.disable()  # the rows are in no cycle
    try:
        with profiler.record("rows", max_statements=0):
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(200):
                cursor = connection.execute("select body from t")
                assert len(cursor.fetchall() if fetch == "all" else list(iter(cursor.fetchone, None))) == len(cells)
            held = tracemalloc.get_traced_memory()[0] - before
    finally:
        gc.enable()
        tracemalloc.stop()
        connection.close()

    assert held < 16 * 20 * 1100 + 100_000


def test_rows_beyond_the_limit_that_nobody_counted_are_in_no_sum(make_profiler: Callable[..., SqlProfiler]) -> None:
    """Two inserts in one text, of which sqlite3 counts none: the rows of the whole are not measured."""
    profiler = make_profiler()
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (n int)")

    with profiler.record("beyond", max_statements=1) as recording:
        assert connection.execute("select 1").fetchall() == [(1,)]
        connection.executescript("insert into t values (1); insert into t values (2)")
    connection.close()

    assert (recording.statement_count, recording.unkept.uncounted, recording.row_count) == (2, 1, None)
