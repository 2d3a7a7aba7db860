"""Programs with psycopg2, psycopg and asyncpg on PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import psycopg2
from psycopg.types.json import Jsonb
from psycopg2.extensions import AsIs, Binary
from psycopg2.extras import Json

from finding_programs import CLOCK, absent, found

SCHEMA = """
drop schema if exists programs cascade; drop schema if exists tenant cascade;
create schema tenant; create table tenant.job (id int primary key, state text);
create schema programs; set search_path to programs;
create table job (id int primary key, state text, document jsonb, content bytea);
insert into job select g, 'new', jsonb_build_object('k', g), g::text::bytea from generate_series(1, 100) g;
create table log (entry text);
create view new_job as select * from job where state = 'new';
create table node (id int primary key, parent_id int);
insert into node select g, g / 2 from generate_series(1, 100) g;
create sequence ticket;
create table ticket_use (number int unique deferrable initially deferred, seat int);
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
def a_random_sample(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(3):
        connection.execute("select id from job tablesample bernoulli (10)").fetchall()


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


@absent("duplicate")
def a_read_again_after_a_rollback(jobs: Jobs) -> None:
    cursor = (connection := jobs.psycopg2()).cursor()
    cursor.execute("update job set state = 'taken' where id = 1")
    for expected in ("taken", "new"):
        cursor.execute("select state from job where id = 1")
        assert cursor.fetchone() == (expected,)
        connection.rollback()


@absent("duplicate")
def a_read_again_after_the_rollback_of_a_savepoint(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    with connection.transaction():
        for _ in range(2):
            with connection.transaction() as savepoint:
                connection.execute("update job set state = 'taken' where id = 1")
                connection.execute("select state from job where id = 1").fetchall()
                raise psycopg.Rollback(savepoint)
            connection.execute("select state from job where id = 1").fetchall()


@absent("duplicate")
def a_read_again_after_a_rollback_by_its_text(jobs: Jobs) -> None:
    connection = jobs.psycopg(autocommit=True)
    connection.execute("begin")
    for attempt in range(2):
        connection.execute("savepoint attempt")
        connection.execute("insert into log values (%s)", (str(attempt),))
        connection.execute("select count(*) from log").fetchall()
        connection.execute("rollback to savepoint attempt")
        connection.execute("select count(*) from log").fetchall()
    connection.execute("rollback")


@absent("duplicate")
def a_read_again_after_another_connection_committed(jobs: Jobs) -> None:
    connection, other = jobs.psycopg(autocommit=True), jobs.psycopg()
    other.execute("update job set state = 'taken' where id = 1")
    for expected in ("new", "taken"):
        assert connection.execute("select state from job where id = 1").fetchone() == (expected,)
        other.commit()


@absent("duplicate")
def a_read_again_after_a_commit_that_failed(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    connection.execute("insert into ticket_use values (0, 1), (0, 1)")
    for expected in (2, 0):
        assert connection.execute("select count(*) from ticket_use").fetchone() == (expected,)
        with suppress(psycopg.errors.UniqueViolation):
            connection.commit()


@absent("duplicate")
def a_view_of_a_table_that_was_written(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(1, 4):
        assert connection.execute("select count(*) from new_job").fetchone() == (101 - number,)
        connection.execute("update job set state = 'taken' where id = %s", (number,))


@absent("duplicate")
def a_read_after_the_path_of_one_transaction(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for expected in (0, 100):
        if not expected:
            connection.execute("set local search_path to tenant")
        assert connection.execute("select count(*) from job").fetchone() == (expected,)
        connection.commit()


@absent("duplicate")
def a_read_after_the_rollback_of_a_path(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    connection.execute("set search_path = tenant, programs")
    for expected in (0, 100):
        assert connection.execute("select count(*) from job").fetchone() == (expected,)
        connection.rollback()


@absent("duplicate")
def a_connection_for_each_tenant(jobs: Jobs) -> None:
    connections = [jobs.psycopg(autocommit=True) for _ in range(2)]
    connections[0].execute("select set_config('search_path', %s, false)", ("tenant",)).fetchall()
    assert [each.execute("select count(*) from job").fetchone() for each in connections] == [(0,), (100,)]


@absent("n+1")
def one_read_for_each_of_eight_tenants(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(8):
        connection.execute(f"set local search_path to {'tenant, ' * (number % 2)} programs")
        connection.execute("select set_config('app.tenant', %s, true)", (str(number),)).fetchall()
        connection.execute("select count(*) from job where state = %s", ("new",)).fetchall()
        connection.commit()


@absent("n+1")
def keys_in_ranges(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for start in range(1, 101, 10):
        values = (start, start + 10)
        assert len(connection.execute("select * from job where id >= %s and id < %s", values).fetchall()) == 10


@absent("n+1")
def keys_between_bounds(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for start in range(1, 101, 10):
        connection.execute(
            "update job set state = %(state)s where id between %(first)s and %(last)s and state = %(old)s",
            {"state": "done", "first": start, "last": start + 9, "old": "new"},
        )


@found("n+1")
def ranges_counted_one_by_one(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for start in range(1, 101, 10):
        connection.execute("select count(*) from job where id >= %s and id < %s", (start, start + 10)).fetchall()


@found("n+1")
def a_range_of_each_parent(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for parent in range(1, 11):
        values = (parent, 1, 100)
        connection.execute("select id from node where parent_id = %s and id between %s and %s", values).fetchall()


@absent("n+1")
def pages_by_the_last_key_of_psycopg(jobs: Jobs) -> None:
    connection, last = jobs.psycopg(), 0
    while page := connection.execute("select id from job where id > %s order by id limit 15", (last,)).fetchall():
        last = page[-1][0]


@absent("n+1")
def pages_of_what_a_filter_leaves(jobs: Jobs) -> None:
    connection, last = jobs.psycopg(), 0
    while last < 100:
        query = "select * from (select * from job where id > %s order by id limit 10) page where id %% 7 <> 3"
        last = max(row[0] for row in connection.execute(query, (last,)).fetchall())


@found("n+1")
def rows_one_after_the_other_by_the_last_key(jobs: Jobs) -> None:
    connection, last = jobs.psycopg(), 90
    while row := connection.execute("select id from job where id > %s order by id limit 1", (last,)).fetchone():
        last = row[0]


@absent("n+1")
def a_queue_of_jobs(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for _ in range(8):
        row = connection.execute("select id from job where state = 'new' limit 1 for update skip locked").fetchone()
        connection.execute("update job set state = 'done' where id = %s", row)
        connection.commit()


@absent("n+1")
def a_queue_of_jobs_by_its_order(jobs: Jobs) -> None:
    cursor = (connection := jobs.psycopg2()).cursor()
    for _ in range(8):
        cursor.execute("select id from job where state = %s order by id limit 1", ("new",))
        cursor.execute("update job set state = 'done' where id = %s", cursor.fetchone())
        connection.commit()


@absent("n+1")
def a_queue_of_due_jobs(jobs: Jobs) -> None:
    connection = jobs.psycopg(autocommit=True)
    for now in range(8):
        query = "select id from job where state = 'new' and id > %s order by id for update skip locked limit 1"
        row = connection.execute(query, (now - 100,)).fetchone()
        connection.execute("delete from job where id = %s", row)


@absent("n+1")
def jobs_deleted_as_they_are_taken(jobs: Jobs) -> None:
    connection = jobs.psycopg(autocommit=True)
    for worker in range(8):
        query = (
            "delete from job where id = (select id from job where id <> %s order by id for update skip locked limit 1)"
            " returning id"
        )
        assert connection.execute(query, (1000 + worker,)).fetchone()


@absent("n+1")
def jobs_taken_by_an_update(jobs: Jobs) -> None:
    async def work(pool: Any) -> None:
        for _ in range(8):
            await pool.fetchrow(
                "update job set state = 'taken' where id = (select id from job where state = 'new' limit 1)"
                " returning id"
            )

    jobs.asyncpg(work)


@found("n+1")
def rows_deleted_one_by_one_and_returned(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(1, 9):
        connection.execute("delete from job where id = %s returning state", (number,)).fetchall()


@found("n+1")
def accounts_locked_one_by_one(jobs: Jobs) -> None:
    connection = jobs.psycopg()
    for number in range(1, 9):
        connection.execute("select state from job where id = %s for update", (number,)).fetchall()


@found("n+1")
def a_tree_level_by_level(jobs: Jobs) -> None:
    connection, level = jobs.psycopg(), [1]
    while level:
        query = "select id from node where parent_id = any(%s) and id <> 1"
        level = [row[0] for row in connection.execute(query, (level,)).fetchall()]


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
