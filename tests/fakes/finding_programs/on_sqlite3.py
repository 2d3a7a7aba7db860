"""Programs with sqlite3 alone."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from finding_programs import CLOCK, absent, found


@contextmanager
def place(_url: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table files (id integer primary key, name text, content blob)")
        connection.executemany(
            "insert into files values (?, ?, ?)", [(number, f"file {number}", b"%d" % number) for number in range(100)]
        )
        connection.commit()
        yield connection


@found("n+1")
def a_row_for_each_key(connection: sqlite3.Connection) -> None:
    for number in range(10):
        connection.execute("select name from files where id = ?", (number,)).fetchone()


@found("n+1")
def bytes_that_differ(connection: sqlite3.Connection) -> None:
    for number in range(10):
        connection.execute("select name from files where content = ?", (memoryview(b"%d" % number),)).fetchall()


@absent("n+1")
def rows_of_executemany(connection: sqlite3.Connection) -> None:
    connection.executemany("update files set name = ? where id = ?", [(f"new {number}", number) for number in range(9)])
    connection.commit()


@absent("n+1")
def a_cursor_row_by_row(connection: sqlite3.Connection) -> None:
    assert sum(1 for _ in connection.execute("select * from files")) == 100


@absent("n+1")
def the_schema_of_each_table(connection: sqlite3.Connection) -> None:
    for name in ("files", "other"):
        connection.execute(f"pragma table_info({name})").fetchall()


@found("duplicate")
def the_same_name_twice(connection: sqlite3.Connection) -> None:
    for _ in range(2):
        connection.execute("select name from files where id = ?", (1,)).fetchone()


@absent("duplicate")
def the_number_of_the_last_row(connection: sqlite3.Connection) -> None:
    for _number in range(2):
        connection.execute("select last_insert_rowid()").fetchone()
        connection.execute("select total_changes()").fetchone()
    connection.rollback()


@absent("duplicate")
def changes_by_other_processes(connection: sqlite3.Connection) -> None:
    for _ in range(3):
        connection.execute("pragma data_version").fetchone()


@found("idle in transaction")
def work_between_two_writes(connection: sqlite3.Connection) -> None:
    connection.execute("update files set name = 'a' where id = 1")
    CLOCK.work(0.1)
    connection.execute("update files set name = 'b' where id = 2")
    connection.commit()


@absent("idle in transaction")
def work_between_two_transactions(connection: sqlite3.Connection) -> None:
    for number in range(2):
        connection.execute("update files set name = 'a' where id = ?", (number,))
        connection.commit()
        CLOCK.work(0.1)


@found("duplicate")
def a_name_that_is_part_of_another(connection: sqlite3.Connection) -> None:
    connection.execute("create table item (id integer primary key)")
    connection.execute("create table it (id integer)")
    connection.execute("insert into item values (1)")
    for number in range(3):
        connection.execute("select id from item").fetchall()
        connection.execute("insert into it values (?)", (number,))
    connection.rollback()


@absent("duplicate")
def a_view_written_through_its_table(connection: sqlite3.Connection) -> None:
    connection.execute("create view named as select * from files where name is not null")
    for expected in (100, 0):
        assert connection.execute("select count(*) from named").fetchone() == (expected,)
        connection.execute("update files set name = null")


@absent("n+1")
def blocks_of_keys(connection: sqlite3.Connection) -> None:
    for start in range(0, 100, 20):
        connection.execute("select * from files where id between ? and ?", (start, start + 19)).fetchall()


@absent("n+1")
def blocks_of_keys_in_the_text(connection: sqlite3.Connection) -> None:
    for start in range(0, 100, 10):
        connection.execute(f"select * from files where id >= {start} and id < {start + 10}").fetchall()


@absent("n+1")
def days_in_the_text(connection: sqlite3.Connection) -> None:
    connection.execute("create table visit (day text)")
    for day in range(1, 28, 3):
        connection.execute(f"select * from visit where day between '2026-05-{day:02}' and '2026-05-{day + 2:02}'")


@absent("n+1")
def pages_in_the_text(connection: sqlite3.Connection) -> None:
    last = -1
    while rows := connection.execute(f"select id from files where id > {last} order by id limit 7").fetchall():
        last = rows[-1][0]


@found("n+1")
def ranges_of_each_file_in_the_text(connection: sqlite3.Connection) -> None:
    for number in range(0, 50, 5):
        connection.execute(f"select * from files where id >= {number} and id < {number + 3}").fetchall()


@found("n+1")
def one_key_as_a_range_in_the_text(connection: sqlite3.Connection) -> None:
    for number in range(10):
        connection.execute(f"select * from files where id >= {number} and id < {number + 1}").fetchall()


@found("n+1")
def rows_of_each_owner_in_one_period(connection: sqlite3.Connection) -> None:
    for number in range(10):
        connection.execute(f"select * from files where name = 'file {number}' and id >= 0 and id < 100").fetchall()
