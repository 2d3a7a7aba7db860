"""Runs a program on SQLite and PostgreSQL under the real profiler, and counts beside it."""

import asyncio
import contextvars
import faulthandler
import gc
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from tempfile import TemporaryFile
from typing import Any

import aiosqlite
from drawn_programs import Program
from ledger import (
    LEDGERS,
    Call,
    Ledger,
    at_the_same_time,
    count_span,
    in_a_child,
    in_a_thread,
    new_call,
    problems,
    tag_of,
    timed,
)
from on_postgresql import (
    MODULES,
    PARTICULAR,
    PARTICULAR_AWAITED,
    Blocking,
    Server,
    connected,
    copy_out,
    fetch_pages,
    run_awaited,
    select,
    whatever_comes,
)
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from placebench.profiler import Recording, SqlProfiler

HANGS_S = 120
_AWAITED = {"statement_awaited", "particular_awaited", "tasks", "to_thread", "cancelled"}


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
        self.postgresql = Blocking(machine.server.url) if machine.server else None
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
        if driver == "sqlite3":
            return self.raw.cursor()
        if driver == "sqlalchemy":
            return self.sqlalchemy
        connection = self.on_postgresql(driver)
        return connection.cursor() if driver in MODULES else connection

    def on_postgresql(self, driver: str) -> Any:
        """Return a connection to PostgreSQL."""
        assert self.postgresql is not None
        return self.postgresql.connection(driver)

    def close(self) -> None:
        """Close all."""
        if self.postgresql is not None:
            self.postgresql.close()
        self.sqlalchemy.close()
        self.engine.dispose()
        self.raw.close()


