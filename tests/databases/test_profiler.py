"""The profiler on PostgreSQL: round trips, server-side cursors, batches, and where the time goes."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg2
import pytest
from psycopg2 import extensions
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    create_engine,
    exc,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.pool import NullPool
from sqlalchemy_version import since, since_2_0

from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.capture.call_sites import CallSites, find_callers

TABLE = Table("profiled", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine with one connection on a database with an empty table."""
    made = create_engine(database_url, pool_size=1, max_overflow=0, future=True)
    yield made
    made.dispose()


@pytest.fixture
def profiler(profiler: SqlProfiler, engine: Engine) -> SqlProfiler:
    """Its engine is connected already, and has a table."""
    with engine.begin() as connection:
        TABLE.create(connection)
    return profiler


def rows(count: int, first: int = 0) -> list[dict[str, object]]:
    """So many rows for the table."""
    return [{"id": number, "name": "x" * 20} for number in range(first, first + count)]


def steps(recording: Recording) -> list[tuple[str, int | None]]:
    """Each transaction step with its round trips."""
    return [(step.kind, step.round_trips) for step in recording.transactions]


def test_the_hidden_begin_is_a_round_trip_of_the_first_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """psycopg2 sends BEGIN inside the first execute; COMMIT is one more, and has its time."""
    with profiler.record("trips") as recording, engine.begin() as connection:
        connection.execute(text("select 1"))
        connection.execute(text("select 2"))

    assert [statement.round_trips for statement in recording.statements] == [2, 1]
    assert steps(recording) == [("BEGIN", None), ("COMMIT", 1)]
    assert recording.round_trips == 4
    assert recording.transactions[1].elapsed_s > 0


def test_autocommit_has_no_transaction(profiler: SqlProfiler, engine: Engine) -> None:
    """No BEGIN is sent, and none is counted."""
    unattended = engine.execution_options(isolation_level="AUTOCOMMIT")

    with profiler.record("autocommit") as recording, unattended.connect() as connection:
        connection.execute(text("select 1"))

    assert [(each.round_trips, each.transaction) for each in recording.statements] == [(1, None)]
    assert steps(recording) == []


@since(1, 4, 40, reason="another number of round trips or rows")
def test_the_pools_ping_is_a_step_of_its_own(database_url: str) -> None:
    """It is a round trip for each checkout that no event tells of."""
    engine = create_engine(database_url, pool_pre_ping=True, future=True)
    profiler = SqlProfiler(engine)
    engine.connect().close()

    with profiler.record("ping") as recording, engine.connect() as connection:
        connection.execute(text("select 5"))

    profiler.remove()
    engine.dispose()
    assert steps(recording) == [("PING", 1), ("BEGIN", None), ("ROLLBACK", 1)]
    assert recording.statement_count == 1


@since(1, 4, 40, reason="yield_per of a connection")
def test_a_server_side_cursor_has_its_time_in_the_fetches(profiler: SqlProfiler, engine: Engine) -> None:
    """Its execute is a DECLARE; SQLAlchemy fetches 1, 5, 25, 125, 400, 400, 44 and no more of 1000 rows, and closes."""
    with profiler.record("stream") as recording, engine.connect() as connection:
        numbers = text("select generate_series(1, 1000)")
        read = sum(1 for _ in connection.execution_options(yield_per=400).execute(numbers))

    statement = recording.statements[0]
    assert (read, statement.row_count, statement.round_trips) == (1000, 1000, 2 + 8 + 1)
    assert statement.fetch_s > 0


@since_2_0
def test_each_batch_of_an_insertmanyvalues_has_its_rows_and_trips(profiler: SqlProfiler, engine: Engine) -> None:
    """2500 rows go in three messages; the rows that come back are counted too."""
    with profiler.record("batches") as recording, engine.begin() as connection:
        returned = connection.execute(insert(TABLE).returning(TABLE.c.id), rows(2500)).all()

    assert len(returned) == 2500
    assert [(each.row_count, each.round_trips) for each in recording.statements] == [(1000, 2), (1000, 1), (500, 1)]
    assert len({statement.fingerprint for statement in recording.statements}) == 1
    assert [(each.batch, each.cache_hit) for each in recording.statements] == [(1, False), (2, None), (3, None)]
    assert not {"n+1", "duplicate"} & {finding.kind for finding in recording.findings()}
    assert all(len(statement.sql) == 4000 for statement in recording.statements)


