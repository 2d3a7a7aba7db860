"""Time inside the driver: cursor and connection classes of our own, handed to the driver when it connects.

SQLAlchemy has no event for a fetch, nor for the end of a COMMIT. The key piece is `use_timed_classes`, called from
the `do_connect` event. It knows psycopg2 and sqlite3; psycopg 3 has a module of its own, and with other drivers those
times are "not measured". A cursor or connection class that the user chose is subclassed, never replaced.
"""

import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from placebench.profiler.auto_explain import NoticeList, PlanFeed
from placebench.profiler.wire import WireMeter, meter_of

if TYPE_CHECKING:
    from contextvars import ContextVar

    from placebench.profiler.draft import Draft
    from placebench.profiler.tape import Tape

T = TypeVar("T")

_READY = 1  # psycopg2.extensions.STATUS_READY: no transaction is open


class Watcher(Protocol):
    """What the timed classes ask of the profiler; none of these raises."""

    current: "ContextVar[Tape | None]"
    timed_classes: dict[tuple[type, type], type]

    def driver_call(self, cursor: "TimedCursor", sql: object) -> "Draft | None":
        """The draft that this execute belongs to; None if nothing is being recorded."""

    def driver_step(self, connection: "TimedConnection[Any]", step: str) -> "Draft | None":
        """A new draft of a COMMIT or ROLLBACK; None if nothing is being recorded."""


class TimedCursor:
    """A cursor that tells its draft how long the driver took; mixed in before the driver's own class."""

    placebench_watcher: ClassVar[Watcher]
    placebench_draft: "Draft | None" = None

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's execute, timed; written out, for it runs for every statement."""
        draft = self.placebench_draft
        if draft is None or not draft.running:
            if self.placebench_watcher.current.get() is None:
                return super().execute(sql, *args, **kwargs)  # type: ignore[misc]
            return self._run(super().execute, sql, args, kwargs, self.trips_of_execute())  # type: ignore[misc]
        trips = self.trips_of_execute()
        tape = draft.tape
        now = draft.entered = tape.clock()
        tape.own_s += now - draft.started
        try:
            return super().execute(sql, *args, **kwargs)  # type: ignore[misc]
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)

    def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """The driver's executemany, timed."""
        trips = self.trips_of_executemany(parameters)
        return self._run(super().executemany, sql, (parameters, *args), kwargs, trips)  # type: ignore[misc]

    def fetchone(self) -> Any:
        """The driver's fetchone, timed."""
        if self.placebench_draft is None:  # called for every row: an idle profiler must not cost a call more
            return super().fetchone()  # type: ignore[misc]
        draft = self.placebench_draft
        draft.entered = draft.tape.clock()
        try:
            row = super().fetchone()  # type: ignore[misc]
        except BaseException as error:
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        if self.trips_of_fetch():
            draft.leave_fetch(one(row), 1)
        else:
            draft.leave_row(row)
        return row

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """The driver's fetchmany, timed."""
        return self._fetch(super().fetchmany, args, kwargs, many)  # type: ignore[misc]

    def fetchall(self) -> Any:
        """The driver's fetchall, timed; written out like `execute`."""
        draft = self.placebench_draft
        if draft is None:
            return super().fetchall()  # type: ignore[misc]
        draft.entered = draft.tape.clock()
        try:
            fetched = super().fetchall()  # type: ignore[misc]
        except BaseException as error:
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        draft.leave_fetch(fetched if type(fetched) is list else many(fetched), self.trips_of_fetch())
        return fetched

    def _fetch(
        self,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        rows_in: Callable[[Any], Sequence[Any]],
    ) -> Any:
        """Run the driver's *call*, with its time, rows and error in the draft of this cursor's statement."""
        draft = self.placebench_draft
        if draft is None:
            return call(*args, **kwargs)
        draft.enter()
        try:
            fetched = call(*args, **kwargs)
        except BaseException as error:
            draft.leave_fetch((), self.trips_of_fetch())
            draft.failed(error)
            raise
        draft.leave_fetch(rows_in(fetched), self.trips_of_fetch())
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

    def running(self, sql: Any, trips: int | None) -> "Running":
        """Around a call of the driver's that is no plain function: its time and error in the draft it belongs to."""
        watched = self.placebench_watcher.current.get() is not None
        return Running(self.placebench_watcher.driver_call(self, sql) if watched else None, trips)

    def trips_of_execute(self) -> int | None:
        """Round trips that the next execute will take; None for a driver without a network."""
        return None

    def trips_of_executemany(self, parameters: Any) -> int | None:  # noqa: ARG002  the drivers with a network count them
        """Round trips that an executemany of these parameters will take."""
        return None

    def trips_of_fetch(self) -> int | None:
        """Round trips of one fetch."""
        return None


class Running:
    """A call of the driver's, awaited or opened by `with`: its time, round trips and error go to the draft.

    A class of its own: the frames of contextlib would stand in the flame.
    """

    def __init__(self, draft: "Draft | None", trips: int | None, *, fetches: bool = False) -> None:
        self._draft = draft
        self._trips = trips
        self._fetches = fetches

    def __enter__(self) -> None:
        """The draft's clock runs already."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._draft is None:
            return
        if error is not None:
            self._draft.failed(error)
        if self._fetches:
            self._draft.leave_fetch((), self._trips)
        else:
            self._draft.leave_execute(self._trips)


def one(row: object) -> Sequence[Any]:
    """The rows that a fetchone gave."""
    return () if row is None else (row,)


def many(rows: Any) -> Sequence[Any]:
    """The rows that a fetchmany or fetchall gave; a user's cursor may give something that has no length."""
    return rows if isinstance(rows, Sequence) else ()


