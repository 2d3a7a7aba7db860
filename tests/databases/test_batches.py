"""Chunks, pipelines and texts of several statements: no false N+1, and rows that are right or not measured."""

import asyncio
from contextlib import closing

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
from sqlalchemy import ForeignKey, create_engine, delete, insert, select, update
from sqlalchemy.pool import StaticPool
from sqlalchemy_version import since_2_0

from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.analysis.budget import Budget


def findings(recording: Recording) -> list[str]:
    """The kinds of its findings."""
    return [finding.kind for finding in recording.findings()]


@since_2_0
def test_chunks_of_sqlalchemy(profiler: SqlProfiler) -> None:
    """SelectIN loading of 500, inserts, updates, deletes and IN lists of 100 at a time; a lazy load of 60 is found."""
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        items: Mapped[list["Item"]] = relationship()

    class Item(Base):
        __tablename__ = "item"
        id: Mapped[int] = mapped_column(primary_key=True)
        order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))

    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    chunks = [range(start, start + 100) for start in range(0, 3000, 100)]

    with profiler.record("chunks") as recording, Session(engine) as session:
        for chunk in chunks:
            session.execute(insert(Order), [{"id": number} for number in chunk])
        for chunk in chunks:
            counts = {number: 60 if 1000 <= number < 1010 else 6 for number in chunk}
            session.execute(insert(Item), [{"order_id": number} for number in chunk for _ in range(counts[number])])
        for chunk in chunks:
            session.execute(update(Item).where(Item.order_id.in_(chunk)).values(order_id=Item.order_id))
        for chunk in chunks:
            assert len(session.scalars(select(Order.id).where(Order.id.in_(chunk))).all()) == 100
        assert sum(len(order.items) for order in session.scalars(select(Order).options(selectinload(Order.items)))) > 0
        for chunk in chunks[:10]:
            session.execute(delete(Item).where(Item.order_id.in_(chunk)))
        session.commit()
    with profiler.record("loop") as loop, Session(engine) as session:
        for order in session.scalars(select(Order).limit(1010)).all()[1000:]:
            assert len(order.items) == 60
    engine.dispose()

    assert "n+1" not in findings(recording)
    assert [(each.kind, each.count) for each in loop.findings() if each.kind == "n+1"] == [("n+1", 10)]


def test_chunks_of_drivers(profiler: SqlProfiler, url: str) -> None:
    """COPY, executemany and arrays of asyncpg, 100 at a time; rows that asyncpg does not count are no sum of rows."""

    async def work() -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create temp table t (i int)")
        for start in range(0, 600, 100):
            await connection.copy_records_to_table("t", records=[(start + number,) for number in range(100)])
        for start in range(0, 600, 100):
            await connection.fetch("select i from t where i = any($1::int[])", list(range(start, start + 100)))
        with profiler.record("counted") as counted:
            await connection.fetch("select i from t limit 5")
        assert counted.row_count == 5
        for start in range(0, 600, 100):
            await connection.executemany("insert into t values ($1)", [(start + number,) for number in range(100)])
        await connection.close()

    with profiler.record("asyncpg") as recording:
        asyncio.run(work())

    assert findings(recording) == []
    assert {
        each.value_count for each in recording.statements if each.sql.startswith(("insert", "select i from t w"))
    } == {100}
    assert recording.row_count is None
    assert "rows not measured" in str(recording.summary())


def test_several_statements_in_one_text(profiler: SqlProfiler, url: str) -> None:
    """execute_batch sends 250 inserts as three texts: their rows are not known, a note says so, and it is no N+1."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor()
    cursor.execute("create temp table t (i int)")

    with profiler.record("batch") as recording:
        for _ in range(2):
            psycopg2.extras.execute_batch(cursor, "insert into t values (%s)", [(number,) for number in range(250)])
    connection.close()

    assert ({each.row_count for each in recording.statements}, recording.row_count) == ({None}, None)
    assert "6 texts with several statements: each is counted as one statement" in recording.notes
    assert findings(recording) == []


def test_rows_of_several_reads_in_one_text(profiler: SqlProfiler, url: str) -> None:
    """psycopg2 hands out the last result only: what the others returned is not known, so the sum is not either."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor, profiler.record("x") as recording:
        cursor.execute("select 1; select 2")
        cursor.fetchall()
        cursor.execute("select 3")

    assert [each.row_count for each in recording.statements] == [None, 1]
    assert recording.row_count is None
    assert any("the rows of 1 statement are not measured" in note for note in recording.notes)


