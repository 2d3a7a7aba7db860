"""The profiler on SQLite in memory: what it sees of each kind of statement, and what it leaves behind."""

import asyncio
import contextvars
import gc
import json
import logging
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from dataclasses import FrozenInstanceError, fields
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pytest
from sqlalchemy import (
    Column,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    exc,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.engine import Engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import QueuePool, StaticPool
from sqlalchemy.sql.expression import ColumnElement
from sqlalchemy.util import greenlet_spawn
from sqlalchemy_version import since_2_0

from placebench.errors import ProfilerError
from placebench.profiler import Clocks, Recording, SqlProfiler, Statement
from placebench.profiler.drivers import statement_hooks
from placebench.profiler.drivers.engine import raw_connection
from placebench.profiler.model.statement_facts import statement_facts

TABLE = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))


class SlowToCompile(ColumnElement):  # type: ignore[type-arg]  # not generic in 1.4
    """An expression whose compilation takes time by the clock of the test."""

    inherit_cache = False

    def __init__(self, compile_it: Callable[[], object]) -> None:
        self.compile_it = compile_it


@compiles(SlowToCompile)
def compile_slowly(element: SlowToCompile, compiler: object, **options: object) -> str:
    """The number 1, after a while."""
    element.compile_it()
    return "1"


def make_table(engine: Engine, rows: int = 3) -> None:
    """The table t with so many rows."""
    with engine.begin() as connection:
        TABLE.create(connection)
        connection.execute(insert(TABLE), [{"id": number, "name": "n"} for number in range(rows)])


def test_a_recorded_statement_is_like_any_other(profiler: SqlProfiler, engine: Engine) -> None:
    """It equals one that is made by its class, has the same hash, and cannot be changed."""
    with profiler.record("one") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    (recorded,) = recording.statements
    made = Statement(**{each.name: getattr(recorded, each.name) for each in fields(Statement)})

    assert type(recorded) is Statement
    assert (recorded, hash(recorded)) == (made, hash(made))
    assert pickle.loads(pickle.dumps(recorded)) == made
    with pytest.raises(FrozenInstanceError):
        recorded.sql = "select 2"  # type: ignore[misc]


def test_each_part_of_a_statement_has_its_own_time(profiler: SqlProfiler, engine: Engine, clock: Any) -> None:
    """2 s of compiling, 3 s in execute, 5 s in fetch and 7 s of the application's make 17 s."""
    slow = SlowToCompile(lambda: clock.advance(2))
    rows = text("select wait(3) as w union all select wait(5)").columns(Column("w", Integer)).subquery()

    with profiler.record("parts") as recording:
        with engine.connect() as connection:
            connection.execute(select(slow, rows.c.w)).all()
        clock.advance(7)

    statement = recording.statements[0]
    assert (statement.compile_s, statement.execute_s, statement.fetch_s) == (2.0, 3.0, 5.0)
    assert (recording.sql_s, recording.python_s, recording.elapsed_s) == (10.0, 7.0, 17.0)


def test_the_parts_of_all_statements_sum_to_the_whole(profiler: SqlProfiler, engine: Engine, clock: Any) -> None:
    """Three statements one after the other, a nested one and a COMMIT: nothing is counted twice, nothing is lost."""

    def default(context: Any) -> int:
        clock.advance(1)
        return context.connection.execute(text("select wait(2)")).scalar_one()

    table = Table("d", MetaData(), Column("id", Integer, primary_key=True), Column("x", Integer, default=default))
    with engine.begin() as connection:
        table.create(connection)

    with profiler.record("whole") as recording:
        with engine.begin() as connection:
            connection.execute(text("select wait(4)")).all()
            connection.execute(insert(table), {})
            clock.advance(8)
        clock.advance(16)

    nested, outer = recording.statements[1:]
    assert (nested.execute_s, outer.compile_s) == (2.0, 1.0)
    parts = sum(statement.elapsed_s for statement in recording.statements)
    transactions = sum(transaction.elapsed_s or 0.0 for transaction in recording.transactions)
    assert (parts, transactions, recording.python_s, recording.elapsed_s) == (7.0, 0.0, 24.0, 31.0)


def test_text_handed_to_the_driver_is_seen(profiler: SqlProfiler, engine: Engine) -> None:
    """exec_driver_sql fires no before_execute: tools that listen there miss it."""
    with profiler.record("driver") as recording, engine.connect() as connection:
        connection.exec_driver_sql("select 1").all()

    statement = recording.statements[0]
    assert (statement.sql, statement.row_count, statement.cache_hit) == ("select ?", 1, None)


def test_a_cursor_of_the_applications_own_is_seen(profiler: SqlProfiler, engine: Engine) -> None:
    """A statement that goes past SQLAlchemy has its time and its rows too."""
    with profiler.record("raw") as recording, engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("select 2 union select 3")
        cursor.fetchall()

    statement = recording.statements[0]
    assert (statement.sql, statement.row_count, statement.execute_s) == ("select ? union select ?", 2, 0.0)


