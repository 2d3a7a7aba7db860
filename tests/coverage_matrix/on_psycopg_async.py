"""The operations of psycopg 3 that are awaited."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from place import Place, in_a_loop, wait_until_running
from sqlalchemy_operations import awaited_insertmanyvalues

ALL = "select id, name from item order by id"


@asynccontextmanager
async def connected(place: Place, url: str = "", **more: Any) -> AsyncIterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    async with await psycopg.AsyncConnection.connect(url or place.url, **more) as connection:
        with place.measured():
            yield connection
            await connection.commit()


async def rows(connection: Any, *query: Any, **more: Any) -> int:
    """The number of rows of a statement."""
    return len(await (await connection.execute(*query, **more)).fetchall())


@in_a_loop
async def execute(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("insert into item values (%s, %s)", (101, "a"))
        await connection.execute("update item set name = 'b' where id <= 10")
        return 1 + 10 + await rows(connection, "select name from item where id = %s", (1,))


@in_a_loop
async def executemany(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        await cursor.executemany("insert into item values (%s, 'a')", [(100 + n,) for n in range(25)])
        return 25


@in_a_loop
async def server_cursor(place: Place) -> int:
    async with connected(place) as connection, connection.cursor("named") as cursor:
        cursor.itersize = 7
        await cursor.execute(ALL)
        return len(await cursor.fetchmany(5)) + len([row async for row in cursor])


@in_a_loop
async def iteration(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        count = len([row async for row in await cursor.execute(ALL)])
        return count + len([row async for row in cursor.stream("select id from item where id <= 9")])


@in_a_loop
async def by_next(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor, connection.cursor("named") as named:
        named.itersize = 7
        count = 0
        for each in (cursor, named):
            await each.execute(ALL)
            while await anext(each, None) is not None:
                count += 1
        return count


@in_a_loop
async def fetches(place: Place) -> int:
    async with connected(place) as connection:
        cursor = await connection.execute(ALL)
        count = 0 if await cursor.fetchone() is None else 1
        return count + len(await cursor.fetchmany(10)) + len(await cursor.fetchall())


@in_a_loop
async def copy_in(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        async with cursor.copy("copy item from stdin") as copy:
            for number in range(30):
                await copy.write_row((100 + number, "c"))
        return 30


@in_a_loop
async def copy_out(place: Place) -> int:
    async with (
        connected(place) as connection,
        connection.cursor() as cursor,
        cursor.copy("copy item to stdout") as copy,
    ):
        return len([row async for row in copy.rows()])


@in_a_loop
async def pipeline(place: Place) -> int:
    async with connected(place) as connection, connection.pipeline():
        for number in range(10):
            await connection.execute("insert into item values (%s, 'a')", (100 + number,))
        return 10 + await rows(connection, "select id from item where id <= 5")


@in_a_loop
async def prepared(place: Place) -> int:
    async with connected(place) as connection:
        query = "select id from item where id <= %s"
        return sum([await rows(connection, query, (number,), prepare=True) for number in (3, 4, 5)])


@in_a_loop
async def notify(place: Place) -> int:
    async with connected(place, autocommit=True) as connection:
        await connection.execute("listen news")
        await connection.execute("notify news, 'one'")
        count = await rows(connection, "select pg_notify('news', 'two')")
        assert len([each async for each in connection.notifies(timeout=60, stop_after=2)]) == 2
        return count


@in_a_loop
async def savepoint(place: Place) -> int:
    async with connected(place) as connection:
        count = await rows(connection, "select 1")
        with suppress(ZeroDivisionError):
            async with connection.transaction():
                await connection.execute("insert into item values (101, 'a')")
                raise ZeroDivisionError
        async with connection.transaction("named"):
            await connection.execute("insert into item values (102, 'a')")
        return count + 2


@in_a_loop
async def two_phase(place: Place) -> int:
    async with connected(place) as connection:
        for number in (1, 2):
            await connection.tpc_begin(connection.xid(1, f"{place.name} {number}", "branch"))
            await connection.execute("insert into item values (%s, 'a')", (100 + number,))
            await connection.tpc_prepare()
            await (connection.tpc_commit() if number == 1 else connection.tpc_rollback())
        async with await psycopg.AsyncConnection.connect(place.url) as second:
            await second.tpc_begin(second.xid(1, place.name, "of another session"))
            await second.execute("insert into item values (104, 'a')")
            await second.tpc_prepare()
            await second.close()
        await connection.tpc_rollback(connection.xid(1, place.name, "of another session"))
        return 3


@in_a_loop
async def autocommit(place: Place) -> int:
    async with connected(place, autocommit=True) as connection:
        await connection.execute("insert into item values (101, 'a')")
        return 1 + await rows(connection, "select id from item where id > 99")


@in_a_loop
async def cancelled(place: Place) -> int:
    async with connected(place) as connection:
        task = asyncio.create_task(connection.execute("select pg_sleep(61)"))
        await asyncio.to_thread(wait_until_running, "pg_sleep(61")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await connection.rollback()
        return await rows(connection, "select id from item where id <= 2")


@in_a_loop
async def timed_out(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("set statement_timeout = 20")
        await connection.commit()
        with suppress(psycopg.errors.QueryCanceled):
            await connection.execute("select pg_sleep(62)")
        await connection.rollback()
        return await rows(connection, "select id from item where id <= 2")


@in_a_loop
async def multi_statement(place: Place) -> int:
    async with connected(place) as connection:
        cursor = await connection.execute(
            "insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a') returning id"
        )
        assert cursor.nextset()
        return 1 + len(await cursor.fetchall())


@in_a_loop
async def several_databases(place: Place) -> int:
    async with await psycopg.AsyncConnection.connect(place.other) as second, connected(place) as connection:
        counts = await asyncio.gather(*(rows(each, ALL) for each in (connection, second)))
        await second.commit()
        return sum(counts)


@in_a_loop
async def pgbouncer(place: Place) -> int:
    async with connected(place, place.pooled, prepare_threshold=None) as connection:
        for number in range(3):
            await connection.execute("insert into item values (%s, 'a')", (101 + number,))
            await connection.commit()
        return 3 + await rows(connection, ALL)


async def awaited_job(place: Place) -> int:
    """What each thread, task, request or process runs: 31 rows by four statements."""
    async with await psycopg.AsyncConnection.connect(place.url) as connection:
        count = await rows(connection, "select id from item where id <= 20")
        await connection.execute("update item set name = 'b' where id = 41")
        cursor = await connection.execute("select id from item where id <= 10 order by id")
        count += len([row async for row in cursor])
        cursor = await connection.execute("select 1")
        return count + (0 if await cursor.fetchone() is None else 1)


job = in_a_loop(awaited_job)

OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "insertmanyvalues": awaited_insertmanyvalues("postgresql+psycopg"),
    "server cursor": server_cursor,
    "for": iteration,
    **({"next": by_next} if hasattr(psycopg.AsyncCursor, "__anext__") else {}),
    "fetchone, fetchmany, fetchall": fetches,
    "COPY in": copy_in,
    "COPY out": copy_out,
    "pipeline": pipeline,
    "prepared": prepared,
    "NOTIFY": notify,
    "savepoint": savepoint,
    "two-phase": two_phase,
    "autocommit": autocommit,
    "cancelled": cancelled,
    "timed out": timed_out,
    "multi-statement": multi_statement,
    "several databases": several_databases,
    "pgbouncer": pgbouncer,
}
