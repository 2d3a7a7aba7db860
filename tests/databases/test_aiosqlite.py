"""aiosqlite, by SQLAlchemy's adapters of its connections: times and rows."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy_version import since

from placebench.profiler import SqlProfiler

pytest.importorskip("aiosqlite")


@since(1, 4, 3, reason="its driver aiosqlite")
def test_each_part_of_a_statement_is_measured(tmp_path: Path) -> None:
    """Rows come with the execution, of a streamed result with its fetches; COMMIT has its time."""

    async def work(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(text("create table t (i)"))
            await connection.execute(text("insert into t values (:i)"), [{"i": number} for number in range(3)])
            (await connection.execute(text("select i from t"))).all()
            assert len([row async for row in await connection.stream(text("select i from t"))]) == 3
        await engine.dispose()

    async def recorded() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
        profiler = SqlProfiler(engine)
        with profiler.record("aiosqlite") as recording:
            await work(engine)
        profiler.remove()
        assert [each.row_count for each in recording.statements[1:]] == [3, 3, 3]
        assert [each.fetch_s is not None for each in recording.statements] == [False, False, True, True]
        assert recording.statements[1].caller.function.endswith("work")
        commit = recording.transactions[-1]
        assert (commit.kind, commit.elapsed_s > 0) == ("COMMIT", True)

    asyncio.run(recorded())