def test_rows_are_counted_for_select(profiler: SqlProfiler, engine: Engine) -> None:
    """SQLite's driver says -1 for a SELECT: the rows are counted as they are fetched."""
    make_table(engine, rows=7)

    with profiler.record("rows") as recording, engine.connect() as connection:
        connection.execute(select(TABLE)).all()
        result = connection.execute(select(TABLE))
        result.fetchone()
        result.fetchmany(2)
        result.close()

    assert [statement.row_count for statement in recording.statements] == [7, 3]


def test_writes_count_the_rows_they_touched(profiler: SqlProfiler, engine: Engine) -> None:
    """An executemany is one statement with the rows of all its parameters."""
    make_table(engine)

    with profiler.record("writes") as recording, engine.begin() as connection:
        connection.execute(update(TABLE).values(name="x"))
        connection.execute(insert(TABLE), [{"id": 10, "name": "a"}, {"id": 11, "name": "b"}])

    assert [statement.row_count for statement in recording.statements] == [3, 2]


@since_2_0
def test_each_batch_of_an_insertmanyvalues_is_a_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """The same context fires several times: each firing has its own time and rows, and one fingerprint."""
    make_table(engine, rows=1)
    rows = [{"id": number, "name": "n"} for number in range(10, 15)]

    with profiler.record("batches") as recording, engine.begin() as connection:
        sized = connection.execution_options(insertmanyvalues_page_size=2)
        sized.execute(insert(TABLE).returning(TABLE.c.id), rows).all()

    assert [statement.row_count for statement in recording.statements] == [2, 2, 1]
    assert len({statement.fingerprint for statement in recording.statements}) == 1


def test_in_lists_of_any_length_are_one_fingerprint(profiler: SqlProfiler, engine: Engine) -> None:
    """Expanded by SQLAlchemy or written out by the application; and the second one compiles from the cache."""
    make_table(engine)
    written_out = select(TABLE).where(TABLE.c.id.in_([literal(1), literal(2), literal(3)]))

    with profiler.record("lists") as recording, engine.connect() as connection:
        connection.execute(select(TABLE).where(TABLE.c.id.in_([1])))
        connection.execute(select(TABLE).where(TABLE.c.id.in_([1, 2, 3, 4])))
        connection.execute(written_out)

    assert len({statement.fingerprint for statement in recording.statements}) == 1
    assert [statement.cache_hit for statement in recording.statements] == [False, True, False]


def test_a_listener_that_rewrites_statements_does_not_change_the_fingerprint(
    engine: Engine, clock: Any, profiler: SqlProfiler
) -> None:
    """The text is shown as it was sent; the fingerprint comes from the template."""

    @event.listens_for(engine, "before_cursor_execute", retval=True)
    def tag(connection: object, cursor: object, sql: str, parameters: object, *rest: object) -> tuple[str, object]:
        return f"{sql} /* traced */", parameters

    with profiler.record("tagged") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    assert recording.statements[0].fingerprint == statement_facts("select 1").fingerprint


def test_a_statement_that_fails_is_recorded_with_its_error(profiler: SqlProfiler, engine: Engine) -> None:
    """The class alone: a message may quote values."""
    with engine.connect() as connection, profiler.record("failing") as recording, pytest.raises(exc.OperationalError):
        connection.exec_driver_sql("select nope")

    statement = recording.statements[0]
    assert (statement.sql, statement.error, statement.execute_s) == ("select nope", "OperationalError", 0.0)


def test_a_hundred_failures_leave_nothing_behind(profiler: SqlProfiler, engine: Engine) -> None:
    """SQLAlchemy's FAQ recipe keeps one stamp for each failed statement in conn.info; ours keeps none anywhere."""
    with profiler.record("failing") as recording, engine.connect() as connection:
        for _ in range(100):
            with pytest.raises(exc.OperationalError):
                connection.execute(text("select nope"))
        left = (dict(connection.info), connection.placebench_execution)

    assert len(recording.statements) == 100
    assert left == ({}, None)


def test_a_wrong_parameter_is_an_error_of_its_own_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """It fails before it has a cursor: others take it for the error of whatever ran before."""
    with profiler.record("parameter") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))
        with pytest.raises(exc.StatementError):
            connection.execute(text("select :x"), {"y": 1})
        connection.execute(text("select 2"))

    errors = [statement.error for statement in recording.statements]
    assert errors == [None, "InvalidRequestError", None]
    assert recording.statements[1].execute_s is None


