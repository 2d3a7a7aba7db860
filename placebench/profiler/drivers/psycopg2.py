"""Time inside psycopg2, which takes the classes of its connection and cursors at connect: `time_psycopg2`."""

from collections.abc import Callable, MutableMapping
from functools import cached_property, partial
from typing import Any

from placebench.profiler.capture.auto_explain import NoticeList, PlanFeed
from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.capture.timed_cursor import (
    CallRecorder,
    NetworkCursor,
    Replace,
    TimedCall,
    TimedCursor,
    TwoPhaseConnection,
    timed_below,
    timed_class,
)

_READY = 1  # psycopg2.extensions.STATUS_READY: no transaction is open


def patch_psycopg2(recorder: CallRecorder, replace: Replace) -> None:
    """Have psycopg2 make timed connections, even for code that already holds its function `connect`."""
    import psycopg2

    @replace(psycopg2, "_connect")
    def timed_connect(dsn: str, connection_factory: Any = None, **keywords: Any) -> Any:
        arguments = {"connection_factory": connection_factory}
        recorder.change(time_psycopg2, arguments)
        cursor_factory = arguments.pop("cursor_factory", None)
        with recorder.connecting_step():
            connection = timed_connect.__wrapped__(dsn, **arguments, **keywords)
        if cursor_factory is not None and isinstance(connection, _Psycopg2Connection):
            connection.cursor_factory = cursor_factory
        return connection