class Machine:
    """Runs programs; `recordings` has each recording with what its program counted.

    on_server: how often the server ran the statement with a number, and its rows. failed, cut_off: the numbers of those
    that it may have run or not. in_children: what was wrong in processes that a program forked.
    """

    def __init__(self, profiler: SqlProfiler, server: Server | None) -> None:
        self.profiler = profiler
        self.server = server
        self.recordings: list[tuple[Recording, Ledger]] = []
        self.on_server: dict[int, tuple[int, int]] = {}
        self.failed: set[int] = set()
        self.cut_off: set[int] = set()
        self.in_children: list[str] = []
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

    def problems(self) -> list[str]:
        """Return a line for each thing that is wrong in a recording of this process or of its children."""
        found = list(self.in_children)
        for recording, ledger in self.recordings:
            found += [f"{recording.name}: {each}" for each in problems(recording, ledger)]
        for _, ledger in self.recordings:
            self.cut_off |= {number for number, call in ledger.calls.items() if call.is_cut_off}
        traced = {number for text in self.traced if (number := tag_of(text)) is not None}
        if (set(self.sent) ^ traced) - self.cut_off:
            found.append(
                f"SQLite ran {sorted(traced - set(self.sent))} that were not sent, "
                f"and not {sorted(set(self.sent) - traced)}"
            )
        merged = Recording.merge([recording for recording, _ in self.recordings])
        found += [f"merged: {each}" for each in merged.breaches if each not in self.recordings[0][0].breaches]
        return found

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
    def _sent(self, driver: str, naps: list[float] | None = None, sets: int = 1) -> Iterator[tuple[int, Call]]:
        """Count a statement; what its function took is the least that the driver can have taken.

        naps: those of its rows, if it returns rows. sets: how many sets of values an executemany has.
        """
        own = self._local.get()
        number, call = new_call()
        if driver in ("sqlite3", "sqlalchemy"):
            self.sent.append(number)
            yield number, call
            call.least_s = own.naps.get(number, 0.0)
        else:
            yield number, call
            call.least_s = sum((naps or [])[: call.rows])
            self.on_server[number] = (sets, call.rows)

    def _select(self, number: int, call: Call, driver: str, naps: list[float]) -> Any:
        cursor = self._local.get().cursor(driver)
        if driver in ("sqlite3", "sqlalchemy"):
            values = ", ".join(f"({each!r})" for each in naps) or "(0.0)"
            where = "" if naps else " where 1 = 0"
            sql = f"select nap({number}, column1) as tag_{number}_, column1 from (values {values}){where}"
        else:
            sql = select(number, naps)
        with timed(call):
            if hasattr(cursor, "exec_driver_sql"):
                return cursor.exec_driver_sql(sql)
            cursor.execute(sql)
            return cursor

    def _statement(self, driver: str, naps: list[float], how: str) -> None:
        with self._sent(driver, naps) as (number, call):
            result = self._select(number, call, driver, naps)
            with timed(call):
                call.rows = len(_fetched(result, how))
                if driver not in ("sqlite3", *MODULES):
                    result.close()
            if driver not in ("sqlite3", "sqlalchemy"):
                call.rows = len(naps)  # the driver has them all, however many are fetched

    def _rows(self, driver: str, naps: list[float], program: Program) -> None:
        with self._sent(driver, naps) as (number, call):
            result = self._select(number, call, driver, naps)
            rows = iter(result)
            while True:
                with timed(call):
                    row = next(rows, None)
                if row is None:
                    return
                call.rows += 1
                self.run(program)

    def _server_cursor(self, driver: str, naps: list[float], how: str) -> None:
        connection = self._local.get().on_postgresql(driver)
        with self._sent(driver, naps) as (number, call):
            fetch_pages(connection, call, select(number, naps), how)

    def _copied(self, driver: str, naps: list[float], _how: str) -> None:
        connection = self._local.get().on_postgresql(driver)
        with self._sent(driver, naps) as (number, call):
            copy_out(connection, call, select(number, naps))

    def _particular(self, driver: str, what: str, naps: list[float]) -> None:
        """Run a statement that needs a feature of a driver, and that takes no time on the server."""
        assert self.server is not None
        connection = self._local.get().on_postgresql(driver)
        if what == "pipeline":
            self._pipeline(naps)
            return
        if what in ("two_phase", "notified"):  # these need a connection without a transaction
            connection = MODULES[driver].connect(self.server.url)
        with self._sent(driver) as (number, call):
            runs = PARTICULAR[what](connection, call, number, naps)
        self.on_server[number] = (runs, call.rows)
        if what in ("two_phase", "notified"):
            connection.close()

    def _pipeline(self, naps: list[float]) -> None:
        connection = self._local.get().on_postgresql("psycopg")
        with ExitStack() as sent:
            calls = [sent.enter_context(self._sent("psycopg")) for _ in range(3)]
            with ExitStack() as stack:
                for _, call in calls:
                    stack.enter_context(timed(call))
                with connection.pipeline():
                    cursors = [connection.execute(select(number, [0.0 for _ in naps])) for number, _ in calls]
                    cursors[1].fetchall()
                    connection.execute("select 1")  # PostgreSQL counts a statement's rows when the next one begins
            for _, call in calls:
                call.rows = len(naps)

    def _many(self, driver: str, sets: int) -> None:
        cursor = self._local.get().cursor(driver)
        with self._sent(driver, sets=sets) as (number, call):
            if driver in ("sqlite3", "sqlalchemy"):
                sql = f"insert into item select ? as tag_{number}_"
            else:
                sql = f"insert into kept select %s::int as tag_{number}_"
            values = [(each,) for each in range(sets)]
            with timed(call):
                if hasattr(cursor, "exec_driver_sql"):
                    cursor.exec_driver_sql(sql, values)
                else:
                    cursor.executemany(sql, values)
            # An INSERT hands out no rows; those that it has affected are what the driver reports.
            call.rows = sets

    def _failed(self, driver: str, _sets: int) -> None:
        cursor = self._local.get().cursor(driver)
        with self._sent(driver) as (number, call), timed(call), suppress(Exception):
            sql = f"select no_column as tag_{number}_ from item"
            run = getattr(cursor, "exec_driver_sql", None) or cursor.execute
            run(sql)
        if driver in ("sqlite3", "sqlalchemy"):
            self.sent.remove(number)  # SQLite has not run it
        else:
            self.failed.add(number)  # some drivers have it parsed first: then the server does not log it
            del self.on_server[number]
            (cursor if hasattr(cursor, "exec_driver_sql") else cursor.connection).rollback()

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
        elif driver in MODULES:
            connection = own.on_postgresql(driver)
            if how == "savepoint":
                connection.cursor().execute("savepoint one")
            self._many(driver, 2)
            if how == "savepoint":
                connection.cursor().execute("release one")
            else:
                getattr(connection, how)()
        else:
            connection = own.cursor(driver)
            if how == "savepoint":
                with connection.begin_nested():
                    self._many(driver, 2)
            else:
                self._many(driver, 2)
                getattr(connection, how)()

    def _fork(self, mode: str, program: Program) -> None:
        """A child process with a record of its own, inside of those of its parent."""
        # The child would go on with the greenlets of all threads, or wait for a lock of SQLite's that a thread has.
        if any(not each.name.startswith("placebench") for each in threading.enumerate()[1:]):
            return
        with TemporaryFile("w+") as file:
            child = os.fork()
            if not child:
                # The thread of dump_traceback_later, which the parent waits with, is not in the child.
                faulthandler.register(signal.SIGALRM, chain=True)
                signal.alarm(HANGS_S // 2)
                machine = Machine(self.profiler, self.server)
                try:
                    in_a_child()
                    with machine.connections(), machine.record(mode):
                        machine.run(program)
                    found = machine.problems()
                except BaseException as error:  # noqa: BLE001  its parent reports it
                    found = [repr(error)]
                json.dump([found, [*machine.on_server.items()], [*machine.failed], [*machine.cut_off]], file)
                file.flush()
                os._exit(0)
            os.waitpid(child, 0)
            file.seek(0)
            said = file.read() or '[["it ended without a word"], [], [], []]'
        found, on_server, failed, cut_off = json.loads(said)
        self.in_children += [f"in a child: {each}" for each in found]
        self.on_server |= {number: (times, rows) for number, (times, rows) in on_server}
        self.failed |= {*failed}
        self.cut_off |= {*cut_off}

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

    async def _statement_awaited(self, driver: str, naps: list[float], how: str) -> None:
        if driver == "aiosqlite":
            await self._on_aiosqlite(naps, how)
            return
        assert self.server is not None
        async with connected(driver, self.server.url) as connection:
            number, call = new_call()
            try:
                await run_awaited(connection, call, select(number, naps), naps, how)
            except asyncio.CancelledError:
                call.is_cut_off = True
                # SQLAlchemy and cursors of asyncpg begin a transaction first, and may not have come further.
                call.is_unsent = driver != "psycopg"
                raise
            call.least_s = sum(naps[: call.rows])
            self.on_server[number] = (1, call.rows)

    async def _particular_awaited(self, what: str, naps: list[float]) -> None:
        assert self.server is not None
        driver, count, run = PARTICULAR_AWAITED[what]
        async with connected(driver, self.server.url) as connection:
            calls = [new_call() for _ in range(count)]
            try:
                await run(connection, calls, naps)
            except asyncio.CancelledError:
                for _, call in calls:
                    call.is_cut_off = call.is_unsent = True
                raise
            for number, call in calls:
                call.rows = len(naps)
                self.on_server[number] = (1, call.rows)

    async def _on_aiosqlite(self, naps: list[float], how: str) -> None:
        own = self._local.get()
        connection: Any = aiosqlite.connect(":memory:", isolation_level=None)
        call = Call()
        try:
            await whatever_comes(self._opened(connection, own))
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
            await whatever_comes(connection.close())

    async def _opened(self, connection: Any, own: Connections) -> None:
        await connection
        await connection.create_function("nap", 2, own.nap)
        await connection.set_trace_callback(self.traced.append)

    async def _alone_awaited(self, program: Program) -> None:
        with self.connections():
            await self.run_awaited(program)

    async def _tasks(self, programs: list[Program]) -> None:
        at_the_same_time()
        # A gather that is cancelled ends with its first task, and the others might end after the record.
        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(self._alone_awaited(program))

    async def _to_thread(self, program: Program) -> None:
        at_the_same_time()
        await whatever_comes(asyncio.to_thread(self._alone, program))

    async def _cancelled(self, program: Program, seconds: float) -> None:
        at_the_same_time()
        task = asyncio.ensure_future(self._alone_awaited(program))
        try:
            await asyncio.sleep(seconds)
        finally:
            task.cancel()
            await whatever_comes(_ended(task))


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