def test_what_is_fetched_after_a_recording_is_not_in_it(profiler: SqlProfiler, engine: Engine) -> None:
    """Its rows and times are those of the recording's end, whenever they are read."""
    with engine.connect() as connection:
        with profiler.record("one row") as recording:
            result = connection.execute(text("select 1 union all select 2 union all select 3"))
            result.fetchone()

        assert result.all() == [(2,), (3,)]

    (statement,) = recording.statements
    assert statement.row_count == 1


def test_a_fetch_that_fails_is_an_error_of_its_statement(profiler: SqlProfiler, engine: Engine, clock: Any) -> None:
    """The statement ran well, and its third row did not come; the time until then is in fetch_s."""

    def divide(by: int) -> float:
        return clock.advance(6 / by)

    with engine.connect() as connection:
        connection.connection.create_function("divide", 1, divide)
        rows = text("select divide(column1) from (values (1), (2), (0))")
        with profiler.record("fetch") as recording, pytest.raises(exc.OperationalError):
            connection.execute(rows).all()

    statement = recording.statements[0]
    assert (statement.execute_s, statement.fetch_s, statement.error) == (6.0, 3.0, "OperationalError")


def test_transaction_steps_are_recorded(profiler: SqlProfiler, engine: Engine) -> None:
    """BEGIN, COMMIT, ROLLBACK and savepoints, each with the number of its transaction."""
    with profiler.record("steps") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))
        connection.commit()
        with connection.begin():
            nested = connection.begin_nested()
            nested.rollback()
            connection.begin_nested().commit()
        connection.execute(text("select 2"))
        connection.rollback()

    assert [(step.kind, step.number) for step in recording.transactions] == [
        ("BEGIN", 1),
        ("COMMIT", 1),
        ("BEGIN", 2),
        ("SAVEPOINT", 2),
        ("ROLLBACK TO", 2),
        ("SAVEPOINT", 2),
        ("RELEASE", 2),
        ("COMMIT", 2),
        ("BEGIN", 3),
        ("ROLLBACK", 3),
    ]
    assert [statement.transaction for statement in recording.statements] == [1, 3]


def test_a_commit_has_its_time(engine: Engine, clock: Any, make_profiler: Any) -> None:
    """The event comes before the driver's call and nothing after it; the time is that of the driver's call."""
    profiler = make_profiler(engine, clocks=Clocks(elapsed=clock))
    with engine.begin() as connection:
        TABLE.create(connection)
        connection.connection.set_trace_callback(lambda sql: clock.advance(3) if sql == "COMMIT" else None)

    with profiler.record("commit") as recording, engine.begin() as connection:
        connection.execute(insert(TABLE), {"id": 1, "name": "a"})

    commits = [step.elapsed_s for step in recording.transactions if step.kind == "COMMIT"]
    assert (commits, recording.sql_s) == ([3.0], 3.0)


def test_a_new_connection_is_a_step_with_its_time(make_engine: Any, clock: Any, make_profiler: Any) -> None:
    """What SQLAlchemy asks the database when it first connects is part of the CONNECT."""
    engine = make_engine()
    profiler = make_profiler(engine, clocks=Clocks(elapsed=clock))
    event.listen(engine, "connect", lambda *_: clock.advance(4))

    with profiler.record("connect") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    connect = recording.transactions[0]
    assert (connect.kind, connect.elapsed_s) == ("CONNECT", 4.0)
    assert [statement.sql for statement in recording.statements] == ["select ?"]


def test_a_connection_that_cannot_be_made_is_a_step_with_its_error(tmp_path: Path, make_profiler: Any) -> None:
    """And the next connection is a step of its own."""
    engine = create_engine(f"sqlite:///{tmp_path}/no/such/folder/file.db")
    profiler = make_profiler(engine)

    with profiler.record("connect") as recording:
        for _ in range(2):
            with pytest.raises(exc.OperationalError):
                engine.connect()

    assert [(step.kind, step.error) for step in recording.transactions] == [("CONNECT", "OperationalError")] * 2


def test_the_wait_for_a_connection_is_borne_by_its_first_statement(make_engine: Any, make_profiler: Any) -> None:
    """Another thread holds the only connection for a while; the pool is a new one after dispose."""
    engine = make_engine(poolclass=QueuePool, pool_size=1, max_overflow=0)
    engine.dispose()
    profiler = make_profiler(engine)
    engine.dispose()
    held, wanted = threading.Event(), threading.Event()

    def hold() -> None:
        with engine.connect():
            held.set()
            wanted.wait()
            # The main thread is in the queue, or about to be: wait until the pool says so.
            while not engine.pool._pool.not_empty._waiters:
                pass

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with profiler.record("waiting") as recording:
        wanted.set()
        with engine.connect() as connection:
            connection.execute(text("select 1"))
            connection.execute(text("select 2"))
    holder.join()

    first, second = recording.statements
    assert first.pool_wait_s > 0
    assert (second.pool_wait_s, recording.sql_s >= first.pool_wait_s) == (0.0, True)