class NetworkCursor(TimedCursor):
    """A cursor that may live on a server: each of its fetches, and its end, is a round trip."""

    def streams(self) -> bool:
        """Whether this is a server-side cursor."""
        raise NotImplementedError

    def trips_of_fetch(self) -> int:
        """Only a server-side cursor asks the server for its rows."""
        return 1 if self.streams() else 0

    def close(self) -> Any:
        """The driver's close, timed where it asks the server."""
        if self.placebench_draft is None or not self.trips_of_fetch():
            return super().close()  # type: ignore[misc]
        with self.closing():
            return super().close()  # type: ignore[misc]

    def closing(self) -> "Running":
        """Around the driver's close: a server-side cursor's plan comes only then."""
        draft, self.placebench_draft = self.placebench_draft, None
        if draft is None or not self.streams():
            return Running(None, None)
        draft.enter()
        return Running(draft, 1, fetches=True)


class TimedConnection(Generic[T]):
    """A connection that tells the profiler how long COMMIT and ROLLBACK took, and keeps the plans it was sent.

    Generic, because psycopg 3's connections are: only so have both the same layout, and an object can change its class.
    """

    placebench_watcher: ClassVar[Watcher]

    def commit(self) -> None:
        """The driver's commit, timed."""
        self._step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """The driver's rollback, timed."""
        self._step("ROLLBACK", super().rollback)  # type: ignore[misc]

    def _step(self, step: str, call: Callable[[], None]) -> None:
        """Run the driver's *call* as a transaction step."""
        trips = self.trips_of_step()
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

    def stepping(self, step: str) -> "Running":
        """Around a step that is awaited."""
        trips = self.trips_of_step()
        return Running(self.placebench_watcher.driver_step(self, step), trips)

    @property
    def placebench_plans(self) -> PlanFeed | None:
        """Where the server's plans arrive; None for a server that sends none."""
        return None

    def in_a_transaction(self) -> bool:
        """Whether the driver has a transaction open."""
        raise NotImplementedError

    def trips_of_step(self) -> int | None:
        """Round trips that a commit or rollback will take now; None for a driver without a network."""
        return None


class Psycopg2Cursor(NetworkCursor):
    """psycopg2 sends a BEGIN before the first statement of a transaction, and each executemany parameter set alone."""

    connection: Any
    name: str | None

    def copy_expert(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """psycopg2's COPY, timed."""
        return self._run(super().copy_expert, sql, args, kwargs, self.trips_of_execute())  # type: ignore[misc]

    def trips_of_execute(self) -> int:
        connection = self.connection
        return 2 if connection.status == _READY and not connection.autocommit else 1

    def trips_of_executemany(self, parameters: Any) -> int | None:
        # An iterator cannot be counted without using it up.
        return len(parameters) + self.trips_of_execute() - 1 if hasattr(parameters, "__len__") else None

    def streams(self) -> bool:
        """Whether it has a name, as server-side cursors do."""
        return self.name is not None

    def trips_of_fetch(self) -> int:
        """The same in one call: it runs for every statement."""
        return 0 if self.name is None else 1


class Psycopg2Connection(TimedConnection[Any]):
    """psycopg2 sends COMMIT and ROLLBACK only if a transaction is open."""

    fileno: Callable[[], int]
    info: Any
    notices: list[str]
    status: int

    @cached_property
    def placebench_meter(self) -> WireMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        return meter_of(self.fileno(), encrypted=self.info.ssl_in_use)

    @cached_property
    def placebench_plans(self) -> PlanFeed:
        """What the server says of its plans."""
        feed = PlanFeed()
        self.notices = NoticeList(feed, self.notices)
        return feed

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return self.status != _READY

    def trips_of_step(self) -> int:
        return 1 if self.in_a_transaction() else 0


class SqliteConnection(TimedConnection[Any]):
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


def physical(dbapi_connection: object) -> object:
    """The driver's own connection behind SQLAlchemy's adapter of an async one; any other as it is."""
    if isinstance(dbapi_connection, TimedConnection):
        return dbapi_connection
    return getattr(dbapi_connection, "driver_connection", dbapi_connection)


def time_connection(watcher: Watcher, dbapi_connection: object) -> None:
    """Time a connection that has just been made, of a driver that takes its classes only then: psycopg 3."""
    psycopg = sys.modules.get("psycopg")
    connection = physical(dbapi_connection)
    if psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        from placebench.profiler.psycopg3 import time_psycopg

        time_psycopg(watcher, connection, awaited=isinstance(connection, psycopg.AsyncConnection))


def timed_class(mixin: type, base: Any, watcher: Watcher) -> Any:
    """*base* with *mixin* before it, made once for each watcher; a function or a timed class comes back as it is."""
    if not isinstance(base, type) or issubclass(base, mixin):
        return base
    key = (mixin, base)
    if key not in watcher.timed_classes:
        name = f"Timed{base.__name__.capitalize()}"
        body: dict[str, Any] = {"placebench_watcher": watcher}
        if base.__dictoffset__:
            body["__slots__"] = ()  # the same layout: an object's class can be replaced by the timed one
        watcher.timed_classes[key] = type(name, (mixin, base), body)
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
