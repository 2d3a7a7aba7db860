"""Time inside the driver: cursor and connection classes of our own, handed to the driver when it connects.

SQLAlchemy has no event for a fetch, nor for the end of a COMMIT. The key piece is `use_timed_classes`, called from
the `do_connect` event. It knows psycopg2 and sqlite3; with other drivers those times are "not measured". A cursor or
connection class that the user chose is subclassed, never replaced.
"""

from collections.abc import Callable, Mapping, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from placebench.profiler.wire import WireMeter, meter_of

if TYPE_CHECKING:
    from contextvars import ContextVar

    from placebench.profiler.draft import Draft
    from placebench.profiler.tape import Tape

_READY = 1  # psycopg2.extensions.STATUS_READY: no transaction is open


class Watcher(Protocol):
    """What the timed classes ask of the profiler; none of these raises."""

    current: "ContextVar[Tape | None]"
    timed_classes: dict[tuple[type, type], type]

    def driver_call(self, cursor: "TimedCursor", sql: object) -> "Draft | None":
        """The draft that this execute belongs to; None if nothing is being recorded."""

    def driver_step(self, connection: "TimedConnection", step: str) -> "Draft | None":
        """A new draft of a COMMIT or ROLLBACK; None if nothing is being recorded."""


class TimedCursor:
    """A cursor that tells its draft how long the driver took; mixed in before the driver's own class."""

    placebench_watcher: ClassVar[Watcher]
    placebench_draft: "Draft | None" = None

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed."""
        if self.placebench_watcher.current.get() is None:
            return super().execute(sql, *args, **kwargs)  # type: ignore[misc]
        return self._run(super().execute, sql, args, kwargs, self._trips_of_execute())  # type: ignore[misc]

    def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's executemany, timed."""
        trips = self._trips_of_executemany(parameters)
        return self._run(super().executemany, sql, (parameters, *args), kwargs, trips)  # type: ignore[misc]

    def fetchone(self) -> Any:
        """The driver's fetchone, timed."""
        if self.placebench_draft is None:  # called for every row: an idle profiler must not cost a call more
            return super().fetchone()  # type: ignore[misc]
        return self._fetch(super().fetchone, (), {}, _one)  # type: ignore[misc]

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The driver's fetchmany, timed."""
        return self._fetch(super().fetchmany, args, kwargs, _many)  # type: ignore[misc]

    def fetchall(self) -> Any:
        """The driver's fetchall, timed."""
        return self._fetch(super().fetchall, (), {}, _many)  # type: ignore[misc]

    def _fetch(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        rows_in: Callable[[Any], int],
    ) -> Any:
        """Run the driver's *call*, with its time, rows and error in the draft of this cursor's statement."""
        draft = self.placebench_draft
        if draft is None:
            return call(*args, **kwargs)
        draft.enter()
        try:
            fetched = call(*args, **kwargs)
        except BaseException as error:
            draft.leave_fetch(0, self._trips_of_fetch())
            draft.failed(error)
            raise
        draft.leave_fetch(rows_in(fetched), self._trips_of_fetch())
        return fetched

    def _run(
        self, call: Callable[..., Any], sql: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], trips: int | None
    ) -> Any:
        """Run the driver's *call*, with its time and error in the draft that it belongs to."""
        draft = self.placebench_watcher.driver_call(self, sql)
        if draft is None:
            return call(sql, *args, **kwargs)
        try:
            return call(sql, *args, **kwargs)
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)

    def _trips_of_execute(self) -> int | None:
        """Round trips that the next execute will take; None for a driver without a network."""
        return None

    def _trips_of_executemany(self, parameters: Any) -> int | None:  # noqa: ARG002  the drivers with a network count them
        """Round trips that an executemany of these parameters will take."""
        return None

    def _trips_of_fetch(self) -> int | None:
        """Round trips of one fetch."""
        return None


def _one(row: object) -> int:
    """How many rows a fetchone gave."""
    return 0 if row is None else 1


def _many(rows: Any) -> int:
    """How many rows a fetchmany or fetchall gave; a user's cursor may give something that has no length."""
    return len(rows) if hasattr(rows, "__len__") else 0


