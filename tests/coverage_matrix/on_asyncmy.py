"""The operations of asyncmy on MariaDB: the profiler has no hooks for it, but sees its statements by SQLAlchemy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncmy
from place import Place, in_a_loop
from sqlalchemy import make_url
from sqlalchemy_operations import awaited_insertmanyvalues

ALL = "select id, name from item order by id"


@asynccontextmanager
async def connected(place: Place) -> AsyncIterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    made = make_url(place.url)
    address = {"host": made.host, "port": made.port, "user": made.username, "password": made.password}
    async with asyncmy.connect(**address, database=made.database) as connection:
        with place.measured():
            yield connection
            await connection.commit()


@in_a_loop
async def execute(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        await cursor.execute("insert into item values (%s, %s)", (101, "a"))
        await cursor.execute("select name from item where id <= %s", (10,))
        return 1 + len(await cursor.fetchall())


@in_a_loop
async def executemany(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        await cursor.executemany("insert into item values (%s, 'a')", [(100 + n,) for n in range(25)])
        return 25


@in_a_loop
async def fetches(place: Place) -> int:
    async with connected(place) as connection, connection.cursor() as cursor:
        await cursor.execute(ALL)
        count = 0 if await cursor.fetchone() is None else 1
        return count + len(await cursor.fetchmany(10)) + len(await cursor.fetchall())


OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "insertmanyvalues": awaited_insertmanyvalues("mysql+asyncmy"),
    "fetchone, fetchmany, fetchall": fetches,
}
