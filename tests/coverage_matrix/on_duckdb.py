"""The operations of DuckDB: the profiler has no hooks for it; the witness is what the program itself knows."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import duckdb
from place import ROWS, Place

ALL = "select id, name from item order by id"


@contextmanager
def connected(place: Place, *statements: str) -> Iterator[Any]:
    """A connection with the table, recorded from here on; *statements* are those that the block runs."""
    place.traced = []
    with closing(duckdb.connect()) as connection:
        connection.execute(f"create table item as select i as id, 'x' as name from range(1, {ROWS + 1}) as t(i)")
        with place.measured():
            place.traced.extend(statements)
            yield connection


def execute(place: Place) -> int:
    with connected(place, "insert", "select") as connection:
        connection.execute("insert into item values (?, ?)", (101, "a"))
        return 1 + len(connection.execute("select name from item where id <= ?", (10,)).fetchall())


def executemany(place: Place) -> int:
    with connected(place, *["insert"] * 25) as connection:
        connection.executemany("insert into item values (?, 'a')", [(100 + n,) for n in range(25)])
        return 25


def fetches(place: Place) -> int:
    with connected(place, "select") as connection:
        connection.execute(ALL)
        count = 0 if connection.fetchone() is None else 1
        return count + len(connection.fetchmany(10)) + len(connection.fetchall())


OPERATIONS = {"execute": execute, "executemany": executemany, "fetchone, fetchmany, fetchall": fetches}
