"""Calls of drivers that are more, or less, than one statement: as their servers see them."""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing
from operator import methodcaller
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import pymysql
import pytest
from pymysql.cursors import SSCursor
from sqlalchemy.engine import make_url

from placebench.profiler import Recording, SqlProfiler
from placebench.runtime.mariadb import MariaDbServer

NINE = "select * from generate_series(1, 9)"


@pytest.fixture
def profiler() -> Iterator[SqlProfiler]:
    """A profiler of all drivers."""
    made = SqlProfiler.for_drivers()
    yield made
    made.remove()


@pytest.fixture
def mysql(profiler: SqlProfiler, mariadb: MariaDbServer) -> Iterator[Any]:
    """A connection of PyMySQL to a new database with an empty table."""
    address = make_url(mariadb.database(f"calls_{time.monotonic_ns()}"))
    place = {"host": address.host, "port": address.port, "user": address.username, "password": address.password}
    with closing(pymysql.connect(database=address.database, autocommit=True, **place)) as connection:
        connection.cursor().execute("create table item (id int)")
        yield connection


def rows(recording: Recording) -> list[int | None]:
    """Those of each statement."""
    return [statement.row_count for statement in recording.statements]


def steps(recording: Recording) -> list[tuple[str, int | None]]:
    """The transaction steps, each with the number of its transaction."""
    return [(step.kind, step.number) for step in recording.transactions if step.kind != "CONNECT"]


def by_psycopg2(url: str) -> None:
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.executemany("insert into item values (%s)", [])


