"""asyncpg, by SQLAlchemy's adapters of its connections: times, rows, round trips and bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import exc, text
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_connection
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy_version import VERSION, since

from placebench.profiler import Recording, SqlProfiler

# In 1.4 the pool's ping is a prepared statement that leaves its transaction open; then it had none, now one of its own.
HAS_ASYNC_PING = hasattr(AsyncAdapt_asyncpg_connection, "_async_ping")
PING_TRIPS = 3 if VERSION < (2, 0) or HAS_ASYNC_PING else 1
BEGIN_TRIPS = 0 if VERSION < (2, 0) else 1


@pytest.fixture
def engine(database_url: str) -> AsyncEngine:
    """An async engine on an empty database."""
    return create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"), pool_pre_ping=True)


@pytest.fixture
def recorded(profiler: SqlProfiler, engine: AsyncEngine) -> Callable[..., Recording]:
    """A function that records what a coroutine does on a connection that has been used before."""

    async def work(body: Callable[[AsyncEngine], Awaitable[None]]) -> Recording:
        async with engine.connect() as connection:
            await connection.execute(text("select 1"))
        with profiler.record("work", mode="full") as recording:
            await body(engine)
        await engine.dispose()
        return recording

    return lambda body: asyncio.run(work(body))


def steps(recording: Recording) -> list[tuple[str, int | None]]:
    """Each transaction step with its round trips."""
    return [(step.kind, step.round_trips) for step in recording.transactions]


@since(1, 4, 40, reason="another number of round trips or rows")
def test_each_part_of_a_statement_is_measured(recorded: Callable[..., Recording]) -> None:
    """BEGIN, the preparation and the execution; later only the execution; COMMIT has its time, the ping is a step."""

    async def body(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            for _ in range(3):
                await connection.execute(text("select pg_sleep(0.005), repeat('x', 1000)"))

    recording = recorded(body)

    first, *later = recording.statements
    assert [(each.row_count, each.round_trips) for each in recording.statements] == [
        (1, 2 + BEGIN_TRIPS),
        (1, 1),
        (1, 1),
    ]
    assert [first.execute_s >= 0.005, first.fetch_s is None, first.transaction] == [True, True, 1]
    assert [1000 < each.bytes_received < 1200 for each in later] == [True, True]
    assert first.caller.function.endswith("<locals>.body")
    assert steps(recording) == [("PING", PING_TRIPS), ("BEGIN", None), ("COMMIT", 1)]
    assert recording.transactions[2].elapsed_s > 0


@since(1, 4, 40, reason="another number of round trips or rows")
def test_a_streamed_result_is_counted_where_it_asks(recorded: Callable[..., Recording]) -> None:
    """BEGIN, the preparation, the portal, and 8 fetches of 50 and 250 rows by turns; after the last nobody is asked."""

    async def body(engine: AsyncEngine) -> None:
        async with engine.connect() as connection:
            numbers = text("select generate_series(1, 1000)")
            assert len([row async for row in await connection.stream(numbers, execution_options={"yield_per": 300})])

    (statement,) = recorded(body).statements

    assert (statement.row_count, statement.round_trips) == (1000, 2 + BEGIN_TRIPS + 8)
    assert statement.fetch_s > 0


def test_failures_and_rows_one_by_one(recorded: Callable[..., Recording]) -> None:
    """A savepoint, a statement that fails inside of it, and the rest of the transaction."""

    async def body(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            with pytest.raises(exc.ProgrammingError):
                async with connection.begin_nested():
                    await connection.execute(text("select nope"))
            result = await connection.stream(text("select generate_series(1, 60)"))
            rows: AsyncIterator[Any] = result.scalars()
            assert [row async for row in rows] == list(range(1, 61))

    recording = recorded(body)

    assert [(each.error is None, each.row_count) for each in recording.statements] == [(False, None), (True, 60)]
    assert [step.kind for step in recording.transactions] == ["PING", "BEGIN", "SAVEPOINT", "ROLLBACK TO", "COMMIT"]


def test_calls_of_asyncpgs_own_connection_are_recorded(recorded: Callable[..., Recording]) -> None:
    """As the application makes them below SQLAlchemy: a COPY and a read, in the transaction of both."""

    async def body(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(text("create temporary table copied (id int)"))
            own = (await connection.get_raw_connection()).driver_connection
            await own.copy_records_to_table("copied", records=[(number,) for number in range(5)])
            await own.fetch("select id from copied where id < $1", 3)
            await connection.execute(text("select id from copied"))

    recording = recorded(body)

    assert [each.row_count for each in recording.statements] == [0, 5, 3, 5]
    assert {(each.connection, each.transaction) for each in recording.statements} == {(1, 1)}
    assert {each.caller.function.rpartition(".")[2] for each in recording.statements} == {"body"}
    assert recording.statements[-1].bytes_received < 300


def test_it_sends_no_plans_and_says_so(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """In one line; all else is recorded."""

    async def work() -> Recording:
        with profiler.record("plans", mode="plans") as recording:
            async with engine.connect() as connection:
                await connection.execute(text("select 1"))
        await engine.dispose()
        return recording

    recording = asyncio.run(work())

    assert [note[:32] for note in recording.notes if note.startswith("no plans")] == [
        "no plans: only PostgreSQL by psy"
    ]
    assert recording.statement_count == 1
