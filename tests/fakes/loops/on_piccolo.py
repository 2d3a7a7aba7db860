"""Loops of Piccolo, whose sqlite works in a thread."""

import os
from typing import Any

from piccolo.columns import ForeignKey, Varchar
from piccolo.engine.sqlite import SQLiteEngine
from piccolo.table import Table

engine = SQLiteEngine(path=os.devnull)


class Manager(Table, db=engine):
    """Whoever has a band."""

    name = Varchar()


class Band(Table, db=engine):
    """A band of a manager."""

    manager = ForeignKey(Manager)


async def prepare(folder: str) -> None:
    """Make ten bands of ten managers."""
    engine.path = f"{folder}/piccolo.db"
    engine.connection_kwargs["database"] = engine.path
    await Manager.create_table()
    await Band.create_table()
    for _ in range(10):
        manager = Manager(name="m")
        await manager.save()
        await Band(manager=manager).save()


async def one() -> None:
    """One object per band."""
    for band in await Band.objects():
        found: Any = await band.get_related(Band.manager)
        assert found.name


async def by_hand() -> None:
    """One object per row, by its key."""
    for band in await Band.select():
        assert await Manager.select().where(Manager.id == band["manager"])


LOOPS = (one, by_hand)
