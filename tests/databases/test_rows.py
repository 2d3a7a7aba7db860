"""Rows of a recording: those that the driver handed out, whatever the driver and the way to fetch them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pymysql
import pymysql.cursors
import pytest
from sqlalchemy.engine import make_url

from placebench.profiler import Recording, SqlProfiler

ROWS = 250
SERIES = f"select i from generate_series(1, {ROWS}) as i"
RECURSIVE = f"with recursive n(i) as (select 1 union all select i + 1 from n where i < {ROWS}) select i from n"


@pytest.fixture
def profiler() -> Iterator[SqlProfiler]:
    """A profiler of all drivers."""
    made = SqlProfiler.for_drivers()
    yield made
    made.remove()


def by_next(cursor: Any) -> int:
    """Rows that came by `next` until there was none."""
    count = 0
    while True:
        try:
            next(cursor)
        except StopIteration:
            return count
        count += 1


def by_turns(cursor: Any) -> int:
    """Rows that came in four ways, one after the other."""
    first = [next(cursor) for _ in range(3)]
    first += [cursor.fetchone(), *cursor.fetchmany(20)]
    for number, row in enumerate(cursor):
        first.append(row)
        if number == 140:
            break
    return len(first) + by_next(cursor)


def by_fetchmany(cursor: Any) -> int:
    """Rows that came in parts of seven."""
    return sum(len(part) for part in iter(lambda: list(cursor.fetchmany(7)), []))


WAYS: dict[str, Callable[[Any], int]] = {
    "for": lambda cursor: sum(1 for _ in cursor),
    "next": by_next,
    "fetchone": lambda cursor: sum(1 for _ in iter(cursor.fetchone, None)),
    "fetchmany": by_fetchmany,
    "fetchall": lambda cursor: len(cursor.fetchall()),
    "in turns": by_turns,
}


@contextmanager
def psycopg2_cursor(url: str, *, name: str | None, factory: Any = None) -> Iterator[Any]:
    """A cursor that has run the statement, on the server if it has a name."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor(name, cursor_factory=factory)
    cursor.itersize = 100
    cursor.execute(SERIES)
    yield cursor
    cursor.close()
    connection.close()


@contextmanager
def psycopg_cursor(url: str, *, name: str) -> Iterator[Any]:
    """A cursor that has run the statement, on the server if it has a name."""
    with psycopg.connect(url) as connection, connection.cursor(name) as cursor:
        if name:
            cursor.itersize = 100
        cursor.execute(SERIES)
        yield cursor


@contextmanager
def sqlite_cursor(_url: str) -> Iterator[Any]:
    """sqlite3 has no count of its own."""
    connection = sqlite3.connect(":memory:")
    yield connection.execute(RECURSIVE)
    connection.close()


CURSORS: dict[str, Callable[[str], Any]] = {
    "psycopg2": lambda url: psycopg2_cursor(url, name=None),
    "psycopg2 named": lambda url: psycopg2_cursor(url, name="named"),
    "psycopg2 dict": lambda url: psycopg2_cursor(url, name=None, factory=psycopg2.extras.RealDictCursor),
    "psycopg2 named tuples": lambda url: psycopg2_cursor(url, name="n", factory=psycopg2.extras.NamedTupleCursor),
    "psycopg": lambda url: psycopg_cursor(url, name=""),
    "psycopg named": lambda url: psycopg_cursor(url, name="named"),
    "sqlite3": sqlite_cursor,
}


def check(recording: Recording, read: int) -> None:
    """All rows were read, and the last statement has them."""
    assert (read, recording.statements[-1].row_count) == (ROWS, ROWS)
    assert recording.failed_hooks == ()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cursor", CURSORS)
def test_rows_are_those_that_the_driver_handed_out(profiler: SqlProfiler, url: str, cursor: str, way: str) -> None:
    """By each way to get them."""
    if "__next__" not in dir(psycopg.Cursor) and cursor.startswith("psycopg") and way in ("next", "in turns"):
        pytest.skip("cursors of psycopg are iterators since 3.3")

    with profiler.record(cursor) as recording, CURSORS[cursor](url) as opened:
        fetched = opened.placebench_pending.fetched_rows or 0
        read = WAYS[way](opened)
        fetched = opened.placebench_pending.fetched_rows - fetched

    assert (fetched, recording.statements[-1].row_count) == (read, read)
    # psycopg2 drops the rest of a page where a fetch comes after an iteration.
    assert read == ROWS or (cursor.startswith("psycopg2 named") and way == "in turns")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["Cursor", "SSCursor", "DictCursor"])
def test_rows_of_pymysql(profiler: SqlProfiler, mariadb: Any, kind: str, way: str) -> None:
    """With rows that are kept and rows that are streamed."""
    address = make_url(mariadb.database(f"rows_{kind}_{way}".replace(" ", "_")))
    connection = pymysql.connect(
        host=address.host,
        port=address.port or 3306,
        user=address.username,
        password=address.password or "",
        database=address.database,
    )

    with profiler.record(kind) as recording, connection.cursor(getattr(pymysql.cursors, kind)) as cursor:
        cursor.execute(RECURSIVE)
        read = WAYS[way](cursor)
    connection.close()

    check(recording, read)


