"""Reads that ran again with equal values: as many as there are equal pairs of text and values."""

import asyncio
import random
import sqlite3
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pymysql
import pytest
from psycopg.types.json import Jsonb
from psycopg.types.range import Range
from psycopg2.extensions import AsIs, Binary, register_adapter
from psycopg2.extras import Json, NumericRange
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, create_engine, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import make_url
from sqlalchemy_version import since_2_0

from placebench.profiler import SqlProfiler
from placebench.runtime.mariadb import MariaDbServer

LONG = "a long enough first value, of more than 35 letters"
SEED = 20261126


class Point:
    """A value of the application's own, for which it registers an adapter."""

    def __init__(self, x: int) -> None:
        self.x = x


def repeats(pairs: list[Any]) -> int:
    """How many of them were there before."""
    return len(pairs) - len(set(pairs))


def drawn(makers: list[tuple[str, Callable[[int], Any]]]) -> list[tuple[str, Any]]:
    """Sixty texts with a fresh value each, of a few numbers."""
    chosen = random.Random(SEED)
    return [(sql, make(chosen.randrange(6))) for sql, make in chosen.choices(makers, k=60)]


def test_psycopg2(profiler: SqlProfiler, url: str) -> None:
    """Wrappers of JSON, bytes, literals and ranges, and a class of the application's; compared by mogrify's text."""
    register_adapter(Point, lambda point: AsIs(f"point({point.x}, 0)"))
    makers: list[tuple[str, Callable[[int], Any]]] = [
        ("select %s::jsonb", lambda number: Json({"name": LONG, "k": number})),
        ("select %s::bytea", lambda number: Binary(b"x%d" % number)),
        ("select 0 + %s", lambda number: AsIs(str(number))),
        ("select %s::int4range", lambda number: NumericRange(number, number + 2)),
        ("select %s", Point),
        ("select %s", lambda number: number),
    ]
    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    sent = []

    with profiler.record("law") as recording:
        for sql, value in drawn(makers):
            cursor.execute(sql, (value,))
            sent.append(cursor.mogrify(sql, (value,)))
    connection.close()

    assert sum(each.repeated for each in recording.statements) == repeats(sent)
    assert len(set(sent)) > 20


@pytest.mark.parametrize("prepare", [False, True])
def test_psycopg(profiler: SqlProfiler, url: str, prepare: bool) -> None:
    """Wrappers of JSON and ranges, prepared on the server or not; compared by the text of a client's cursor."""
    makers: list[tuple[str, Callable[[int], Any]]] = [
        ("select %s::jsonb", lambda number: Jsonb({"name": LONG, "k": number})),
        ("select %s::int4range", lambda number: Range(number, number + 2)),
        ("select %(number)s::int", lambda number: {"number": number}),
        ("select %s::int[]", lambda number: [number, number + 1]),
    ]
    sent = []

    with psycopg.connect(url) as connection, profiler.record("law") as recording:
        client = psycopg.ClientCursor(connection)
        for sql, value in drawn(makers):
            values = value if isinstance(value, dict) else (value,)
            connection.execute(sql, values, prepare=prepare).fetchall()
            sent.append(client.mogrify(sql, values))

    assert sum(each.repeated for each in recording.statements) == repeats(sent)


def test_awaited_psycopg(profiler: SqlProfiler, url: str) -> None:
    """Ten different values, then the first one again, also on a server-side cursor."""

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for number in (*range(10), 0):
                await connection.execute("select %s::jsonb", (Jsonb({"name": LONG, "k": number}),))
            for number in (0, 1, 0):
                async with connection.cursor("named") as cursor:
                    await cursor.execute("select %s::jsonb->'k'", (Jsonb({"name": LONG, "k": number}),))

    with profiler.record("awaited") as recording:
        asyncio.run(work())

    assert [each.repeated for each in recording.statements] == [False] * 10 + [True, False, False, True]


@pytest.mark.parametrize("driver", [pytest.param("psycopg2"), pytest.param("psycopg", marks=since_2_0)])
def test_sqlalchemy(profiler: SqlProfiler, url: str, driver: str) -> None:
    """Bytes and JSON, which it wraps for the driver: each of five values twice."""
    engine = create_engine(make_url(url).set(drivername=f"postgresql+{driver}"), future=True)
    table = Table("documents", MetaData(), Column("id", Integer), Column("raw", LargeBinary), Column("doc", JSONB))
    with engine.begin() as connection:
        table.create(connection)

    with engine.connect() as connection, profiler.record("engine") as recording:
        for number in (*range(5), *range(5)):
            connection.execute(select(table.c.id).where(table.c.raw == b"%d" % number)).all()
            connection.execute(select(table.c.id).where(table.c.doc.contains({"name": LONG, "k": number}))).all()
    table.drop(engine)
    engine.dispose()

    assert [each.repeated for each in recording.statements] == [False] * 10 + [True] * 10


