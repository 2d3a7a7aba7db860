"""Time inside PyMySQL and mysqlclient, whose Python classes are alike: `time_mysql`, and `patch_pymysql`.

Each call is a round trip: neither driver sends BEGIN by itself, and both send each COMMIT and ROLLBACK.
"""

import functools
import ssl
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.capture.timed_cursor import (
    CallRecorder,
    Replace,
    TimedConnection,
    TimedCursor,
    count_sets,
    has_no_sets,
    timed_class,
)

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of the protocol


def patch_pymysql(recorder: CallRecorder, replace: Replace) -> None:
    """Have PyMySQL make timed connections."""
    _patch(recorder, replace, "pymysql")


def patch_mysqlclient(recorder: CallRecorder, replace: Replace) -> None:
    """Have mysqlclient make timed connections."""
    _patch(recorder, replace, "MySQLdb")


def time_mysql(recorder: CallRecorder, connection: Any) -> None:
    """Give a new connection of PyMySQL or mysqlclient its timed classes."""
    connection.__class__ = _timed_connection_class(type(connection), recorder)
    connection.cursorclass = timed_class(_MySqlCursor, connection.cursorclass, recorder)


def _timed_connection_class(base: type, recorder: CallRecorder) -> type:
    """Return the timed class of *base*, its first base class, so that the layout stays; timed methods are copied."""
    if issubclass(base, TimedConnection):
        return base
    key = (_MySqlConnection, base)
    if key not in recorder.timed_classes:
        body = {
            name: vars(_MySqlConnection)[name]
            for name in ("autocommit", "begin", "commit", "cursor", "rollback", "select_db")
            if hasattr(base, name)
        }
        body |= {"placebench_recorder": recorder, "placebench_base": base}
        recorder.timed_classes[key] = type("TimedConnection", (base, _MySqlConnection), body)
    return recorder.timed_classes[key]


def _patch(recorder: CallRecorder, replace: Replace, package: str) -> None:
    def time_connect(name: str) -> None:
        @replace(import_module(package), name)
        def timed_connect(*args: Any, **kwargs: Any) -> Any:
            with recorder.connecting_step():
                connection = timed_connect.__wrapped__(*args, **kwargs)
            recorder.change(time_mysql, connection)
            return connection

    for name in ("connect", "Connect"):
        time_connect(name)


class _MySqlCursor(TimedCursor):
    """A cursor whose executemany calls execute, and whose fetchall calls fetchone if it streams."""

    placebench_dialect = "mysql"
    _executed: bytes | str | None = None
    _result: Any = None
    placebench_executes: int | None = None
    rownumber: int
    placebench_fetches_all = False

    def sent(self) -> bytes | str | None:
        """Return the last statement that was sent, with its values."""
        return self._executed

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's execute, and time it or, as a part of an executemany, count it."""
        if self.placebench_executes is None:
            result = super().execute(sql, *args, **kwargs)
            if self._is_streaming() and self.placebench_pending is not None:
                self.placebench_pending.begin_stream()
            return result
        self.placebench_executes += 1
        return super(TimedCursor, self).execute(sql, *args, **kwargs)  # type: ignore[misc]

    def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's executemany and time it: a round trip for each long INSERT, or for each parameter set."""
        if has_no_sets(parameters):
            self.placebench_pending = None
            return super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        call = self.timing(sql, 0, parameters, executions=count_sets(parameters))
        self.placebench_executes = 0
        with call:
            try:
                return super(TimedCursor, self).executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
            finally:
                call.trips, self.placebench_executes = self.placebench_executes, None
                if self.placebench_pending is not None:
                    self.placebench_pending.set_row_count(self.rowcount)

    def callproc(self, name: str, args: Any = ()) -> Any:
        """Call a procedure and time it; the driver first sets a session variable for each argument."""
        with self.timing(f"call {name}(…)", 2 if args else 1, args):
            result = super().callproc(name, args)  # type: ignore[misc]
        if self.placebench_pending is not None:
            self.placebench_pending.set_row_count(self.rowcount)
        return result

    def scroll(self, *args: Any, **kwargs: Any) -> None:
        """Scroll among the rows that have come; rows that are fetched again count once."""
        before = self.rownumber
        super().scroll(*args, **kwargs)  # type: ignore[misc]
        self.rewind(before - self.rownumber)

    def fetchone(self) -> Any:
        """Call the driver's fetchone, and time it unless it is a part of a fetchall."""
        if self.placebench_fetches_all:
            return super(TimedCursor, self).fetchone()  # type: ignore[misc]
        row = super().fetchone()
        if row is None:
            self._end_stream()
        return row

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's fetchmany and time it."""
        rows = super().fetchmany(*args, **kwargs)
        self._end_stream()
        return rows

    def fetchall(self) -> Any:
        self.placebench_fetches_all = True
        try:
            rows = super().fetchall()
        finally:
            self.placebench_fetches_all = False
        self._end_stream()
        return rows

    def close(self) -> None:
        """Call the driver's close, and time it if it reads the rest of a result."""
        if self.placebench_pending is None or not self._is_streaming():
            self.placebench_close()
            return
        with self.timing_fetch():
            self.placebench_close()
        self._end_stream()

    def _is_streaming(self) -> bool:
        """Return whether more rows may come to an unbuffered cursor of PyMySQL; the bytes of others are not counted."""
        return getattr(self._result, "unbuffered_active", False)

    def _end_stream(self) -> None:
        if self.placebench_pending is not None and not self._is_streaming():
            self.placebench_pending.end_stream()

    # An iteration consists of fetchones, which are timed.
    placebench_timed__next__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Any]:
        rows: Iterator[Any] = super(TimedCursor, self).__iter__()  # type: ignore[misc]
        return rows

    def trips_of_execute(self) -> int:
        """Return 1, for the statement: beginning a transaction takes no round trip."""
        return 1

    def trips_of_fetch(self) -> int:
        """Return 0: the server sends all rows at once, whether they are kept or streamed."""
        return 0


