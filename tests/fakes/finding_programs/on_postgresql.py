"""Programs with psycopg2, psycopg and asyncpg on PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
from psycopg.types.json import Jsonb
from psycopg2.extensions import AsIs, Binary
from psycopg2.extras import Json

from finding_programs import CLOCK, absent, found

SCHEMA = """
drop schema if exists programs cascade; create schema programs; set search_path to programs;
create table job (id int primary key, state text, document jsonb, content bytea);
insert into job select g, 'new', jsonb_build_object('k', g), g::text::bytea from generate_series(1, 100) g;
create table log (entry text);
create sequence ticket;
create function take_job() returns int language sql volatile as
    $$update programs.job set state = 'taken' where id = (select min(id) from programs.job where state = 'new')
      returning id$$;
"""


class Jobs:
    """The table of jobs, for each of the drivers."""

    def __init__(self, url: str, resources: ExitStack) -> None:
        self.url = url
        self._resources = resources

    def psycopg2(self) -> Any:
        connection = psycopg2.connect(self.url, options="-c search_path=programs")
        self._resources.callback(connection.close)
        return connection

    def psycopg(self, **arguments: Any) -> Any:
        connection = psycopg.connect(self.url, options="-c search_path=programs", **arguments)
        self._resources.callback(connection.close)
        return connection

    def asyncpg(self, work: Callable[[Any], Awaitable[None]]) -> None:
        """Run *work* with a pool of one connection."""

        async def run() -> None:
            settings = {"search_path": "programs"}
            async with asyncpg.create_pool(self.url, min_size=1, max_size=1, server_settings=settings) as pool:
                await work(pool)

        asyncio.run(run())


@contextmanager
def place(url: str) -> Iterator[Jobs]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SCHEMA)
    with ExitStack() as resources:
        yield Jobs(url, resources)


@found("n+1")
def documents_of_psycopg2(jobs: Jobs) -> None:
    cursor = jobs.psycopg2().cursor()
    for number in range(10):
        cursor.execute("select id from job where document = %s", (Json({"k": number}),))


@found("n+1")
def bytes_of_psycopg2(jobs: Jobs) -> None:
    cursor = jobs.psycopg2().cursor()
    for number in range(10):
        cursor.execute("select id from job where content = %s", (Binary(b"%d" % number),))


@found("n+1")
def adapted_values_of_psycopg2(jobs: Jobs) -> None:
    cursor = jobs.psycopg2().cursor()
    for number in range(10):
        cursor.execute("select state from job where id = %s", (AsIs(str(number)),))


@found("n+1")
def documents_of_psycopg(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(10):
        document = Jsonb({"name": "a long name, of more than thirty-five letters", "k": number})
        connection.execute("select id from job where document = %s", (document,)).fetchall()


@found("n+1")
def rows_of_asyncpg(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        for number in range(10):
            await pool.fetchrow("select state from job where id = $1", number)

    jobs.asyncpg(work)


@found("n+1")
def rows_inserted_one_by_one_by_psycopg(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(10):
        connection.execute("insert into log values (%s)", (str(number),))


@absent("n+1")
def rows_of_asyncpgs_executemany(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        await pool.executemany("insert into log values ($1)", [(str(number),) for number in range(100)])

    jobs.asyncpg(work)


@absent("n+1")
def copies_of_a_hundred_rows(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        for _ in range(6):
            await pool.copy_records_to_table("log", records=[(str(number),) for number in range(100)])

    jobs.asyncpg(work)


@absent("n+1")
def a_server_side_cursor(jobs: Jobs) -> None:
    with jobs.psycopg().cursor("jobs") as cursor:
        cursor.execute("select * from job")
        while cursor.fetchmany(10):
            pass


@absent("n+1")
def a_cursor_of_asyncpg(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        async with pool.acquire() as connection, connection.transaction():
            assert len([row async for row in connection.cursor("select * from job", prefetch=5)]) == 100

    jobs.asyncpg(work)


@absent("n+1")
def arrays_of_a_hundred_keys(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for start in range(0, 600, 100):
        keys = list(range(start, start + 100))
        connection.execute("select * from job where id = any(%s)", (keys,)).fetchall()


@absent("n+1")
def a_queue_polled_for_the_next_job(jobs: Jobs) -> None:
    connection = jobs.psycopg(autocommit=True)
    for _ in range(8):
        connection.execute("select id from job where state = 'old' limit 1 for update skip locked").fetchall()
        CLOCK.work(1.0)


@absent("n+1")
def savepoints_of_psycopg(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    with connection.transaction():
        for _ in range(8):
            with connection.transaction():
                pass


@found("duplicate")
def equal_reads_of_asyncpgs_pool(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        for _ in range(4):
            await pool.fetchval("select count(*) from job where state = $1", "new")

    jobs.asyncpg(work)


@found("duplicate")
def equal_documents(jobs: Jobs) -> None:
    cursor = jobs.psycopg2().cursor()
    for _ in range(4):
        cursor.execute("select id from job where document = %s", (Json({"k": 1}),))


@found("duplicate")
def a_read_again_after_a_notification(jobs: Jobs) -> None:
    connection = jobs.psycopg(autocommit=True)
    for _ in range(2):
        connection.execute("select state from job where id = 1").fetchall()
        connection.execute("notify news")


@absent("duplicate")
def tickets_of_a_sequence(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    assert len({connection.execute("select nextval('ticket')").fetchone() for _ in range(6)}) == 6


@absent("duplicate")
def an_advisory_lock_that_is_tried(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(4):
        connection.execute("select pg_try_advisory_lock(1)").fetchall()


@absent("duplicate")
def the_time_of_the_server(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(4):
        connection.execute("select clock_timestamp()").fetchall()


@absent("duplicate")
def random_keys(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(4):
        connection.execute("select gen_random_uuid()").fetchall()


@absent("duplicate")
def a_function_that_takes_a_job(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    assert len({connection.execute("select take_job()").fetchone() for _ in range(4)}) == 4


@absent("duplicate")
def a_set_of_a_function_that_takes_jobs(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    assert len({connection.execute("select job from take_job() as job").fetchone() for _ in range(4)}) == 4


@absent("duplicate")
def what_other_sessions_do(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(4):
        connection.execute("select count(*) from pg_stat_activity").fetchall()


@absent("duplicate")
def a_lock_in_each_transaction(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(3):
        connection.execute("select state from job where id = 1 for update").fetchall()
        connection.commit()


@absent("duplicate")
def one_read_for_each_tenant(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for tenant in ("pg_catalog", "programs", "public"):
        connection.execute(f"set search_path to {tenant}, programs")
        connection.execute("select count(*) from job").fetchall()


@absent("duplicate")
def a_transaction_tried_again_after_a_conflict(jobs: Jobs) -> None:
    connection, other = jobs.psycopg(), jobs.psycopg(autocommit=True)
    connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    for attempt in range(3):
        try:
            connection.execute("select state from job where id = 1").fetchall()
            if attempt < 2:
                other.execute("update job set state = state where id = 1")
            connection.execute("update job set state = 'done' where id = 1")
            connection.commit()
        except psycopg.errors.SerializationFailure:
            connection.rollback()


@absent("duplicate")
def polling_by_psycopg(jobs: Jobs) -> None:
    connection, other = jobs.psycopg(autocommit=True), jobs.psycopg()
    for attempt in range(6):
        if connection.execute("select state from job where id = 1").fetchone() == ("done",):
            break
        CLOCK.work(0.2)
        if attempt == 4:
            other.execute("update job set state = 'done' where id = 1")
            other.commit()


@found("wide rows")
def documents_of_a_list(jobs: Jobs) -> None:
    jobs.psycopg().execute("select id, repeat('x', 5000) as document from job").fetchall()


@absent("wide rows")
def many_columns_of_one_row(jobs: Jobs) -> None:
    jobs.psycopg().execute("select " + ", ".join(f"{number} as column_{number}" for number in range(100))).fetchall()


@absent("wide rows")
def a_count_of_documents(jobs: Jobs) -> None:
    jobs.psycopg().execute("select count(*), max(length(document::text)) from job").fetchall()


@absent("wide rows")
def rows_of_half_a_kilobyte(jobs: Jobs) -> None:
    jobs.psycopg().execute("select id, repeat('x', 500) as line from job").fetchall()


@found("idle in transaction")
def work_in_a_transaction(jobs: Jobs) -> None:
    connection = jobs.psycopg2()
    connection.cursor().execute("select state from job where id = 1")
    CLOCK.work(0.2)
    connection.commit()


@found("idle in transaction")
def a_transaction_that_stays_open(jobs: Jobs) -> None:
    jobs.psycopg().execute("select state from job where id = 1").fetchall()
    CLOCK.work(0.2)


@absent("idle in transaction")
def work_with_autocommit(jobs: Jobs) -> None:
    jobs.psycopg(autocommit=True).execute("select state from job where id = 1").fetchall()
    CLOCK.work(0.2)


@absent("idle in transaction")
def work_before_the_first_statement(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    CLOCK.work(0.2)
    connection.execute("select state from job where id = 1").fetchall()
    connection.commit()


@absent("idle in transaction")
def a_slow_statement(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    connection.execute("select pg_sleep(0.06)").fetchall()
    connection.commit()