class TimedConnection:
    """A connection that tells the profiler how long COMMIT and ROLLBACK took."""

    placebench_watcher: ClassVar[Watcher]

    def commit(self) -> None:
        """The driver's commit, timed."""
        self._step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """The driver's rollback, timed."""
        self._step("ROLLBACK", super().rollback)  # type: ignore[misc]

    def _step(self, step: str, call: Callable[[], None]) -> None:
        """Run the driver's *call* as a transaction step."""
        trips = self._trips_of_step()
        draft = self.placebench_watcher.driver_step(self, step)
        if draft is None:
            return call()
        try:
            return call()
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)

    def in_a_transaction(self) -> bool:
        """Whether the driver has a transaction open."""
        raise NotImplementedError

    def _trips_of_step(self) -> int | None:
        """Round trips that a commit or rollback will take now; None for a driver without a network."""
        return None


class Psycopg2Cursor(TimedCursor):
    """psycopg2 sends a BEGIN before the first statement of a transaction, and each executemany parameter set alone."""

    connection: Any
    name: str | None

    def copy_expert(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """psycopg2's COPY, timed."""
        return self._run(super().copy_expert, sql, args, kwargs, self._trips_of_execute())  # type: ignore[misc]

    def _trips_of_execute(self) -> int:
        return 1 + self._trips_of_begin()

    def _trips_of_executemany(self, parameters: Any) -> int | None:
        # An iterator cannot be counted without using it up.
        return len(parameters) + self._trips_of_begin() if hasattr(parameters, "__len__") else None

    def _trips_of_fetch(self) -> int:
        # Only a server-side cursor, which has a name, asks the server for its rows.
        return 0 if self.name is None else 1

    def _trips_of_begin(self) -> int:
        return 1 if self.connection.status == _READY and not self.connection.autocommit else 0


class Psycopg2Connection(TimedConnection):
    """psycopg2 sends COMMIT and ROLLBACK only if a transaction is open."""

    fileno: Callable[[], int]
    info: Any
    status: int

    @cached_property
    def placebench_meter(self) -> WireMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        return meter_of(self.fileno(), encrypted=self.info.ssl_in_use)

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return self.status != _READY

    def _trips_of_step(self) -> int:
        return 1 if self.in_a_transaction() else 0


class SqliteConnection(TimedConnection):
    """sqlite3 asks its connection, not its connect function, for the class of a cursor."""

    in_transaction: bool
    placebench_cursor: ClassVar[type]

    def in_a_transaction(self) -> bool:
        """Whether sqlite3 has begun a transaction, which it does before the first write."""
        return self.in_transaction

    def cursor(self, factory: Any = None) -> Any:
        """A timed cursor, of the class that was asked for if one was."""
        cursor = (
            self.placebench_cursor if factory is None else timed_class(TimedCursor, factory, self.placebench_watcher)
        )
        return super().cursor(cursor)  # type: ignore[misc]


def use_timed_classes(watcher: Watcher, driver: str, connect_arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of the driver's connect so that it makes timed cursors and connections.

    driver: SQLAlchemy's name of the driver, `dialect.driver`. Others than psycopg2 and pysqlite are left as they are.
    """
    if driver == "psycopg2":
        _for_psycopg2(watcher, connect_arguments)
    elif driver == "pysqlite":
        _for_sqlite(watcher, connect_arguments)


def timed_class(mixin: type, base: Any, watcher: Watcher) -> Any:
    """*base* with *mixin* before it, made once for each watcher; a function or a timed class comes back as it is."""
    if not isinstance(base, type) or issubclass(base, mixin):
        return base
    key = (mixin, base)
    if key not in watcher.timed_classes:
        name = f"Timed{base.__name__.capitalize()}"
        watcher.timed_classes[key] = type(name, (mixin, base), {"placebench_watcher": watcher})
    return watcher.timed_classes[key]


def _for_psycopg2(watcher: Watcher, arguments: MutableMapping[str, Any]) -> None:
    """psycopg2 takes both classes at connect; a connection class of the user's may choose its cursors by itself."""
    from psycopg2 import extensions

    users_connection, users_cursor = arguments.get("connection_factory"), arguments.get("cursor_factory")
    arguments["connection_factory"] = timed_class(
        Psycopg2Connection, users_connection or extensions.connection, watcher
    )
    if users_cursor is not None or users_connection is None:
        arguments["cursor_factory"] = timed_class(Psycopg2Cursor, users_cursor or extensions.cursor, watcher)


def _for_sqlite(watcher: Watcher, arguments: MutableMapping[str, Any]) -> None:
    """sqlite3 takes the connection's class at connect."""
    import sqlite3

    users = arguments.get("factory") or sqlite3.Connection
    if isinstance(users, type):
        made = timed_class(SqliteConnection, users, watcher)
        made.placebench_cursor = timed_class(TimedCursor, sqlite3.Cursor, watcher)
        arguments["factory"] = made
