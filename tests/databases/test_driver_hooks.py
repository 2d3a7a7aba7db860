"""The profiler of drivers alone, on PostgreSQL: psycopg2, psycopg 3 (sync and async) and asyncpg."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import psycopg2.sql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_version import since_2_0

from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.drivers.driver_hooks import DriverHooks


@pytest.fixture
def profiler() -> Iterator[SqlProfiler]:
    """A profiler of all drivers."""
    made = SqlProfiler.for_drivers()
    yield made
    made.remove()


def statements(recording: Recording) -> list[tuple[int | None, int | None]]:
    """Each statement's rows and round trips."""
    return [(each.row_count, each.round_trips) for each in recording.statements]


def steps(recording: Recording) -> list[tuple[str, int | None]]:
    """Each transaction step with its round trips."""
    return [(each.kind, each.round_trips) for each in recording.transactions]


def lines(recording: Recording) -> list[str]:
    """The functions that ran the statements, without those inside of them."""
    return [each.caller.function.split(".")[0] for each in recording.statements]


def test_psycopg2_has_times_rows_and_round_trips(profiler: SqlProfiler, url: str) -> None:
    """The hidden BEGIN, iterated rows, a server-side cursor with its last, empty FETCH."""
    with profiler.record("psycopg2") as recording:
        connection = psycopg2.connect(url)
        cursor = connection.cursor()
        cursor.execute("select generate_series(1, 3)")
        rows = list(cursor)
        connection.commit()
        named = connection.cursor("named")
        named.execute("select generate_series(1, 3)")
        assert [row for (row,) in named] == [1, 2, 3]
        named.close()
        connection.rollback()

    assert len(rows) == 3
    assert statements(recording) == [(3, 2), (3, 5)]
    assert steps(recording) == [
        ("CONNECT", None),
        ("BEGIN", None),
        ("COMMIT", 1),
        ("BEGIN", None),
        ("ROLLBACK", 1),
    ]
    assert [each.fetch_s is not None for each in recording.statements] == [True, True]
    assert set(lines(recording)) == {"test_psycopg2_has_times_rows_and_round_trips"}


def test_cursor_classes_of_psycopg2_are_kept(profiler: SqlProfiler, url: str) -> None:
    """Chosen for a connection, for a cursor, or by a connection class."""
    with profiler.record("classes") as recording:
        by_name = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
        by_class = psycopg2.connect(url, connection_factory=psycopg2.extras.DictConnection)
        plain = psycopg2.connect(url)
        cursors = [by_name.cursor(), by_class.cursor(), plain.cursor(cursor_factory=psycopg2.extras.DictCursor)]
        values = []
        for cursor in cursors:
            cursor.execute("select 7 as lucky")
            values.append(cursor.fetchone()["lucky"])

    for connection in (by_name, by_class, plain):
        connection.close()
    assert values == [7, 7, 7]
    assert statements(recording) == [(1, 2), (1, 2), (1, 2)]


class _OwnCursor(psycopg2.extensions.cursor):
    """Says that it was used."""

    used = False

    def execute(self, *arguments: Any) -> None:
        self.used = True
        super().execute(*arguments)


class _Plain(psycopg2.extensions.connection):
    """Adds nothing."""


class _PassingOn(psycopg2.extensions.connection):
    """Passes all arguments on."""

    def cursor(self, *arguments: Any, **keywords: Any) -> Any:
        return super().cursor(*arguments, **keywords)


class _NameOnly(psycopg2.extensions.connection):
    """Its method has a name as its only argument."""

    def cursor(self, name: str | None = None) -> Any:  # type: ignore[override]
        return super().cursor(name)