def test_a_statement_that_failed_before_it_was_sent_is_no_repetition(profiler: SqlProfiler, url: str) -> None:
    """psycopg2 cannot adapt the value: its cursor still has the statement before."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor()

    with profiler.record("refused") as recording:
        cursor.execute("select %s::jsonb", (Json(1),))
        for value in (object(), Json(1)):
            try:
                cursor.execute("select %s::jsonb", (value,))
            except psycopg2.ProgrammingError:
                continue
    connection.close()

    assert [each.repeated for each in recording.statements] == [False, None, True]


def test_pymysql(profiler: SqlProfiler, mariadb: MariaDbServer) -> None:
    """A value of a class that the driver takes by its text is compared by what was sent."""
    address = make_url(mariadb.database("repeated"))
    connection = pymysql.connect(
        host=address.host,
        port=address.port or 3306,
        user=address.username,
        password=address.password or "",
        database=address.database,
        conv={**pymysql.converters.conversions, Point: lambda point, _: str(point.x)},
    )

    with profiler.record("mysql") as recording, connection.cursor() as cursor:
        for number in (1, 2, 1):
            cursor.execute("select %s", (Point(number),))
    connection.close()

    assert [each.repeated for each in recording.statements] == [False, False, True]


def test_a_value_that_nobody_can_compare_is_not_measured(profiler: SqlProfiler) -> None:
    """sqlite3 adapts a class of the application's in C, and does not tell what it sent."""
    sqlite3.register_adapter(Point, lambda point: point.x)
    connection = sqlite3.connect(":memory:")

    with profiler.record("adapted") as recording:
        for number in (1, 2, 3, 4, 5):
            connection.execute("select ?", (Point(number),)).fetchall()
    connection.close()

    assert {each.repeated for each in recording.statements} == {None}
    assert [(each.kind, "different" in each.title) for each in recording.findings()] == [("n+1", False)]


def test_another_database_has_other_rows(profiler: SqlProfiler, tmp_path: Any) -> None:
    """Three databases in memory and two files are read alike; one file is read by two connections."""
    connections = [sqlite3.connect(name) for name in (*[":memory:"] * 3, tmp_path / "a.db", tmp_path / "b.db")]
    again = sqlite3.connect(str(tmp_path / "a.db"))

    with profiler.record("shards") as recording:
        for connection in (*connections, again):
            connection.execute("select 1").fetchall()
    for connection in (*connections, again):
        connection.close()

    assert [each.repeated for each in recording.statements] == [False] * 5 + [True]


def test_each_engine_compiles_a_statement_once(profiler: SqlProfiler) -> None:
    """Three engines with one statement each are not misses of a cache; one engine with three texts is."""
    engines = [create_engine("sqlite://", future=True) for _ in range(3)]
    table = Table("t", MetaData(), Column("id", Integer))

    with profiler.record("engines") as recording:
        for engine in engines:
            with engine.connect() as connection:
                table.create(connection)
                connection.execute(select(table)).all()
    for engine in engines:
        engine.dispose()

    assert [each.engine for each in recording.statements if each.kind == "read" and each.cache_hit is False] == [
        1,
        2,
        3,
    ]
    assert "statement-cache miss" not in {finding.kind for finding in recording.findings()}


def test_prepared_statements_of_asyncpg(profiler: SqlProfiler, url: str) -> None:
    """What is only prepared is a step; an executemany is compared with nothing; equal values are a duplicate."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create temp table t (i int)")
        await connection.prepare("select 4711 + $1::int")
        await connection.copy_records_to_table("t", records=[(1,), (2,)])
        statement = await connection.prepare("select $1::int")
        for number in (1, 2, 1):
            await statement.fetchval(number)
        await statement.executemany([(5,), (6,)])
        await connection.close()

    with profiler.record("prepared") as recording:
        asyncio.run(work())

    own = [each for each in recording.statements if "pg_catalog" not in each.sql]
    assert [(each.sql.split()[0].lower(), each.repeated) for each in own] == [
        ("create", False),
        ("copy", False),
        *(("select", repeated) for repeated in (False, False, True, None)),
    ]
    assert [each.kind for each in recording.transactions] == ["CONNECT", "PREPARE STATEMENT", "PREPARE STATEMENT"]


def test_a_read_on_another_connection_of_asyncpgs_pool_is_a_duplicate(profiler: SqlProfiler, url: str) -> None:
    """Both are of the same user and database, which the statements name."""

    async def work() -> None:
        pool = asyncpg.create_pool(url, min_size=2, max_size=2)
        async with pool, pool.acquire() as one, pool.acquire() as other:
            await one.fetch("select relname from pg_class")
            await other.fetch("select relname from pg_class")

    with profiler.record("pool") as recording:
        asyncio.run(work())

    assert [each.repeated for each in recording.statements] == [False, True]
    assert {each.database.name for each in recording.statements} == {make_url(url).database}


def test_the_reset_of_asyncpgs_pool_is_a_step(profiler: SqlProfiler, url: str) -> None:
    """Ten equal reads from a pool are ten statements, of which nine are duplicates."""

    async def work() -> None:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            for _ in range(10):
                await pool.fetchval("select count(*) from pg_class where relname = $1", "t")

    with profiler.record("pool") as recording:
        asyncio.run(work())

    assert len(recording.statements) == 10
    assert [step.kind for step in recording.transactions] == ["CONNECT"] + ["RESET"] * 10
    assert [(finding.kind, finding.count) for finding in recording.findings()] == [("duplicate", 9)]


def test_a_page_begins_behind_the_last_row_of_the_one_before(profiler: SqlProfiler, url: str) -> None:
    """Also by two keys of which one grows and one shrinks; the first rows of each of several parents are not pages."""
    rows = "(select g / 50 as a, -g as b from generate_series(1, 199) g) t"
    pages = f"select a, b from {rows} where (a, -b) > (%s, -%s) order by a, -b limit 40"
    parts = f"select b from {rows} where a = %s and b < %s order by b limit 30"

    with psycopg.connect(url) as connection, profiler.record("pages") as recording:
        last = (-1, 0)
        while page := connection.execute(pages, last).fetchall():
            last = page[-1]
        for parent in range(4):
            connection.execute(parts, (parent, 0)).fetchall()

    assert [each.sequel for each in recording.statements] == [None, *["next"] * 5, *[None] * 4]
