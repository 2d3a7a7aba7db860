"""The operations that drivers have in common, each written once: the class of a driver says how it differs.

An operation is a coroutine. `finish` runs it in an event loop if the driver is awaited; otherwise each call has
returned before it could be awaited, so the coroutine ends in one step, without a loop.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from inspect import isawaitable
from typing import Any

from place import Place, wait_until_running

ALL = "select id, name from item order by id"
FEW = "select id from item where id <= 2"


async def got(value: Any) -> Any:
    """The result of a driver's call, awaited or not."""
    return await value if isawaitable(value) else value


@asynccontextmanager
async def inside(block: Any) -> AsyncIterator[Any]:
    """The block of a driver, awaited or not."""
    if hasattr(block, "__aenter__"):
        async with block as value:
            yield value
    else:
        with block as value:
            yield value


async def iterated(rows: Any) -> int:
    """The number of rows of an iterable, awaited or not."""
    return len([row async for row in rows] if hasattr(rows, "__aiter__") else [*rows])


class Operations:
    """A driver that follows PEP 249, awaited or not; an operation that it does not have is None."""

    awaited = False
    mark = "%s"
    engine = ""
    """The driver's name in SQLAlchemy's URLs."""
    interruption: type[BaseException]
    """The error of a statement that was cancelled or timed out."""

    impossible: dict[str, str] = {}  # noqa: RUF012  nobody changes it
    """Why a way to run cannot be, by its name."""

    def finish(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result of an operation."""
        if self.awaited:
            return asyncio.run(work)
        try:
            work.send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError("a driver that is not awaited has suspended its operation")

    def prepared_settings(self, settings: dict[str, str]) -> dict[str, str]:
        """The settings of a place; those of a database in this process are made here."""
        return settings

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def connected(self, place: Place, database: str = "url", **more: Any) -> AsyncIterator[Any]:
        """A connection that is recorded from here on, until its commit."""
        connection = await self.connect(place, database, **more)
        try:
            with place.measured():
                yield connection
                await self.commit(connection)
        finally:
            await got(connection.close())

    async def commit(self, connection: Any) -> None:
        await got(connection.commit())

    async def run(self, connection: Any, sql: str, *values: Any) -> Any:
        """The cursor of a statement; its values are marked by ? in the text."""
        cursor = await got(connection.cursor())
        await got(cursor.execute(sql.replace("?", self.mark), *([values] if values else [])))
        return cursor

    async def run_many(self, connection: Any, sql: str, values: list[tuple[Any, ...]]) -> None:
        await got((await got(connection.cursor())).executemany(sql.replace("?", self.mark), values))

    async def rows(self, connection: Any, sql: str, *values: Any) -> int:
        """The number of rows of a query."""
        return len(await got((await self.run(connection, sql, *values)).fetchall()))

    async def cursors(self, connection: Any) -> list[Any]:
        """A cursor of each kind that can be iterated."""
        return [await got(connection.cursor())]

    async def job(self, place: Place) -> int:
        """What each thread, greenlet, task, request or process runs: 31 rows by four statements."""
        connection = await self.connect(place)
        count = await self.rows(connection, "select id from item where id <= 20")
        await self.run(connection, "update item set name = 'b' where id = 41")
        count += await iterated(await self.run(connection, "select id from item where id <= 10 order by id"))
        last = await got((await self.run(connection, "select 1")).fetchone())
        await self.commit(connection)
        await got(connection.close())
        return count + (0 if last is None else 1)

    async def execute(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run(connection, "insert into item values (?, ?)", 101, "a")
            await self.run(connection, "update item set name = 'b' where id <= 10")
            return 1 + 10 + await self.rows(connection, "select name from item where id = ?", 1)

    async def executemany(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run_many(connection, "insert into item values (?, ?)", [(100 + n, "a") for n in range(25)])
            return 25

    async def insertmanyvalues(self, place: Place) -> int:
        """Three batches of an INSERT with RETURNING, and a SELECT, through an engine."""
        # Here, because a sub-interpreter cannot import it.
        from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, make_url, select

        item = Table("item", MetaData(), Column("id", Integer, primary_key=True), Column("name", String(9)))
        values = [{"id": 100 + number, "name": "a"} for number in range(90)]
        options = {"insertmanyvalues_page_size": 40}
        url = make_url(place.url).set(drivername=self.engine)
        if self.awaited:
            from sqlalchemy.ext.asyncio import create_async_engine

            engine: Any = create_async_engine(url)
        else:
            engine = create_engine(url)
        connection = await got(engine.connect())
        await got(connection.rollback())
        with place.measured():
            inserted = await got(
                connection.execute(insert(item).returning(item.c.id), values, execution_options=options)
            )
            selected = await got(connection.execute(select(item).where(item.c.id <= 5)))
            count = len(inserted.all()) + len(selected.all())
            await got(connection.commit())
        await got(connection.close())
        await got(engine.dispose())
        return count

    async def iteration(self, place: Place) -> int:
        async with self.connected(place) as connection:
            return await iterated(await self.run(connection, ALL))

    async def by_next(self, place: Place) -> int:
        async with self.connected(place) as connection:
            count = 0
            for cursor in await self.cursors(connection):
                await got(cursor.execute(ALL))
                while await got(anext(cursor, None) if self.awaited else next(cursor, None)) is not None:
                    count += 1
                await got(cursor.close())
            return count

    async def fetches(self, place: Place) -> int:
        async with self.connected(place) as connection:
            cursor = await self.run(connection, ALL)
            count = 0 if await got(cursor.fetchone()) is None else 1
            return count + len(await got(cursor.fetchmany(10))) + len(await got(cursor.fetchall()))

    async def savepoint(self, place: Place) -> int:
        async with self.connected(place) as connection:
            for sql in (
                "savepoint one",
                "insert into item values (101, 'a')",
                "rollback to savepoint one",
                "insert into item values (102, 'a')",
                "release savepoint one",
            ):
                await self.run(connection, sql)
            return 2

    async def set_autocommit(self, connection: Any) -> None:
        """Let each statement be a transaction of its own; nothing is to do if it is so already."""

    async def autocommit(self, place: Place, **more: Any) -> int:
        async with self.connected(place, **more) as connection:
            await self.set_autocommit(connection)
            await self.run(connection, "insert into item values (101, 'a')")
            return 1 + await self.rows(connection, "select id from item where id > 99")

    async def multi_statement(self, place: Place, **more: Any) -> int:
        async with self.connected(place, **more) as connection:
            await self.run(
                connection, "insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a')"
            )
            return 3

    async def several_databases(self, place: Place) -> int:
        second = await self.connect(place, "other")
        async with self.connected(place) as connection:
            queries = [self.rows(each, ALL) for each in (connection, second)]
            counts = await asyncio.gather(*queries) if self.awaited else [await query for query in queries]
            await self.commit(second)
        await got(second.close())
        return sum(counts)


class PostgreSql(Operations):
    """A driver for PostgreSQL."""

    for_a_pooler: dict[str, Any] = {}  # noqa: RUF012  nobody changes it
    """Options of a connection through pgbouncer."""

    async def cursors(self, connection: Any) -> list[Any]:
        named = connection.cursor("named")
        named.itersize = 7
        return [connection.cursor(), named]

    async def server_cursor(self, place: Place) -> int:
        async with self.connected(place) as connection:
            _, cursor = await self.cursors(connection)
            await got(cursor.execute(ALL))
            count = len(await got(cursor.fetchmany(5))) + await iterated(cursor)
            await got(cursor.close())
            return count

    async def two_phase(self, place: Place) -> int:
        async with self.connected(place) as connection:

            async def begin(session: Any, number: int) -> Any:
                identifier = session.xid(1, f"{place.name} {number}", "branch")
                await got(session.tpc_begin(identifier))
                await self.run(session, "insert into item values (?, 'a')", 100 + number)
                return identifier

            await begin(connection, 1)
            await got(connection.tpc_prepare())
            await got(connection.tpc_commit())
            await begin(connection, 2)
            await got(connection.tpc_prepare())
            await got(connection.tpc_rollback())
            await begin(connection, 3)
            await got(connection.tpc_commit())
            for number, end in ((4, connection.tpc_commit), (5, connection.tpc_rollback)):
                second = await self.connect(place)
                identifier = await begin(second, number)
                await got(second.tpc_prepare())
                await got(second.close())
                await got(end(identifier))
            return 5

    async def cancel(self, connection: Any) -> None:
        """Run a statement that is cancelled by the driver's own means, once the server runs it."""
        if self.awaited:
            task = asyncio.create_task(self.run(connection, "select pg_sleep(61)"))
            await asyncio.to_thread(wait_until_running, "pg_sleep(61")
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        else:
            thread = threading.Thread(target=lambda: (wait_until_running("pg_sleep(61"), connection.cancel()))
            thread.start()
            with suppress(self.interruption):
                await self.run(connection, "select pg_sleep(61)")
            thread.join()
        await self.roll_back(connection)

    async def roll_back(self, connection: Any) -> None:
        await got(connection.rollback())

    async def cancelled(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.cancel(connection)
            return await self.rows(connection, FEW)

    async def timed_out(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run(connection, "set statement_timeout = 300")
            await self.commit(connection)
            with suppress(self.interruption):
                await self.run(connection, "select pg_sleep(62)")
            await self.roll_back(connection)
            return await self.rows(connection, FEW)

    async def pgbouncer(self, place: Place) -> int:
        async with self.connected(place, "pooled", **self.for_a_pooler) as connection:
            for number in range(3):
                await self.run(connection, "insert into item values (?, 'a')", 101 + number)
                await self.commit(connection)
            return 3 + await self.rows(connection, ALL)
