"""Statements of programs on PostgreSQL: by blocking and awaited drivers, and as the server counts them."""

import asyncio
import io
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import psycopg
import psycopg2
import psycopg2.extensions
from ledger import TAG, Call, timed
from psycopg2.extras import execute_values
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from placebench.runtime.postgres.private_server import LaunchedServer

sys.path.insert(0, str(Path(__file__).parents[1] / "coverage_matrix"))

from witness import SETTINGS, PostgresWitness

__all__ = ["SETTINGS"]

_T = TypeVar("_T")
MODULES: dict[str, Any] = {"psycopg2": psycopg2, "psycopg": psycopg}


class Server:
    """A private server, whose log and pg_stat_statements count what programs send."""

    def __init__(self, launched: LaunchedServer) -> None:
        self._witness = PostgresWitness(launched)
        self.url = self._witness.settings["url"]
        with psycopg.connect(self.url) as connection:
            connection.execute("create table kept (id integer)")

    def begin(self) -> None:
        """Count from here on."""
        self._witness.mark()

    def problems(self, sent: dict[int, tuple[int, int]], failed: set[int], cut_off: set[int]) -> list[str]:
        """Return a line for each count that is not that of *sent*, which has runs and rows by number.

        Statements that failed or were cut off may have run; those that were cut off may have any number of rows.
        """
        ran = Counter(int(number) for text in self._witness.texts() for number in TAG.findall(text))
        found = [
            f"tag_{number}_: PostgreSQL ran {ran[number]} of {sent.get(number, (0, 0))[0]}"
            for number in sorted({*ran, *sent} - failed - cut_off)
            if ran[number] != sent.get(number, (0, 0))[0]
        ]
        rows, expected = self._witness.rows("tag_|^fetch"), sum(rows for _, rows in sent.values())
        if not cut_off and rows != expected:
            found.append(f"pg_stat_statements has {rows} rows, the drivers were handed out {expected}")
        return found


def is_patched() -> bool:
    """Whether gevent has patched this process: its threads are greenlets."""
    return psycopg2.extensions.get_wait_callback() is not None


def wait_in_greenlets() -> None:
    """Let other greenlets run while psycopg2 waits for the server, as psycogreen does; psycopg 3 does so by itself."""
    from gevent.socket import wait_read, wait_write

    def wait(connection: Any) -> None:
        while (state := connection.poll()) != psycopg2.extensions.POLL_OK:
            (wait_read if state == psycopg2.extensions.POLL_READ else wait_write)(connection.fileno())

    psycopg2.extensions.set_wait_callback(wait)


def select(number: int, naps: list[float]) -> str:
    """Return a query with a row for each nap that the server takes."""
    values = ", ".join(f"({each!r})" for each in naps) or "(0.0)"
    where = "" if naps else " where false"
    return f"select pg_sleep(column1)::text as tag_{number}_, column1 from (values {values}) as naps{where}"


class Blocking:
    """The connections of one thread, each opened when it is used first."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: dict[str, Any] = {}

    def connection(self, driver: str) -> Any:
        """Return the connection of a driver, or of SQLAlchemy with it."""
        if driver not in self._opened:
            if driver in MODULES:
                self._opened[driver] = MODULES[driver].connect(self._url)
            else:
                self._opened[driver] = create_engine(_sqlalchemy_url(self._url, driver), poolclass=NullPool).connect()
        return self._opened[driver]

    def close(self) -> None:
        """Close all of them."""
        for each in self._opened.values():
            each.close()


def _sqlalchemy_url(url: str, driver: str) -> Any:
    return make_url(url).set(drivername=f"postgresql+{driver.removeprefix('sqlalchemy ')}")


def fetch_pages(connection: Any, call: Call, sql: str, how: str) -> None:
    """Run a query with a cursor of the server's, which sends two rows at a time."""
    cursor = connection.cursor("pages")
    cursor.itersize = 2
    with timed(call):
        cursor.execute(sql)
        if how == "one":
            call.rows = int(cursor.fetchone() is not None)
        elif how == "many":
            call.rows = len([*chain(cursor.fetchmany(2), cursor.fetchmany(2))])
        else:
            call.rows = len(cursor.fetchall() if how == "all" else [*cursor])
        cursor.close()


