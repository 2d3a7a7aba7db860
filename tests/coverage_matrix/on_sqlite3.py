"""sqlite3, and aiosqlite, which runs it in a thread of its own; their trace is the witness."""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

from operations import FEW, Operations, got
from place import ROWS, Place

_NO_GREENLETS = (
    "its threads become greenlets of one thread, and SQLite waits for the lock of one, which cannot run then"
)
_ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"


class Sqlite(Operations):
    mark = "?"
    engine = "sqlite"
    interruption = sqlite3.OperationalError

    def prepared_settings(self, settings: dict[str, str]) -> dict[str, str]:
        made = {"in_process": "yes"}
        for name in ("url", "other"):
            made[name] = str(Path(settings["folder"], f"{name}.db"))
            connection = sqlite3.connect(made[name])
            connection.execute("create table item (id integer primary key, name text)")
            connection.executemany("insert into item values (?, 'x')", [(1 + n,) for n in range(ROWS)])
            connection.commit()
            connection.close()
        return settings | made

    async def open(self, file: str, **more: Any) -> Any:
        return sqlite3.connect(file, **more)

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        assert place.traced is not None
        connection = await self.open(getattr(place, database), **more)
        await got(connection.set_trace_callback(place.traced.append))
        return connection

    async def run(self, connection: Any, sql: str, *values: Any) -> Any:
        return await got(connection.execute(sql, values))

    async def insertmanyvalues(self, place: Place) -> int:
        from sqlalchemy import event
        from sqlalchemy.pool import Pool

        def trace(connection: Any, _record: object) -> None:
            assert place.traced is not None
            if self.awaited:
                connection.run_async(lambda driver: driver.set_trace_callback(place.traced.append))
            else:
                connection.set_trace_callback(place.traced.append)

        event.listen(Pool, "connect", trace)
        place.url = f"sqlite:///{place.url}"
        try:
            return await super().insertmanyvalues(place)
        finally:
            event.remove(Pool, "connect", trace)

    async def autocommit(self, place: Place, **more: Any) -> int:
        return await super().autocommit(place, isolation_level=None, **more)

    async def cancelled(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await got(connection.set_progress_handler(lambda: 1, 1000))
            with suppress(self.interruption):
                await self.rows(connection, _ENDLESS)
            await got(connection.set_progress_handler(None, 1000))
            return await self.rows(connection, FEW)

    async def timed_out(self, place: Place) -> int:
        first = await self.connect(place)
        await self.run(first, "begin immediate")
        async with self.connected(place, timeout=0.01) as connection:
            with suppress(self.interruption):
                await self.run(connection, "insert into item values (101, 'a')")
            await got(first.rollback())
            count = await self.rows(connection, FEW)
        await got(first.close())
        return count

    async def multi_statement(self, place: Place, **more: Any) -> int:
        async with self.connected(place, **more) as connection:
            script = "insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a');"
            await got(connection.executescript(script))
            return 3


class Aiosqlite(Sqlite):
    awaited = True
    engine = "sqlite+aiosqlite"
    impossible = dict.fromkeys(("gevent", "eventlet"), _NO_GREENLETS)
    by_next = None  # type: ignore[assignment]

    async def open(self, file: str, **more: Any) -> Any:
        import aiosqlite

        return await aiosqlite.connect(file, **more)

    async def rows(self, connection: Any, sql: str, *values: Any) -> int:
        return len(list(await connection.execute_fetchall(sql, values)))