class _MySqlConnection(TimedConnection):
    """A connection that makes timed cursors; adds no slots, so that an object can change its class."""

    __slots__ = ()
    placebench_base: ClassVar[Any]

    def autocommit(self, value: Any) -> None:
        """Call the driver's autocommit, and time it if it sends a SET, which ends an open transaction."""
        call = functools.partial(self.placebench_base.autocommit, self, value)
        if bool(value) == self.get_autocommit():  # type: ignore[attr-defined]
            call()
        else:
            self.placebench_step("AUTOCOMMIT", call)

    def begin(self) -> None:
        self.placebench_step("BEGIN", functools.partial(self.placebench_base.begin, self))

    def commit(self) -> None:
        self.placebench_step("COMMIT", functools.partial(self.placebench_base.commit, self))

    def rollback(self) -> None:
        self.placebench_step("ROLLBACK", functools.partial(self.placebench_base.rollback, self))

    def select_db(self, name: str) -> None:
        """Call the driver's select_db; from then on tables of the same name may hold other rows."""
        self.placebench_recorder.forget_reads()
        self.placebench_base.select_db(self, name)

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """Return a timed cursor of the class that the caller chose."""
        timed = functools.partial(timed_class, _MySqlCursor, recorder=self.placebench_recorder)
        args = tuple(each if each is None else timed(each) for each in args)
        kwargs = {name: each if each is None else timed(each) for name, each in kwargs.items()}
        return self.placebench_base.cursor(self, *args, **kwargs)

    @property
    def placebench_meter(self) -> SocketMeter | None:
        """The meter of this connection's bytes; None if they cannot be measured, as with mysqlclient."""
        socket = getattr(self, "_sock", None)
        return None if socket is None else socket_meter(socket.fileno(), encrypted=isinstance(socket, ssl.SSLSocket))

    def begins(self, sql: str) -> bool:  # noqa: ARG002  whatever it is
        """Return whether this statement will run in a transaction, which the server may begin by itself."""
        return self.in_a_transaction()

    def in_a_transaction(self) -> bool:
        """Return whether a COMMIT has an effect: the server is in a transaction, or begins one with each statement."""
        return self.has_begun() or not self.get_autocommit()  # type: ignore[attr-defined]

    def has_begun(self) -> bool:
        """Return whether the server is in a transaction, by its last response to PyMySQL; mysqlclient does not tell."""
        return bool(getattr(self, "server_status", 0) & _IN_TRANSACTION)

    def trips_of_step(self, _step: str) -> int:
        """Return 1: COMMIT and ROLLBACK are sent even if no transaction is open."""
        return 1
