"""The operations of sqlite3, whose own trace is the witness."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from place import ROWS, Place
from sqlalchemy_operations import insertmanyvalues

ALL = "select id, name from item order by id"


def filled(place: Place, name: str = "one.db", **more: Any) -> Any:
    """A connection to a file with the table, which traces what it runs."""
    file = Path(place.folder, name)
    connection = sqlite3.connect(file, **more)
    connection.executescript("drop table if exists item; create table item (id integer primary key, name text);")
    connection.executemany("insert into item values (?, 'x')", [(1 + n,) for n in range(ROWS)])
    connection.commit()
    place.url = f"sqlite:///{file}"
    traced = place.traced = [] if place.traced is None else place.traced
    connection.set_trace_callback(traced.append)
    return connection


@contextmanager
def connected(place: Place, **more: Any) -> Iterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    with closing(filled(place, **more)) as connection, place.measured():
        yield connection
        connection.commit()


def execute(place: Place) -> int:
    with connected(place) as connection:
        connection.execute("insert into item values (?, ?)", (101, "a"))
        connection.cursor().execute("update item set name = 'b' where id <= 10")
        return 1 + 10 + len(connection.execute("select name from item where id = ?", (1,)).fetchall())


def executemany(place: Place) -> int:
    with connected(place) as connection:
        connection.executemany("insert into item values (?, 'a')", [(100 + n,) for n in range(25)])
        return 25


def iteration(place: Place) -> int:
    with connected(place) as connection:
        return sum(1 for _ in connection.execute(ALL))


def by_next(place: Place) -> int:
    with connected(place) as connection:
        cursor, count = connection.execute(ALL), 0
        while next(cursor, None) is not None:
            count += 1
        return count


def fetches(place: Place) -> int:
    with connected(place) as connection:
        cursor = connection.execute(ALL)
        count = 0 if cursor.fetchone() is None else 1
        return count + len(cursor.fetchmany(10)) + len(cursor.fetchall())


def savepoint(place: Place) -> int:
    with connected(place) as connection:
        connection.execute("savepoint one")
        connection.execute("insert into item values (101, 'a')")
        connection.execute("rollback to savepoint one")
        connection.execute("insert into item values (102, 'a')")
        connection.execute("release savepoint one")
        return 2


def autocommit(place: Place) -> int:
    with connected(place, isolation_level=None) as connection:
        connection.execute("insert into item values (101, 'a')")
        return 1 + len(connection.execute("select id from item where id > 99").fetchall())


def cancelled(place: Place) -> int:
    with connected(place) as connection:
        connection.set_progress_handler(lambda: 1, 1000)
        with suppress(sqlite3.OperationalError):
            connection.execute(
                "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
            ).fetchall()
        connection.set_progress_handler(None, 1000)
        return len(connection.execute("select id from item where id <= 2").fetchall())


def timed_out(place: Place) -> int:
    with closing(filled(place)) as first:
        first.execute("begin immediate")
        with closing(sqlite3.connect(Path(place.folder, "one.db"), timeout=0.01)) as connection:
            assert place.traced is not None
            connection.set_trace_callback(place.traced.append)
            with place.measured():
                with suppress(sqlite3.OperationalError):
                    connection.execute("insert into item values (101, 'a')")
                first.rollback()
                return len(connection.execute("select id from item where id <= 2").fetchall())


def multi_statement(place: Place) -> int:
    with connected(place) as connection:
        connection.executescript("insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a');")
        return 3


def several_databases(place: Place) -> int:
    with closing(filled(place, "two.db")) as second, connected(place) as connection:
        return sum(len(each.execute(ALL).fetchall()) for each in (connection, second))


def engine_insertmanyvalues(place: Place) -> int:
    filled(place).close()
    place.traced = []
    from sqlalchemy import event
    from sqlalchemy.pool import Pool

    def trace(connection: Any, _record: object) -> None:
        assert place.traced is not None
        connection.set_trace_callback(place.traced.append)

    event.listen(Pool, "connect", trace)
    try:
        return insertmanyvalues("sqlite")(place)
    finally:
        event.remove(Pool, "connect", trace)


def job(place: Place) -> int:
    """What each thread, greenlet, task, request or process runs: 31 rows by four statements."""
    with closing(sqlite3.connect(place.url)) as connection:
        assert place.traced is not None
        connection.set_trace_callback(place.traced.append)
        count = len(connection.execute("select id from item where id <= 20").fetchall())
        connection.execute("update item set name = 'b' where id = 41")
        count += sum(1 for _ in connection.execute("select id from item where id <= 10 order by id"))
        connection.commit()
        return count + (0 if connection.execute("select 1").fetchone() is None else 1)


OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "insertmanyvalues": engine_insertmanyvalues,
    "for": iteration,
    "next": by_next,
    "fetchone, fetchmany, fetchall": fetches,
    "savepoint": savepoint,
    "autocommit": autocommit,
    "cancelled": cancelled,
    "timed out": timed_out,
    "multi-statement": multi_statement,
    "several databases": several_databases,
}
