"""psycopg2, and psycopg 3 with and without await."""

import io
import select
from contextlib import suppress
from typing import Any

from operations import PostgreSql, got, inside, iterated
from place import Place


class Psycopg2(PostgreSql):
    engine = "postgresql+psycopg2"

    def __init__(self) -> None:
        import psycopg2.extras

        self.module = psycopg2
        self.interruption = psycopg2.extensions.QueryCanceledError

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        return self.module.connect(getattr(place, database), **more)

    async def set_autocommit(self, connection: Any) -> None:
        connection.autocommit = True

    async def execute_values(self, place: Place) -> int:
        async with self.connected(place) as connection:
            pairs = [(100 + n, "a") for n in range(70)]
            query = "insert into item values %s returning id"
            return len(self.module.extras.execute_values(connection.cursor(), query, pairs, page_size=20, fetch=True))

    async def copy_in(self, place: Place) -> int:
        async with self.connected(place) as connection:
            cursor = connection.cursor()
            cursor.copy_from(io.StringIO("".join(f"{100 + n}\tc\n" for n in range(30))), "item")
            cursor.copy_expert("copy item from stdin", io.StringIO("".join(f"{200 + n}\tc\n" for n in range(20))))
            return 50

    async def copy_out(self, place: Place) -> int:
        async with self.connected(place) as connection:
            one, other, cursor = io.StringIO(), io.StringIO(), connection.cursor()
            cursor.copy_to(one, "item")
            cursor.copy_expert("copy (select id from item where id <= 9) to stdout", other)
            return one.getvalue().count("\n") + other.getvalue().count("\n")

    async def prepared(self, place: Place) -> int:
        async with self.connected(place) as connection:
            await self.run(connection, "prepare named as select id from item where id <= $1")
            return await self.rows(connection, "execute named(3)") + await self.rows(connection, "execute named(4)")

    async def callproc(self, place: Place) -> int:
        async with self.connected(place) as connection:
            cursor = connection.cursor()
            cursor.callproc("generate_series", (1, 3))
            return len(cursor.fetchall())

    async def notify(self, place: Place) -> int:
        async with self.connected(place) as connection:
            connection.autocommit = True
            await self.run(connection, "listen news")
            await self.run(connection, "notify news, 'one'")
            count = await self.rows(connection, "select pg_notify('news', 'two')")
            while len(connection.notifies) < 2:
                select.select([connection], [], [])
                connection.poll()
            return count


class Psycopg(PostgreSql):
    """psycopg 3, whose cursors are iterators since 3.3."""

    engine = "postgresql+psycopg"
    for_a_pooler = {"prepare_threshold": None}  # noqa: RUF012  nobody changes it

    def __init__(self) -> None:
        import psycopg

        self.interruption = psycopg.errors.QueryCanceled
        self.connection_class: Any = psycopg.AsyncConnection if self.awaited else psycopg.Connection
        if not hasattr(psycopg.Cursor, "__next__"):
            self.by_next = None  # type: ignore[assignment]

    async def connect(self, place: Place, database: str = "url", **more: Any) -> Any:
        return await got(self.connection_class.connect(getattr(place, database), **more))

    async def run(self, connection: Any, sql: str, *values: Any) -> Any:
        return await got(connection.execute(sql.replace("?", self.mark), *([values] if values else [])))

    async def set_autocommit(self, connection: Any) -> None:
        await got(connection.set_autocommit(True))

    async def iteration(self, place: Place) -> int:
        async with self.connected(place) as connection:
            cursor = connection.cursor()
            count = await iterated(await got(cursor.execute("select id, name from item order by id")))
            return count + await iterated(cursor.stream("select id from item where id <= 9"))

    async def copy_in(self, place: Place) -> int:
        async with self.connected(place) as connection, inside(connection.cursor()) as cursor:
            async with inside(cursor.copy("copy item from stdin")) as copy:
                for number in range(30):
                    await got(copy.write_row((100 + number, "c")))
            return 30

    async def copy_out(self, place: Place) -> int:
        async with (
            self.connected(place) as connection,
            inside(connection.cursor()) as cursor,
            inside(cursor.copy("copy item to stdout")) as copy,
        ):
            return await iterated(copy.rows())

    async def pipeline(self, place: Place) -> int:
        async with self.connected(place) as connection, inside(connection.pipeline()):
            for number in range(10):
                await self.run(connection, "insert into item values (?, 'a')", 100 + number)
            return 10 + await self.rows(connection, "select id from item where id <= 5")

    async def prepared(self, place: Place) -> int:
        async with self.connected(place) as connection:
            count = 0
            for number in (3, 4, 5):
                query = connection.execute("select id from item where id <= %s", (number,), prepare=True)
                count += len(await got((await got(query)).fetchall()))
            return count

    async def notify(self, place: Place) -> int:
        async with self.connected(place, autocommit=True) as connection:
            await self.run(connection, "listen news")
            await self.run(connection, "notify news, 'one'")
            count = await self.rows(connection, "select pg_notify('news', 'two')")
            assert await iterated(connection.notifies(timeout=60, stop_after=2)) == 2
            return count

    async def savepoint(self, place: Place) -> int:
        async with self.connected(place) as connection:
            count = await self.rows(connection, "select 1")
            with suppress(ZeroDivisionError):
                async with inside(connection.transaction()):
                    await self.run(connection, "insert into item values (101, 'a')")
                    raise ZeroDivisionError
            async with inside(connection.transaction("named")):
                await self.run(connection, "insert into item values (102, 'a')")
            return count + 2

    async def multi_statement(self, place: Place, **more: Any) -> int:
        async with self.connected(place, **more) as connection:
            cursor = await self.run(
                connection,
                "insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a') returning id",
            )
            assert cursor.nextset()
            return 1 + len(await got(cursor.fetchall()))


class AwaitedPsycopg(Psycopg):
    awaited = True
