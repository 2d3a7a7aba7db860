"""Statistics of every statement of a process: exact counts, percentiles to a stated error, bounded memory."""

import gc
import math
import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from placebench.errors import ProfilerError
from placebench.profiler import SqlProfiler, StatementStatistics
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.model.statement_statistics import RELATIVE_ERROR


@pytest.fixture
def counting(profiler: SqlProfiler) -> SqlProfiler:
    """A profiler that counts."""
    profiler.collect_statistics()
    return profiler


def run(engine: Engine, sql: str, **values: object) -> None:
    """One statement in a transaction of its own."""
    with engine.begin() as connection:
        result = connection.execute(text(sql), values)
        if result.returns_rows:
            result.all()


def counted(profiler: SqlProfiler) -> dict[str, tuple[int, int | None, int]]:
    """Executions, rows and errors by text."""
    return {each.sql: (each.count, each.row_count, each.error_count) for each in profiler.statistics()}


def test_a_counted_statement_has_what_a_recorded_one_has(counting: SqlProfiler) -> None:
    """The drivers' hooks read the attributes of both without a look at their class."""
    counted_statement = counting._collector.measure("select 1")

    assert [each for each in PendingStatement.__slots__ if not hasattr(counted_statement, each)] == []


def test_statements_are_counted_without_a_recording(counting: SqlProfiler, engine: Engine) -> None:
    """Executions, rows, errors and times, by fingerprint; values and literals are not kept."""
    run(engine, "create table t (x integer)")
    for value in (1, 2, 3):
        run(engine, "insert into t values (:value)", value=value)
    run(engine, "select wait(2), x, 'secret' from t")
    with pytest.raises(OperationalError):
        run(engine, "select x from none")

    assert counted(counting) == {
        "select wait(?), x, ? from t": (1, 3, 0),
        "create table t (x integer)": (1, None, 0),
        "insert into t values (?)": (3, 3, 0),
        "select x from none": (1, None, 1),
        "COMMIT": (3, None, 0),
    }
    first = counting.statistics()[0]
    assert (first.total_s, first.max_s) == (6.0, 6.0)


def test_recorded_statements_count_once_and_under_the_same_fingerprint(counting: SqlProfiler, engine: Engine) -> None:
    """Also those of a record inside of a record; the recording is as without statistics."""
    run(engine, "select wait(1)")
    with counting.record("outer") as outer:
        run(engine, "select wait(1)")
        with counting.record("inner"):
            run(engine, "select wait(1)")

    (statistics,) = (each for each in counting.statistics() if each.sql == "select wait(?)")
    assert (statistics.count, statistics.row_count, statistics.total_s) == (3, 3, 3.0)
    assert [each.fingerprint for each in outer.statements] == [statistics.fingerprint] * 2


def test_percentiles_have_the_stated_error() -> None:
    """Against sorted values, over seven decades: p50, p95 and p99 of log-normal and uniform times."""
    generator = random.Random(1)
    for draw in (lambda: generator.lognormvariate(-6, 2), lambda: generator.uniform(0.001, 0.1)):
        values = [draw() for _ in range(5000)]
        statistics = StatementStatistics("f", "")
        for value in values:
            statistics.add(value, None, failed=False)

        for share in (0.5, 0.95, 0.99):
            exact = sorted(values)[math.ceil(share * len(values)) - 1]
            assert statistics.quantile_s(share) == pytest.approx(exact, rel=RELATIVE_ERROR)


def taken(*seconds: float) -> StatementStatistics:
    """The statistics of executions that took so long."""
    statistics = StatementStatistics("f", "")
    for each in seconds:
        statistics.add(each, 2, failed=each > 100)
    return statistics


def test_one_two_and_five_of_each_decade_are_bounds() -> None:
    """From 1 µs to 100 s: what takes so long is within, what takes a millionth more is not."""
    bounds_s = [float(f"{digit}e{decade}") for decade in range(-6, 2) for digit in (1, 2, 5)] + [100.0]

    assert [taken(each, each * 1.000001).counts_within([each]) for each in bounds_s] == [[1]] * 25
    assert len(taken().buckets) == 1 + 8 * 26 + 1


def test_each_time_is_known_to_the_stated_error() -> None:
    """50 times in each of the eight decades; and the error is not stated larger than it is."""
    times_s = [1e-6 * 10 ** (step / 50) for step in range(1, 401)]
    errors = [abs((taken(each, 1000.0).quantile_s(0.5) or 0) / each - 1) for each in times_s]

    assert 0.9 * RELATIVE_ERROR < max(errors) <= RELATIVE_ERROR