def test_rows_of_all_results_of_psycopg(profiler: SqlProfiler, url: str) -> None:
    """It keeps the result of each statement in a text, and counts the rows of an executemany."""
    with psycopg.connect(url) as connection, profiler.record("results") as recording:
        connection.execute("create temp table t (i int)")
        connection.execute("insert into t values (1), (2); insert into t values (3); select * from t")
        connection.cursor().executemany("insert into t values (%s)", [(4,), (5,)])

    assert [each.row_count for each in recording.statements] == [None, 6, 2]


async def in_pipeline(url: str) -> None:
    """Twenty inserts in a pipeline, awaited, and a read."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("create temp table t (i int primary key)")
        async with connection.pipeline():
            for number in range(20):
                await connection.execute("insert into t values (%s)", (number,))
        await (await connection.execute("select * from t limit 5")).fetchall()


@pytest.mark.parametrize("awaited", [False, True])
def test_rows_of_a_pipeline(profiler: SqlProfiler, url: str, awaited: bool) -> None:
    """They come after the execute: one of each insert, and five of the read behind."""
    with profiler.record("pipeline") as recording:
        if awaited:
            asyncio.run(in_pipeline(url))
        else:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("create temp table t (i int primary key)")
                with connection.pipeline(), connection.cursor() as cursor:
                    for number in range(20):
                        cursor.execute("insert into t values (%s)", (number,))
                connection.execute("select * from t limit 5").fetchall()

    assert [each.row_count for each in recording.statements] == [None, *[1] * 20, 5]
    assert recording.row_count == 25


@pytest.mark.parametrize("limit", [0, 2, 100])
def test_round_trips_of_a_pipeline_are_in_no_sum(profiler: SqlProfiler, url: str, limit: int) -> None:
    """Its fetch waits for all that was sent before: no statement of it has a figure, nor the whole, nor a gate."""
    with (
        psycopg.connect(url) as connection,
        profiler.record("pipeline", max_statements=limit) as recording,
    ):
        connection.execute("select 0")
        with connection.pipeline():
            connection.execute("select 1")
            assert connection.execute("select 2").fetchone() == (2,)
            connection.cursor().executemany("select %s", [(3,), (4,)])
            with connection.transaction():
                connection.execute("select 5")
            connection.commit()
        connection.rollback()

    read = type(recording).from_json(recording.to_json())
    shown = str(recording.summary())
    assert [each.round_trips for each in recording.statements] == [2, None, None, None, None][:limit]
    assert (recording.round_trips, read.round_trips, read.summary().round_trips) == (None, None, None)
    assert "round trips not measured" in shown
    assert "round trips not measured" in Budget.at_most(round_trips=100).broken_by(recording)


def insert_in_pipeline(connection: psycopg.Connection, *numbers: int) -> None:
    """One statement each."""
    with connection.pipeline():
        for number in numbers:
            connection.execute("insert into t values (%s)", (number,))


def test_an_error_in_a_pipeline_is_that_of_its_statement(profiler: SqlProfiler, url: str) -> None:
    """Psycopg raises it at a later statement, which did not run."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create temp table t (i int primary key); insert into t values (1)")
        with profiler.record("error") as recording:
            with pytest.raises(psycopg.errors.UniqueViolation):
                insert_in_pipeline(connection, 2, 1, 3)
            connection.execute("select 1")

    assert [each.error for each in recording.statements] == [None, "UniqueViolation", "PipelineAborted", None]


@pytest.mark.parametrize("between", ["notify news", "create temp table other (i int)", "analyze t", "lock table t"])
def test_what_writes_no_row_hides_no_duplicate(profiler: SqlProfiler, url: str, between: str) -> None:
    """Between two equal reads of what is known to be a table; an insert into the table does."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor()

    with profiler.record("between") as recording:
        cursor.execute("create temp table t (i int)")
        for statement in ("select i from t", between, "select i from t", "insert into t values (1)", "select i from t"):
            cursor.execute(statement)
    connection.close()

    assert [each.repeated for each in recording.statements] == [False, False, False, True, False, False]


def test_one_row_of_many_columns_is_not_wide(profiler: SqlProfiler, url: str) -> None:
    """A response holds the names of its columns too, which are no data; five rows of 10 kB are."""
    connection = psycopg2.connect(url)
    cursor = connection.cursor()

    with profiler.record("columns") as columns:
        for _ in range(3):
            cursor.execute("select " + ", ".join(f"1 as column_number_{number}" for number in range(100)))
    with profiler.record("wide") as wide:
        cursor.execute("select repeat('x', 10000) from generate_series(1, 5)")
    connection.close()

    assert ("wide rows" in findings(columns), findings(wide)) == (False, ["wide rows"])
