"""PyMySQL and asyncmy on MariaDB; the profiler has no hooks for asyncmy, but sees its statements by SQLAlchemy."""

import asyncio
import threading
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from operations import FEW, Operations, got, iterated
from place import Place, interrupt

_ENDLESS = f"select count(*) from item a, item b, item c, {', '.join(f'item d{number}' for number in range(9))}"


class PyMySql(Operations):
    engine = "mysql+pymysql"

    def __init__(self) -> None:
        import pymysql.cursors

        self.module: Any = pymysql
        self.interruption = pymysql.err.OperationalError
        if not hasattr(pymysql.cursors.Cursor, "__next__"):
            self.by_next = None  # type: ignore[assignment]

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        url = urlsplit(getattr(place, database))
        address = {"host": url.hostname, "port": url.port, "user": unquote(url.username or "")}
        address |= {"password": unquote(url.password or ""), "database": url.path.strip("/")}
        return await got(self.module.connect(**address, **more))

    async def server_cursor(self, place: Place) -> int:
        async with self.connected(place) as connection:
            cursor = await got(connection.cursor(self.module.cursors.SSCursor))
            await got(cursor.execute("select id, name from item order by id"))
            count = len(await got(cursor.fetchmany(5))) + await iterated(cursor)
            await got(cursor.close())
            return count

    async def prepared(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run(connection, "prepare named from 'select id from item where id <= 3'")
            return await self.rows(connection, "execute named")

    async def callproc(self, place: Place) -> int:
        first = await self.connect(place)
        await self.run(first, "drop procedure if exists first_ones")
        await self.run(first, "create procedure first_ones() begin select id from item where id <= 3; end")
        await got(first.close())
        async with self.connected(place) as connection:
            cursor = await got(connection.cursor())
            await got(cursor.callproc("first_ones"))
            return len(await got(cursor.fetchall()))

    async def two_phase(self, place: Place) -> int:
        async with self.connected(place) as connection:
            for sql in ("start", "end", "prepare", "commit"):
                await self.run(connection, f"xa {sql} 'one'")
                if sql == "start":
                    await self.run(connection, "insert into item values (101, 'a')")
            return 1

    async def set_autocommit(self, connection: Any) -> None:
        await got(connection.autocommit(True))

    async def cancelled(self, place: Place) -> int:
        async with self.connected(place) as connection:
            if self.awaited:
                cancelling = asyncio.create_task(asyncio.to_thread(interrupt, "from item a, item b, item c"))
            else:
                thread = threading.Thread(target=interrupt, args=("from item a, item b, item c",))
                thread.start()
            with suppress(self.interruption):
                await self.run(connection, _ENDLESS)
            if self.awaited:
                await cancelling
            else:
                thread.join()
            return await self.rows(connection, FEW)

    async def timed_out(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run(connection, "set max_statement_time = 0.3")
            with suppress(self.interruption):
                await self.run(connection, _ENDLESS)
            await self.run(connection, "set max_statement_time = 0")
            return await self.rows(connection, FEW)

    async def multi_statement(self, place: Place, **more: Any) -> int:
        several = 1 << 16  # the client flag MULTI_STATEMENTS
        return await super().multi_statement(place, client_flag=several, **more)


class Asyncmy(PyMySql):
    awaited = True
    engine = "mysql+asyncmy"
    by_next = None  # type: ignore[assignment]

    def __init__(self) -> None:
        import asyncmy.cursors

        self.module = asyncmy
        self.interruption = asyncmy.errors.OperationalError