def test_sums_and_percentiles_of_few_executions() -> None:
    """A percentile is the time of an execution, of the first at the least, and never above the longest."""
    statistics = taken(0.004, 0.002, 200.0)
    copied = statistics.copy()
    statistics.add(1.0, None, failed=False)

    assert (copied.count, copied.row_count, copied.error_count, copied.max_s) == (3, 6, 1, 200.0)
    assert (statistics.count, statistics.row_count, statistics.error_count) == (4, 6, 1)
    quantiles = [statistics.quantile_s(share) for share in (0.0, 0.25, 0.26, 0.95)]
    assert quantiles == pytest.approx([0.002, 0.002, 0.004, 200.0], rel=RELATIVE_ERROR)
    assert [taken(seconds).p95_s for seconds in (1e-9, 300.0)] == [1e-9, 300.0]
    assert taken(*[0.001] * 18, 5.0, 9.0).p95_s == pytest.approx(5.0, rel=RELATIVE_ERROR)


def test_times_outside_of_the_buckets_are_counted() -> None:
    """Nothing is lost: the percentile of what took longer than 100 s is the longest."""
    statistics = StatementStatistics("f", "")
    for seconds in (0.0, 0.001, 0.002, 500.0):
        statistics.add(seconds, None, failed=False)

    assert (statistics.count, statistics.quantile_s(1.0), statistics.total_s) == (4, 500.0, 500.003)
    assert statistics.counts_within((0.0005, 0.001, 0.002, 10.0)) == [1, 2, 3, 3]
    assert (StatementStatistics("f", "").p95_s, StatementStatistics("f", "").max_s) == (None, 0.0)
    assert taken(1e-9, 1.0).quantile_s(0.5) == 1e-6


def test_memory_is_bounded(profiler: SqlProfiler, engine: Engine) -> None:
    """Of a program that makes up tables, two fingerprints are kept; the rest is counted as "other"."""
    profiler.collect_statistics(max_fingerprints=2)
    with engine.connect() as connection:
        for number in range(5000):
            connection.exec_driver_sql(f"select {number} as c{number}").all()

    statistics = profiler.statistics()
    assert [(each.fingerprint == "other", each.count) for each in statistics[1:]] == [(False, 1), (True, 4998)]
    assert len(profiler._hooks.collector._by_text) <= 4096


def test_threads_count_together(make_engine: Callable[..., Engine], profiler: SqlProfiler) -> None:
    """No execution is lost; each thread has a connection of its own."""
    engines = [make_engine() for _ in range(4)]
    every = SqlProfiler()
    every.collect_statistics()

    def work(engine: Engine) -> None:
        with engine.connect() as connection:
            for value in range(500):
                connection.execute(text("select :value"), {"value": value}).all()

    threads = [threading.Thread(target=work, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    every_counted = counted(every)
    every.remove()
    assert every_counted["select ?"] == (2000, 2000, 0)


@pytest.mark.processes
def test_a_forked_process_counts_from_nothing(counting: SqlProfiler, engine: Engine) -> None:
    """And its parent goes on with its own figures, also if a thread of its counted while it forked."""
    run(engine, "select 1")
    reading, writing = os.pipe()
    with counting._hooks.collector._lock:
        child = os.fork()
        if child == 0:
            run(engine, "select 1")
            os.write(writing, str(counting.statistics()[0].count).encode())
            os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reading, 10) == b"1"
    os.close(reading)
    os.close(writing)
    assert counted(counting)["select ?"] == (1, 1, 0)


def test_what_the_collection_of_garbage_forgets_is_counted(counting: SqlProfiler, engine: Engine) -> None:
    """A cursor in a cycle of references, and one that fetched a row only of its many."""
    with engine.connect() as connection:
        cursor: Any = connection.connection.cursor()
        cursor.execute("select 1 union select 2")
        cursor.fetchone()
        cycle = [cursor]
        cycle.append(cycle)
        del cursor, cycle
        gc.collect()

        assert counted(counting) == {"select ? union select ?": (1, 1, 0)}


def test_a_failure_of_the_statistics_is_not_the_applications(
    counting: SqlProfiler, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and the statement runs."""
    monkeypatch.setattr(counting._hooks.collector, "_find", lambda _text: 1 / 0)

    run(engine, "select 1")
    run(engine, "select 2")

    assert [record.name for record in caplog.records] == ["placebench.profiler"]


def test_statistics_that_nobody_collects_are_an_error(profiler: SqlProfiler) -> None:
    """Not an empty text, which would look as if there were no statements; nor is a limit of none."""
    for wrong in (profiler.statistics, profiler.prometheus_text):
        with pytest.raises(ProfilerError):
            wrong()
    with pytest.raises(ProfilerError, match="0"):
        profiler.collect_statistics(max_fingerprints=0)


def test_a_removed_profiler_counts_no_more(engine: Engine) -> None:
    """Its connections stay of their timed class, and pass on."""
    watched = create_engine("sqlite://")
    profiler = SqlProfiler(watched)
    profiler.collect_statistics()
    with watched.connect() as connection:
        profiler.remove()
        connection.execute(text("select 1")).all()
    watched.dispose()

    with pytest.raises(ProfilerError):
        profiler.statistics()
