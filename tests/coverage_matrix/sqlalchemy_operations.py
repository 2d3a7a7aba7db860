"""The operations that only SQLAlchemy has, on the driver of each column."""

import asyncio
from collections.abc import Callable

from place import Place
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, make_url, select
from sqlalchemy.ext.asyncio import create_async_engine

ITEM = Table("item", MetaData(), Column("id", Integer, primary_key=True), Column("name", String(9)))
WITH_RETURNING = insert(ITEM).returning(ITEM.c.id)
PAIRS = [{"id": 100 + number, "name": "a"} for number in range(90)]
BATCHES = {"insertmanyvalues_page_size": 40}


def insertmanyvalues(driver: str) -> Callable[[Place], int]:
    """Three batches of an INSERT with RETURNING, and a SELECT, through an engine of *driver*."""

    def operation(place: Place) -> int:
        engine = create_engine(make_url(place.url).set(drivername=driver))
        with engine.connect() as connection:
            connection.rollback()
            with place.measured():
                count = len(connection.execute(WITH_RETURNING, PAIRS, execution_options=BATCHES).all())
                count += len(connection.execute(select(ITEM).where(ITEM.c.id <= 5)).all())
                connection.commit()
        engine.dispose()
        return count

    return operation


def awaited_insertmanyvalues(driver: str) -> Callable[[Place], int]:
    """Three batches of an INSERT with RETURNING, and a SELECT, through an async engine of *driver*."""

    async def work(place: Place) -> int:
        engine = create_async_engine(make_url(place.url).set(drivername=driver))
        async with engine.connect() as connection:
            await connection.rollback()
            with place.measured():
                count = len((await connection.execute(WITH_RETURNING, PAIRS, execution_options=BATCHES)).all())
                count += len((await connection.execute(select(ITEM).where(ITEM.c.id <= 5))).all())
                await connection.commit()
        await engine.dispose()
        return count

    return lambda place: asyncio.run(work(place))