def test_an_executemany_is_a_message_for_each_set_of_parameters(profiler: SqlProfiler, engine: Engine) -> None:
    """psycopg2 sends them one after the other."""
    with engine.begin() as connection:
        connection.execute(insert(TABLE), rows(3))

    with profiler.record("many") as recording, engine.begin() as connection:
        change = update(TABLE).where(TABLE.c.id == bindparam("key")).values(name="y")
        connection.execute(change, [{"key": 0}, {"key": 1}, {"key": 2}])

    assert [(each.row_count, each.round_trips) for each in recording.statements] == [(3, 1 + 3)]


def test_savepoints_and_a_failure_inside_of_one(profiler: SqlProfiler, engine: Engine) -> None:
    """The failed statement has its error, and the transaction continues after the rollback to the savepoint."""
    with profiler.record("savepoint") as recording, engine.begin() as connection:
        with pytest.raises(exc.ProgrammingError), connection.begin_nested():
            connection.execute(text("select nope"))
        connection.execute(text("select 1"))

    assert [each.error for each in recording.statements] == ["UndefinedColumn", None]
    assert steps(recording) == [("BEGIN", None), ("SAVEPOINT", 2), ("ROLLBACK TO", 1), ("COMMIT", 1)]


def test_a_first_connection_is_one_step(database_url: str) -> None:
    """With all that SQLAlchemy asks a new server, which is not the application's."""
    engine = create_engine(database_url, future=True)
    profiler = SqlProfiler(engine)

    with profiler.record("connect") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    profiler.remove()
    engine.dispose()
    assert steps(recording) == [("CONNECT", None), ("BEGIN", None), ("ROLLBACK", 1)]
    assert recording.statement_count == 1


def test_the_parts_sum_to_the_whole(profiler: SqlProfiler, engine: Engine) -> None:
    """For statements one after the other SQL and Python are the elapsed time, and each part is measured."""
    with profiler.record("whole") as recording, engine.begin() as connection:
        connection.execute(insert(TABLE), rows(100))
        connection.execute(select(TABLE)).all()
        connection.exec_driver_sql("select pg_sleep(0.02)")

    parts = sum(each.elapsed_s for each in recording.statements)
    transactions = sum(step.elapsed_s or 0.0 for step in recording.transactions)
    assert recording.sql_s == pytest.approx(parts + transactions)
    assert recording.sql_s + recording.python_s == pytest.approx(recording.elapsed_s)
    assert recording.statements[-1].execute_s >= 0.02


def test_a_wait_for_the_pool_is_not_the_statements_time(profiler: SqlProfiler, engine: Engine) -> None:
    """The other request holds the only connection for 30 ms of the server's time once somebody waits for it."""
    held = threading.Event()

    def hold() -> None:
        with engine.connect() as connection:
            held.set()
            while not engine.pool._pool.not_empty._waiters:
                pass
            connection.exec_driver_sql("select pg_sleep(0.03)")

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with profiler.record("wait") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))
    holder.join()

    statement = recording.statements[0]
    assert statement.pool_wait_s >= 0.03
    assert recording.sql_s >= statement.pool_wait_s + statement.execute_s


def test_a_copy_is_a_statement_too(profiler: SqlProfiler, engine: Engine) -> None:
    """It goes past SQLAlchemy, on a cursor of the application's own."""
    import io

    with profiler.record("copy") as recording, engine.begin() as connection:
        connection.connection.cursor().copy_expert("copy profiled from stdin", io.StringIO("1\ta\n2\tb\n"))

    assert [(each.sql, each.round_trips) for each in recording.statements] == [("copy profiled from stdin", 3)]


def test_other_calls_of_a_raw_cursor_are_seen(profiler: SqlProfiler, engine: Engine) -> None:
    """Each has a statement of its own, so that no row is taken for that of the statement before."""
    import io

    with profiler.record("raw") as recording, engine.begin() as connection:
        cursor = connection.connection.cursor()
        cursor.copy_from(io.StringIO("1\ta\n2\tb\n"), "profiled")
        cursor.copy_to(io.StringIO(), "profiled")
        cursor.execute("select * from profiled")
        read = [row[0] for row in cursor]
        cursor.callproc("generate_series", (1, 3))
        cursor.fetchall()

    assert read == [1, 2]
    assert [(each.sql, each.row_count, each.round_trips) for each in recording.statements] == [
        ("copy profiled from stdin", 2, 3),
        ("copy profiled to stdout", 2, 1),
        ("select * from profiled", 2, 1),
        ("select * from generate_series(…)", 3, 1),
    ]


