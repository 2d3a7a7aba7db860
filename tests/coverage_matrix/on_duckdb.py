"""DuckDB: the profiler has no hooks for it; the witness is what the program itself knows."""

from typing import Any

import duckdb
from operations import Operations
from place import ROWS, Place


class DuckDb(Operations):
    """DuckDB, each connection with a database of its own in memory."""

    mark = "?"
    impossible = {"sub-interpreters": "it never returns there"}  # noqa: RUF012  nobody changes it
    insertmanyvalues = iteration = by_next = savepoint = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.traces: dict[int, list[str]] = {}

    def prepared_settings(self, settings: dict[str, str]) -> dict[str, str]:
        return settings | {"in_process": "yes"}

    async def connect(self, place: Place, _database: str = "url", **more: Any) -> Any:
        assert place.traced is not None
        connection = duckdb.connect(**more)
        connection.execute(f"create table item as select i as id, 'x' as name from range(1, {ROWS + 1}) as t(i)")
        self.traces[id(connection)] = place.traced
        return connection

    async def commit(self, connection: Any) -> None:
        """Nothing: each statement is a transaction of its own."""

    async def run(self, connection: Any, sql: str, *values: Any) -> Any:
        self.traces[id(connection)] += sql.split(";")
        return connection.execute(sql, values)

    async def run_many(self, connection: Any, sql: str, values: list[tuple[Any, ...]]) -> None:
        self.traces[id(connection)] += [sql] * len(values)
        connection.executemany(sql, values)

    async def job(self, place: Place) -> int:
        """The job, without an iteration: its cursors have none."""
        connection = await self.connect(place)
        count = await self.rows(connection, "select id from item where id <= 30")
        for sql in ("update item set name = 'b' where id = 41", "select 2"):
            await self.run(connection, sql)
        return count + len((await self.run(connection, "select 1")).fetchall())
