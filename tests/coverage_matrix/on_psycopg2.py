"""The operations of psycopg2."""

import io
import select
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
import psycopg2.extras
from place import Place, wait_until_running
from sqlalchemy_operations import insertmanyvalues

ALL = "select id, name from item order by id"


@contextmanager
def connected(place: Place, url: str = "") -> Iterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    with closing(psycopg2.connect(url or place.url)) as connection, place.measured():
        yield connection
        connection.commit()


def execute(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("insert into item values (%s, %s)", (101, "a"))
        cursor.execute("update item set name = 'b' where id <= 10")
        cursor.execute("select name from item where id = %s", (1,))
        return 1 + 10 + len(cursor.fetchall())


def executemany(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.executemany("insert into item values (%s, 'a')", [(100 + n,) for n in range(25)])
        return 25


def execute_values(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        pairs = [(100 + n, "a") for n in range(70)]
        returned = psycopg2.extras.execute_values(
            cursor, "insert into item values %s returning id", pairs, page_size=20, fetch=True
        )
        return len(returned)


def server_cursor(place: Place) -> int:
    with connected(place) as connection, connection.cursor("named") as cursor:
        cursor.itersize = 7
        cursor.execute(ALL)
        return len(cursor.fetchmany(5)) + sum(1 for _ in cursor)


def iteration(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        return sum(1 for _ in cursor)


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
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        count = 0 if cursor.fetchone() is None else 1
        return count + len(cursor.fetchmany(10)) + len(cursor.fetchall())


def copy_in(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.copy_from(io.StringIO("".join(f"{100 + n}\tc\n" for n in range(30))), "item")
        cursor.copy_expert("copy item from stdin", io.StringIO("".join(f"{200 + n}\tc\n" for n in range(20))))
        return 50


def copy_out(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        one, other = io.StringIO(), io.StringIO()
        cursor.copy_to(one, "item")
        cursor.copy_expert("copy (select id from item where id <= 9) to stdout", other)
        return one.getvalue().count("\n") + other.getvalue().count("\n")


def prepared(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("prepare named as select id from item where id <= $1")
        count = 0
        for number in (3, 4):
            cursor.execute(f"execute named({number})")
            count += len(cursor.fetchall())
        return count


def callproc(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.callproc("generate_series", (1, 3))
        return len(cursor.fetchall())


def notify(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("listen news")
        cursor.execute("notify news, 'one'")
        cursor.execute("select pg_notify('news', 'two')")
        count = len(cursor.fetchall())
        while len(connection.notifies) < 2:
            select.select([connection], [], [])
            connection.poll()
        return count


def savepoint(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("savepoint one")
        cursor.execute("insert into item values (101, 'a')")
        cursor.execute("rollback to savepoint one")
        cursor.execute("insert into item values (102, 'a')")
        cursor.execute("release savepoint one")
        return 2


def two_phase(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        for number in (1, 2):
            connection.tpc_begin(connection.xid(1, f"{place.name} {number}", "branch"))
            cursor.execute("insert into item values (%s, 'a')", (100 + number,))
            connection.tpc_prepare()
            connection.tpc_commit() if number == 1 else connection.tpc_rollback()
        connection.tpc_begin(connection.xid(1, place.name, "one phase"))
        cursor.execute("insert into item values (103, 'a')")
        connection.tpc_commit()
        with closing(psycopg2.connect(place.url)) as second, second.cursor() as other:
            second.tpc_begin(second.xid(1, place.name, "of another session"))
            other.execute("insert into item values (104, 'a')")
            second.tpc_prepare()
        connection.tpc_commit(connection.xid(1, place.name, "of another session"))
        return 4


def autocommit(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("insert into item values (101, 'a')")
        cursor.execute("select id from item where id > 99")
        return 1 + len(cursor.fetchall())


def cancelled(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        thread = threading.Thread(target=lambda: (wait_until_running("pg_sleep(61"), connection.cancel()))
        thread.start()
        try:
            cursor.execute("select pg_sleep(61)")
        except psycopg2.extensions.QueryCanceledError:
            connection.rollback()
        thread.join()
        cursor.execute("select id from item where id <= 2")
        return len(cursor.fetchall())


def timed_out(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("set statement_timeout = 20")
        connection.commit()
        try:
            cursor.execute("select pg_sleep(62)")
        except psycopg2.extensions.QueryCanceledError:
            connection.rollback()
        cursor.execute("select id from item where id <= 2")
        return len(cursor.fetchall())


def multi_statement(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a')")
        return 3


def several_databases(place: Place) -> int:
    with closing(psycopg2.connect(place.other)) as second, connected(place) as connection:
        count = 0
        for each in (connection, second):
            with each.cursor() as cursor:
                cursor.execute(ALL)
                count += len(cursor.fetchall())
        second.commit()
        return count


def pgbouncer(place: Place) -> int:
    with connected(place, place.pooled) as connection, connection.cursor() as cursor:
        for number in range(3):
            cursor.execute("insert into item values (%s, 'a')", (101 + number,))
            connection.commit()
        cursor.execute(ALL)
        return 3 + len(cursor.fetchall())


def job(place: Place) -> int:
    """What each thread, greenlet, task, request or process runs: 31 rows by four statements."""
    with closing(psycopg2.connect(place.url)) as connection, connection.cursor() as cursor:
        cursor.execute("select id from item where id <= 20")
        count = len(cursor.fetchall())
        cursor.execute("update item set name = 'b' where id = 41")
        cursor.execute("select id from item where id <= 10 order by id")
        count += sum(1 for _ in cursor)
        cursor.execute("select 1")
        count += 0 if cursor.fetchone() is None else 1
        connection.commit()
        return count


OPERATIONS = {
    "execute": execute,
    "executemany": executemany,
    "execute_values": execute_values,
    "insertmanyvalues": insertmanyvalues("postgresql+psycopg2"),
    "server cursor": server_cursor,
    "for": iteration,
    "next": by_next,
    "fetchone, fetchmany, fetchall": fetches,
    "COPY in": copy_in,
    "COPY out": copy_out,
    "prepared": prepared,
    "callproc": callproc,
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