class _Choosing(psycopg2.extensions.connection):
    """Has cursors of its own class."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cursor_factory = _OwnCursor


@pytest.mark.parametrize("cursor_class", [None, _OwnCursor])
@pytest.mark.parametrize(
    "connection_class", [_Plain, _PassingOn, _NameOnly, _Choosing, psycopg2.extras.RealDictConnection]
)
def test_a_connection_class_of_psycopg2_has_all_its_statements(
    profiler: SqlProfiler, url: str, connection_class: Any, cursor_class: Any
) -> None:
    """Whatever its `cursor` takes, with a class of cursors for all or without; the classes are those of the program."""
    with profiler.record("own") as recording:
        connection = psycopg2.connect(url, connection_factory=connection_class, cursor_factory=cursor_class)
        cursor = connection.cursor()
        cursor.execute("select generate_series(1, 3)")
        cursor.fetchall()
        named = connection.cursor("named")
        named.execute("select generate_series(1, 5)")
        named.fetchmany(2)
        named.fetchmany(3)
        connection.close()

    chosen = cursor_class is _OwnCursor or connection_class is _Choosing
    assert (isinstance(cursor, _OwnCursor), isinstance(named, _OwnCursor)) == (chosen, chosen)
    assert statements(recording) == [(3, 2), (5, 3)]


def test_psycopg_has_its_transaction_blocks(profiler: SqlProfiler, url: str) -> None:
    """BEGIN, SAVEPOINT, RELEASE, COMMIT and ROLLBACK of `transaction()`; the shortcuts of a connection; `stream`."""
    with profiler.record("psycopg") as recording, psycopg.connect(url) as connection:
        assert len(connection.execute("select generate_series(1, 3)").fetchall()) == 3
        connection.commit()
        with connection.transaction():
            assert len(list(connection.execute("select generate_series(1, 4)"))) == 4
            with connection.transaction():
                connection.execute("select 2")
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("select 1/0")
        assert len(list(connection.cursor().stream("select generate_series(1, 5)"))) == 5

    assert statements(recording) == [(3, 2), (4, 1), (1, 1), (None, 1), (5, 2)]
    assert [step for step, _ in steps(recording)] == [
        *("CONNECT", "BEGIN", "COMMIT"),
        *("BEGIN", "SAVEPOINT", "RELEASE", "COMMIT"),
        *("BEGIN", "ROLLBACK"),
        *("BEGIN", "COMMIT"),
    ]
    assert [each.transaction for each in recording.statements] == [1, 2, 2, 3, 4]
    assert recording.statements[3].error == "DivisionByZero"
    assert set(lines(recording)) == {"test_psycopg_has_its_transaction_blocks"}


def test_a_pipeline_of_psycopg_begins_no_transaction_in_autocommit(profiler: SqlProfiler, url: str) -> None:
    """Its connection is active from the first statement to the end, which is not a transaction."""
    with (
        psycopg.connect(url, autocommit=True) as connection,
        profiler.record("pipeline") as recording,
        connection.pipeline(),
    ):
        connection.execute("select 1")
        connection.execute("select 2")

    assert [each.transaction for each in recording.statements] == [None, None]
    assert list(recording.transactions) == []


def test_a_cursor_that_psycopg_does_not_make_itself_is_timed(profiler: SqlProfiler, url: str) -> None:
    """Django calls its own cursor classes with the connection."""
    with psycopg.connect(url) as connection, profiler.record("direct") as recording:
        cursor = psycopg.ClientCursor(connection)
        cursor.execute("select %s", (5,))
        value = cursor.fetchone()

    assert (value, statements(recording)) == ((5,), [(1, 2)])


def test_awaited_psycopg(profiler: SqlProfiler, url: str) -> None:
    """Blocks, iteration and stream of an async connection."""

    async def work() -> int:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            async with connection.transaction():
                rows = await (await connection.execute("select generate_series(1, 3)")).fetchall()
            iterated = [row async for row in await connection.execute("select generate_series(1, 4)")]
            streamed = [row async for row in connection.cursor().stream("select generate_series(1, 5)")]
        return len(rows) + len(iterated) + len(streamed)

    with profiler.record("awaited") as recording:
        assert asyncio.run(work()) == 12

    assert statements(recording) == [(3, 1), (4, 2), (5, 1)]
    assert steps(recording)[1:] == [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", None), ("COMMIT", 1)]
    assert set(lines(recording)) == {"test_awaited_psycopg"}


def test_awaited_psycopg_has_the_rows_of_what_is_not_fetched(profiler: SqlProfiler, url: str) -> None:
    """As the driver itself counts them: of writes, and of a read whose rows nobody takes."""

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
            await cursor.execute("create temporary table t (id int)")
            await cursor.executemany("insert into t values (%s)", [(1,), (2,)])
            await cursor.execute("update t set id = 3")
            await cursor.execute("select * from t")

    with profiler.record("rows") as recording:
        asyncio.run(work())

    assert [each.row_count for each in recording.statements] == [None, 2, 2, 2]


def test_composed_statements_of_psycopg_are_their_text(profiler: SqlProfiler, url: str) -> None:
    """In recordings and in statistics: with the names, which tell two statements apart, and without the literals."""
    profiler.collect_statistics()
    for driver in (psycopg, psycopg2):
        sql: Any = driver.sql
        composed = [
            sql.SQL("select 'secret', {} from {}").format(sql.Literal("secret"), sql.Identifier("pg_catalog", table))
            for table in ("pg_am", "pg_language")
        ]
        with contextlib.closing(driver.connect(url)) as connection:
            with profiler.record("composed") as recording:
                for each in composed:
                    connection.cursor().execute(each)
            connection.cursor().execute(composed[0])

        assert [each.sql for each in recording.statements] == [
            'select ?, ? from "pg_catalog"."pg_am"',
            'select ?, ? from "pg_catalog"."pg_language"',
        ]
        assert {each.kind for each in recording.statements} == {"read"}
    counted = {each.sql: each.count for each in profiler.statistics() if "pg_catalog" in each.sql}
    assert counted == {
        'select ?, ? from "pg_catalog"."pg_am"': 4,
        'select ?, ? from "pg_catalog"."pg_language"': 2,
    }


def test_asyncpg_has_each_message(profiler: SqlProfiler, url: str) -> None:
    """Preparations are round trips of their first execution; a cursor has its fetches; a pool's connections too."""

    async def work() -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
            await connection.execute("create temp table t (i int)")
            async with connection.transaction():
                await connection.executemany("insert into t values ($1)", [(1,), (2,)])
            assert len(await connection.fetch("select i from t where i >= $1", 1)) == 2
            assert len(await connection.fetch("select i from t where i >= $1", 1)) == 2
            assert await connection.execute("update t set i = i + $1", 1) == "UPDATE 2"
            async with connection.transaction():
                assert len([row async for row in connection.cursor("select generate_series(1, 120)")]) == 120
            with pytest.raises(asyncpg.DivisionByZeroError):
                await connection.fetch("select 1/0")

    with profiler.record("asyncpg") as recording:
        asyncio.run(work())

    own = recording.statements
    assert [(each.row_count, each.round_trips) for each in own] == [
        *((None, 1), (None, 2)),
        *((2, 2), (2, 1), (2, 2)),
        *((120, 4), (None, 2)),
    ]
    assert steps(recording)[1:] == [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 1), ("COMMIT", 1), ("RESET", 1)]
    assert [each.transaction for each in own] == [None, 1, None, None, None, 2, None]
    assert own[-1].error == "DivisionByZeroError"
    assert {each.bytes_received > 0 for each in own} == {True}
    assert set(lines(recording)) == {"test_asyncpg_has_each_message"}


