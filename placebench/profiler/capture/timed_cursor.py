"""Timed cursors and connections: classes that are mixed in before a driver's and report how long its calls took.

The main classes are `TimedCursor` (and `NetworkCursor`, which counts round trips) and `TimedConnection`; `timed_class`
makes a driver's timed class. They need no SQLAlchemy: whoever implements `CallRecorder` gets each call.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from placebench.profiler.capture.active_recording import ActiveRecording, CurrentRecording
from placebench.profiler.capture.auto_explain import PlanFeed
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.statistics_collector import StatisticsCollector

_T = TypeVar("_T")
_OFTEN_CALLED = ("cursor", "execute", "fetchone", "fetchall", "close")
"""The driver's methods that a timed class also has as `placebench_execute` and so on."""
_END = object()
_COPY_IN = re.compile(r"\bfrom\s+stdin\b", re.IGNORECASE)


class CallRecorder(Protocol):
    """The part of the profiler that the timed classes call; no method raises."""

    current: CurrentRecording
    collector: StatisticsCollector | None
    timed_classes: dict[tuple[type, type], type]

    def change(self, how: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Call *how* to make a connection, or the arguments of a connect, timed."""

    def connecting_step(self) -> AbstractContextManager[None]:
        """Record a driver's connect as a CONNECT."""

    def waiting_for_pool(self) -> AbstractContextManager[Callable[[object], object]]:
        """Measure a wait for the connection of a pool; the caller passes the connection to the yielded function."""

    running: set[ActiveRecording]
    unprofiled: ContextVar[bool]
    is_second: bool

    def count_missed(self) -> None:
        """Count a statement that no recording sees."""

    def count_started(self, what: str) -> None:
        """Note that a process or an interpreter was started whose statements no recording sees."""

    def driver_call(self, cursor: "TimedCursor", sql: object, values: object = None) -> PendingStatement | None:
        """Return the statement that this execute belongs to; None if nothing is being recorded."""

    def measure(self, sql: object, cursor: object = None) -> PendingStatement | None:
        """Start a statement that is only counted; None if statistics are off."""

    def driver_values(self, pending: PendingStatement, sql: str, values: object) -> None:
        """Compare a statement with earlier ones by its text and values, which the driver has made known only now."""

    def forget_reads(self) -> None:
        """Forget all reads so far: the connection may use another database now, so later reads are no repetitions."""

    def driver_step(self, connection: "TimedConnection", step: str) -> PendingStatement | None:
        """Start a COMMIT, ROLLBACK or PING; None if nothing is being recorded."""


class TimedCall:
    """A call of the driver, awaited or inside of `with`: its time, round trips and error go to the pending statement.

    A class instead of a generator, because the frames of contextlib would be in the flame graph.
    """

    def __init__(self, pending: PendingStatement | None, trips: int | None) -> None:
        self._pending = pending
        self.trips = trips

    def __enter__(self) -> None:
        """Do nothing: the statement's clock runs already."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._pending is not None:
            if error is not None:
                self._pending.set_error(error)
            self._pending.execute_returned(self.trips)


Replace = Callable[[Any, str], Callable[[Callable[..., Any]], Any]]
"""Puts a wrapper around a driver's function until the profiler is removed: the decorator `@replace(owner, name)`.

The wrapper calls the driver's function as its own `__wrapped__`, which changes when a wrapper below is removed.
"""


class TimedFetch:
    """A fetch, awaited or not, or a close: its time, rows, round trips and error go to the pending statement."""

    def __init__(self, pending: PendingStatement | None, trips: Callable[[], int | None]) -> None:
        self._pending = pending
        self._trips = trips
        self._rows: Sequence[Any] = ()

    def __enter__(self) -> Self:
        if self._pending is not None:
            self._pending.driver_called()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._pending is not None:
            self._pending.fetch_returned(self._rows, self._trips())
            if error is not None:
                self._pending.set_error(error)

    def row(self, row: Any) -> Any:
        """Note the *row* that a fetchone returned (None for no row), and return it."""
        self._rows = () if row is None else (row,)
        return row

    def rows(self, rows: Any) -> Any:
        """Note the *rows* that a fetchmany or fetchall returned, and return them."""
        self._rows = _sized(rows)
        return rows


def timed_class(mixin: type, base: Any, recorder: CallRecorder) -> Any:
    """Return *base* with *mixin* before it, made once per recorder; return a function or a timed class unchanged."""
    if not isinstance(base, type) or issubclass(base, mixin):
        recorder.is_second |= getattr(base, "placebench_recorder", recorder) is not recorder
        return base
    base = vars(base).get("placebench_driver_class", base)  # *base* may be timed by another mixin
    key = (mixin, base)
    if key not in recorder.timed_classes:
        name = f"Timed{base.__name__[:1].upper()}{base.__name__[1:]}"
        body: dict[str, Any] = {"placebench_recorder": recorder, "placebench_driver_class": base}
        # super() would look them up anew in each call, which takes as long as a short call itself.
        body |= {f"placebench_{call}": getattr(base, call) for call in _OFTEN_CALLED if hasattr(base, call)}
        for step in ("__next__", "__anext__"):  # only if the driver's cursor is an iterator
            timed = getattr(mixin, f"placebench_timed{step}", None)
            if timed is not None and hasattr(base, step):
                body |= {step: timed, f"placebench{step}": getattr(base, step)}
        if base.__dictoffset__ or "__slots__" in vars(mixin):
            body["__slots__"] = ()  # the same layout, so that the class of an object can be replaced
        recorder.timed_classes[key] = type(name, (mixin, base), body)
    return recorder.timed_classes[key]


def timed_below(mixin: type, driver_class: type, users: Any, recorder: CallRecorder) -> Any:
    """Return the timed class of *driver_class* or, if *users* is a subclass of it, that subclass above the timed class.

    The methods of the user's class run as they are, and what they call by super() is timed. Anything else that makes
    connections, such as a function, is returned unchanged.
    """
    if not isinstance(users, type) or not issubclass(users, driver_class):
        return users
    if users is driver_class or issubclass(users, mixin):  # the latter is timed already, perhaps for another profiler
        return timed_class(mixin, users, recorder)
    timed = timed_class(mixin, driver_class, recorder)
    key = (timed, users)
    if key not in recorder.timed_classes:
        recorder.timed_classes[key] = type(f"Timed{users.__name__}", (users, timed), {})
    return recorder.timed_classes[key]


class TimedCursor:
    """A cursor that reports how long the driver took; mixed in before the driver's own class."""

    placebench_recorder: ClassVar[CallRecorder]
    placebench_dialect: ClassVar[str | None] = None
    """SQLAlchemy's name of the dialect of the cursor's statements."""
    placebench_pending: PendingStatement | None = None
    placebench_execute: Callable[..., Any]
    placebench_fetchone: Callable[[], Any]
    placebench_fetchall: Callable[[], Any]
    placebench_close: Callable[[], Any]
    placebench__next__: Callable[[], Any]
    fetches_remotely: ClassVar[bool] = False
    """Whether a fetch may be a round trip."""
    rowcount: int

    def execute(self, sql: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's execute and time it; written without helpers because it runs for every statement."""
        pending = self.placebench_pending
        if pending is not None and pending.executing:
            trips = self.trips_of_execute()
            recording = pending.recording
            now = pending.entered = recording.clock()
            if pending.execute_s is None:
                recording.overhead_s += now - pending.started
        else:
            recorder = self.placebench_recorder
            if recorder.current.get() is not None:
                return self._run(self.placebench_execute, sql, args, kwargs, self.trips_of_execute())
            if recorder.running:
                recorder.count_missed()
            if recorder.collector is None:
                return self.placebench_execute(sql, *args, **kwargs)
            trips, pending = None, recorder.measure(sql, self)
            self.placebench_pending = pending
            if pending is None:
                return self.placebench_execute(sql, *args, **kwargs)
        try:
            return self.placebench_execute(sql, *args, **kwargs)
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.execute_returned(trips, self.rowcount)
            if pending.executing:
                pending.fetched_rows = pending.fetched_rows or 0  # from here on its fetches are seen

    def executemany(self, sql: Any, parameters: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's executemany and time it; without parameter sets it sends no statement."""
        if has_no_sets(parameters):
            self.placebench_pending = None
            return super().executemany(sql, parameters, *args, **kwargs)  # type: ignore[misc]
        trips = self.trips_of_executemany(parameters)
        sets = count_sets(parameters)
        return self._run(super().executemany, sql, (parameters, *args), kwargs, trips, sets)  # type: ignore[misc]

    def fetchone(self) -> Any:
        """Call the driver's fetchone and time it."""
        if self.placebench_pending is None:  # called for every row: an idle profiler must not cost another call
            return self.placebench_fetchone()
        pending = self.placebench_pending
        clock = pending.clock
        began = clock()
        try:
            row = self.placebench_fetchone()
        except BaseException as error:
            pending.entered = began
            pending.fetch_returned((), self.trips_of_fetch())
            pending.set_error(error)
            raise
        if pending.rows_come_alone:
            pending.row_returned(row, clock() - began)
        else:
            pending.entered = began
            pending.first_row_returned(row, self.trips_of_fetch())
        return row

    def __iter__(self) -> Iterator[Any]:
        rows: Any = super().__iter__()  # type: ignore[misc]
        pending = self.placebench_pending
        if rows is self and pending is None:  # an idle profiler must not cost a call per row
            return iter(self.placebench__next__, _END)
        if pending is None or hasattr(self, "__next__"):  # a timed `__next__`, which gives the rows
            return rows  # type: ignore[no-any-return]
        return self._timed_rows(rows, pending)

    def _timed_rows(self, rows: Iterator[Any], pending: PendingStatement) -> Iterator[Any]:
        with suppress(StopIteration):
            while True:
                yield self._timed_row(rows.__next__, pending)

    def placebench_timed__next__(self) -> Any:
        """Call the driver's `__next__` and time it."""
        pending = self.placebench_pending
        return self.placebench__next__() if pending is None else self._timed_row(self.placebench__next__, pending)

    def _timed_row(self, fetch: Callable[[], Any], pending: PendingStatement) -> Any:
        """Call *fetch* for the next row of an iteration, timed; raises StopIteration after the last row."""
        trips = self.trips_of_row(pending.iterated)
        began = pending.clock()
        try:
            row = fetch()
        except BaseException as error:
            pending.entered = began
            if isinstance(error, StopIteration):
                pending.fetch_returned((), self.trips_of_end(trips))
            else:
                pending.fetch_returned((), trips)
                pending.set_error(error)
            raise
        if trips or not pending.iterated:
            pending.entered = began
            pending.fetch_returned((row,), trips)
        else:
            pending.row_returned(row, pending.clock() - began)
        pending.iterated += 1
        return row

    def fetchmany(self, *args: Any, **kwargs: Any) -> Any:
        """Call the driver's fetchmany and time it."""
        with self.timing_fetch() as fetch:
            return fetch.rows(super().fetchmany(*args, **kwargs))  # type: ignore[misc]

    def fetchall(self) -> Any:
        """Call the driver's fetchall and time it; written without helpers, like `execute`."""
        pending = self.placebench_pending
        if pending is None:
            return self.placebench_fetchall()
        pending.entered = pending.clock()
        try:
            fetched = self.placebench_fetchall()
        except BaseException as error:
            pending.fetch_returned((), self.trips_of_fetch())
            pending.set_error(error)
            raise
        rows = fetched if type(fetched) is list else _sized(fetched)
        pending.fetch_returned(rows, self.trips_of_fetch() if self.fetches_remotely else None)
        return fetched

    def will_be_asked(self) -> None:
        """Prepare for a call of `sent` after the next execute."""

    def sent(self) -> bytes | str | None:
        """Return what the driver sent last, values included; None if the driver does not report it."""
        return None

    def rewind(self, rows: int) -> None:
        """Subtract *rows*, which will be fetched again after a scroll backwards, so that they are counted once."""
        if self.placebench_pending is not None and self.placebench_pending.fetched_rows is not None:
            self.placebench_pending.add_rows(-max(0, rows))

    def timing_fetch(self) -> TimedFetch:
        """Return a context manager that times a fetch."""
        return TimedFetch(self.placebench_pending, self.trips_of_fetch)

    def _run(
        self,
        call: Callable[..., Any],
        sql: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        trips: int | None,
        executions: int = 1,
    ) -> Any:
        """Run the driver's *call*, and record its time and error in the statement that it belongs to."""
        pending = self.placebench_recorder.driver_call(self, sql, args[0] if args else kwargs or None)
        if pending is None:
            return call(sql, *args, **kwargs)
        pending.executions = executions
        try:
            return call(sql, *args, **kwargs)
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.execute_returned(trips, self.rowcount)

    def timing(self, sql: Any, trips: int | None, *values: Any, executions: int = 1) -> TimedCall:
        """Return a context manager that times one driver call, awaited or not, and records it in its statement."""
        recorder = self.placebench_recorder
        idle = recorder.current.get() is None and not recorder.running and recorder.collector is None
        pending = None if idle else recorder.driver_call(self, sql, values or None)
        if pending is not None:
            pending.executions = executions
        return TimedCall(pending, trips)

    def trips_of_execute(self) -> int | None:
        """Return the round trips that the next execute will take; None for a driver without a network."""
        return None

    def trips_of_executemany(self, parameters: Any) -> int | None:  # noqa: ARG002  the drivers with a network count them
        """Return the round trips that an executemany of these parameters will take."""
        return None

    def trips_of_copy(self, statement: Any) -> int:
        """Return the round trips of a COPY; one into the server waits for its permission and then for its end."""
        return (self.trips_of_execute() or 0) + bool(_COPY_IN.search(str(statement)))

    def trips_of_fetch(self) -> int | None:
        """Return the round trips of one fetch."""
        return None

    def trips_of_row(self, count: int) -> int | None:  # noqa: ARG002  server-side cursors need it
        """Return the round trips of the next row of an iteration, after *count* rows."""
        return self.trips_of_fetch()

    def trips_of_end(self, trips: int | None) -> int | None:
        """Return the round trips at the end of an iteration; one more row would have taken *trips*."""
        return trips


class NetworkCursor(TimedCursor):
    """A cursor that may be server-side: then each fetch, and the close, is a round trip."""

    fetches_remotely = True

    def is_server_side(self) -> bool:
        """Return whether this is a server-side cursor; the class of each driver defines it."""
        raise NotImplementedError

    def trips_of_fetch(self) -> int:
        """Return 1 for a server-side cursor, which fetches its rows from the server, else 0."""
        return 1 if self.is_server_side() else 0

    def trips_of_row(self, count: int) -> int:
        """Return 1 if the next row begins a page of `itersize` rows of a server-side cursor, else 0."""
        return int(self.is_server_side() and count % getattr(self, "itersize", 1) == 0)

    def close(self) -> Any:
        """Call the driver's close, and time it if it takes a round trip."""
        if self.placebench_pending is None or not self.trips_of_fetch():
            return self.placebench_close()
        with self.timing_close():
            return self.placebench_close()

    def timing_close(self) -> TimedFetch:
        """Return a context manager that times a close: the plan of a server-side cursor comes only then."""
        pending, self.placebench_pending = self.placebench_pending, None
        if not self.is_server_side():
            pending = None
        elif pending is not None:
            pending.is_cursor = True
        return TimedFetch(pending, lambda: 1)


def count_sets(parameters: Any) -> int:
    """Count the parameter sets of an executemany; 0 for an iterator, which cannot be counted."""
    return len(parameters) if hasattr(parameters, "__len__") else 0


def has_no_sets(parameters: Any) -> bool:
    """Return whether an executemany gets no parameter set; False for an iterator, which cannot be counted."""
    return hasattr(parameters, "__len__") and len(parameters) == 0


def _sized(rows: Any) -> Sequence[Any]:
    """Return *rows* if they are a sequence, else an empty one: a user's cursor may return anything."""
    return rows if isinstance(rows, Sequence) else ()


class TimedConnection:
    """The part of a timed connection that is the same for all drivers."""

    __slots__ = ()
    placebench_recorder: ClassVar[CallRecorder]
    placebench_adopted = False
    """Whether SQLAlchemy made the connection; its events then report when transactions begin."""
    savepoints_begin: ClassVar[bool] = False
    """Whether a SAVEPOINT outside of a transaction begins one, which ends with its RELEASE, as in SQLite."""

    def placebench_step(self, step: str, call: Callable[[], None]) -> None:
        """Run the driver's *call* as a transaction step."""
        trips = self.trips_of_step(step)
        pending = self.placebench_recorder.driver_step(self, step)
        if pending is None:
            return call()
        try:
            return call()
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.execute_returned(trips)

    def timing_step(self, step: str, trips: int | None = None) -> TimedCall:
        """Return a context manager that times a step that is awaited, or is neither COMMIT nor ROLLBACK."""
        trips = self.trips_of_step(step) if trips is None else trips
        return TimedCall(self.placebench_recorder.driver_step(self, step), trips)

    @property
    def placebench_plans(self) -> PlanFeed | None:
        """The feed of the server's plans; None for a server that sends none."""
        return None

    def in_a_transaction(self) -> bool:
        """Return whether the driver has a transaction open; the class of each driver defines it."""
        raise NotImplementedError

    def has_begun(self) -> bool:
        """Return whether a transaction is open on the server."""
        return self.in_a_transaction()

    def has_ended_alone(self) -> bool:
        """Return whether no transaction can be open any more; only SQLite's drivers know what a RELEASE has ended."""
        return False

    def begins(self, sql: str) -> bool:  # noqa: ARG002  sqlite3 begins before writes only
        """Return whether this statement will run in a transaction, which the driver may begin by itself."""
        return self.in_a_transaction() or getattr(self, "autocommit", True) is False

    def trips_of_step(self, step: str) -> int | None:  # noqa: ARG002  psycopg 3's rollback takes more
        """Return the round trips that a commit or rollback will take now; None for a driver without a network."""
        return None


class AdaptedConnection(TimedConnection):
    """A timed connection that is mixed in before SQLAlchemy's adapter of an async driver's connection.

    It has no dict, as the adapters have none, so that an object can change its class.
    """

    __slots__ = ()
    placebench_adopted = True
    placebench_cursor_class: ClassVar[Callable[["AdaptedConnection"], Any]]
    placebench_stream_class: ClassVar[Callable[["AdaptedConnection"], Any]]

    def cursor(self, server_side: bool = False) -> Any:
        """Return a timed cursor; before SQLAlchemy 2.1 the adapters name its class in this method only."""
        made = type(self)
        return (made.placebench_stream_class if server_side else made.placebench_cursor_class)(self)

    def commit(self) -> None:
        """Call the adapter's commit and time it."""
        self.placebench_step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """Call the adapter's rollback and time it."""
        self.placebench_step("ROLLBACK", super().rollback)  # type: ignore[misc]


def time_adapter(recorder: CallRecorder, connection: Any, driver: str, mixins: tuple[type, type, type]) -> None:
    """Give SQLAlchemy's adapter of a new connection its timed classes.

    mixins: for the connection, for its cursors and for its server-side cursors.
    """
    adapter = type(connection)
    module = sys.modules[adapter.__module__]
    own, cursor, stream = mixins
    made = timed_class(own, adapter, recorder)
    made.placebench_cursor_class = timed_class(cursor, getattr(module, f"AsyncAdapt_{driver}_cursor"), recorder)
    made.placebench_stream_class = timed_class(stream, getattr(module, f"AsyncAdapt_{driver}_ss_cursor"), recorder)
    connection.__class__ = made


class DriverConnection(Generic[_T], TimedConnection):
    """A timed connection that is mixed in before the driver's class, and has a dict.

    Generic because psycopg 3's connections are: an object can only change its class if both have the same layout.
    """

    def commit(self) -> None:
        """Call the driver's commit and time it."""
        self.placebench_step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """Call the driver's rollback and time it."""
        self.placebench_step("ROLLBACK", super().rollback)  # type: ignore[misc]


class TwoPhaseConnection(DriverConnection[_T]):
    """A timed connection whose two-phase commits are calls of the driver; each call is a round trip."""

    def tpc_begin(self, xid: Any) -> None:
        """Call the driver's tpc_begin, which sends BEGIN, and time it."""
        with self.timing_step("BEGIN", 1):
            super().tpc_begin(xid)  # type: ignore[misc]

    def tpc_prepare(self) -> None:
        """Call the driver's tpc_prepare and time it."""
        with self.timing_step("PREPARE", 1):
            super().tpc_prepare()  # type: ignore[misc]

    def tpc_commit(self, *xid: Any) -> None:
        """Call the driver's tpc_commit and time it; with *xid* it commits a transaction of any session."""
        with self.timing_step("COMMIT PREPARED" if xid else "COMMIT", 1):
            super().tpc_commit(*xid)  # type: ignore[misc]

    def tpc_rollback(self, *xid: Any) -> None:
        """Call the driver's tpc_rollback and time it; with *xid* it ends a prepared transaction of any session."""
        with self.timing_step("ROLLBACK PREPARED" if xid else "ROLLBACK", 1):
            super().tpc_rollback(*xid)  # type: ignore[misc]
