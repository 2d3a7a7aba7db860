"""Statistics of every statement on PostgreSQL: each driver alone, and below SQLAlchemy."""

import asyncio
from collections.abc import Iterator

import asyncpg
import psycopg
import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from placebench.profiler import SqlProfiler

QUERY = "select * from generate_series(1, 3)"


@pytest.fixture
def counting() -> Iterator[SqlProfiler]:
    """A profiler of all drivers that counts."""
    made = SqlProfiler.for_drivers()
    made.collect_statistics()
    yield made
    made.remove()


def counted(profiler: SqlProfiler) -> dict[str, tuple[int, int | None, int]]:
    """Executions, rows and errors of what this test ran, by text."""
    every = {each.sql: (each.count, each.row_count, each.error_count) for each in profiler.statistics()}
    return {sql: every[sql] for sql in ("select * from generate_series(?, ?)", "select ?/?", "COMMIT") if sql in every}


EXPECTED = {"select * from generate_series(?, ?)": (5, 15, 0), "select ?/?": (1, None, 1), "COMMIT": (1, None, 0)}


@pytest.mark.parametrize("driver", [psycopg2, psycopg])
def test_drivers_with_cursors(counting: SqlProfiler, url: str, driver: object) -> None:
    """psycopg2 and psycopg 3: a fetch, an iteration, a server-side cursor, one without a fetch, and an error."""
    connection = driver.connect(url)
    cursor = connection.cursor()
    for fetch in ("fetchall", "fetchone", "__iter__", None):
        cursor.execute(QUERY)
        if fetch is not None:
            assert list(getattr(cursor, fetch)())
    with connection.cursor("named") as named:
        named.execute(QUERY)
        named.fetchall()
    connection.commit()
    with pytest.raises(driver.Error):
        cursor.execute("select 1/0")
    connection.close()

    del cursor, named
    assert counted(counting) == EXPECTED


def test_asynchronous_drivers(counting: SqlProfiler, url: str) -> None:
    """psycopg 3 and asyncpg, which has no cursors: preparation and execution are one statement."""

    async def with_psycopg() -> None:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            for _ in range(5):
                await (await connection.execute(QUERY)).fetchall()
            await connection.commit()
            with pytest.raises(psycopg.Error):
                await connection.execute("select 1/0")

    async def with_asyncpg() -> None:
        connection = await asyncpg.connect(url)
        for _ in range(5):
            await connection.fetch(QUERY)
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("select 1/0")
        await connection.close()

    asyncio.run(with_psycopg())
    of_psycopg = counted(counting)
    asyncio.run(with_asyncpg())

    assert of_psycopg == {**EXPECTED, "COMMIT": (2, None, 0)}  # the block's end too
    assert counted(counting) == {
        "select * from generate_series(?, ?)": (10, 30, 0),
        "select ?/?": (2, None, 2),
        "COMMIT": (2, None, 0),
    }


def test_drivers_below_sqlalchemy(database_url: str) -> None:
    """Recorded statements count too; those by which the profiler requests plans do not."""
    address = make_url(database_url)
    profiler = SqlProfiler()
    profiler.collect_statistics()

    async def run() -> None:
        engine = create_async_engine(address.set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            for _ in range(4):
                (await connection.execute(text(QUERY))).all()
        await engine.dispose()

    engine = create_engine(address.set(drivername="postgresql+psycopg2"), future=True)
    with engine.connect() as connection:
        for mode in ("plans", "light"):
            with profiler.record("recorded", mode) as recording:
                connection.execute(text(QUERY)).all()
            connection.execute(text(QUERY)).all()
            connection.commit()
    engine.dispose()
    asyncio.run(run())

    every = {each.sql: each for each in profiler.statistics()}
    profiler.remove()
    statistics = every["select * from generate_series(?, ?)"]
    assert (statistics.count, statistics.row_count, statistics.fingerprint) == (
        *(8, 24),
        recording.statements[0].fingerprint,
    )
    assert [sql for sql in every if "auto_explain" in sql.lower()] == []
