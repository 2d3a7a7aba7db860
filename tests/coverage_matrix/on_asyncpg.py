"""The operations of asyncpg, each in an event loop of its own."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
from place import Place, in_a_loop, wait_until_running
from sqlalchemy_operations import awaited_insertmanyvalues

ALL = "select id, name from item order by id"
PAIRS = [(100 + number, "a") for number in range(25)]


@asynccontextmanager
async def connected(place: Place, url: str = "", **more: Any) -> AsyncIterator[Any]:
    """A connection that is recorded from here on, until its block ends."""
    connection = await asyncpg.connect(url or place.url, **more)
    with place.measured():
        yield connection
    await connection.close()


@in_a_loop
async def execute(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("insert into item values ($1, $2)", 101, "a")
        await connection.execute("update item set name = 'b' where id <= 10")
        return 1 + 10 + len(await connection.fetch("select name from item where id = $1", 1))


@in_a_loop
async def executemany(place: Place) -> int:
    async with connected(place) as connection:
        await connection.executemany("insert into item values ($1, $2)", PAIRS)
        return 25


@in_a_loop
async def server_cursor(place: Place) -> int:
    async with connected(place) as connection, connection.transaction():
        cursor = await connection.cursor(ALL)
        count = len(await cursor.fetch(5)) + len(await cursor.fetch(100))
        return count + len([row async for row in connection.cursor("select id from item where id <= 20", prefetch=7)])


@in_a_loop
async def fetches(place: Place) -> int:
    async with connected(place) as connection:
        count = len(await connection.fetch(ALL))
        count += 0 if await connection.fetchrow("select id, name from item where id = 1") is None else 1
        return count + (0 if await connection.fetchval("select count(*) from item") is None else 1)


@in_a_loop
async def copy_in(place: Place) -> int:
    async with connected(place) as connection:
        await connection.copy_records_to_table("item", records=PAIRS)
        await connection.copy_to_table("item", source=io.BytesIO(b"".join(b"%d\tc\n" % n for n in range(200, 220))))
        return 45


@in_a_loop
async def copy_out(place: Place) -> int:
    async with connected(place) as connection:
        one, other = io.BytesIO(), io.BytesIO()
        await connection.copy_from_table("item", output=one)
        await connection.copy_from_query("select id from item where id <= $1", 9, output=other)
        return one.getvalue().count(b"\n") + other.getvalue().count(b"\n")


@in_a_loop
async def prepared(place: Place) -> int:
    async with connected(place) as connection:
        statement = await connection.prepare("select id from item where id <= $1")
        count = len(await statement.fetch(3)) + len(await statement.fetch(4))
        await connection.prepare("select name from item")
        return count + (0 if await statement.fetchval(1) is None else 1)


@in_a_loop
async def notify(place: Place) -> int:
    async with connected(place) as connection:
        heard: asyncio.Queue[object] = asyncio.Queue()
        await connection.add_listener("news", lambda *arguments: heard.put_nowait(arguments))
        await connection.execute("notify news, 'one'")
        count = len(await connection.fetch("select pg_notify('news', 'two')"))
        for _ in range(2):
            await heard.get()
        return count


@in_a_loop
async def savepoint(place: Place) -> int:
    async with connected(place) as connection, connection.transaction():
        with suppress(ZeroDivisionError):
            async with connection.transaction():
                await connection.execute("insert into item values (101, 'a')")
                raise ZeroDivisionError
        async with connection.transaction():
            await connection.execute("insert into item values (102, 'a')")
        return 2


@in_a_loop
async def two_phase(place: Place) -> int:
    async with connected(place) as connection:
        for number, end in ((1, "commit"), (2, "rollback")):
            await connection.execute("begin")
            await connection.execute("insert into item values ($1, 'a')", 100 + number)
            await connection.execute(f"prepare transaction 'asyncpg {number}'")
            await connection.execute(f"{end} prepared 'asyncpg {number}'")
        return 2


@in_a_loop
async def autocommit(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("insert into item values (101, 'a')")
        return 1 + len(await connection.fetch("select id from item where id > 99"))


@in_a_loop
async def cancelled(place: Place) -> int:
    async with connected(place) as connection:
        task = asyncio.create_task(connection.execute("select pg_sleep(61)"))
        await asyncio.to_thread(wait_until_running, "pg_sleep(61")
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return len(await connection.fetch("select id from item where id <= 2"))


@in_a_loop
async def timed_out(place: Place) -> int:
    async with connected(place) as connection:
        with suppress(TimeoutError):
            await connection.execute("select pg_sleep(62)", timeout=0.05)
        await connection.execute("set statement_timeout = 20")
        with suppress(asyncpg.QueryCanceledError):
            await connection.fetch("select pg_sleep(63)")
        return len(await connection.fetch("select id from item where id <= 2"))


@in_a_loop
async def multi_statement(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a')")
        return 3


@in_a_loop
async def several_databases(place: Place) -> int:
    second = await asyncpg.connect(place.other)
    async with connected(place) as connection:
        found = await asyncio.gather(*(each.fetch(ALL) for each in (connection, second)))
    await second.close()
    return sum(len(each) for each in found)


@in_a_loop
async def pgbouncer(place: Place) -> int:
    async with connected(place, place.pooled, statement_cache_size=0) as connection:
        for number in range(3):
            await connection.execute("insert into item values ($1, 'a')", 101 + number)
        return 3 + len(await connection.fetch(ALL))


@in_a_loop
async def pool(place: Place) -> int:
    async with asyncpg.create_pool(place.url, min_size=2, max_size=2) as connections:
        with place.measured():
            return sum(map(len, await asyncio.gather(*(connections.fetch(ALL) for _ in range(4)))))


async def awaited_job(place: Place) -> int:
    """What each thread, task, request or process runs: 31 rows by four statements."""
    connection = await asyncpg.connect(place.url)
    try:
        count = len(await connection.fetch("select id from item where id <= 20"))
        await connection.execute("update item set name = 'b' where id = 41")
        async with connection.transaction():
            count += len([row async for row in connection.cursor("select id from item where id <= 10 order by id")])
        return count + (0 if await connection.fetchval("select 1") is None else 1)
    finally:
        await connection.close()


job = in_a_loop(awaited_job)

OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "insertmanyvalues": awaited_insertmanyvalues("postgresql+asyncpg"),
    "server cursor": server_cursor,
    "fetchone, fetchmany, fetchall": fetches,
    "COPY in": copy_in,
    "COPY out": copy_out,
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
    "pool": pool,
}