def test_a_pool_is_watched_from_its_first_connection_on(make_engine: Any, make_profiler: Any) -> None:
    """Also by a profiler of every engine that recorded nothing then: the first request's wait is measured."""
    profiler = make_profiler()
    engine = make_engine(poolclass=QueuePool)
    engine.connect().close()

    with profiler.record("first") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    assert recording.statements[0].pool_wait_s is not None


def test_time_after_a_pool_was_emptied_is_no_wait(make_engine: Any, make_profiler: Any, clock: Any) -> None:
    """`dispose` takes the connections from the pool's queue, as a checkout does."""
    profiler = make_profiler(clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    engine = make_engine(poolclass=QueuePool)

    with profiler.record("emptied") as recording:
        engine.connect().close()
        engine.dispose()
        clock.advance(1.0)
        engine.connect().close()

    assert [each.wait_s for each in recording.checkouts] == [0.0, 0.0]


@pytest.mark.parametrize("fails", ["connect", "creator", "do_connect", "checkout"])
def test_time_after_a_failed_connect_is_no_wait(make_profiler: Any, clock: Any, tmp_path: Path, fails: str) -> None:
    """The request for a connection ends with the failure: of the driver, a connector, or a listener.

    Until the next one a SELECT 1 of the application is no ping of the pool.
    """
    profiler = make_profiler(clocks=Clocks(elapsed=clock, cpu=lambda: 0.0))
    path = tmp_path / "folder/shop.db"
    creator = {"creator": lambda: sqlite3.connect(path, check_same_thread=False)} if fails == "creator" else {}
    engine = create_engine(f"sqlite:///{path}", poolclass=QueuePool, future=True, **creator)
    path.parent.mkdir()
    with profiler.record("first"):  # from here on its pool is timed
        first = engine.connect()
    shutil.rmtree(path.parent)
    if fails in ("do_connect", "checkout"):

        @event.listens_for(engine, fails)
        def refuse(*_: object) -> None:
            if not path.parent.exists():
                raise sqlite3.OperationalError("no folder")

    with profiler.record("failed") as recording:
        for _ in range(2):
            with pytest.raises((exc.OperationalError, sqlite3.OperationalError)):
                engine.connect()
        with closing(sqlite3.connect(":memory:")) as own:
            own.execute("select 1")
        path.parent.mkdir()
        clock.advance(1.0)
        engine.connect().close()

    first.close()
    engine.dispose()
    assert [each.wait_s for each in recording.checkouts] == [0.0]
    assert [each.sql for each in recording.statements] == ["select ?"]


def test_a_pool_timeout_is_seen(make_engine: Any, make_profiler: Any) -> None:
    """No event tells of it."""
    engine = make_engine(poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.01)
    profiler = make_profiler(engine)

    with engine.connect(), profiler.record("timeout") as recording, pytest.raises(exc.TimeoutError):
        engine.connect()

    assert [step.kind for step in recording.transactions] == ["POOL TIMEOUT"]
    assert recording.transactions[0].elapsed_s >= 0.01


def test_the_call_site_is_the_applications_line(profiler: SqlProfiler, engine: Engine) -> None:
    """File, line and function; not in mode light, which takes no look at the stack."""
    with engine.connect() as connection:
        with profiler.record("full") as full:
            connection.execute(text("select 1"))
        with profiler.record("light", mode="light") as light:
            connection.execute(text("select 1"))

    caller = full.statements[0].caller
    assert (caller.file, caller.function) == (__file__, "test_the_call_site_is_the_applications_line")
    assert light.statements[0].caller is None


def test_the_call_site_is_found_from_inside_a_greenlet(profiler: SqlProfiler, engine: Engine) -> None:
    """Under asyncio SQLAlchemy's stack holds no frame of the application."""

    async def application() -> None:
        with engine.connect() as connection:
            await greenlet_spawn(connection.execute, text("select 1"))

    with profiler.record("async") as recording:
        asyncio.run(application())

    assert recording.statements[0].caller.function.endswith("<locals>.application")


def test_two_threads_stay_apart(make_engine: Any, make_profiler: Any) -> None:
    """Each thread's record holds its own statements, though both run at the same time."""
    engine = make_engine(poolclass=QueuePool)
    profiler = make_profiler(engine)
    both = threading.Barrier(2)
    recordings = {}

    def request(number: int) -> None:
        with profiler.record(f"request {number}", parameters=True) as recording, engine.connect() as connection:
            for _ in range(20):
                both.wait()
                connection.exec_driver_sql(f"select {number}").all()
        recordings[number] = recording

    threads = [threading.Thread(target=request, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    seen = {number: [statement.sql for statement in recordings[number].statements] for number in (1, 2)}
    assert seen == {1: ["select 1"] * 20, 2: ["select 2"] * 20}


def test_two_tasks_stay_apart(profiler: SqlProfiler, engine: Engine) -> None:
    """Two gathered tasks on one engine; CPU time is not measured, for they share a thread."""

    async def request(number: int) -> Any:
        with profiler.record(f"request {number}", parameters=True) as recording:
            for _ in range(5):
                with engine.connect() as connection:
                    await greenlet_spawn(connection.exec_driver_sql, f"select {number}")
                await asyncio.sleep(0)
        return recording

    async def both() -> list[Any]:
        return await asyncio.gather(request(1), request(2))

    one, two = asyncio.run(both())

    assert {statement.sql for statement in one.statements} == {"select 1"}
    assert {statement.sql for statement in two.statements} == {"select 2"}
    assert one.cpu_s is None


def test_a_thread_of_the_application_records_in_a_copy_of_the_context(profiler: SqlProfiler, engine: Engine) -> None:
    """As asyncio.to_thread does by itself."""

    def query() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1")

    with profiler.record("outer") as recording:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(query,))
        thread.start()
        thread.join()

    assert recording.statement_count == 1


def test_a_record_of_the_whole_process_has_the_statements_of_every_thread(make_engine: Any) -> None:
    """Of a thread that began before the record too, and of one with an empty context."""
    engine = make_engine(poolclass=QueuePool)
    profiler = SqlProfiler(engine, whole_process=True)
    recording_runs = threading.Event()

    def query() -> None:
        recording_runs.wait()
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1")

    earlier, later = threading.Thread(target=query), threading.Thread(target=contextvars.Context().run, args=(query,))
    earlier.start()
    with profiler.record("whole") as recording:
        later.start()
        recording_runs.set()
        earlier.join()
        later.join()
    query()

    profiler.remove()
    assert (recording.statement_count, profiler.active) == (2, False)


def test_a_record_inside_of_a_record_belongs_to_both(profiler: SqlProfiler, engine: Engine, clock: Any) -> None:
    """The outer one sees everything."""
    with engine.connect() as connection, profiler.record("outer") as outer:
        connection.exec_driver_sql("select wait(1)").all()
        with profiler.record("inner") as inner:
            connection.exec_driver_sql("select wait(2)").all()

    assert (inner.statement_count, inner.sql_s) == (1, 2.0)
    assert (outer.statement_count, outer.sql_s) == (2, 3.0)


def test_a_long_recording_keeps_so_many_statements_and_counts_the_others(
    profiler: SqlProfiler, engine: Engine, clock: Any
) -> None:
    """The dropped ones are in the sums."""
    with engine.connect() as connection, profiler.record("long", max_statements=3) as recording:
        for _ in range(10):
            connection.exec_driver_sql("select wait(1)").all()

    assert (len(recording.statements), recording.dropped) == (3, 7)
    assert (recording.statement_count, recording.sql_s) == (10, 10.0)


def test_values_are_kept_only_where_they_were_asked_for(profiler: SqlProfiler, engine: Engine) -> None:
    """Literals, parameters and the messages of errors may be secrets."""
    sql = text("select 'secret' where 'x' = :x")
    with engine.connect() as connection:
        with profiler.record("safe") as safe:
            connection.execute(sql, {"x": "hidden"})
        with profiler.record("open", parameters=True) as asked:
            connection.execute(sql, {"x": "hidden"})

    assert (safe.statements[0].sql, safe.statements[0].parameters) == ("select ? where ? = ?", None)
    assert (asked.statements[0].sql, asked.statements[0].parameters) == ("select 'secret' where 'x' = ?", "('hidden',)")


def test_spans_are_the_users_own_times(profiler: SqlProfiler, clock: Any) -> None:
    """As a context manager, as a decorator, and of a coroutine; nothing happens outside of a record."""

    @profiler.timed("function")
    def work(depth: int) -> None:
        clock.advance(1)
        if depth:
            work(depth - 1)

    @profiler.timed("coroutine")
    async def later() -> None:
        clock.advance(2)

    work(0)
    with profiler.record("spans") as recording:
        with profiler.timed("block"):
            clock.advance(4)
        work(1)
        asyncio.run(later())

    spans = [(span.label, span.started_s, span.elapsed_s) for span in recording.spans]
    assert spans == [
        ("block", 1.0 - 1.0, 4.0),
        ("function", 5.0, 1.0),
        ("function", 4.0, 2.0),
        ("coroutine", 6.0, 2.0),
    ]


def test_collections_of_garbage_are_counted_inside_the_other_times(engine: Engine, make_profiler: Any) -> None:
    """By the recording thread."""
    profiler = make_profiler(engine)

    with profiler.record("garbage") as recording:
        gc.collect()

    assert recording.gc_collections >= 1
    assert 0 < recording.gc_s < recording.elapsed_s


@pytest.mark.parametrize("make", [SqlProfiler, SqlProfiler.for_drivers])
def test_a_profiler_is_removed_if_the_application_has_emptied_the_callbacks(make: Callable[[], SqlProfiler]) -> None:
    """Of the garbage collector, where each profiler has one."""
    before = gc.callbacks[:]
    profiler = make()
    gc.callbacks[:] = before

    profiler.remove()

    assert not profiler.active
    assert [each for each in gc.callbacks if each not in before] == []  # a sampling thread of before may have ended


def test_after_removal_nothing_listens(engine: Engine) -> None:
    """The engine has the listeners it had before, gc none of ours, and the pool its own queue."""
    listeners, callbacks = len(engine.dispatch.before_cursor_execute), gc.callbacks[:]
    profiler = SqlProfiler(engine)
    profiler.remove()
    profiler.remove()

    assert len(engine.dispatch.before_cursor_execute) == listeners
    assert [each for each in gc.callbacks if each not in callbacks] == []
    with profiler.record("off") as recording, engine.connect() as connection:
        connection.exec_driver_sql("select 1")
    assert (recording.statement_count, recording.sql_s, recording.python_s) == (0, None, None)


def test_without_an_engine_every_engine_is_seen(make_engine: Any, make_profiler: Any) -> None:
    """Engines made later too."""
    profiler = make_profiler()
    engines = [make_engine(), make_engine()]

    with profiler.record("all") as recording:
        for engine in engines:
            with engine.connect() as connection:
                connection.execute(text("select 1")).all()

    assert [(statement.sql, statement.fetch_s is None) for statement in recording.statements] == [
        ("select ?", False),
        ("select ?", False),
    ]


def test_a_connection_class_of_the_users_is_kept(make_engine: Any, make_profiler: Any) -> None:
    """It is subclassed, so that the application still finds what it asked for."""
    import sqlite3

    class Own(sqlite3.Connection):
        """A user's own class."""

    engine = make_engine(connect_args={"factory": Own})
    profiler = make_profiler(engine)

    with profiler.record("own") as recording, engine.connect() as connection:
        kept = isinstance(raw_connection(connection.connection), Own)
        connection.execute(text("select 1")).all()

    assert (kept, recording.statements[0].row_count) == (True, 1)


def test_a_clock_that_fails_costs_the_times_and_is_named(
    engine: Engine, caplog: pytest.LogCaptureFixture, make_profiler: Any
) -> None:
    """Its failure never becomes the application's, the statements are there, and it is logged once."""
    ticks = iter([0.0, 1.0])
    profiler = make_profiler(engine, clocks=Clocks(elapsed=lambda: next(ticks)))
    caplog.set_level(logging.WARNING, logger="placebench.profiler")

    with profiler.record("broken") as recording, engine.connect() as connection:
        answer = [connection.execute(text("select 1")).scalar() for _ in range(3)]

    assert (answer, profiler.active, recording.sql_s, recording.statement_count) == ([1, 1, 1], True, None, 3)
    assert [hook.partition(": ")[2] for hook in recording.failed_hooks] == ["StopIteration"]
    assert (list(recording.notes), len(caplog.records)) == (list(recording.gaps), 1)


def test_an_exception_of_the_application_goes_through_and_is_noted(profiler: SqlProfiler) -> None:
    """The recording is filled all the same."""
    with pytest.raises(ZeroDivisionError), profiler.record("raising") as recording:
        raise ZeroDivisionError

    assert (recording.error, recording.elapsed_s) == ("ZeroDivisionError", 0.0)


def test_an_unknown_mode_is_an_error_of_the_user(profiler: SqlProfiler) -> None:
    """It names the modes there are."""
    with pytest.raises(
        ProfilerError, match="unknown mode 'deep': expected one of light, full, sampled, external, flame, plans"
    ):
        profiler.record("x", mode="deep").__enter__()


@pytest.mark.processes
def test_importing_the_profiler_loads_no_driver_and_no_sampler() -> None:
    """It is imported by every application that uses it, and by every run of pytest that has its plugin."""
    code = "import sys, placebench.profiler; print({'psycopg2', 'pyinstrument', 'jinja2'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded == "set()\n"


@pytest.mark.processes
def test_importing_placebench_loads_its_own_file_only() -> None:
    """Not even typing, with which it took 7 ms of CPU instead of 0.5."""
    code = "import sys; before = set(sys.modules); import placebench; print(*(set(sys.modules) - before))"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "placebench\n"


def test_an_engine_that_connected_before_the_profiler_is_measured_as_far_as_events_reach(
    make_engine: Any, make_profiler: Any
) -> None:
    """Its fetches are not measured, and say so."""
    engine = make_engine()
    engine.connect().close()
    profiler = make_profiler(engine)

    with profiler.record("late") as recording, engine.connect() as connection:
        connection.execute(text("select 1")).all()

    statement = recording.statements[0]
    assert (statement.fetch_s, statement.row_count, statement.execute_s is None) == (None, None, False)


def test_create_engine_is_not_patched(make_profiler: Any) -> None:
    """A profiler changes nothing but the engine it was given."""
    other = create_engine("sqlite://")
    profiler = make_profiler(create_engine("sqlite://"))

    with profiler.record("other") as recording, other.connect() as connection:
        connection.execute(text("select 1"))

    other.dispose()
    assert recording.statement_count == 0


def test_a_hook_that_fails_costs_its_own_figure_and_is_named(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, profiler: SqlProfiler
) -> None:
    """Times, rows and fingerprints are there; the next recording is whole again."""
    with monkeypatch.context() as patched:
        patched.setattr(statement_hooks, "find_callers", lambda *_frame: 1 / 0)
        with profiler.record("broken") as broken, engine.connect() as connection:
            for number in range(3):
                connection.execute(text("select :n"), {"n": number}).all()
    with profiler.record("whole") as whole, engine.connect() as connection:
        connection.execute(text("select 1")).all()

    assert [(each.row_count, each.caller, each.fetch_s is None) for each in broken.statements] == [(1, None, False)] * 3
    assert (broken.failed_hooks, whole.failed_hooks, whole.gaps) == (("describe: ZeroDivisionError",), (), ())
    assert (whole.statements[0].caller is None, len(caplog.records)) == (False, 1)


@pytest.mark.parametrize("mode", ["light", "full", "flame"])
def test_ddl_and_values_without_a_hash_are_recorded(engine: Engine, mode: str, profiler: SqlProfiler) -> None:
    """`create_all` and a bytearray fail in no hook, and a bytearray is compared by its bytes."""
    metadata = MetaData()
    table = Table("blobs", metadata, Column("id", Integer, primary_key=True), Column("data", LargeBinary))
    with profiler.record("ddl", mode=mode) as recording, engine.begin() as connection:
        metadata.create_all(connection)
        connection.exec_driver_sql("insert into blobs values (1, ?)", (bytearray(b"x"),))
        for _ in range(2):
            connection.execute(select(table.c.id).where(table.c.data == bytearray(b"x"))).all()

    kinds = [each.kind for each in recording.statements]
    assert (kinds[-4:], recording.gaps) == (["other", "insert", "read", "read"], ())
    assert recording.statements[-1].repeated is (None if mode == "light" else True)


def test_rows_that_nobody_counted_are_noted() -> None:
    """A connection that was opened before the profiler has no hooks in its fetches; the next one has."""
    engine = create_engine("sqlite://")
    engine.connect().close()
    profiler = SqlProfiler(engine)
    notes = []
    for _ in range(2):
        with profiler.record("rows") as recording, engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()
        notes.append((recording.row_count, recording.notes))
        engine.dispose()
    profiler.remove()

    told = ("the rows of 1 statement are not measured: the driver did not report them, and no fetch was seen",)
    assert notes == [(None, told), (1, ())]


def test_a_statement_that_outlives_its_recording_has_no_figures() -> None:
    """Neither its time nor its rows, none included, are known when the recording ends; a note says so."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    begun, done = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return done.wait()

    event.listen(engine, "connect", lambda connection, _: connection.create_function("wait", 0, wait))
    profiler = SqlProfiler(engine)

    def ask() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()
            connection.exec_driver_sql("select wait()").all()

    with profiler.record("rows") as recording:
        asking = threading.Thread(target=copy_context().run, args=(ask,))
        asking.start()
        begun.wait()
    done.set()
    asking.join()
    profiler.remove()
    engine.dispose()

    assert [(1, True), (None, False)] == [(each.row_count, each.execute_s is not None) for each in recording.statements]
    assert recording.row_count is None
    told = "1 statement still ran when the recording ended: its time and rows are not in it"
    assert [told] == [note for note in recording.notes if "rows" in note]


def test_statements_of_threads_without_the_context_are_counted_as_missed(tmp_path: Path) -> None:
    """Those of a plain thread and of a pool of threads; not those of a thread with a copy of the context."""
    engine = create_engine(f"sqlite:///{tmp_path / 'db'}")
    profiler = SqlProfiler(engine)
    engine.connect().close()

    def ask() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()

    def run(target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    with profiler.record("threads") as recording:
        run(ask)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(ask).result()
        run(partial(copy_context().run, ask))
    with profiler.record("after") as after:
        ask()
    run(ask)
    profiler.remove()
    engine.dispose()

    assert (recording.statement_count, recording.missed, after.statement_count, after.missed) == (1, 2, 1, 0)
    assert recording.gaps[0].startswith("2 statements ran meanwhile")
    assert list(recording.notes) == list(recording.gaps)
    both = Recording.merge([recording, recording])
    assert (both.missed, list(both.notes)) == (4, list(both.gaps))
    assert Recording.from_json(json.loads(json.dumps(recording.to_json()))) == recording


def test_what_a_task_runs_after_its_record_is_neither_kept_nor_missed(engine: Engine, profiler: SqlProfiler) -> None:
    """A copy of the context that outlives its record writes nothing into it."""
    with profiler.record("short") as recording:
        context = copy_context()
    kept = context.run(profiler.switch_to, None)

    def ask() -> None:
        profiler.switch_to(kept)
        with engine.connect() as connection:
            connection.exec_driver_sql("select 1").all()

    with profiler.record("later") as later:
        context.run(ask)

    assert kept is not None
    assert (recording.statement_count, kept.statements, later.missed) == (0, [], 0)


@pytest.fixture
def wrapper(tmp_path: Path) -> Any:
    """An installed package with a function that runs a statement."""
    package = tmp_path / "site-packages" / "wrapper"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def first(connection, sql):\n    return connection.execute(sql).first()\n")
    names: dict[str, Any] = {}
    file = package / "__init__.py"
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["first"]


def test_the_call_site_is_above_an_installed_wrapper(wrapper: Any, engine: Engine, profiler: SqlProfiler) -> None:
    """Five lines that call a library, or a helper of one's own, are five places; a loop is one."""

    def get(connection: Any, number: int) -> Any:
        return connection.execute(text("select :n as own"), {"n": number}).first()

    with profiler.record("lines") as lines, engine.connect() as connection:
        wrapper(connection, text("select 1"))
        wrapper(connection, text("select 2"))
        wrapper(connection, text("select 3"))
        wrapper(connection, text("select 4"))
        wrapper(connection, text("select 5"))
        get(connection, 1)
        get(connection, 2)
        get(connection, 3)
        get(connection, 4)
        get(connection, 5)
    with profiler.record("loop") as loop, engine.connect() as connection:
        for number in range(5):
            get(connection, number)

    here = {each.caller for each in lines.statements[:5]}
    assert ({each.file for each in here}, len(here)) == ({__file__}, 5)
    own = lines.statements[5:]
    assert [each.caller.function.rpartition(".")[2] for each in own] == ["get"] * 5
    assert len({each.outer_caller for each in own}) == 5
    assert [finding.kind for finding in lines.findings()] == []
    (finding,) = loop.findings()
    assert (finding.kind, finding.outer_caller.function) == ("n+1", "test_the_call_site_is_above_an_installed_wrapper")
    assert Recording.from_json(json.loads(json.dumps(loop.to_json()))) == loop


def test_an_installed_program_can_be_the_application(wrapper: Any, engine: Engine, make_profiler: Any) -> None:
    """By the name of its package; its path begins there in texts."""
    profiler = make_profiler(engine, application=["wrapper"])
    with profiler.record("installed") as recording, engine.connect() as connection:
        wrapper(connection, text("select 1"))

    statement = recording.statements[0]
    assert str(statement.caller) == "wrapper/__init__.py:2 first"
    assert statement.outer_caller.file == __file__


@pytest.mark.parametrize("from_file", [True, False])
def test_a_lazy_load_in_a_template_is_at_its_line(
    profiler: SqlProfiler, tmp_path: Path, engine: Engine, *, from_file: bool
) -> None:
    """Of the template, not of the Python that Jinja makes of it."""
    source = "first\nsecond\n{% for n in numbers %}\n  {{ n.load() }}\n{% endfor %}\n"
    (tmp_path / "page.html").write_text(source)
    loader = jinja2.FileSystemLoader(tmp_path) if from_file else jinja2.DictLoader({"page.html": source})
    page = jinja2.Environment(loader=loader, autoescape=True).get_template("page.html")

    class Lazy:
        def __init__(self, connection: Any) -> None:
            self.load = partial(connection.exec_driver_sql, "select 1")

    with profiler.record("page") as recording, engine.connect() as connection:
        page.render(numbers=[Lazy(connection)])

    (statement,) = recording.statements
    file = str(tmp_path / "page.html") if from_file else "page.html"
    assert (statement.caller.file, statement.caller.line, statement.caller.function) == (file, 4, "template")
    assert statement.outer_caller.file == __file__


def test_a_begin_that_a_listener_sends_is_the_transactions_own() -> None:
    """SQLAlchemy's recipe for SQLite: each transaction has one BEGIN, that of the listener, and not one more."""
    engine = create_engine("sqlite://")
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    profiler = SqlProfiler(engine)

    with profiler.record("twice") as recording:
        for _ in range(2):
            with engine.begin() as connection:
                connection.execute(text("select 1")).all()
    profiler.remove()
    engine.dispose()

    steps = [(step.kind, step.number) for step in recording.transactions if step.kind != "CONNECT"]
    assert steps == [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("COMMIT", 2)]
    assert [statement.transaction for statement in recording.statements] == [1, 2]