def test_the_types_that_asyncpg_looks_up_tear_no_statement_apart(profiler: SqlProfiler, url: str) -> None:
    """Between a statement's preparation and its execution it turns jit off and asks for the types, then jit on."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        for name in ("mood", "size"):
            await connection.execute(f"create type {name} as enum ('a')")
            await connection.fetch(f"select $1::{name}", "a")
        await connection.close()

    with profiler.record("types") as recording:
        asyncio.run(work())

    of_program = [each for each in recording.statements if each.sql.startswith(("create", "select"))]
    assert [(each.sql[:12], each.row_count) for each in of_program] == [
        ("create type ", None),
        ("select $1::m", 1),
        ("create type ", None),
        ("select $1::s", 1),
    ]
    assert not {"n+1", "duplicate"} & {finding.kind for finding in recording.findings()}


def test_without_a_recording_and_after_the_removal_the_drivers_are_their_own(url: str) -> None:
    """An open connection only passes on; a new one has the driver's class."""
    profiler = SqlProfiler.for_drivers()
    open_ones = psycopg2.connect(url), psycopg.connect(url)
    profiler.remove()

    for connection in open_ones:
        cursor = connection.cursor()
        cursor.execute("select 1")
        assert cursor.fetchall() == [(1,)]
        connection.close()
    with psycopg.connect(url) as own:
        assert type(own) is psycopg.Connection
    assert type(psycopg2.connect(url)) is psycopg2.extensions.connection


def test_a_driver_whose_import_is_blocked_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By None in its place, as programs block a package: no hook fails, and it is not among the imported drivers."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "pg8000", None)
    hooks = DriverHooks()
    failures = list[Exception]()
    monkeypatch.setattr(hooks, "report_failure", failures.append)

    hooks.install()
    sources, unseen = hooks.sources, hooks.unseen_drivers()
    hooks.remove()

    assert [] == failures
    assert "psycopg2" in sources.partition(" (imported)")[0]
    assert " psycopg," not in sources.partition(" (imported)")[0]
    assert "pg8000" not in unseen


