"""Time inside sqlite3, which takes the class of its connection at connect: `time_sqlite`."""

import os
import sqlite3
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from placebench.profiler.capture.timed_cursor import (
    CallRecorder,
    DriverConnection,
    Replace,
    TimedCursor,
    timed_below,
    timed_class,
)
from placebench.profiler.model.statement_facts import statement_facts

_FACTORY = 4  # its position among the arguments of connect, after the database
_DJANGO_QUOTES = "_quote_params_for_last_executed_query"
_LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, since Python 3.12
_WRITES = frozenset({"insert", "update", "delete", "replace"})


def patch_sqlite(recorder: CallRecorder, replace: Replace) -> None:
    """Have sqlite3 make timed connections."""

    def time_connect(owner: Any) -> None:
        @replace(owner, "connect")
        def timed_connect(database: Any, *arguments: Any, **keywords: Any) -> Any:
            if sys._getframe(1).f_globals.get("__name__", "").startswith("aiosqlite."):  # timed where it is awaited
                return timed_connect.__wrapped__(database, *arguments, **keywords)
            positional = list(arguments)
            if len(positional) > _FACTORY:
                keywords["factory"] = positional[_FACTORY]
            recorder.change(time_sqlite, keywords)
            if len(positional) > _FACTORY:
                positional[_FACTORY] = keywords.pop("factory")
            with recorder.connecting_step():
                return timed_connect.__wrapped__(database, *positional, **keywords)

    for module in (sqlite3, sqlite3.dbapi2):
        time_connect(module)