def by_psycopg(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.cursor().executemany("insert into item values (%s)", [])


def by_awaited_psycopg(url: str) -> None:
    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await connection.cursor().executemany("insert into item values (%s)", ())
        await connection.close()

    asyncio.run(work())


def by_asyncpg(url: str) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create temporary table item (id int)")
        await connection.executemany("insert into item values ($1)", [])
        await connection.close()

    asyncio.run(work())


def by_sqlite(_url: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table item (id)")
        connection.executemany("insert into item values (?)", [])


def by_aiosqlite(_url: str) -> None:
    async def work() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            await connection.execute("create table item (id)")
            await connection.executemany("insert into item values (?)", [])

    asyncio.run(work())


@pytest.mark.parametrize("work", [by_psycopg2, by_psycopg, by_awaited_psycopg, by_asyncpg, by_sqlite, by_aiosqlite])
def test_an_executemany_of_nothing_is_no_statement(
    profiler: SqlProfiler, url: str, work: Callable[[str], None]
) -> None:
    """The server gets none, whatever was prepared for it."""
    with profiler.record("nothing") as recording:
        work(url)

    assert [each.sql for each in recording.statements if each.sql.startswith("insert")] == []
    assert recording.failed_hooks == ()


def test_an_executemany_of_nothing_has_no_rows_of_the_statement_before(profiler: SqlProfiler, mysql: Any) -> None:
    """PyMySQL leaves the count of the statement before in its cursor."""
    cursor = mysql.cursor()

    with profiler.record("nothing") as recording:
        cursor.execute("insert into item values (1), (2)")
        cursor.executemany("insert into item values (%s)", [])

    assert rows(recording) == [2]


def test_rows_that_are_fetched_again_are_returned_once(profiler: SqlProfiler, url: str, mysql: Any) -> None:
    """Nine rows, fetched, and some of them again after a scroll backwards; a scroll forwards leaves some out."""
    with closing(psycopg2.connect(url)) as one, psycopg.connect(url) as other, profiler.record("s") as recording:
        for cursor in (one.cursor(), other.cursor()):
            cursor.execute(NINE)
            cursor.fetchall()
            cursor.scroll(2, "absolute")
            cursor.fetchmany(5)
            cursor.scroll(-5)
            assert len(cursor.fetchall()) == 7
            cursor.scroll(0, mode="absolute")
            cursor.scroll(8)
            assert cursor.fetchone() == (9,)
        cursor = mysql.cursor()
        cursor.execute("select 1 union select 2 union select 3")
        cursor.fetchall()
        cursor.scroll(0, mode="absolute")
        assert len(cursor.fetchall()) == 3

    assert rows(recording) == [9, 9, 3]
    assert recording.failed_hooks == ()


def test_rows_that_are_awaited_again_are_returned_once(profiler: SqlProfiler, url: str) -> None:
    """Nine rows, of which five are fetched twice."""

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        cursor = await connection.execute(NINE)
        await cursor.fetchall()
        await cursor.scroll(4, "absolute")
        assert len(await cursor.fetchall()) == 5
        await connection.close()

    with profiler.record("s") as recording:
        asyncio.run(work())

    assert rows(recording) == [9]


def test_a_scroll_of_a_server_side_cursor_is_a_round_trip(profiler: SqlProfiler, url: str) -> None:
    """BEGIN, DECLARE, two fetches, a MOVE and CLOSE; psycopg 3 has the cursor described too."""
    trips = []
    with closing(psycopg2.connect(url)) as one, closing(psycopg.connect(url)) as other:
        for cursor in (one.cursor("s", scrollable=True), other.cursor("s", scrollable=True)):
            with profiler.record("s") as recording:
                cursor.execute(NINE)
                cursor.fetchmany(2)
                cursor.scroll(3)
                assert cursor.fetchone() == (6,)
                cursor.close()
            trips += [(each.round_trips, each.row_count) for each in recording.statements]

    assert trips == [(6, 3), (7, 3)]


def test_an_awaited_scroll_of_a_server_side_cursor_is_a_round_trip(profiler: SqlProfiler, url: str) -> None:
    """As many as without await."""

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        cursor = connection.cursor("s", scrollable=True)
        await cursor.execute(NINE)
        await cursor.fetchmany(2)
        await cursor.scroll(3)
        assert await cursor.fetchone() == (6,)
        await cursor.close()
        await connection.close()

    with profiler.record("s") as recording:
        asyncio.run(work())

    assert [(each.round_trips, each.row_count) for each in recording.statements] == [(7, 3)]


def test_a_stream_without_rows_has_none(profiler: SqlProfiler, url: str) -> None:
    """It is 0, and not what nobody knows."""

    async def work() -> None:
        connection = await psycopg.AsyncConnection.connect(url)
        assert [row async for row in connection.cursor().stream("select 1 where false")] == []
        await connection.close()

    with profiler.record("stream") as recording:
        with psycopg.connect(url) as connection:
            assert list(connection.cursor().stream("select 1 where false")) == []
        asyncio.run(work())

    assert rows(recording) == [0, 0]


def test_a_stream_that_is_closed_early_ends_at_once(profiler: SqlProfiler, url: str) -> None:
    """psycopg cancels the query while the stream is closed, also when an error is thrown into it."""
    thousands = "select generate_series(1, 100000)"

    async def work() -> str:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            async with aclosing(connection.cursor().stream(thousands)) as rows:
                await anext(rows)
            return str(connection.info.transaction_status.name)

    with profiler.record("stream"), psycopg.connect(url, autocommit=True) as connection:
        stream = connection.cursor().stream(thousands)
        next(stream)
        try:
            stream.throw(KeyError)
        except KeyError:
            status = connection.info.transaction_status.name
        assert (status, asyncio.run(work())) == ("IDLE", "IDLE")


def test_bytes_of_streamed_rows_are_those_of_their_statement(profiler: SqlProfiler, url: str, mysql: Any) -> None:
    """A million bytes in a thousand rows, and not of the next statement; of a result that was left early None."""

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            rows = connection.cursor().stream("select repeat('x', 1000) from generate_series(1, 1000)")
            assert len([row async for row in rows]) == 1000
            await connection.execute("select 1")

    with profiler.record("bytes") as recording:
        with psycopg.connect(url) as connection:
            rows = connection.cursor().stream("select repeat('x', 1000) from generate_series(1, 1000)")
            assert len(list(rows)) == 1000
            connection.execute("select 1")
        asyncio.run(work())
        for fetch in (list, methodcaller("fetchall"), methodcaller("fetchmany", 2000), methodcaller("fetchone")):
            unbuffered = mysql.cursor(SSCursor)
            unbuffered.execute("select repeat('x', 1000) from seq_1_to_1000")
            fetch(unbuffered)
            unbuffered.close()
            mysql.cursor().execute("select 1")
        left = mysql.cursor(SSCursor)
        left.execute("select repeat('x', 1000) from seq_1_to_1000")
        left.fetchone()
        with pytest.warns(UserWarning, match="left incomplete"):
            mysql.cursor().execute("select 1")

    received = [each.bytes_received for each in recording.statements][:-1]  # the last one reads the rest first
    assert [each and each // 100_000 for each in received] == [*[10, 0] * 6, None]
    assert recording.notes == ("the bytes of results that were not read to the end are not measured",)


def test_a_transaction_that_has_begun_before_has_no_second_begin(profiler: SqlProfiler, url: str, mysql: Any) -> None:
    """Before the recording, or in the one around it, which has the steps of both."""
    lite = sqlite3.connect(":memory:")
    lite.execute("create table item (id int)")
    mysql.autocommit(False)

    async def work() -> Recording:
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            with profiler.record("asyncpg") as recording:
                await connection.fetch("select 1")
        await connection.close()
        return recording

    for connection in (mysql, lite, psycopg.connect(url), psycopg2.connect(url)):
        write = "insert into item values (1)" if connection in (lite, mysql) else "select 1"
        cursor = connection.cursor()
        with profiler.record("around") as around:
            cursor.execute(write)
            with profiler.record("within") as within:
                cursor.execute(write)
            connection.rollback()
        assert [step.kind for step in around.transactions] == ["BEGIN", "ROLLBACK"]
        assert within.transactions == []
        assert [each.transaction for each in (*around.statements, *within.statements)] == [1, 1, 1]
        if connection is not mysql:
            connection.close()
    assert asyncio.run(work()).transactions == []


def test_calls_of_psycopg2_that_begin_or_end_a_transaction(profiler: SqlProfiler, url: str) -> None:
    """A large object begins one; `reset` and `set_isolation_level` end one, if there is one."""
    with profiler.record("calls") as recording, closing(psycopg2.connect(url)) as connection:
        connection.lobject(0, "wb").close()
        connection.lobject(0, "wb").close()
        connection.commit()
        connection.cursor().execute("select 1")
        connection.reset()
        connection.cursor().execute("select 2")
        connection.set_isolation_level(2)
        connection.set_isolation_level(1)
        connection.cursor().execute("select 3")
        connection.rollback()

    assert [each.transaction for each in recording.statements] == [2, 3, 4]
    assert steps(recording) == [
        *[("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("RESET", 2)],
        *[("BEGIN", 3), ("ROLLBACK", 3), ("BEGIN", 4), ("ROLLBACK", 4)],
    ]


def test_procedures_of_mysql(profiler: SqlProfiler, mysql: Any) -> None:
    """One result of one row and another of two; one that changes nothing and returns nothing."""
    cursor = mysql.cursor()
    cursor.execute("create procedure sums(in a int) begin select a; select a + 1 union select 7; end")
    cursor.execute("create procedure nothing() begin end")
    cursor.execute("create procedure fill() begin insert into item values (1), (2), (3); end")

    with profiler.record("procedures") as recording:
        cursor.callproc("sums", (3,))
        found = [cursor.fetchall()]
        cursor.nextset()
        found.append(cursor.fetchall())
        cursor.callproc("nothing")
        cursor.callproc("fill")

    assert found == [((3,),), ((4,), (7,))]
    assert [(each.sql, each.row_count, each.round_trips) for each in recording.statements] == [
        ("call sums(…)", 3, 2),
        ("call nothing(…)", 0, 1),
        ("call fill(…)", 3, 1),
    ]


def test_autocommit_of_mysql_is_a_step_if_it_is_sent(profiler: SqlProfiler, mysql: Any) -> None:
    """The driver sends a SET only for another value; it ends the transaction."""
    with profiler.record("autocommit") as recording:
        for value in (True, False, False, True):
            mysql.autocommit(value)

    assert steps(recording) == [("AUTOCOMMIT", None), ("AUTOCOMMIT", None)]
    assert recording.round_trips == 2


def test_transactions_of_mysql_that_are_begun_by_hand(profiler: SqlProfiler, mysql: Any) -> None:
    """The BEGIN is a step of the transaction, which has a number."""
    with profiler.record("begin") as recording:
        mysql.begin()
        mysql.cursor().execute("insert into item values (1)")
        mysql.commit()

    assert steps(recording) == [("BEGIN", 1), ("COMMIT", 1)]
    assert [statement.transaction for statement in recording.statements] == [1]


def test_another_database_of_mysql_has_other_rows(profiler: SqlProfiler, mysql: Any, mariadb: MariaDbServer) -> None:
    """A connection that changes its database reads another table by the same name."""
    other = make_url(mariadb.database(f"other_{time.monotonic_ns()}")).database
    cursor = mysql.cursor()
    cursor.execute(f"create table {other}.item (id int)")

    with profiler.record("two databases") as recording:
        cursor.execute("select * from item")
        mysql.select_db(other)
        cursor.execute("select * from item")
        cursor.execute("select * from item")

    assert [statement.repeated for statement in recording.statements] == [False, False, True]


def test_another_user_or_search_path_has_other_rows(profiler: SqlProfiler, url: str) -> None:
    """Two schemas by the options of their connections, with each driver; the second read in one schema is repeated."""
    settings = ("-csearch_path=one", "-csearch_path=two")
    read = "select count(*) from pg_class"

    async def work() -> None:
        for path in ("one", "two"):
            connection = await asyncpg.connect(url, server_settings={"search_path": path})
            await connection.fetch(read)
            await connection.close()

    with profiler.record("psycopg2") as first:
        for options in (*settings, settings[0]):
            with closing(psycopg2.connect(url, options=options)) as connection, connection.cursor() as cursor:
                cursor.execute(read)
    with profiler.record("psycopg") as second:
        for options in (*settings, settings[0]):
            with psycopg.connect(url, options=options) as connection:
                connection.execute(read)
    with profiler.record("asyncpg") as third:
        asyncio.run(work())

    assert [[each.repeated for each in found.statements] for found in (first, second, third)] == [
        [False, False, True],
        [False, False, True],
        [False, False],
    ]


def test_a_text_of_several_statements_is_no_transaction_step(profiler: SqlProfiler, url: str) -> None:
    """Not even if it begins with BEGIN or COMMIT; the last such word tells whether a transaction is open behind it."""
    with psycopg.connect(url, autocommit=True) as connection, profiler.record("several") as recording:
        connection.execute("create table item (id int)")
        connection.execute("begin; insert into item values (1); commit")
        connection.execute("begin; insert into item values (2), (3)")
        connection.execute("select 1")
        connection.execute("commit; select 2")
        connection.execute("select 3")

    numbers = [statement.transaction for statement in recording.statements]
    assert rows(recording)[1:] == [1, 2, 1, 1, 1]
    assert numbers == [None, None, None, 1, 1, None]
    assert steps(recording) == []
    assert not any("still open" in note for note in recording.notes)


def test_what_follows_the_commit_in_a_text_is_another_transaction(profiler: SqlProfiler, url: str) -> None:
    """What the application does before its next statement is not idle time of the one that has ended."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor, profiler.record("x") as recording:
        cursor.execute("create table item (id int); commit")
        cursor.execute("select 1")
        connection.rollback()

    assert [statement.transaction for statement in recording.statements] == [1, 2]
    assert steps(recording)[-1] == ("ROLLBACK", 2)


def test_a_script_of_sqlite_begins_no_transaction(profiler: SqlProfiler, tmp_path: Path) -> None:
    """It ends one that is open, as sqlite3 does; its own BEGIN counts. SQLite's own trace is the witness."""
    trace: list[str] = []
    with closing(sqlite3.connect(tmp_path / "scripts.db")) as connection:
        connection.executescript("create table item (id)")

    with profiler.record("scripts") as recording, closing(sqlite3.connect(tmp_path / "scripts.db")) as connection:
        connection.set_trace_callback(trace.append)
        connection.execute("insert into item values (1)")
        connection.executescript("insert into item values (2); insert into item values (3)")
        connection.execute("insert into item values (4)")
        connection.commit()
        connection.executescript("begin; insert into item values (5)")
        connection.commit()

    sent = [each.strip().rstrip(";").upper() for each in trace]
    assert [each for each in sent if each in ("BEGIN", "COMMIT")] == ["BEGIN", "COMMIT"] * 3
    assert steps(recording) == [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("COMMIT", 2), ("COMMIT", 3)]
    assert not any("still open" in note for note in recording.notes)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has the argument since Python 3.12")
def test_sqlite_in_autocommit_has_the_transactions_of_its_text(profiler: SqlProfiler) -> None:
    """No write begins one, and neither `commit` nor a `with` ends one. SQLite's own trace is the witness."""
    trace: list[str] = []
    with profiler.record("text") as recording, closing(sqlite3.connect(":memory:", autocommit=True)) as connection:  # type: ignore[call-overload]
        connection.set_trace_callback(trace.append)
        connection.execute("create table item (id)")
        connection.execute("insert into item values (1)")
        connection.execute("begin")
        with connection:
            connection.execute("insert into item values (2)")
        connection.commit()
        connection.execute("insert into item values (3)")
        connection.execute("commit")

    assert [each for each in trace if each in ("begin", "commit")] == ["begin", "commit"]
    assert steps(recording) == [("BEGIN", 1), ("COMMIT", 1)]
    assert [each.transaction for each in recording.statements] == [None, None, 1, 1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has the argument since Python 3.12")
def test_sqlite_without_autocommit_is_always_in_a_transaction(profiler: SqlProfiler) -> None:
    """A read is in one, too, and a script ends none."""
    with profiler.record("always") as recording, closing(sqlite3.connect(":memory:", autocommit=False)) as connection:  # type: ignore[call-overload]
        connection.execute("select 1").fetchall()
        connection.executescript("create table item (id)")
        with connection:
            connection.execute("insert into item values (1)")
        connection.execute("select 2").fetchall()
        connection.rollback()

    assert steps(recording) == [("BEGIN", 1), ("COMMIT", 1), ("BEGIN", 2), ("ROLLBACK", 2), ("ROLLBACK", None)]
    assert [each.transaction for each in recording.statements] == [1, 1, 1, 2]


@pytest.mark.parametrize("autocommit", [None, *([False, True] * (sys.version_info >= (3, 12)))])
@pytest.mark.parametrize("ends", ["close", "isolation_level", "autocommit"])
def test_transactions_of_sqlite_that_a_close_or_a_switch_ends(
    profiler: SqlProfiler, autocommit: bool | None, ends: str
) -> None:
    """SQLite's own trace is the witness: a COMMIT or ROLLBACK is recorded if sqlite3 sends one, and only then."""
    if ends == "autocommit" and sys.version_info < (3, 12):
        pytest.skip("sqlite3 has the attribute since Python 3.12")
    trace: list[str] = []
    given = {} if autocommit is None else {"autocommit": autocommit}
    connection = sqlite3.connect(":memory:", **given)  # type: ignore[call-overload]
    connection.execute("create table item (id)")
    connection.commit()
    with profiler.record("ends") as recording:
        connection.set_trace_callback(trace.append)
        connection.execute("insert into item values (1)")
        if ends == "close":
            connection.close()
        else:
            setattr(connection, ends, None if ends == "isolation_level" else True)
            connection.execute("select 1").fetchall()
        sent = [each for each in trace if each in ("COMMIT", "ROLLBACK")]
        is_open = ends != "close" and connection.in_transaction
    connection.close()

    assert [name for name, _ in steps(recording) if name != "BEGIN"] == sent
    assert any("still open" in note for note in recording.notes) == is_open


def test_a_call_on_a_closed_connection_of_sqlite_is_the_applications_error(profiler: SqlProfiler) -> None:
    """No hook fails when it asks such a connection for its transaction."""
    connection = sqlite3.connect(":memory:")
    cursor = connection.cursor()
    connection.close()
    calls: list[Callable[[], object]] = [
        connection.commit,
        connection.rollback,
        lambda: connection.__exit__(None, None, None),
        lambda: cursor.execute("insert into item values (1)"),
        lambda: cursor.executescript("select 1"),
    ]

    with profiler.record("closed") as recording:
        for call in calls:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                call()
        connection.close()

    assert recording.failed_hooks == ()


def test_timed_classes_have_the_name_of_what_they_time(profiler: SqlProfiler, url: str) -> None:
    """Drivers show the name of a connection's class in their log."""
    with psycopg.connect(url) as connection, connection.cursor("named") as named:
        names = [type(each).__name__ for each in (connection, connection.cursor(), named)]
        shown = repr(connection)

    assert names == ["TimedConnection", "TimedCursor", "TimedServerCursor"]
    assert "TimedConnection" in shown


def test_statistics_have_a_cursor_of_asyncpg_as_soon_as_its_transaction_ends(profiler: SqlProfiler, url: str) -> None:
    """The connection is still open then, as one of a pool is for hours."""
    profiler.collect_statistics()

    async def work() -> list[tuple[str, int, int | None]]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                cursor = await connection.cursor("select generate_series(1, 9)")
                await cursor.fetch(3)
            return [(each.sql, each.count, each.row_count) for each in profiler.statistics() if "series" in each.sql]
        finally:
            await connection.close()

    assert asyncio.run(work()) == [("select generate_series(?, ?)", 1, 3)]


def test_each_execution_of_a_prepared_statement_has_its_own_line(profiler: SqlProfiler, url: str) -> None:
    """The first one has that of its fetch too, and not that of the preparation."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        prepared = await connection.prepare("select $1::int")
        for number in range(6):
            await prepared.fetchval(number)
        await connection.close()

    with profiler.record("recorded") as recording:
        asyncio.run(work())

    assert len({each.caller for each in recording.statements}) == 1
    assert [each.title for each in recording.findings() if each.kind == "n+1"] == [
        "6 times from one line, with different values"
    ]


def test_statistics_count_what_asyncpg_executes(profiler: SqlProfiler, url: str) -> None:
    """One that is only prepared, as for a COPY of records, is none; a MOVE of a cursor is one of its fetches."""
    profiler.collect_statistics()

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create temporary table item (id int)")
        await connection.prepare("select 1 as never")
        await connection.copy_records_to_table("item", records=[(number,) for number in range(20)])
        prepared = await connection.prepare("select 1 as twice")
        await prepared.fetch()
        await prepared.fetch()
        async with connection.transaction():
            cursor = await connection.cursor("select * from item")
            assert await cursor.forward(4) == 4
            assert len(await cursor.fetch(3)) == 3
        with pytest.raises(asyncpg.UndefinedTableError):
            await connection.fetch("select 1 from nowhere")
        await connection.close()

    with profiler.record("recorded") as recording:
        asyncio.run(work())
    asyncio.run(work())

    counted = {each.sql.strip(): (each.count, each.row_count, each.error_count) for each in profiler.statistics()}
    assert [(each.round_trips, each.row_count) for each in recording.statements if "from item" in each.sql] == [(4, 3)]
    assert counted == {
        "create temporary table item (id int)": (2, None, 0),
        'COPY "item" FROM STDIN (FORMAT binary)': (2, 40, 0),
        "select ? as twice": (4, 4, 0),
        "select * from item": (2, 6, 0),
        "select ? from nowhere": (1, None, 1),
        "COMMIT": (2, None, 0),
    }


def test_a_loop_of_prepared_reads_is_found(profiler: SqlProfiler, url: str) -> None:
    """asyncpg prepares each text before it knows the values: no hook fails, and each read is one of the loop."""

    async def work() -> None:
        connection = await asyncpg.connect(url, statement_cache_size=0)
        for parent in await connection.fetch("select n * 1000 as id from generate_series(1, 9) n"):
            await connection.fetch("select $1::int as child", parent["id"])
        await connection.close()

    with profiler.record("loop") as recording:
        asyncio.run(work())

    loop = next(finding for finding in recording.findings() if finding.kind == "n+1")
    assert (recording.failed_hooks, loop.count) == ((), 9)
