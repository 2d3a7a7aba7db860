"""The operations of PyMySQL on MariaDB."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pymysql
import pymysql.cursors
from place import Place, interrupt
from sqlalchemy import make_url
from sqlalchemy_operations import insertmanyvalues

ALL = "select id, name from item order by id"


def connect(url: str, **more: Any) -> Any:
    """A connection to the database of *url*."""
    made = make_url(url)
    address = {"host": made.host, "port": made.port, "user": made.username, "password": made.password}
    return pymysql.connect(**address, database=made.database, **more)


@contextmanager
def connected(place: Place, **more: Any) -> Iterator[Any]:
    """A connection that is recorded from here on, until its commit."""
    with closing(connect(place.url, **more)) as connection, place.measured():
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


def server_cursor(place: Place) -> int:
    with connected(place, cursorclass=pymysql.cursors.SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        return len(cursor.fetchmany(5)) + sum(1 for _ in cursor)


def iteration(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        return sum(1 for _ in cursor)


def by_next(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        count = 0
        while next(cursor, None) is not None:
            count += 1
        return count


def fetches(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute(ALL)
        count = 0 if cursor.fetchone() is None else 1
        return count + len(cursor.fetchmany(10)) + len(cursor.fetchall())


def prepared(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("prepare named from 'select id from item where id <= 3'")
        cursor.execute("execute named")
        return len(cursor.fetchall())


def callproc(place: Place) -> int:
    with closing(connect(place.url)) as connection, connection.cursor() as cursor:
        cursor.execute("drop procedure if exists first_ones")
        cursor.execute("create procedure first_ones() begin select id from item where id <= 3; end")
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.callproc("first_ones")
        return len(cursor.fetchall())


def savepoint(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("savepoint one")
        cursor.execute("insert into item values (101, 'a')")
        cursor.execute("rollback to savepoint one")
        cursor.execute("insert into item values (102, 'a')")
        cursor.execute("release savepoint one")
        return 2


def two_phase(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("xa start 'one'")
        cursor.execute("insert into item values (101, 'a')")
        cursor.execute("xa end 'one'")
        cursor.execute("xa prepare 'one'")
        cursor.execute("xa commit 'one'")
        return 1


def autocommit(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        connection.autocommit(True)
        cursor.execute("insert into item values (101, 'a')")
        cursor.execute("select id from item where id > 99")
        return 1 + len(cursor.fetchall())


def cancelled(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        thread = threading.Thread(target=interrupt, args=("from item a, item b, item c",))
        thread.start()
        with suppress(pymysql.OperationalError):
            cursor.execute(f"select count(*) from item a, item b, item c, {', '.join(f'item d{n}' for n in range(9))}")
        thread.join()
        cursor.execute("select id from item where id <= 2")
        return len(cursor.fetchall())


def timed_out(place: Place) -> int:
    with connected(place) as connection, connection.cursor() as cursor:
        cursor.execute("set max_statement_time = 0.02")
        with suppress(pymysql.OperationalError):
            cursor.execute(f"select count(*) from item a, item b, item c, {', '.join(f'item d{n}' for n in range(9))}")
        cursor.execute("set max_statement_time = 0")
        cursor.execute("select id from item where id <= 2")
        return len(cursor.fetchall())


def multi_statement(place: Place) -> int:
    several = pymysql.constants.CLIENT.MULTI_STATEMENTS
    with connected(place, client_flag=several) as connection, connection.cursor() as cursor:
        cursor.execute("insert into item values (101, 'a'); insert into item values (102, 'a'), (103, 'a')")
        cursor.nextset()
        return 3


def several_databases(place: Place) -> int:
    with closing(connect(place.other)) as second, connected(place) as connection:
        count = 0
        for each in (connection, second):
            with each.cursor() as cursor:
                cursor.execute(ALL)
                count += len(cursor.fetchall())
        return count


def job(place: Place) -> int:
    """What each thread, greenlet, task, request or process runs: 31 rows by four statements."""
    with closing(connect(place.url)) as connection, connection.cursor() as cursor:
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
    "insertmanyvalues": insertmanyvalues("mysql+pymysql"),
    "server cursor": server_cursor,
    "for": iteration,
    **({"next": by_next} if hasattr(pymysql.cursors.Cursor, "__next__") else {}),
    "fetchone, fetchmany, fetchall": fetches,
    "prepared": prepared,
    "callproc": callproc,
    "savepoint": savepoint,
    "two-phase": two_phase,
    "autocommit": autocommit,
    "cancelled": cancelled,
    "timed out": timed_out,
    "multi-statement": multi_statement,
    "several databases": several_databases,
}
