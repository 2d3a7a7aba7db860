"""asyncpg, which does not follow PEP 249: its connections fetch, and cursors live in a transaction."""

import asyncio
import io
import re
from contextlib import suppress
from itertools import count
from typing import Any

import asyncpg
from operations import ALL, FEW, PostgreSql, iterated
from place import Place

PAIRS = [(100 + number, "a") for number in range(25)]


def numbered(sql: str) -> str:
    """The text with $1, $2 … for each ?."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


class Asyncpg(PostgreSql):
    awaited = True
    engine = "postgresql+asyncpg"
    interruption = asyncpg.QueryCanceledError
    for_a_pooler = {"statement_cache_size": 0}  # noqa: RUF012  nobody changes it
    iteration = by_next = None  # type: ignore[assignment]

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        return await asyncpg.connect(getattr(place, database), **more)

    async def commit(self, connection: Any) -> None:
        """Nothing: each statement is a transaction of its own."""

    roll_back = commit

    async def run(self, connection: Any, sql: str, *values: Any) -> Any:
        return await connection.execute(numbered(sql), *values)

    async def run_many(self, connection: Any, sql: str, values: list[tuple[Any, ...]]) -> None:
        await connection.executemany(numbered(sql), values)

    async def rows(self, connection: Any, sql: str, *values: Any) -> int:
        return len(await connection.fetch(numbered(sql), *values))

    async def job(self, place: Place) -> int:
        connection = await self.connect(place)
        count = await self.rows(connection, "select id from item where id <= 20")
        await self.run(connection, "update item set name = 'b' where id = 41")
        async with connection.transaction():
            count += await iterated(connection.cursor("select id from item where id <= 10 order by id"))
        count += 0 if await connection.fetchval("select 1") is None else 1
        await connection.close()
        return count

    async def timed_out(self, place: Place) -> int:
        async with self.connected(place) as connection:
            with suppress(TimeoutError):
                await connection.execute("select pg_sleep(62)", timeout=0.05)
            await self.run(connection, "set statement_timeout = 300")
            with suppress(self.interruption):
                await self.rows(connection, "select pg_sleep(63)")
            return await self.rows(connection, FEW)

    async def server_cursor(self, place: Place) -> int:
        async with self.connected(place) as connection, connection.transaction():
            cursor = await connection.cursor(ALL)
            count = len(await cursor.fetch(5)) + len(await cursor.fetch(100))
            return count + await iterated(connection.cursor("select id from item where id <= 20", prefetch=7))

    async def fetches(self, place: Place) -> int:
        async with self.connected(place) as connection:
            count = len(await connection.fetch(ALL))
            count += 0 if await connection.fetchrow("select id, name from item where id = 1") is None else 1
            return count + (0 if await connection.fetchval("select count(*) from item") is None else 1)

    async def copy_in(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await connection.copy_records_to_table("item", records=PAIRS)
            await connection.copy_to_table("item", source=io.BytesIO(b"".join(b"%d\tc\n" % n for n in range(200, 220))))
            return 45

    async def copy_out(self, place: Place) -> int:
        async with self.connected(place) as connection:
            one, other = io.BytesIO(), io.BytesIO()
            await connection.copy_from_table("item", output=one)
            await connection.copy_from_query("select id from item where id <= $1", 9, output=other)
            return one.getvalue().count(b"\n") + other.getvalue().count(b"\n")

    async def prepared(self, place: Place) -> int:
        async with self.connected(place) as connection:
            statement = await connection.prepare("select id from item where id <= $1")
            count = len(await statement.fetch(3)) + len(await statement.fetch(4))
            await connection.prepare("select name from item")
            return count + (0 if await statement.fetchval(1) is None else 1)

    async def notify(self, place: Place) -> int:
        async with self.connected(place) as connection:
            heard: asyncio.Queue[object] = asyncio.Queue()
            await connection.add_listener("news", lambda *arguments: heard.put_nowait(arguments))
            await connection.execute("notify news, 'one'")
            count = len(await connection.fetch("select pg_notify('news', 'two')"))
            for _ in range(2):
                await heard.get()
            return count

    async def savepoint(self, place: Place) -> int:
        async with self.connected(place) as connection, connection.transaction():
            with suppress(ZeroDivisionError):
                async with connection.transaction():
                    await connection.execute("insert into item values (101, 'a')")
                    raise ZeroDivisionError
            async with connection.transaction():
                await connection.execute("insert into item values (102, 'a')")
            return 2

    async def two_phase(self, place: Place) -> int:
        async with self.connected(place) as connection:
            for number, end in ((1, "commit"), (2, "rollback")):
                await connection.execute("begin")
                await connection.execute("insert into item values ($1, 'a')", 100 + number)
                await connection.execute(f"prepare transaction 'asyncpg {number}'")
                await connection.execute(f"{end} prepared 'asyncpg {number}'")
            return 2

    async def pool(self, place: Place) -> int:
        async with asyncpg.create_pool(place.url, min_size=2, max_size=2) as connections:
            with place.measured():
                return sum(map(len, await asyncio.gather(*(connections.fetch(ALL) for _ in range(4)))))
