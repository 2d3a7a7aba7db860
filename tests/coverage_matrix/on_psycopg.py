"""The operations of psycopg 3, whose cursors are iterators since 3.3."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from place import Place, wait_until_running
from sqlalchemy_operations import insertmanyvalues

ALL = "select id, name from item order by id"


@contextmanager
def connected(place: Place, url: str = "", **more: Any) -> Iterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    with psycopg.connect(url or place.url, **more) as connection, place.measured():
        yield connection
        connection.commit()


def execute(place: Place) -> int:
    with connected(place) as connection:
        connection.execute("insert into item values (%s, %s)", (101, "a"))
        connection.execute("update item set name = 'b' where id <= 10")
        return 1 + 10 + len(connection.execute("select name from item where id = %s", (1,)).fetchall())


def executemany(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.executemany("insert into item values (%s, 'a')", [(100 + n,) for n in range(25)])
        return 25


def server_cursor(place: Place) -> int:
    with connected(place) as connection, connection.cursor("named") as cursor:
        cursor.itersize = 7
        cursor.execute(ALL)
        return len(cursor.fetchmany(5)) + sum(1 for _ in cursor)


def iteration(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        count = sum(1 for _ in cursor.execute(ALL))
        return count + sum(1 for _ in cursor.stream("select id from item where id <= 9"))


def by_next(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor, connection.cursor("named") as named:
        named.itersize = 7
        count = 0
        for each in (cursor, named):
            each.execute(ALL)
            while next(each, None) is not None:
                count += 1
        return count


def fetches(place: Place) -> int:
    with connected(place) as connection:
        cursor = connection.execute(ALL)
        count = 0 if cursor.fetchone() is None else 1
        return count + len(cursor.fetchmany(10)) + len(cursor.fetchall())


def copy_in(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        with cursor.copy("copy item from stdin") as copy:
            for number in range(30):
                copy.write_row((100 + number, "c"))
        return 30


def copy_out(place: Place) -> int:
    with (
        connected(place) as connection,
        connection.cursor() as cursor,
        cursor.copy("copy item to stdout") as copy,
    ):
        return len(list(copy.rows()))


def pipeline(place: Place) -> int:
    with connected(place) as connection, connection.pipeline():
        for number in range(10):
            connection.execute("insert into item values (%s, 'a')", (100 + number,))
        return 10 + len(connection.execute("select id from item where id <= 5").fetchall())


def prepared(place: Place) -> int:
    with connected(place) as connection:
        query = "select id from item where id <= %s"
        return sum(len(connection.execute(query, (number,), prepare=True).fetchall()) for number in (3, 4, 5))


def notify(place: Place) -> int:
    with connected(place, autocommit=True) as connection:
        connection.execute("listen news")
        connection.execute("notify news, 'one'")
        count = len(connection.execute("select pg_notify('news', 'two')").fetchall())
        assert len(list(connection.notifies(timeout=60, stop_after=2))) == 2
        return count


def savepoint(place: Place) -> int:
    with connected(place) as connection:
        connection.execute("select 1").fetchall()
        try:
            with connection.transaction():
                connection.execute("insert into item values (101, 'a')")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        with connection.transaction("named"):
            connection.execute("insert into item values (102, 'a')")
        return 3


def two_phase(place: Place) -> int:
    with connected(place) as connection:
        for number in (1, 2):
            connection.tpc_begin(connection.xid(1, f"{place.name} {number}", "branch"))
            connection.execute("insert into item values (%s, 'a')", (100 + number,))
            connection.tpc_prepare()
            connection.tpc_commit() if number == 1 else connection.tpc_rollback()
        connection.tpc_begin(connection.xid(1, place.name, "one phase"))
        connection.execute("insert into item values (103, 'a')")
        connection.tpc_commit()
        with psycopg.connect(place.url) as second:
            second.tpc_begin(second.xid(1, place.name, "of another session"))
            second.execute("insert into item values (104, 'a')")
            second.tpc_prepare()
            second.close()
        connection.tpc_commit(connection.xid(1, place.name, "of another session"))
        return 4


def autocommit(place: Place) -> int:
    with connected(place, autocommit=True) as connection:
        connection.execute("insert into item values (101, 'a')")
        return 1 + len(connection.execute("select id from item where id > 99").fetchall())


def cancelled(place: Place) -> int:
    with connected(place) as connection:
        thread = threading.Thread(target=lambda: (wait_until_running("pg_sleep(61"), connection.cancel()))
        thread.start()
        try:
            connection.execute("select pg_sleep(61)")
        except psycopg.errors.QueryCanceled:
            connection.rollback()
        thread.join()
        return len(connection.execute("select id from item where id <= 2").fetchall())


def timed_out(place: Place) -> int:
    with connected(place) as connection:
        connection.execute("set statement_timeout = 20")
        connection.commit()
        try:
            connection.execute("select pg_sleep(62)")
        except psycopg.errors.QueryCanceled:
            connection.rollback()
        return len(connection.execute("select id from item where id <= 2").fetchall())


def multi_statement(place: Place) -> int:
    with connected(place) as connection:
        cursor = connection.execute(
            "insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a') returning id"
        )
        assert cursor.nextset()
        return 1 + len(cursor.fetchall())


def several_databases(place: Place) -> int:
    with psycopg.connect(place.other) as second, connected(place) as connection:
        count = sum(len(each.execute(ALL).fetchall()) for each in (connection, second))
        second.commit()
        return count


def pgbouncer(place: Place) -> int:
    with connected(place, place.pooled, prepare_threshold=None) as connection:
        for number in range(3):
            connection.execute("insert into item values (%s, 'a')", (101 + number,))
            connection.commit()
        return 3 + len(connection.execute(ALL).fetchall())


def job(place: Place) -> int:
    """What each thread, greenlet, task, request or process runs: 31 rows by four statements."""
    with psycopg.connect(place.url) as connection:
        count = len(connection.execute("select id from item where id <= 20").fetchall())
        connection.execute("update item set name = 'b' where id = 41")
        count += sum(1 for _ in connection.execute("select id from item where id <= 10 order by id"))
        return count + (0 if connection.execute("select 1").fetchone() is None else 1)


OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "insertmanyvalues": insertmanyvalues("postgresql+psycopg"),
    "server cursor": server_cursor,
    "for": iteration,
    **({"next": by_next} if hasattr(psycopg.Cursor, "__next__") else {}),
    "fetchone, fetchmany, fetchall": fetches,
    "COPY in": copy_in,
    "COPY out": copy_out,
    "pipeline": pipeline,
    "prepared": prepared,
    "NOTIFY": notify,
    "savepoint": savepoint,
    "two-phase": two_phase,
    "autocommit": autocommit,
    "cancelled": cancelled,
    "timed out": timed_out,
    "multi-statement": multi_statement,
    "several databases": several_databases,
    "pgbouncer": pgbouncer,
}
