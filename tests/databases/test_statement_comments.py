"""Comments behind statements: PostgreSQL sees them, and what prepares or caches statements by their text goes on to."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy_version import since_2_0

from placebench.errors import ProfilerError
from placebench.profiler import SqlProfiler
from placebench.profiler.capture.statement_comments import comment_text, set_comment

pytestmark = since_2_0

SEEN = text("select current_query()")
PREPARED = text("select statement from pg_prepared_statements where statement like 'select cast%' order by 1")
NUMBER = text("select cast(:n as integer)")


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(database_url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """An engine of each sync driver."""
    made = create_engine(make_url(database_url).set(drivername=f"postgresql+{request.param}"), pool_size=1)
    yield made
    made.dispose()


@pytest.fixture
def profiler(profiler: SqlProfiler) -> SqlProfiler:
    """It adds comments, once though it was called twice."""
    profiler.comment_statements()
    profiler.comment_statements()
    return profiler


@pytest.mark.usefixtures("profiler")
def test_the_server_sees_route_and_function(engine: Any) -> None:
    """Recorded or not; outside of a block, and for a route that is not known, a statement is as it was."""
    set_comment()  # that of a request which another test has served in this thread
    with engine.connect() as connection:
        plain = connection.execute(SEEN).scalar()
        with SqlProfiler.tagged("/orders/{id}", "list_orders"):
            tagged = connection.execute(SEEN).scalar()
        with SqlProfiler.tagged():
            unknown = connection.execute(SEEN).scalar()

    assert plain == unknown == str(SEEN)
    assert tagged == f"{SEEN} /*controller='list_orders',route='/orders/{{id}}'*/"


def test_a_recording_and_the_statement_cache_do_not_see_them(engine: Any, profiler: SqlProfiler) -> None:
    """One fingerprint and text for both routes, compiled once; a batch of rows is inserted as ever."""
    table = Table("commented", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))
    with engine.begin() as connection:
        table.create(connection)
        with profiler.record("routes") as recording:
            for route in ("/a", "/b"):
                with SqlProfiler.tagged(route):
                    rows = insert(table).returning(table.c.id)
                    connection.execute(rows, [{"name": f"{number}"} for number in range(3)]).all()
        count = connection.execute(text("select count(*) from commented")).scalar()
        table.drop(connection)

    first, second = recording.statements
    assert (first.fingerprint, first.sql) == (second.fingerprint, second.sql)
    assert "/*" not in first.sql
    assert (second.cache_hit, first.batch, count) == (True, 1, 6)


def test_psycopg_prepares_once_for_each_route(database_url: str) -> None:
    """Two prepared statements for 20 executions on two routes: their texts are constant."""
    engine = create_engine(make_url(database_url).set(drivername="postgresql+psycopg"), pool_size=1)
    profiler = SqlProfiler(engine)
    profiler.comment_statements()
    with engine.connect() as connection:
        for number in range(20):
            with SqlProfiler.tagged("/a" if number % 2 else "/b"):
                connection.execute(NUMBER, {"n": number})
        prepared = connection.execute(PREPARED).scalars().all()
    profiler.remove()
    engine.dispose()

    assert [each.partition(" /*")[2] for each in prepared] == ["route='/a'*/", "route='/b'*/"]


def test_asyncpg_prepares_once_for_each_route(database_url: str) -> None:
    """In tasks of their own on one connection: the comment is that of the task."""
    engine = create_async_engine(
        make_url(database_url).set(drivername="postgresql+asyncpg"), pool_size=1, max_overflow=0
    )
    profiler = SqlProfiler(engine)
    profiler.comment_statements()

    async def execute(number: int) -> None:
        with SqlProfiler.tagged("/a" if number % 2 else "/b"):
            async with engine.connect() as connection:
                await connection.execute(NUMBER, {"n": number})

    async def prepared() -> list[str]:
        await asyncio.gather(*map(execute, range(10)))
        async with engine.connect() as connection:
            found = (await connection.execute(PREPARED)).scalars().all()
        await engine.dispose()
        return [each.partition(" /*")[2] for each in found]

    assert asyncio.run(prepared()) == ["route='/a'*/", "route='/b'*/"]
    profiler.remove()


@pytest.mark.usefixtures("profiler")
@pytest.mark.parametrize("hostile", ["*/; drop table t --", "a' /* %s :x ? ; %(y)s", "\n\\*/ü"])
def test_nothing_ends_a_comment_or_is_a_parameter(engine: Any, hostile: str) -> None:
    """A route is the application's, and may hold anything."""
    with engine.connect() as connection, SqlProfiler.tagged(hostile):
        assert connection.execute(NUMBER, {"n": 3}).scalar() == 3
    comment = comment_text(hostile)
    assert (comment.count("*/"), comment.count("/*"), "%" in comment) == (1, 1, False)


def test_a_profiler_of_drivers_alone_says_that_it_adds_none() -> None:
    """The text is the driver's own business there."""
    profiler = SqlProfiler.for_drivers("sqlite3")
    with pytest.raises(ProfilerError):
        profiler.comment_statements()
    profiler.remove()