class OwnCursor(extensions.cursor):
    """A user's own class."""


def test_a_cursor_class_of_the_users_is_kept(database_url: str) -> None:
    """It is subclassed, so that the application still finds what it asked for."""
    engine = create_engine(database_url, connect_args={"cursor_factory": OwnCursor}, future=True)
    profiler = SqlProfiler(engine)

    with profiler.record("own") as recording, engine.connect() as connection:
        cursor = connection.connection.cursor()
        cursor.execute("select 1")  # in a checkout this would be the pool's ping
        cursor.fetchone()

    profiler.remove()
    engine.dispose()
    assert isinstance(cursor, OwnCursor)
    assert [each.row_count for each in recording.statements] == [1]


def test_a_connection_of_the_applications_own_making_has_timed_cursors(database_url: str) -> None:
    """By `creator`, which SQLAlchemy asks without an event: its class stays; bytes, and COMMIT's trip, are unknown."""
    address = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    engine = create_engine(
        database_url, creator=lambda: psycopg2.connect(address, cursor_factory=OwnCursor), future=True
    )
    profiler = SqlProfiler(engine)
    engine.connect().close()

    with profiler.record("own") as recording, engine.begin() as connection:
        cursor = connection.execute(text("select generate_series(1, 7)")).cursor
        kept = isinstance(cursor, OwnCursor)

    profiler.remove()
    engine.dispose()
    (statement,) = recording.statements
    assert (kept, statement.row_count, statement.round_trips, statement.bytes_received) == (True, 7, 2, None)
    assert steps(recording) == [("BEGIN", None), ("COMMIT", None)]
    assert recording.transactions[-1].elapsed_s is not None


def test_bytes_are_counted_for_each_statement(profiler: SqlProfiler, engine: Engine) -> None:
    """An answer of 50 000 characters and a small one; by the socket of the connection, which goes on working."""
    with profiler.record("bytes") as recording, engine.connect() as connection:
        connection.execute(text("select repeat('y', 50000)")).all()
        connection.execute(text("select 1")).all()

    large, small = recording.statements
    assert 50_000 < large.bytes_received < 50_400
    assert 0 < small.bytes_received < 100
    assert 0 < small.bytes_sent < large.bytes_sent < 100


def test_bytes_are_not_measured_in_a_light_recording(profiler: SqlProfiler, engine: Engine) -> None:
    """None, never 0."""
    with profiler.record("light", mode="light") as recording, engine.connect() as connection:
        connection.execute(text("select 1"))

    assert (recording.bytes_sent, recording.bytes_received) == (None, None)


