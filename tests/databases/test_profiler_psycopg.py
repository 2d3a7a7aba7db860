"""psycopg 3, sync: what the profiler's classes see of it, as tests/databases/test_profiler.py has it for psycopg2."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, exc, text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy_version import since_2_0

from placebench.profiler import SqlProfiler

pytestmark = since_2_0


@pytest.fixture
def url(database_url: str) -> Any:
    """The database's address for psycopg 3."""
    return make_url(database_url).set(drivername="postgresql+psycopg")


@pytest.fixture
def engine(url: Any) -> Iterator[Engine]:
    """An engine of psycopg 3."""
    made = create_engine(url, pool_size=1, max_overflow=0, future=True)
    yield made
    made.dispose()


@pytest.fixture
def profiler(profiler: SqlProfiler, engine: Engine) -> SqlProfiler:
    """Its engine is connected already."""
    engine.connect().close()
    return profiler


def test_execute_fetch_rows_trips_and_bytes(profiler: SqlProfiler, engine: Engine) -> None:
    """BEGIN is a message of its own before the first statement; COMMIT has its time."""
    with profiler.record("parts") as recording, engine.begin() as connection:
        connection.execute(text("select repeat('x', 1000) from generate_series(1, 10)")).all()
        connection.execute(text("select pg_sleep(0.01)")).all()

    first, second = recording.statements
    assert [(each.row_count, each.round_trips) for each in recording.statements] == [(10, 2), (1, 1)]
    assert 10_000 < first.bytes_received < 11_000
    assert (second.execute_s >= 0.01, second.fetch_s > 0) == (True, True)
    assert [(step.kind, step.round_trips) for step in recording.transactions] == [("BEGIN", None), ("COMMIT", 1)]
    assert recording.transactions[1].elapsed_s > 0


def test_a_server_side_cursor_asks_for_its_rows(profiler: SqlProfiler, engine: Engine) -> None:
    """BEGIN, DECLARE, each FETCH and CLOSE."""
    with profiler.record("stream") as recording, engine.connect() as connection:
        numbers = text("select generate_series(1, 1000)")
        read = sum(1 for _ in connection.execution_options(yield_per=400).execute(numbers))

    (statement,) = recording.statements
    assert (read, statement.row_count) == (1000, 1000)
    assert statement.round_trips > 5
    assert statement.fetch_s > 0


def test_a_statement_that_the_driver_prepares_takes_a_round_trip_more(profiler: SqlProfiler, engine: Engine) -> None:
    """On its sixth execution; not where an executemany sends it through a pipeline."""
    with profiler.record("prepared") as recording, engine.connect() as connection:
        for number in range(7):
            connection.execute(text("select cast(:n as integer)"), {"n": number})
        connection.exec_driver_sql("create temp table many (n int)")
        connection.exec_driver_sql("insert into many values (%s)", [(number,) for number in range(20)])

    assert [each.round_trips for each in recording.statements] == [2, 1, 1, 1, 1, 2, 1, 1, 1]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_cursor_of_the_driver_begins_the_transaction(profiler: SqlProfiler, url: Any, driver: str) -> None:
    """Of a raw connection, or of a listener to the checkout: SQLAlchemy, which begins later, sends no second BEGIN."""
    engine = create_engine(url.set(drivername=f"postgresql+{driver}"), future=True)
    both = SqlProfiler(engine)
    with both.record("raw") as raw, closing(engine.raw_connection()) as connection:
        connection.cursor().execute("select 1")
        connection.commit()
        connection.cursor().execute("select 2")

    @event.listens_for(engine, "checkout")
    def prepare(connection: Any, _record: object, _proxy: object) -> None:
        connection.cursor().execute("set statement_timeout = 0")

    with both.record("listener") as listener, engine.begin() as connection:
        connection.execute(text("select 3"))
    both.remove()
    engine.dispose()

    assert [each.transaction for each in raw.statements] == [1, 2]
    steps = [(each.kind, each.number) for each in (*raw.transactions, *listener.transactions)]
    own = [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("ROLLBACK", 2)]
    assert [each for each in steps if each[0] != "CONNECT"] == [*own, ("BEGIN", 1), ("COMMIT", 1)]
    assert [each.transaction for each in listener.statements] == [1, 1]


def test_the_pools_ping_is_a_step_of_its_own(url: Any) -> None:
    """SQLAlchemy pings psycopg 3 with an empty statement, which is not a statement of the application's."""
    engine = create_engine(url, pool_pre_ping=True, future=True)
    profiler = SqlProfiler(engine)
    engine.connect().close()

    with profiler.record("ping") as recording, engine.connect() as connection:
        connection.execute(text("select 5"))

    profiler.remove()
    engine.dispose()
    assert (recording.transactions[0].kind, recording.transactions[0].round_trips) == ("PING", 1)
    assert recording.statement_count == 1


def test_a_copy_is_a_statement_from_its_first_to_its_last_byte(profiler: SqlProfiler, engine: Engine) -> None:
    """On a cursor of the application's own."""
    with profiler.record("copy") as recording, engine.begin() as connection:
        connection.exec_driver_sql("create table copied (n int)")
        with (
            connection.connection.cursor() as cursor,
            cursor.copy("copy copied from stdin") as copy,
        ):
            copy.write(b"1\n2\n")
        count = connection.exec_driver_sql("select count(*) from copied").scalar_one()

    assert (count, [each.sql for each in recording.statements][1]) == (2, "copy copied from stdin")


def test_a_failure_is_an_error_of_its_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """And the transaction is rolled back."""
    with (
        profiler.record("failing") as recording,
        pytest.raises(exc.ProgrammingError),
        engine.begin() as connection,
    ):
        connection.execute(text("select nope"))

    assert [each.error for each in recording.statements] == ["UndefinedColumn"]
    assert [step.kind for step in recording.transactions] == ["BEGIN", "ROLLBACK"]


class OwnCursor(psycopg.Cursor[Any]):
    """A user's own class."""


def test_classes_and_listeners_of_the_users_are_kept(url: Any) -> None:
    """A cursor class is subclassed; a do_connect listener registered later is asked as before."""
    engine = create_engine(url, connect_args={"cursor_factory": OwnCursor}, future=True)
    profiler = SqlProfiler(engine)
    asked: list[str] = []
    event.listen(engine, "do_connect", lambda *_: asked.append("asked"))

    with profiler.record("own") as recording, engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("select 5")
        cursor.fetchone()
        kept = isinstance(cursor, OwnCursor), isinstance(connection.connection.dbapi_connection, psycopg.Connection)

    profiler.remove()
    engine.dispose()
    assert (kept, asked) == ((True, True), ["asked"])
    assert [each.row_count for each in recording.statements] == [1]
