"""What of a statement's text a recording holds, by the dialect of its driver or engine, and what it makes of it."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine

from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.analysis.budget import Budget


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine with a table of accounts."""
    made = create_engine("sqlite://", future=True)
    with made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE account (email text, token blob)")
    yield made
    made.dispose()


@pytest.fixture
def profiler(engine: Engine) -> Iterator[SqlProfiler]:
    """A profiler of it."""
    made = SqlProfiler(engine)
    yield made
    made.remove()


def recorded(profiler: SqlProfiler, engine: Engine, *texts: str) -> Recording:
    """A recording of the texts, one after the other."""
    with profiler.record("texts") as recording, engine.connect() as connection:
        for text in texts:
            connection.exec_driver_sql(text).all()
    return recording


def test_a_statement_that_begins_with_blanks_does_not_hang_the_application(
    profiler: SqlProfiler, engine: Engine
) -> None:
    """Three thousand of them and a comment, as in code that is indented deeply, take no time at all."""
    began = time.thread_time()

    recording = recorded(profiler, engine, "\n" + " " * 3000 + "/* load */ SELECT 1")
    recording.findings()

    assert recording.statements[0].kind == "read"
    assert time.thread_time() - began < 10


def test_texts_between_double_quotes_are_left_out_on_sqlite(profiler: SqlProfiler, engine: Engine) -> None:
    """Where they are values; names stay as they are, and texts that differ in such values are one statement."""
    recording = recorded(
        profiler,
        engine,
        'SELECT "account"."email" FROM "account" WHERE email = "jane@example.com"',
        'SELECT "account"."email" FROM "account" WHERE email = "joe@example.com"',
        "SELECT email FROM account WHERE token = 0x4a616e65",
    )

    assert [statement.sql for statement in recording.statements] == [
        'SELECT "account"."email" FROM "account" WHERE email = ?',
        'SELECT "account"."email" FROM "account" WHERE email = ?',
        "SELECT email FROM account WHERE token = ?",
    ]
    assert len({statement.fingerprint for statement in recording.statements}) == 2


@pytest.mark.parametrize("mode", ["full", "light"])
def test_texts_are_left_out_without_sqlalchemy_too(mode: str) -> None:
    """The driver's cursors know whose they are, in recordings and in statistics."""
    profiler = SqlProfiler.for_drivers("sqlite3")
    with closing(sqlite3.connect(":memory:")) as connection, profiler.record("driver", mode=mode) as recording:
        connection.execute('select 1 where "a" = "s3cret"')
    profiler.collect_statistics()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute('select 2 where "a" = "s3cret"').fetchall()
    shown = [statement.sql for statement in recording.statements]
    shown += [each.sql for each in profiler.statistics()]
    profiler.remove()

    assert shown == ['select ? where "a" = ?'] * 2


def test_steps_are_seen_behind_blanks_and_comments(profiler: SqlProfiler, engine: Engine) -> None:
    """A COMMIT that is written on a line of its own ends the transaction."""
    engine.dispose()  # what was open before the profiler is not timed
    with profiler.record("steps") as recording, closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        cursor.execute("/* begin */ BEGIN")
        cursor.execute("\n        COMMIT")

    assert list(recording.statements) == []
    assert [step.kind for step in recording.transactions][-2:] == ["BEGIN", "COMMIT"]


def test_sqlite_begins_a_transaction_for_a_write_behind_a_comment() -> None:
    """As sqlite3 does, which looks behind comments for the first word."""
    profiler = SqlProfiler.for_drivers("sqlite3")
    with profiler.record("write") as recording, closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (a)")
        connection.execute("-- fill\n/* it */ insert into t values (1)")
        began = connection.in_transaction
        connection.commit()
    profiler.remove()

    assert began
    assert [step.kind for step in recording.transactions][-2:] == ["BEGIN", "COMMIT"]


def test_a_queue_that_is_polled_is_no_duplicate(profiler: SqlProfiler, engine: Engine) -> None:
    """A function whose result changes, or an unknown one alone; beside a table the advice says that it may be one."""
    with engine.connect() as connection:
        connection.connection.create_function("take_job", 0, lambda: 1)
    polled = recorded(profiler, engine, *["SELECT random()"] * 9)
    counted = recorded(profiler, engine, *["SELECT count(*) FROM account"] * 3)
    taken = recorded(profiler, engine, *["SELECT take_job() FROM account"] * 3)
    alone = recorded(profiler, engine, *["SELECT take_job()"] * 3)

    assert polled.findings() == alone.findings() == ()
    assert [Budget.at_most(duplicates=0).broken_by(each) for each in (polled, alone)] == ["", ""]
    assert [finding.advice for finding in counted.findings()] == ["keep the first result, and pass it on"]
    assert [finding.advice for finding in taken.findings()] == [
        "keep the first result, and pass it on, unless the function take_job() is volatile"
    ]