async def by_anext(cursor: Any) -> int:
    """Rows that came by `anext` until there was none."""
    count = 0
    while True:
        try:
            await anext(cursor)
        except StopAsyncIteration:
            return count
        count += 1


async def by_awaited_fetchone(cursor: Any) -> int:
    """Rows that came one by one."""
    count = 0
    while await cursor.fetchone() is not None:
        count += 1
    return count


async def by_async_for(cursor: Any) -> int:
    """Rows that came by iteration, which was broken off and begun again."""
    count = 0
    async for _ in cursor:
        count += 1
        if count == 130:
            break
    async for _ in cursor:
        count += 1
    return count


@pytest.mark.parametrize("name", ["", "named"])
@pytest.mark.parametrize("way", [by_anext, by_awaited_fetchone, by_async_for])
def test_rows_of_awaited_psycopg(profiler: SqlProfiler, url: str, name: str, way: Any) -> None:
    """On the client and on the server."""
    if way is by_anext and not hasattr(psycopg.AsyncCursor, "__anext__"):
        pytest.skip("cursors of psycopg are iterators since 3.3")

    async def work() -> tuple[int, int]:
        async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor(name) as cursor:
            await cursor.execute(SERIES)
            return await way(cursor), cursor.placebench_pending.fetched_rows

    with profiler.record("awaited") as recording:
        read, fetched = asyncio.run(work())

    check(recording, read)
    assert fetched == ROWS


@asynccontextmanager
async def asyncpg_cursor(url: str) -> AsyncIterator[Any]:
    """A connection in a transaction."""
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        yield connection
    await connection.close()


@pytest.mark.parametrize("way", ["for", "fetchrow", "fetch"])
def test_rows_of_asyncpgs_cursors(profiler: SqlProfiler, url: str, way: str) -> None:
    """Prefetched, one by one, and in parts."""

    async def work() -> int:
        async with asyncpg_cursor(url) as connection:
            if way == "for":
                return len([row async for row in connection.cursor(SERIES, prefetch=100)])
            cursor, count = await connection.cursor(SERIES), 0
            while got := await (cursor.fetchrow() if way == "fetchrow" else cursor.fetch(7)):
                count += 1 if way == "fetchrow" else len(got)
            return count

    with profiler.record("portal") as recording:
        read = asyncio.run(work())

    check(recording, read)


def test_rows_that_asyncpg_changes_by_fetch_are_not_known(profiler: SqlProfiler, url: str) -> None:
    """Only `execute` gets their number; those that are returned are counted."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create temp table t (i int); insert into t values (1), (2)")
        await connection.fetch("update t set i = i + $1", 1)
        await connection.execute("update t set i = i + $1", 1)
        await connection.fetch("update t set i = i where i > $1 returning i", 100)
        await connection.fetch("select i from t where i > $1", 100)
        await connection.close()

    with profiler.record("changes") as recording:
        asyncio.run(work())

    assert [each.row_count for each in recording.statements] == [None, None, 2, 0, 0]


@pytest.mark.parametrize("way", ["for", "fetchone", "fetchall"])
def test_rows_of_aiosqlite(profiler: SqlProfiler, way: str) -> None:
    """Whose thread fetches for who awaits it."""

    async def work() -> int:
        async with aiosqlite.connect(":memory:") as connection, connection.execute(RECURSIVE) as cursor:
            if way == "for":
                return len([row async for row in cursor])
            return await by_awaited_fetchone(cursor) if way == "fetchone" else len(list(await cursor.fetchall()))

    with profiler.record("aiosqlite") as recording:
        read = asyncio.run(work())

    check(recording, read)


def test_a_read_of_sqlite_that_is_not_fetched_has_no_rows(profiler: SqlProfiler) -> None:
    """What was not handed out is not a row."""
    connection = sqlite3.connect(":memory:")

    with profiler.record("unfetched") as recording:
        connection.execute(RECURSIVE)
        connection.execute(RECURSIVE).fetchone()
    connection.close()

    assert [each.row_count for each in recording.statements] == [0, 1]
    assert recording.row_count == 1


def test_an_iteration_that_is_not_recorded_is_the_drivers_own(profiler: SqlProfiler) -> None:
    """An idle profiler puts no call of its own between two rows."""
    connection = sqlite3.connect(":memory:")

    cursor = connection.execute(RECURSIVE)

    assert type(iter(cursor)).__name__ == "callable_iterator"
    assert (next(cursor), sum(1 for _ in cursor)) == ((1,), ROWS - 1)
    connection.close()


def test_round_trips_of_next_are_those_of_a_loop(profiler: SqlProfiler, url: str) -> None:
    """Pages of 100 of 250 rows: three, after the statement and what it is described by, before the close."""
    trips = []
    for way in ("for", "next"):
        with psycopg.connect(url) as connection:
            connection.execute("select 1")
            with profiler.record(way) as recording, connection.cursor("named") as cursor:
                cursor.itersize = 100
                cursor.execute(SERIES)
                WAYS[way](cursor)
        trips.append(recording.statements[0].round_trips)

    assert trips == [6, 6]
