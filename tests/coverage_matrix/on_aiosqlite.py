"""The operations of aiosqlite, which runs sqlite3 in a thread of its own; the trace is the witness."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite
from on_sqlite3 import filled
from place import Place, in_a_loop

ALL = "select id, name from item order by id"


@asynccontextmanager
async def connected(place: Place, name: str = "one.db", **more: Any) -> AsyncIterator[Any]:
    """A connection that traces what it runs, recorded from here on until its commit."""
    filled(place, name).close()
    async with aiosqlite.connect(Path(place.folder, name), **more) as connection:
        assert place.traced is not None
        await connection.set_trace_callback(place.traced.append)
        with place.measured():
            yield connection
            await connection.commit()


@in_a_loop
async def execute(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("insert into item values (?, ?)", (101, "a"))
        await connection.execute("update item set name = 'b' where id <= 10")
        return 1 + 10 + len(list(await connection.execute_fetchall("select name from item where id = ?", (1,))))


@in_a_loop
async def executemany(place: Place) -> int:
    async with connected(place) as connection:
        await connection.executemany("insert into item values (?, 'a')", [(100 + n,) for n in range(25)])
        return 25


@in_a_loop
async def iteration(place: Place) -> int:
    async with connected(place) as connection, connection.execute(ALL) as cursor:
        return len([row async for row in cursor])


@in_a_loop
async def fetches(place: Place) -> int:
    async with connected(place) as connection, connection.execute(ALL) as cursor:
        count = 0 if await cursor.fetchone() is None else 1
        return count + len(list(await cursor.fetchmany(10))) + len(list(await cursor.fetchall()))


@in_a_loop
async def savepoint(place: Place) -> int:
    async with connected(place) as connection:
        await connection.execute("savepoint one")
        await connection.execute("insert into item values (101, 'a')")
        await connection.execute("rollback to savepoint one")
        await connection.execute("insert into item values (102, 'a')")
        await connection.execute("release savepoint one")
        return 2


@in_a_loop
async def autocommit(place: Place) -> int:
    async with connected(place, isolation_level=None) as connection:
        await connection.execute("insert into item values (101, 'a')")
        return 1 + len(list(await connection.execute_fetchall("select id from item where id > 99")))


@in_a_loop
async def cancelled(place: Place) -> int:
    async with connected(place) as connection:
        await connection.set_progress_handler(lambda: 1, 1000)
        with suppress(aiosqlite.OperationalError):
            await connection.execute_fetchall(
                "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
            )
        await connection.set_progress_handler(None, 1000)  # type: ignore[arg-type]
        return len(list(await connection.execute_fetchall("select id from item where id <= 2")))


@in_a_loop
async def multi_statement(place: Place) -> int:
    async with connected(place) as connection:
        await connection.executescript("insert into item values (101, 'a'); insert into item values (102, 'a');")
        return 2


async def awaited_job(place: Place) -> int:
    """What each thread, task, request or process runs: 31 rows by four statements."""
    async with aiosqlite.connect(place.url) as connection:
        assert place.traced is not None
        await connection.set_trace_callback(place.traced.append)
        count = len(list(await connection.execute_fetchall("select id from item where id <= 20")))
        await connection.execute("update item set name = 'b' where id = 41")
        async with connection.execute("select id from item where id <= 10 order by id") as cursor:
            count += len([row async for row in cursor])
        await connection.commit()
        async with connection.execute("select 1") as cursor:
            return count + (0 if await cursor.fetchone() is None else 1)


job = in_a_loop(awaited_job)

OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "for": iteration,
    "fetchone, fetchmany, fetchall": fetches,
    "savepoint": savepoint,
    "autocommit": autocommit,
    "cancelled": cancelled,
    "multi-statement": multi_statement,
}
