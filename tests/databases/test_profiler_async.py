"""psycopg 3 under asyncio: times, plans and attribution of requests that run at the same time on one thread."""

import asyncio
from typing import Any

import pytest
from asgi_client import asgi_messages
from sqlalchemy import exc, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy_version import since_2_0

from placebench.profiler import Recording, SqlProfiler

pytestmark = since_2_0


@pytest.fixture
def engine(database_url: str) -> AsyncEngine:
    """An async engine on an empty database; each test disposes of it in its own loop."""
    return create_async_engine(make_url(database_url).set(drivername="postgresql+psycopg"))


def application(engine: AsyncEngine) -> Any:
    """Answers /n with n statements and two pieces, then queries once more in the background."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async with engine.connect() as connection:
            for _ in range(int(scope["path"][1:])):
                await connection.execute(text("select 1"))
                await asyncio.sleep(0)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
            await send({"type": "http.response.body", "body": b"b"})
            await connection.execute(text("select 2"))

    return answer


def test_requests_at_the_same_time_do_not_mix(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """Each has its own statements; what runs after the answer is a recording that it has caused."""
    profiled = profiler.asgi(application(engine))

    async def both() -> list[list[Any]]:
        answers = await asyncio.gather(asgi_messages(profiled, "/2"), asgi_messages(profiled, "/5"))
        await engine.dispose()
        return answers

    answers = asyncio.run(both())

    assert [len(each) for each in answers] == [3, 3]
    seen = {recording.name: recording.statement_count for recording in profiler.recordings}
    after = {"GET /2, after the response": 1, "GET /5, after the response": 1}
    assert seen == {"GET /2": 2, "GET /5": 5, **after}
    assert {recording.cpu_s for recording in profiler.recordings} == {None}
    causes = {each.identifier: each.name for each in profiler.recordings}
    assert {causes[each.cause] for each in profiler.recordings if each.cause} == {"GET /2", "GET /5"}


def test_each_part_of_an_awaited_statement_is_measured(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """Execute, rows, bytes, round trips, the hidden BEGIN, COMMIT, and the application's line above the greenlet."""

    async def work() -> Recording:
        async with engine.connect() as connection:
            await connection.execute(text("select 1"))
        with profiler.record("work") as recording:
            async with engine.begin() as connection:
                await connection.execute(text("select pg_sleep(0.02), repeat('x', 1000) from generate_series(1, 1)"))
        await engine.dispose()
        return recording

    recording = asyncio.run(work())

    (statement,) = recording.statements
    assert (statement.row_count, statement.round_trips, statement.transaction) == (1, 2, 1)
    assert statement.execute_s >= 0.02
    assert 1000 < statement.bytes_received < 1300
    assert statement.caller.function.endswith("<locals>.work")
    assert [(step.kind, step.round_trips) for step in recording.transactions] == [("BEGIN", None), ("COMMIT", 1)]
    assert recording.transactions[1].elapsed_s > 0
    assert recording.overhead_s > 0


def test_a_streamed_result_has_its_fetches_and_its_plan(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """Each FETCH is a round trip; the plan comes at the end."""

    async def work() -> Recording:
        with profiler.record("stream", mode="plans") as recording:
            async with engine.connect() as connection:
                result = await connection.stream(
                    text("select generate_series(1, 1000)"), execution_options={"yield_per": 500}
                )
                assert len([row async for row in result]) == 1000
        await engine.dispose()
        return recording

    (statement,) = asyncio.run(work()).statements

    assert (statement.row_count, statement.plan.shape) == (1000, "ProjectSet (Result)")
    assert statement.round_trips > 4


def test_a_failure_leaves_nothing_behind(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """The statement has its error, the transaction its rollback."""

    async def work() -> Recording:
        with profiler.record("failing") as recording, pytest.raises(exc.ProgrammingError, match="nope"):
            async with engine.begin() as connection:
                await connection.execute(text("select nope"))
        await engine.dispose()
        return recording

    recording = asyncio.run(work())

    assert [each.error for each in recording.statements] == ["UndefinedColumn"]
    assert recording.transactions[-1].kind == "ROLLBACK"


def test_flames_of_two_tasks_stay_apart(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """Each flame is as long as its own task, and holds its own statement alone."""

    async def one(number: int) -> Any:
        with profiler.record(f"{number}", mode="flame", parameters=True) as recording:
            async with engine.connect() as connection:
                await connection.execute(text(f"select {number}, pg_sleep(0.03)"))
        return recording

    async def both() -> list[Any]:
        recordings = await asyncio.gather(one(1), one(2))
        await engine.dispose()
        return recordings

    recordings = asyncio.run(both())

    assert profiler.active
    for recording in recordings:
        length = sum(seconds for _, seconds in recording.session.frame_records)
        tops = [stack[-1].partition("\x00")[0].removeprefix("fetch ") for stack, _ in recording.session.frame_records]
        leaves = {top for top in tops if "pg_sleep" in top}
        assert length == pytest.approx(recording.elapsed_s, rel=0.1)
        assert leaves == {f"select {recording.name}, pg_sleep(0.03)"}


def test_statements_at_the_same_time_leave_python_unknown(profiler: SqlProfiler, engine: AsyncEngine) -> None:
    """1 s of Python beside two statements of 0.05 s together is not 0.9 s; one after the other it is measured."""

    async def sleep() -> None:
        async with engine.connect() as connection:
            await connection.execute(text("select pg_sleep(0.05)"))

    async def work() -> tuple[Recording, Recording]:
        await asyncio.gather(sleep(), sleep())
        with profiler.record("together") as together:
            await asyncio.gather(sleep(), sleep())
            await asyncio.sleep(0.1)
        with profiler.record("in turn") as in_turn:
            await sleep()
            await sleep()
            await asyncio.sleep(0.1)
        await engine.dispose()
        return together, in_turn

    together, in_turn = asyncio.run(work())

    assert (together.overlapping, together.python_s, in_turn.overlapping) == (True, None, False)
    assert in_turn.python_s >= 0.1