def time_psycopg2(recorder: CallRecorder, arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of connect so that the connection and its cursors are timed.

    A connection class of the user may choose its cursors by itself: they are timed when they are made.
    """
    from psycopg2 import extensions

    users_connection, users_cursor = arguments.get("connection_factory"), arguments.get("cursor_factory")
    arguments["connection_factory"] = timed_below(
        _Psycopg2Connection, extensions.connection, users_connection or extensions.connection, recorder
    )
    if users_cursor is not None or users_connection is None:
        arguments["cursor_factory"] = timed_class(_Psycopg2Cursor, users_cursor or extensions.cursor, recorder)


def time_cursors(recorder: CallRecorder, connection: Any) -> None:
    """Have a connection of the application (`creator=`) make timed cursors; its own class cannot be changed."""
    from psycopg2 import extensions

    # A connection class of the application may choose its cursors by itself.
    usual = extensions.cursor if type(connection) is extensions.connection else None
    users = connection.cursor_factory or usual
    if users is not None and not isinstance(connection, _Psycopg2Connection):
        connection.cursor_factory = timed_class(_Psycopg2NamedCursor, users, recorder)


class _Psycopg2Cursor(TimedCursor):
    """A cursor of psycopg2, which sends BEGIN before the first statement, and an executemany set by set."""

    placebench_dialect = "postgresql"

    connection: Any
    query: bytes | None
    rownumber: int

    def sent(self) -> bytes | None:
        """Return the last statement that was sent, with its values."""
        return self.query

    def copy_expert(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(super().copy_expert, sql, args, kwargs, self.trips_of_copy(sql))  # type: ignore[misc]

    def copy_from(self, file: Any, table: str, *args: Any, **kwargs: Any) -> Any:
        copy = partial(super().copy_from, file, table, *args, **kwargs)  # type: ignore[misc]
        return self._run(lambda _: copy(), f"copy {table} from stdin", (), {}, self.trips_of_execute() + 1)

    def copy_to(self, file: Any, table: str, *args: Any, **kwargs: Any) -> Any:
        copy = partial(super().copy_to, file, table, *args, **kwargs)  # type: ignore[misc]
        return self._run(lambda _: copy(), f"copy {table} to stdout", (), {}, self.trips_of_execute())

    def callproc(self, name: str, *args: Any) -> Any:
        with self.timing(f"select * from {name}(…)", self.trips_of_execute(), *args):
            return super().callproc(name, *args)  # type: ignore[misc]

    def scroll(self, *args: Any, **kwargs: Any) -> None:
        """Scroll among the rows that have come; rows that are fetched again count once."""
        before = self.rownumber
        super().scroll(*args, **kwargs)  # type: ignore[misc]
        self.rewind(before - self.rownumber)

    def trips_of_execute(self) -> int:
        connection = self.connection
        return 2 if connection.status == _READY and not connection.autocommit else 1

    def trips_of_executemany(self, parameters: Any) -> int | None:
        # An iterator cannot be counted without using it up.
        return len(parameters) + self.trips_of_execute() - 1 if hasattr(parameters, "__len__") else None

    def trips_of_fetch(self) -> int:
        """Return 0: all rows came with the execute."""
        return 0


class _Psycopg2NamedCursor(_Psycopg2Cursor, NetworkCursor):
    """A cursor that may have a name, as server-side cursors do."""

    name: str | None

    def is_server_side(self) -> bool:
        return self.name is not None

    def scroll(self, *args: Any, **kwargs: Any) -> None:
        """Call psycopg2's scroll; for a server-side cursor it is a MOVE, which is timed."""
        if self.is_server_side():
            with self.timing_fetch():
                super(_Psycopg2Cursor, self).scroll(*args, **kwargs)  # type: ignore[misc]
        else:
            super().scroll(*args, **kwargs)

    def trips_of_fetch(self) -> int:
        """Return 1 for a fetch of a server-side cursor, else 0."""
        return NetworkCursor.trips_of_fetch(self)

    def trips_of_end(self, _trips: int | None) -> int:
        """Return 1 for the FETCH of a server-side cursor that brings no more rows, else 0."""
        return self.trips_of_fetch()


class _Psycopg2Connection(TwoPhaseConnection[Any]):
    """A connection of psycopg2, which sends COMMIT and ROLLBACK only if a transaction is open."""

    autocommit: bool
    placebench_cursor: Callable[..., Any]
    fileno: Callable[[], int]
    info: Any
    notices: list[str]
    status: int

    @property
    def cursor_factory(self) -> Any:
        """The timed class of the connection's cursors; None if a connection class of the user chooses it."""
        return super().cursor_factory  # type: ignore[misc]

    @cursor_factory.setter
    def cursor_factory(self, factory: Any) -> None:
        from psycopg2 import extensions

        timed = timed_class(_Psycopg2Cursor, factory, self.placebench_recorder)
        member: Any = vars(extensions.connection)["cursor_factory"]
        member.__set__(self, timed)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """Return a timed cursor of the class that the caller or the connection chose, as psycopg2 does."""
        if not args and not kwargs:  # as SQLAlchemy calls it for every statement
            cursor = self.placebench_cursor()
            if isinstance(cursor, TimedCursor):
                return cursor
        from psycopg2 import extensions

        chosen = kwargs.get("cursor_factory") or (args[1] if len(args) > 1 else None) or self.cursor_factory
        timed = timed_class(_Psycopg2NamedCursor, chosen or extensions.cursor, self.placebench_recorder)
        if len(args) > 1:
            args = (args[0], timed, *args[2:])
        else:
            kwargs = kwargs | {"cursor_factory": timed}
        return self.placebench_cursor(*args, **kwargs)

    def lobject(self, *args: Any, **kwargs: Any) -> Any:
        """Call psycopg2's lobject, which begins a transaction; what it sends else are no statements."""
        if self.in_a_transaction() or self.autocommit:
            return super().lobject(*args, **kwargs)  # type: ignore[misc]
        with TimedCall(self.placebench_recorder.driver_step(self, "BEGIN"), None):
            return super().lobject(*args, **kwargs)  # type: ignore[misc]

    def set_isolation_level(self, level: Any) -> None:
        """Call psycopg2's set_isolation_level, and time the ROLLBACK that it sends in a transaction."""
        self.placebench_step("ROLLBACK", partial(super().set_isolation_level, level))  # type: ignore[misc]

    def reset(self) -> None:
        """Call psycopg2's reset, which ends a transaction and discards the settings of the session, and time it."""
        with self.timing_step("RESET", 1 + self.in_a_transaction()):
            super().reset()  # type: ignore[misc]

    @cached_property
    def placebench_meter(self) -> SocketMeter | None:
        """The meter of this connection's bytes; None if they cannot be measured."""
        return socket_meter(self.fileno(), encrypted=self.info.ssl_in_use)

    @cached_property
    def placebench_plans(self) -> PlanFeed:
        """The feed of the plans in the server's notices."""
        feed = PlanFeed()
        self.notices = NoticeList(feed, self.notices)
        return feed

    def in_a_transaction(self) -> bool:
        return self.status != _READY

    def trips_of_step(self, _step: str) -> int:
        return 1 if self.in_a_transaction() else 0