@since_2_0
def test_a_statement_is_counted_once_whoever_sends_it(url: str) -> None:
    """A profiler of the process: SQLAlchemy's engines on three drivers, and the drivers by hand beside them."""
    profiler = SqlProfiler()

    def by_engine(driver: str) -> None:
        engine = create_engine(make_url(url).set(drivername=f"postgresql+{driver}"))
        with engine.begin() as connection:
            connection.execute(text("select 1")).all()
        engine.dispose()

    async def by_async_engine() -> None:
        engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
        async with engine.begin() as connection:
            (await connection.execute(text("select 1"))).all()
        await engine.dispose()

    async def by_asyncpg() -> None:
        connection = await asyncpg.connect(url)
        await connection.fetch("select 2")
        await connection.close()

    with profiler.record("both") as recording:
        by_engine("psycopg2")
        by_engine("psycopg")
        asyncio.run(by_async_engine())
        with psycopg.connect(url) as connection:
            connection.execute("select 2").fetchall()
        asyncio.run(by_asyncpg())
    profiler.remove()

    assert [each.round_trips for each in recording.statements] == [2, 2, 3, 2, 2]
    assert [step for step, _ in steps(recording)] == ["CONNECT", "BEGIN", "COMMIT"] * 4 + ["CONNECT"]
    assert (recording.missed, recording.notes) == (0, ())


def test_equal_values_are_duplicates(profiler: SqlProfiler, url: str) -> None:
    """Of psycopg 3 and asyncpg, whose values come after the text has been prepared; a write between them counts."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        for number in (1, 2, 2):
            await connection.fetch("select $1::int", number)
        await connection.close()

    with profiler.record("values", parameters=True) as recording, psycopg.connect(url) as connection:
        connection.execute("create temp table t (i int)")
        for number in (1, 1):
            connection.execute("select i from t where i = %s", (number,)).fetchall()
        connection.execute("insert into t values (%s)", (1,))
        connection.execute("select i from t where i = %s", (1,)).fetchall()
        asyncio.run(work())

    assert [each.repeated for each in recording.statements] == [False, False, True, False, False, *(False, False, True)]
    assert recording.statements[-1].parameters == "(2,)"


def test_copies_of_psycopg_have_rows_and_an_empty_statement_is_a_ping(profiler: SqlProfiler, url: str) -> None:
    """Rows by PostgreSQL's own count, in and out, sync and async; psycopg's pool sends an empty one as its test."""

    async def work() -> None:
        async with (
            await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
            connection.cursor().copy("copy (select generate_series(1, 4)) to stdout") as copy,
        ):
            assert len([row async for row in copy.rows()]) == 4

    with profiler.record("copies") as recording, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create temp table t (i int)")
        with connection.cursor().copy("copy t from stdin") as copy:
            for number in range(3):
                copy.write_row((number,))
        connection.execute("")
        asyncio.run(work())

    assert statements(recording) == [(None, 1), (3, 2), (4, 1)]
    assert steps(recording) == [("CONNECT", None), ("PING", 1), ("CONNECT", None)]


def test_the_wait_for_psycopgs_pool_is_that_of_the_next_statement(profiler: SqlProfiler, url: str) -> None:
    """Without the pool's test of the connection; a timeout is a step with its error."""
    pool_of = pytest.importorskip("psycopg_pool")

    with (
        pool_of.ConnectionPool(url, max_size=1, min_size=1, check=pool_of.ConnectionPool.check_connection) as pool,
        profiler.record("pool") as recording,
        pool.connection() as connection,
    ):
        with pytest.raises(pool_of.PoolTimeout):
            pool.getconn(timeout=0.05)
        for _ in range(2):
            connection.execute("select 1").fetchall()

    first, second = recording.statements
    assert (first.pool_wait_s > 0, second.pool_wait_s) == (True, 0)
    waited = next(step for step in recording.transactions if step.kind == "POOL TIMEOUT")
    assert (waited.error, waited.elapsed_s >= 0.05) == ("PoolTimeout", True)
    assert [step for step, _ in steps(recording)] == ["PING", "POOL TIMEOUT", "BEGIN", "COMMIT"]
