"""Programs with event loops of asyncio. A clock that only they move says how long a loop was held."""

import asyncio
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine, QueuePool, create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

from finding_programs import CLOCK, absent, found


class Database:
    """A file of SQLite, whose function `slow` takes a time."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "files.db"
        self.loop_thread = threading.get_ident()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.file, check_same_thread=False)
        connection.create_function("slow", 1, self.work)
        return connection

    def work(self, seconds: float) -> float:
        """Let time pass; in another thread only while the event loop waits, as it would in so much time."""
        if threading.get_ident() != self.loop_thread:
            while sys._current_frames()[self.loop_thread].f_code.co_name != "select":
                time.sleep(0.001)
        return CLOCK.work(seconds)

    def query(self, seconds: float) -> None:
        with closing(self.connect()) as connection:
            connection.execute("select slow(?)", (seconds,)).fetchall()


@contextmanager
def place(_url: str) -> Iterator[Database]:
    with TemporaryDirectory() as folder:
        yield Database(Path(folder))


def _run(*coroutines: Callable[[], Any]) -> None:
    async def main() -> None:
        await asyncio.gather(*(each() for each in coroutines))

    asyncio.run(main())


async def _other() -> None:
    await asyncio.sleep(0)


# --- statements


@found("blocked event loop")
def a_statement_of_a_synchronous_driver(database: Database) -> None:
    async def view() -> None:
        database.query(0.3)

    _run(view, _other)


@found("blocked event loop")
def short_statements_without_an_await(database: Database) -> None:
    async def view() -> None:
        connection.execute("select slow(0.03)").fetchall()
        connection.execute("select slow(0.04), 1").fetchall()

    with closing(database.connect()) as connection:
        _run(view, _other)


@found("blocked event loop")
def rows_that_a_server_makes_slowly(database: Database) -> None:
    async def view() -> None:
        connection.execute("select slow(0.02 + 0 * column1) from (values (1), (2), (3), (4), (5))").fetchall()

    with closing(database.connect()) as connection:
        _run(view, _other)


@found("blocked event loop")
def a_synchronous_engine(database: Database) -> None:
    engine = create_engine("sqlite://", creator=database.connect)

    async def view() -> None:
        with engine.connect() as connection:
            connection.execute(text("select slow(0.2)")).all()

    _run(view, _other)
    engine.dispose()


@absent("blocked event loop")
def a_statement_in_a_thread(database: Database) -> None:
    async def view() -> None:
        await asyncio.to_thread(database.query, 0.3)

    _run(view, _other)


@absent("blocked event loop")
def a_statement_in_an_executor(database: Database) -> None:
    async def view() -> None:
        await asyncio.get_running_loop().run_in_executor(None, database.query, 0.3)

    _run(view, _other)


@absent("blocked event loop")
def an_asynchronous_engine(database: Database) -> None:
    async def view() -> None:
        engine = _async_engine(database)
        async with engine.connect() as connection:
            (await connection.execute(text("select slow(0.3)"))).all()
        await engine.dispose()

    _run(view, _other)


@absent("blocked event loop")
def a_synchronous_function_of_an_asynchronous_engine(database: Database) -> None:
    async def view() -> None:
        engine = _async_engine(database)
        async with engine.connect() as connection:
            await connection.run_sync(lambda synchronous: synchronous.execute(text("select slow(0.3)")).all())
        await engine.dispose()

    _run(view, _other)


@absent("blocked event loop")
def short_statements_with_awaits(database: Database) -> None:
    async def view() -> None:
        for number in range(3):
            connection.execute(f"select slow(0.04), {'1, ' * number} 1").fetchall()
            await asyncio.sleep(0)

    with closing(database.connect()) as connection:
        _run(view, _other)


@absent("blocked event loop")
def a_statement_without_an_event_loop(database: Database) -> None:
    database.query(0.3)


@absent("blocked event loop")
def a_statement_after_the_event_loop(database: Database) -> None:
    _run(_other)
    database.query(0.3)


@absent("blocked event loop")
def a_statement_of_a_thread_beside_the_event_loop(database: Database) -> None:
    async def view() -> None:
        thread = threading.Thread(target=database.query, args=(0.3,))
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.001)

    _run(view, _other)


# --- computations


@found("blocked event loop")
def a_computation(_database: Database) -> None:
    async def view() -> None:
        CLOCK.work(0.2)

    _run(view, _other)


@found("blocked event loop")
def a_callback_that_computes(_database: Database) -> None:
    async def view() -> None:
        asyncio.get_running_loop().call_soon(CLOCK.work, 0.2)
        await asyncio.sleep(0)

    _run(view, _other)


@absent("blocked event loop")
def a_computation_in_a_thread(database: Database) -> None:
    async def view() -> None:
        await asyncio.to_thread(database.work, 0.2)

    _run(view, _other)


@absent("blocked event loop")
def a_computation_in_pieces(_database: Database) -> None:
    async def view() -> None:
        for _ in range(5):
            CLOCK.work(0.04)
            await asyncio.sleep(0)

    _run(view, _other)


@absent("blocked event loop")
def a_computation_before_the_event_loop(_database: Database) -> None:
    CLOCK.work(0.2)
    _run(_other)


# --- pools, connects and commits


def _async_engine(database: Database, **arguments: Any) -> Any:
    engine = create_async_engine(f"sqlite+aiosqlite:///{database.file}", **arguments)

    @event.listens_for(engine.sync_engine, "connect")
    def add_function(connection: Any, _record: object) -> None:
        connection.create_function("slow", 1, database.work)

    return engine


def _pool(database: Database) -> Engine:
    return create_engine(
        "sqlite://", creator=database.connect, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=60
    )


def _hold(engine: Engine, seconds: float) -> threading.Thread:
    """A thread that holds a connection until another one waits for it, and for so long."""
    held = threading.Event()
    pool: Any = engine.pool

    def hold() -> None:
        with engine.connect():
            held.set()
            while not pool._pool.not_empty._waiters:
                time.sleep(0.001)
            CLOCK.work(seconds)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    return holder


@found("blocked event loop", "connection-pool wait")
def a_synchronous_pool_without_a_free_connection(database: Database) -> None:
    engine = _pool(database)

    async def view() -> None:
        with engine.connect() as connection:
            connection.execute(text("select 1")).all()

    holder = _hold(engine, 0.2)
    _run(view, _other)
    holder.join()
    engine.dispose()


@absent("blocked event loop", "connection-pool wait")
def a_synchronous_pool_in_a_thread(database: Database) -> None:
    engine = _pool(database)

    def work() -> None:
        with engine.connect() as connection:
            connection.execute(text("select 1")).all()

    async def view() -> None:
        waits = asyncio.create_task(asyncio.to_thread(work))
        await asyncio.to_thread(hold)
        await waits

    pool: Any = engine.pool
    held = engine.connect()

    def hold() -> None:
        while not pool._pool.not_empty._waiters:
            time.sleep(0.001)
        database.work(0.2)
        held.close()

    _run(view)
    engine.dispose()


@absent("blocked event loop", "connection-pool wait")
def an_asynchronous_pool_without_a_free_connection(database: Database) -> None:
    async def view() -> None:
        engine = _async_engine(database, pool_size=1, max_overflow=0)

        async def use(seconds: float) -> None:
            async with engine.connect() as connection:
                (await connection.execute(text(f"select slow({seconds})"))).all()

        await asyncio.gather(use(0.2), use(0.001))
        await engine.dispose()

    _run(view)


@absent("blocked event loop")
def a_synchronous_pool_with_a_free_connection(database: Database) -> None:
    engine = _pool(database)

    async def view() -> None:
        with engine.connect() as connection:
            connection.execute(text("select 1")).all()

    _run(view, _other)
    engine.dispose()


@found("blocked event loop")
def a_synchronous_connect(database: Database) -> None:
    def connect() -> sqlite3.Connection:
        CLOCK.work(0.1)
        return database.connect()

    engine = create_engine("sqlite://", creator=connect)

    async def view() -> None:
        with engine.connect() as connection:
            connection.execute(text("select 1")).all()

    _run(view, _other)
    engine.dispose()


@absent("blocked event loop")
def an_asynchronous_connect(database: Database) -> None:
    async def view() -> None:
        engine = _async_engine(database)
        async with engine.connect() as connection:
            await asyncio.to_thread(database.work, 0.1)
            (await connection.execute(text("select 1"))).all()
        await engine.dispose()

    _run(view, _other)
