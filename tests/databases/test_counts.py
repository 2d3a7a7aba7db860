"""Statements and rows as the profiler counts them, against an independent count: pg_stat_statements."""

import asyncio
import io
from collections.abc import Callable

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, select, text
from sqlalchemy.engine import make_url
from sqlalchemy_version import since_2_0

from placebench.profiler import SqlProfiler
from placebench.runtime.postgres import Server

TABLE = Table("item", MetaData(), Column("id", Integer, primary_key=True), Column("name", String(9)))
CREATE = "create table item (id int primary key, name text)"
# Steps of transactions and fetches of server-side cursors are not statements of their own.
COUNTED = text(
    "select sum(calls) filter (where query not ilike 'fetch%'), sum(rows) "
    "from pg_stat_statements join pg_database on pg_database.oid = dbid "
    "where datname = :name and not query ilike any (array['begin%', 'commit%', 'rollback%', 'close%', 'deallocate%'])"
)


def by_psycopg2(url: str) -> None:
    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    cursor.execute(CREATE)
    psycopg2.extras.execute_values(cursor, "insert into item values %s", [(n, "b") for n in range(70)], page_size=20)
    cursor.copy_from(io.StringIO("100\tc\n101\tc\n"), "item")
    cursor.copy_expert("copy item to stdout", io.StringIO())
    cursor.execute("select * from item")
    assert len(cursor.fetchmany(5)) + len(cursor.fetchall()) == 72
    cursor.callproc("generate_series", (1, 3))
    assert len(cursor.fetchall()) == 3
    named = connection.cursor("named")
    named.itersize = 7
    named.execute("select * from item")
    assert len(list(named)) == 72
    named.close()
    connection.close()


def by_psycopg(url: str) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(CREATE)
        for number in range(8):  # from the sixth on it is prepared
            cursor.execute("insert into item values (%s, 'a') returning id", (number,)).fetchone()
        with cursor.copy("copy item from stdin") as copy:
            for number in range(100, 150):
                copy.write_row((number, "c"))
        with cursor.copy("copy item to stdout") as copy:
            assert len(list(copy.rows())) == 58
        assert len(list(cursor.stream("select * from item"))) == 58
        with connection.cursor("named") as named:
            named.execute("select * from item")
            assert len(named.fetchmany(9)) + len(named.fetchall()) == 58


def by_asyncpg(url: str) -> None:
    async def alone(number: int) -> None:
        connection = await asyncpg.connect(url)
        await connection.fetch("select generate_series(1, $1::int)", number)
        await connection.close()

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(CREATE)
        for number in range(20):
            await connection.fetchval("insert into item values ($1, 'a') returning id", number)
        prepared = await connection.prepare("select name from item where id < $1")
        assert len(await prepared.fetch(5)) + len([await prepared.fetchval(1)]) == 6
        async with connection.transaction():
            assert len([row async for row in connection.cursor("select * from item", prefetch=7)]) == 20
        await connection.close()
        await asyncio.gather(*(alone(number) for number in range(1, 4)))

    asyncio.run(work())


def by_sqlalchemy(url: str) -> None:
    engine = create_engine(url, use_native_hstore=False)
    with engine.begin() as connection:
        connection.execute(text(CREATE))
        connection.execute(insert(TABLE).returning(TABLE.c.id), [{"id": n, "name": "a"} for n in range(2500)]).all()
        for number in range(7):
            connection.execute(select(TABLE).where(TABLE.c.id == number)).first()
        streamed = connection.execution_options(yield_per=100).execute(select(TABLE))
        assert sum(1 for _ in streamed) == 2500
    engine.dispose()


@pytest.mark.parametrize("work", [by_psycopg2, by_psycopg, by_asyncpg, pytest.param(by_sqlalchemy, marks=since_2_0)])
def test_postgresql_counts_the_same(server: Server, database_url: str, work: Callable[[str], None]) -> None:
    """Each call and each row, however the driver sends and fetches them."""
    url = make_url(database_url).set(drivername="postgresql")
    engine = create_engine(server.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("create extension if not exists pg_stat_statements"))
        profiler = SqlProfiler.for_drivers()

        with profiler.record("work") as recording:
            work(url.render_as_string(hide_password=False))

        profiler.remove()
        calls, rows = connection.execute(COUNTED, {"name": url.database}).one()
    engine.dispose()
    read = [each for each in recording.statements if not each.sql.startswith("show ")]  # PostgreSQL counts no row of it
    assert (recording.statement_count, sum(each.row_count or 0 for each in read)) == (calls, rows)