@pytest.mark.parametrize("mode", ["sampled", "flame"])
def test_leaves_of_kept_stacks_are_those_of_a_walk(
    profiler: SqlProfiler, engine: Engine, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The stack that was kept when a statement began has the frames of one that is read when its driver returns."""

    seen = []
    for _ in range(2):
        with profiler.record("request", mode=mode) as recording, engine.connect() as connection:
            for _ in range(3):
                connection.execute(text("select pg_sleep(0.001)")).all()
        stacks = ["\n".join(stack) for stack, _ in recording.session.frame_records]
        seen.append({stack for stack in stacks if "\nselect pg_sleep" in stack})
        monkeypatch.setattr(
            CallSites, "find", lambda _sites, frame, application: (None, find_callers(frame, application))
        )

    assert seen[0] == seen[1]
    assert len(seen[0]) == 1


def test_a_flame_holds_sql_that_python_waited_for(profiler: SqlProfiler, engine: Engine) -> None:
    """A sleep inside of PostgreSQL is a leaf on the frame that asked for it, with the statement's time."""
    with profiler.record("flame", mode="flame") as recording, engine.connect() as connection:
        connection.exec_driver_sql("select pg_sleep(0.03)")

    leaves = [
        seconds for stack, seconds in recording.session.frame_records if stack[-1].startswith("select pg_sleep(?)")
    ]
    assert sum(leaves) == pytest.approx(recording.statements[0].execute_s)


@pytest.mark.parametrize("driver", ["psycopg2", pytest.param("psycopg", marks=since_2_0)])
def test_a_connection_may_be_closed_before_the_record_around_sees_it(database_url: str, driver: str) -> None:
    """The record inside reads no bytes, and the one around would read those of a socket that is gone."""
    engine = create_engine(make_url(database_url).set(drivername=f"postgresql+{driver}"))
    profiler = SqlProfiler(engine)

    with profiler.record("around") as around, profiler.record("inside", "light"), engine.connect() as connection:
        connection.execute(text("select 1"))
        raw: Any = connection.connection.dbapi_connection
        raw.close()
        connection.invalidate()

    assert (len(around.statements), around.failed_hooks) == (1, ())
    assert around.bytes_sent is None


@pytest.mark.parametrize("driver", ["psycopg2", pytest.param("psycopg", marks=since_2_0)])
@pytest.mark.parametrize("pool", [{"poolclass": NullPool}, {"pool_size": 1, "max_overflow": 5}])
def test_bytes_of_connections_that_come_and_go(database_url: str, driver: str, pool: dict[str, Any]) -> None:
    """A new connection may have the id of one that is gone, never its counters; its seconds stay in the sum."""
    engine = create_engine(make_url(database_url).set(drivername=f"postgresql+{driver}"), **pool)
    profiler = SqlProfiler(engine)

    with profiler.record("come and go") as recording:
        for _ in range(10):
            with engine.connect() as one, engine.connect() as other:
                one.execute(text("select repeat('x', 1000)")).all()
                other.execute(text("select repeat('x', 1000)")).all()
    profiler.remove()
    engine.dispose()

    assert len(recording.statements) == 20
    assert [1000 < each.bytes_received < 2000 for each in recording.statements] == [True] * 20
    assert [0 < each.bytes_sent < 1000 for each in recording.statements] == [True] * 20
    measured = sum(each.elapsed_s for each in recording.statements)
    assert recording.sql_s == pytest.approx(measured + sum(step.elapsed_s or 0.0 for step in recording.transactions))


def test_a_checkout_has_its_wait_its_connect_and_its_use(database_url: str) -> None:
    """Two threads on a pool of one: the second waits while the first holds it; a third one does not get it in time."""
    engine = create_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0.05, future=True)
    profiler = SqlProfiler(engine, whole_process=True)
    with profiler.record("pool") as recording:
        with engine.connect() as connection:
            connection.execute(text("select pg_sleep(0.01)"))
            with pytest.raises(exc.TimeoutError):
                engine.connect()
        with engine.connect() as connection:
            connection.execute(text("select 1"))
    profiler.remove()
    engine.dispose()

    first, late, second = recording.checkouts
    url = make_url(database_url)
    (name,) = {each.pool for each in recording.checkouts}
    assert name.endswith(f"/{url.database}")
    assert first.create_s is not None
    assert first.wait_s >= first.create_s > 0
    assert first.use_s >= 0.06
    assert (late.timed_out, late.pending, late.use_s) == (True, 1, None)
    assert late.wait_s >= 0.05
    assert (second.create_s, second.pending, second.timed_out) == (None, 0, False)
    assert (second.used, second.idle, second.size, second.limit) == (1, 0, 1, 1)
    assert {each.database.system for each in recording.statements} == {"postgresql"}
    assert {each.connection for each in recording.statements} == {1}
    assert Recording.from_json(json.loads(json.dumps(recording.to_json()))) == recording


def test_settings_of_a_session_are_no_findings(profiler: SqlProfiler, engine: Engine) -> None:
    """What is read under another setting is read anew; the statements are counted."""
    with profiler.record("tenants") as recording, engine.connect() as connection:
        for tenant in range(5):
            connection.execute(text("set local statement_timeout = 1000"))
            connection.execute(text("select set_config('app.tenant', :tenant, true)"), {"tenant": str(tenant)})
            connection.execute(text("select current_setting('app.tenant')"))

    assert [each.kind for each in recording.statements] == ["setting", "setting", "read"] * 5
    assert [finding for finding in recording.findings() if finding.kind in ("duplicate", "n+1")] == []