def copy_out(connection: Any, call: Call, sql: str) -> None:
    """Copy the result of a query to the client."""
    text = f"copy ({sql}) to stdout"
    with connection.cursor() as cursor, timed(call):
        if isinstance(connection, psycopg.Connection):
            with cursor.copy(text) as copy:
                call.rows = len([*copy.rows()])
        elif is_patched():  # then psycopg2 cannot copy
            cursor.execute(sql)
            call.rows = cursor.rowcount
        else:
            copied = io.StringIO()
            cursor.copy_expert(text, copied)
            call.rows = copied.getvalue().count("\n")


def _made(connection: Any, sql: str) -> None:
    """Run DDL whose text does not have the number of the statement that uses what it makes."""
    connection.cursor().execute(_hidden(sql))


def _hidden(sql: str) -> str:
    return "do $$ begin execute '{}'; end $$".format(sql.replace("tag_", "ta'||'g_"))


def _copied_in(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    _made(connection, f"create temp table tag_{number}_ (id integer)")
    sql = f"copy tag_{number}_ from stdin"
    with connection.cursor() as cursor, timed(call):
        if isinstance(connection, psycopg.Connection):
            with cursor.copy(sql) as copy:
                for each, _ in enumerate(naps):
                    copy.write_row((each,))
        elif is_patched():
            cursor.execute(f"insert into tag_{number}_ select * from generate_series(1, {len(naps)})")
        else:
            cursor.copy_expert(sql, io.StringIO("".join(f"{each}\n" for each, _ in enumerate(naps))))
    call.rows = len(naps)
    return 1


def _callproc(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    rows = f"select * from generate_series(1, {len(naps)})"
    _made(connection, f"create function pg_temp.tag_{number}_() returns setof int language sql as ''{rows}''")
    with connection.cursor() as cursor, timed(call):
        if isinstance(connection, psycopg.Connection):
            cursor.execute(f"select * from pg_temp.tag_{number}_()")
        else:
            cursor.callproc(f"pg_temp.tag_{number}_")
        call.rows = len(cursor.fetchall())
    return 1


def _returning(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    values = [(each,) for each in range(1 + len(naps))]
    call.rows = len(values)
    with connection.cursor() as cursor, timed(call):
        if isinstance(connection, psycopg.Connection):
            sql = f"insert into kept select %s::int as tag_{number}_ returning id"
            cursor.executemany(sql, values, returning=True)
            while True:
                cursor.fetchall()
                if not cursor.nextset():
                    return len(values)
        sql = f"insert into kept as tag_{number}_ (id) values %s returning id"
        assert len(execute_values(cursor, sql, values, fetch=True)) == len(values)
    return 1


def _several(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    if not isinstance(connection, psycopg.Connection):
        naps = []  # psycopg2 has the last result only: the rows are not measured
    sql = f"set application_name = 'fuzz'; {select(number, [0.0 for _ in naps])}"
    with connection.cursor() as cursor, timed(call):
        cursor.execute(sql)
        if isinstance(connection, psycopg.Connection):
            assert cursor.nextset()
        call.rows = len(cursor.fetchall())
    return 1


def _nested_savepoints(connection: Any, call: Call, number: int, _naps: list[float]) -> int:
    sql = f"insert into kept select 1 as tag_{number}_"
    call.rows = 1
    if isinstance(connection, psycopg.Connection):
        with connection.transaction(), connection.transaction() as outer, connection.transaction():
            with timed(call):
                connection.execute(sql)
            raise psycopg.Rollback(outer)
        return 1
    cursor = connection.cursor()
    cursor.execute("savepoint one")
    cursor.execute("savepoint two")
    with timed(call):
        cursor.execute(sql)
    cursor.execute("rollback to two")
    cursor.execute("release one")
    return 1


def _two_phase(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    connection.tpc_begin(connection.xid(1, f"fuzz {number}", "branch"))
    with timed(call):
        connection.cursor().execute(f"insert into kept select 1 as tag_{number}_")
    call.rows = 1
    if naps:
        connection.tpc_prepare()
    (connection.tpc_rollback if len(naps) % 2 else connection.tpc_commit)()
    return 1


def _notified(connection: Any, call: Call, number: int, _naps: list[float]) -> int:
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(f"listen news_{number}")
    with timed(call):
        cursor.execute(f"select pg_notify('news_{number}', '') as tag_{number}_")
        call.rows = len(cursor.fetchall())
    if isinstance(connection, psycopg.Connection):
        assert len([*connection.notifies(timeout=60, stop_after=1)]) == 1
    else:
        connection.poll()
        assert len(connection.notifies) == 1
    return 1


def _abandoned(connection: Any, call: Call, number: int, naps: list[float]) -> int:
    cursor = connection.cursor(f"left_{number}")
    with timed(call):
        cursor.execute(select(number, [0.0 for _ in naps]))
        call.rows = int(cursor.fetchone() is not None)
    return 1


PARTICULAR: dict[str, Callable[[Any, Call, int, list[float]], int]] = {
    "abandoned": _abandoned,
    "callproc": _callproc,
    "copied_in": _copied_in,
    "nested_savepoints": _nested_savepoints,
    "notified": _notified,
    "returning": _returning,
    "several": _several,
    "two_phase": _two_phase,
}
"""Each runs a statement, notes its rows, and returns how often the server has to have run it."""


@asynccontextmanager
async def connected(driver: str, url: str) -> AsyncIterator[Any]:
    """Open and close a connection of an awaited driver, both to their end if they are cancelled meanwhile."""
    opening: Any
    if driver == "asyncpg":
        opening = asyncpg.connect(url)
    elif driver == "psycopg":
        opening = psycopg.AsyncConnection.connect(url)
    else:
        opening = create_async_engine(_sqlalchemy_url(url, driver), poolclass=NullPool).connect()
    task = asyncio.ensure_future(_result_of(opening))
    try:
        yield await asyncio.shield(task)
    finally:
        await asyncio.wait([task])
        await whatever_comes(task.result().close())


async def _result_of(opening: Any) -> Any:
    return await opening


async def run_awaited(connection: Any, call: Call, sql: str, naps: list[float], how: str) -> None:
    """Run a query with an awaited driver."""
    with timed(call):
        if isinstance(connection, asyncpg.Connection):
            call.rows = await _rows_of_asyncpg(connection, sql, naps, how)
            return
        call.rows = len(naps)  # the driver has them all, however many are fetched
        if isinstance(connection, psycopg.AsyncConnection):
            cursor = await connection.execute(sql)
            if how == "for":
                assert call.rows == len([row async for row in cursor])
            elif how != "none":
                await getattr(cursor, f"fetch{how}")()
        else:
            result = await connection.exec_driver_sql(sql)
            if how not in ("for", "none"):
                getattr(result, f"fetch{how}")()


async def _rows_of_asyncpg(connection: Any, sql: str, naps: list[float], how: str) -> int:
    if how == "one":
        return int(await connection.fetchrow(sql) is not None)
    if how == "all":
        return len(await connection.fetch(sql))
    if how == "none":
        await connection.execute(sql)
        return len(naps)
    async with connection.transaction():
        if how == "for":
            return len([row async for row in connection.cursor(sql, prefetch=2)])
        return len(await (await connection.cursor(sql)).fetch(2))


async def _copy_records(connection: Any, calls: Sequence[tuple[int, Call]], naps: list[float]) -> None:
    ((number, call),) = calls
    await connection.execute(_hidden(f"create temp table tag_{number}_ (id integer)"))
    with timed(call):
        await connection.copy_records_to_table(f"tag_{number}_", records=[(each,) for each, _ in enumerate(naps)])


async def _awaited_pipeline(connection: Any, calls: Sequence[tuple[int, Call]], naps: list[float]) -> None:
    with ExitStack() as stack:
        for _, call in calls:
            stack.enter_context(timed(call))
        async with connection.pipeline():
            cursors = [await connection.execute(select(number, [0.0 for _ in naps])) for number, _ in calls]
            await cursors[1].fetchall()
            await connection.execute("select 1")  # PostgreSQL counts a statement's rows when the next one begins


PARTICULAR_AWAITED: dict[str, tuple[str, int, Callable[[Any, Sequence[tuple[int, Call]], list[float]], Any]]] = {
    "copy_records": ("asyncpg", 1, _copy_records),
    "pipeline": ("psycopg", 3, _awaited_pipeline),
}
"""A driver, how many statements are run, and what runs them; each has a row for each nap."""


async def whatever_comes(work: Coroutine[Any, Any, _T]) -> _T:
    """Await *work* to its end, and be cancelled only then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
