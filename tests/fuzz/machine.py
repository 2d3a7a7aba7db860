"""Runs a program on SQLite under the real profiler, with its clocks, threads and event loop, and counts beside it."""

import asyncio
import contextvars
import gc
import sqlite3
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, TypeVar

import aiosqlite
from drawn_programs import Program
from ledger import LEDGERS, Call, Ledger, at_the_same_time, count_span, in_a_thread, new_call, timed
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from placebench.profiler import Recording, SqlProfiler

_T = TypeVar("_T")
_AWAITED = {"statement_awaited", "tasks", "to_thread", "cancelled"}


class Connections:
    """A connection of each driver for one thread or task, with SQL functions that take time."""

    def __init__(self, machine: "Machine") -> None:
        self.naps: dict[int, float] = {}
        self.raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.engine = create_engine("sqlite://", poolclass=StaticPool)
        self.sqlalchemy = self.engine.connect()
        driver = self.sqlalchemy.connection.driver_connection
        assert driver is not None
        for connection in (self.raw, driver):
            self.prepare(connection, machine)
        self.raw.execute("create table item (id integer)")
        self.sqlalchemy.exec_driver_sql("create table item (id integer)")
        self.sqlalchemy.commit()

    def prepare(self, connection: Any, machine: "Machine") -> None:
        """Give a connection its function, and have SQLite itself name each statement that it runs."""
        connection.create_function("nap", 2, self.nap)
        connection.set_trace_callback(machine.traced.append)

    def nap(self, number: int, seconds: float) -> int:
        """Take this time inside of the driver: sleep if it is long, else compute."""
        began = time.perf_counter()
        if seconds > 0.001:
            time.sleep(seconds)
        else:
            while time.perf_counter() - began < seconds:
                pass
        self.naps[number] = self.naps.get(number, 0.0) + time.perf_counter() - began
        return 1

    def cursor(self, driver: str) -> Any:
        """Return a cursor, or what SQLAlchemy has in its place."""
        return self.raw.cursor() if driver == "sqlite3" else self.sqlalchemy

    def close(self) -> None:
        """Close both."""
        self.sqlalchemy.close()
        self.engine.dispose()
        self.raw.close()