def time_sqlite(recorder: CallRecorder, arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of connect so that the connection is timed."""
    made = timed_below(_SqliteConnection, sqlite3.Connection, arguments.get("factory") or sqlite3.Connection, recorder)
    if getattr(made, "placebench_recorder", None) is recorder:  # else a function, or timed for another profiler
        made.placebench_cursor_class = timed_class(_SqliteCursor, sqlite3.Cursor, recorder)
    arguments["factory"] = made


class _SqliteCursor(TimedCursor):
    """A timed cursor of sqlite3, which also runs scripts."""

    connection: Any
    description: Any

    placebench_dialect = "sqlite"

    def _run(
        self,
        call: Callable[..., Any],
        sql: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        trips: int | None,
        executions: int = 1,
    ) -> Any:
        """Run a driver call; leave out the statements by which Django quotes the values of the queries that it logs."""
        recording = self.placebench_recorder.current.get()
        if recording is None or sys._getframe(2).f_code.co_name != _DJANGO_QUOTES:
            result = super()._run(call, sql, args, kwargs, trips, executions)
            pending = self.placebench_pending
            if recording is not None and pending is not None and self.description is not None:
                pending.fetched_rows = pending.fetched_rows or 0  # from here on its fetches are seen
            return result
        recording.note(
            "Django logs its queries (DEBUG or assertNumQueries): that takes time, and what it runs for it is left out"
        )
        self.placebench_pending = None
        return call(sql, *args, **kwargs)

    def executescript(self, sql: str) -> Any:
        """Run sqlite3's executescript, timed as one statement; it ends an open transaction first, and begins none."""
        connection = self.connection
        if connection.in_a_transaction() and connection.placebench_autocommit is None:
            connection.placebench_step("COMMIT", lambda: None)  # its time is in that of the script
        connection.placebench_runs_script = True
        try:
            return self._run(super().executescript, sql, (), {}, None)  # type: ignore[misc]
        finally:
            connection.placebench_runs_script = False


class _SqliteConnection(DriverConnection[Any]):
    """A connection of sqlite3, which chooses the class of its cursors; connect has no argument for that."""

    placebench_cursor: Callable[..., Any]
    placebench_cursor_class: ClassVar[type]
    placebench_file: str | None = None
    placebench_runs_script = False
    savepoints_begin = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = os.fsdecode((args[0] if args else kwargs.get("database")) or "")
        # A database in memory that belongs to its connection has no file.
        if name.startswith("file:"):
            in_memory = ":memory:" in name or "mode=memory" in name
            self.placebench_file = None if in_memory and "cache=shared" not in name else name
        elif name not in ("", ":memory:"):
            self.placebench_file = str(Path(name).resolve())

    @property
    def placebench_autocommit(self) -> bool | None:
        """The argument `autocommit` of Python 3.12 and later; None if `isolation_level` decides, or nothing any more.

        With True the program begins and ends its transactions by their text alone; with False one is always open.
        """
        given = self._attribute("autocommit", _LEGACY)
        return None if given == _LEGACY else bool(given)

    def _attribute(self, name: str, default: Any) -> Any:
        """Return an attribute of the connection; *default* if it is closed, or if this Python does not have it."""
        try:
            return getattr(self, name, default)
        except sqlite3.ProgrammingError:
            return default

    def in_a_transaction(self) -> bool:
        """Return whether sqlite3 has begun a transaction, which it does before the first write."""
        return self._attribute("in_transaction", False)  # type: ignore[no-any-return]

    def has_begun(self) -> bool:
        """Return whether the program has begun the open transaction.

        With autocommit=False sqlite3 begins one at each end of another; its BEGIN is recorded with its first statement.
        """
        return self.in_a_transaction() and self.placebench_autocommit is not False

    def has_ended_alone(self) -> bool:
        """Return whether no transaction is open, as after the RELEASE of a savepoint that began one."""
        return not self.in_a_transaction() and not self.placebench_adopted

    def begins(self, sql: str) -> bool:
        """Return whether the statement runs in a transaction: by default sqlite3 begins one before a write."""
        if self.placebench_runs_script:
            return False
        return self.in_a_transaction() or (
            self.placebench_autocommit is None
            and self._attribute("isolation_level", None) is not None
            and statement_facts(sql, "sqlite").first_word in _WRITES
        )

    def placebench_step(self, step: str, call: Callable[[], None]) -> None:
        """Run a COMMIT or ROLLBACK as a step, unless sqlite3 does nothing for it."""
        if self.placebench_autocommit:
            return call()
        return super().placebench_step(step, call)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; sqlite3 commits before it leaves transactions to the program from now on."""
        change = partial(super().__setattr__, name, value)
        if (name == "autocommit" and value == 1) or (name == "isolation_level" and value is None):
            return self.placebench_step("COMMIT", change)
        return change()

    def close(self) -> None:
        """Close the connection; without autocommit sqlite3 sends a ROLLBACK before."""
        if self.placebench_autocommit is False:
            return self.placebench_step("ROLLBACK", super().close)  # type: ignore[misc]
        return super().close()  # type: ignore[misc,no-any-return]

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if self.placebench_autocommit:
            return super().__exit__(kind, error, traceback)  # type: ignore[misc]
        # sqlite3 commits or rolls back in C, without calling the methods.
        with self.timing_step("COMMIT" if kind is None else "ROLLBACK"):
            return super().__exit__(kind, error, traceback)  # type: ignore[misc]

    # sqlite3's own shortcuts make cursors of its own class, in C, and do not call `cursor`.

    def execute(self, *arguments: Any) -> Any:
        """Make a timed cursor, call its execute, and return the result."""
        return self.placebench_cursor(self.placebench_cursor_class).execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Make a timed cursor, call its executemany, and return the result."""
        return self.placebench_cursor(self.placebench_cursor_class).executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        """Make a timed cursor, call its executescript, and return the result."""
        return self.placebench_cursor(self.placebench_cursor_class).executescript(*arguments)

    def cursor(self, factory: Any = None) -> Any:
        """Return a timed cursor, of the class *factory* if it is given."""
        if factory is None:
            return self.placebench_cursor(self.placebench_cursor_class)
        return self.placebench_cursor(timed_class(_SqliteCursor, factory, self.placebench_recorder))