class Machine:
    """Runs programs; `recordings` has each recording with what its program counted."""

    def __init__(self, profiler: SqlProfiler) -> None:
        self.profiler = profiler
        self.recordings: list[tuple[Recording, Ledger]] = []
        self.traced: list[str] = []
        self.sent: list[int] = []
        self._local: contextvars.ContextVar[Connections] = contextvars.ContextVar("connections")

    @contextmanager
    def connections(self) -> Iterator[Connections]:
        """Open connections for this thread or task alone."""
        opened = Connections(self)
        token = self._local.set(opened)
        try:
            yield opened
        finally:
            self._local.reset(token)
            opened.close()

    @contextmanager
    def record(self, mode: str) -> Iterator[None]:
        """Record the block, and count beside it."""
        ledger, began, cpu_began = Ledger(), time.perf_counter(), time.process_time()
        token = LEDGERS.set((*LEDGERS.get(), ledger))
        try:
            with self.profiler.record(mode, mode) as recording:
                yield
        finally:
            LEDGERS.reset(token)
            ledger.elapsed_s = time.perf_counter() - began
            ledger.cpu_s = time.process_time() - cpu_began
            self.recordings.append((recording, ledger))

    def run(self, program: Program) -> None:
        """Run a program without an event loop."""
        for name, *arguments in program:
            getattr(self, f"_{name}")(*arguments)

    async def run_awaited(self, program: Program) -> None:
        """Run a program in an event loop."""
        for name, *arguments in program:
            if name == "span":
                with self._counted_span():
                    await self.run_awaited(arguments[0])
            elif name == "record":
                with self.record(arguments[0]):
                    await self.run_awaited(arguments[1])
            elif name == "wait":
                await asyncio.sleep(arguments[0])
            elif name in _AWAITED:
                await getattr(self, f"_{name}")(*arguments)
            else:
                getattr(self, f"_{name}")(*arguments)

    # What both kinds of programs do.

    def _work(self, seconds: float) -> None:
        _compute(seconds)

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _collect(self, _seconds: float) -> None:
        cycle: list[Any] = []
        cycle.append(cycle)
        del cycle
        gc.collect()

    def _span(self, program: Program) -> None:
        with self._counted_span():
            self.run(program)

    @contextmanager
    def _counted_span(self) -> Iterator[None]:
        try:
            with self.profiler.timed("span"):
                yield
        finally:
            count_span()

    def _record(self, mode: str, program: Program) -> None:
        with self.record(mode):
            self.run(program)

    @contextmanager
    def _sent(self, driver: str) -> Iterator[tuple[int, Call, Any, str]]:
        """Count a statement; what its function took is the least that the driver can have taken."""
        own = self._local.get()
        number, call = new_call()
        self.sent.append(number)
        yield number, call, own.cursor(driver), f"nap({number}, column1)"
        call.least_s = own.naps.get(number, 0.0)

    def _select(self, number: int, call: Call, cursor: Any, naps: list[float], function: str) -> Any:
        values = ", ".join(f"({each!r})" for each in naps) or "(0.0)"
        where = "" if naps else " where 1 = 0"
        sql = f"select {function} as tag_{number}_, column1 from (values {values}){where}"
        with timed(call):
            return cursor.execute(sql) if isinstance(cursor, sqlite3.Cursor) else cursor.exec_driver_sql(sql)

    def _statement(self, driver: str, naps: list[float], how: str) -> None:
        with self._sent(driver) as (number, call, cursor, function):
            result = self._select(number, call, cursor, naps, function)
            with timed(call):
                call.rows = len(_fetched(result, how))
                if driver == "sqlalchemy":
                    result.close()

    def _rows(self, driver: str, naps: list[float], program: Program) -> None:
        with self._sent(driver) as (number, call, cursor, function):
            result = self._select(number, call, cursor, naps, function)
            rows = iter(result)
            while True:
                with timed(call):
                    row = next(rows, None)
                if row is None:
                    return
                call.rows += 1
                self.run(program)

    def _many(self, driver: str, sets: int) -> None:
        with self._sent(driver) as (number, call, cursor, _):
            sql, values = f"insert into item select ? as tag_{number}_", [(each,) for each in range(sets)]
            with timed(call):
                if driver == "sqlite3":
                    cursor.executemany(sql, values)
                else:
                    cursor.exec_driver_sql(sql, values)
            # An INSERT hands out no rows; those that it has affected are what the driver reports.
            call.rows = sets

    def _failed(self, driver: str) -> None:
        with self._sent(driver) as (number, call, cursor, _), timed(call), suppress(Exception):
            sql = f"select no_column as tag_{number}_ from item"
            cursor.execute(sql) if driver == "sqlite3" else cursor.exec_driver_sql(sql)
        self.sent.remove(number)  # SQLite has not run it

    def _transaction(self, driver: str, how: str) -> None:
        own = self._local.get()
        if driver == "sqlite3":
            if own.raw.in_transaction:
                return
            own.raw.execute("begin")
            if how == "savepoint":
                own.raw.execute("savepoint one")
                own.raw.execute("release one")
            self._many(driver, 2)
            own.raw.execute("rollback" if how == "rollback" else "commit")
        elif how == "savepoint":
            with own.sqlalchemy.begin_nested():
                self._many(driver, 2)
        else:
            self._many(driver, 2)
            getattr(own.sqlalchemy, how)()

    def _thread(self, programs: list[Program], mode: str) -> None:
        """Threads without the context, each with a record of its own."""

        def work(program: Program) -> None:
            with self.connections(), self.record(mode):
                self.run(program)

        self._threads([(contextvars.Context(), work, program) for program in programs])

    def _together(self, programs: list[Program], _mode: str) -> None:
        """Threads in copies of the context: their statements are in the records around them."""
        at_the_same_time()
        self._threads([(contextvars.copy_context(), self._alone, program) for program in programs])

    def _threads(self, jobs: list[tuple[contextvars.Context, Any, Program]]) -> None:
        failures: list[BaseException] = []

        def run(context: contextvars.Context, work: Any, program: Program) -> None:
            try:
                context.run(work, program)
            except BaseException as error:  # noqa: BLE001  it is raised in the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=run, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _pool(self, programs: list[Program], mode: str) -> None:
        """Jobs of a pool without the context, each with a record of its own."""

        def work(program: Program) -> None:
            with self.connections(), self.record(mode):
                self.run(program)

        with ThreadPoolExecutor(2) as pool:
            for each in [pool.submit(contextvars.Context().run, work, program) for program in programs]:
                each.result()

    def _alone(self, program: Program) -> None:
        with self.connections():
            self.run(program)

    # What needs an event loop.

    async def _statement_awaited(self, naps: list[float], how: str) -> None:
        own = self._local.get()
        connection: Any = aiosqlite.connect(":memory:", isolation_level=None)
        call = Call()
        try:
            await _whatever_comes(self._opened(connection, own))
            in_a_thread()
            number, call = new_call()
            self.sent.append(number)
            values = ", ".join(f"({each!r})" for each in naps) or "(0.0)"
            sql = f"select nap({number}, column1) as tag_{number}_ from (values {values})"
            with timed(call):
                cursor = await connection.execute(sql if naps else f"{sql} where 1 = 0")
                if how == "all":
                    call.rows = len(list(await cursor.fetchall()))
                elif how == "many":
                    call.rows = len(list(await cursor.fetchmany(2)))
                elif how == "one":
                    call.rows = int(await cursor.fetchone() is not None)
                elif how == "for":
                    call.rows = len([row async for row in cursor])
                await cursor.close()
            call.least_s = own.naps.get(number, 0.0)
        except asyncio.CancelledError:
            call.is_cut_off = True
            raise
        finally:
            await _whatever_comes(connection.close())

    async def _opened(self, connection: Any, own: Connections) -> None:
        await connection
        await connection.create_function("nap", 2, own.nap)
        await connection.set_trace_callback(self.traced.append)

    async def _alone_awaited(self, program: Program) -> None:
        with self.connections():
            await self.run_awaited(program)

    async def _tasks(self, programs: list[Program]) -> None:
        at_the_same_time()
        await asyncio.gather(*map(self._alone_awaited, programs))

    async def _to_thread(self, program: Program) -> None:
        at_the_same_time()
        await _whatever_comes(asyncio.to_thread(self._alone, program))

    async def _cancelled(self, program: Program, seconds: float) -> None:
        at_the_same_time()
        task = asyncio.ensure_future(self._alone_awaited(program))
        try:
            await asyncio.sleep(seconds)
        finally:
            task.cancel()
            await _whatever_comes(_ended(task))


async def _whatever_comes(work: Coroutine[Any, Any, _T]) -> _T:
    """Await *work* to its end, and be cancelled only then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _ended(task: "asyncio.Task[None]") -> None:
    """Await a task that may be cancelled."""
    with suppress(asyncio.CancelledError):
        await task


def _fetched(result: Any, how: str) -> list[Any]:
    if how == "all":
        return list(result.fetchall())
    if how == "many":
        return list(chain(result.fetchmany(2), result.fetchmany(2)))
    if how == "one":
        return list(iter(result.fetchone, None))
    if how == "for":
        return list(result)
    if how == "next":
        return [row for _ in range(2) if (row := next(iter(result), None)) is not None]
    if how == "some":
        return [] if (row := result.fetchone()) is None else [row]
    return []


def _compute(seconds: float) -> int:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        steps += _step(steps)
    return steps


def _step(number: int) -> int:
    return 1 + number % 1
