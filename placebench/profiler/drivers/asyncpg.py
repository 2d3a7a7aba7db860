"""Time inside asyncpg: with SQLAlchemy (`time_asyncpg`) and without it (`patch_asyncpg`).

SQLAlchemy's adapters of connections and cursors look like a driver's classes, and their calls return when the response
has come; asyncpg itself has no cursors. All rows come with the execute, unless the cursor is server-side.

Without SQLAlchemy, everything that asyncpg sends passes through the protocol object of a connection: statements,
prepared statements, cursors, COPY and transaction steps. `_TimedProtocol` takes its place; the connection keeps its own
class.
"""

import re
import sys
from types import FrameType
from typing import Any

from placebench.profiler.capture.call_sites import find_callers
from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.sent_values import UNKNOWN
from placebench.profiler.capture.timed_cursor import (
    AdaptedConnection,
    CallRecorder,
    NetworkCursor,
    Replace,
    TimedCall,
    TimedConnection,
    TimedCursor,
    count_sets,
    has_no_sets,
    time_adapter,
)
from placebench.profiler.model.files import with_slashes
from placebench.profiler.model.statement_facts import statement_facts

_COUNT = re.compile(r"\d+\Z")
# The reset that asyncpg's pool sends when a connection comes back: it writes no row, and reads none.
_RESET = re.compile(
    r"\s*(?:select pg_advisory_unlock_all\(\);\s*)?(?:close all;\s*)?(?:unlisten \*;\s*)?reset all;\s*\Z", re.IGNORECASE
)
_MOVE = re.compile(r"MOVE FORWARD \d+ (__asyncpg_portal_\w+)\Z")
"""The statement that `Cursor.forward` sends."""
_RETURNS = re.compile(r"\breturning\b", re.IGNORECASE)
_MAX_KEPT = 100
_PREPARE = "PREPARE STATEMENT"


class _AsyncpgCursor(NetworkCursor):
    """SQLAlchemy's adapter of an asyncpg cursor, timed; the adapter sends BEGIN and prepares each statement once."""

    placebench_dialect = "postgresql"

    _adapt_connection: Any
    _invalidate_schema_cache_asof: float
    server_side: bool
    placebench_prepared = True

    @property
    def connection(self) -> Any:
        """The adapter that made this cursor."""
        return self._adapt_connection

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        # The text that asyncpg will get: in SQLAlchemy 1.4 the adapter numbers the parameters.
        number = getattr(self, "_parameter_placeholders", None)
        sent = operation if number is None or parameters is None else operation % number(parameters)
        # The cache that the adapter will look into; an entry older than a change of the schema does not count.
        known = (self._adapt_connection._prepared_statement_cache or {}).get(sent)
        self.placebench_prepared = known is not None and known[2] > self._invalidate_schema_cache_asof
        return super().execute(operation, parameters)

    def trips_of_execute(self) -> int:
        """Return the round trips of the statement, its preparation and a BEGIN, if they are needed."""
        return self.trips_of_executemany(None) + (not self.placebench_prepared)

    def trips_of_executemany(self, _parameters: Any) -> int:
        """Return 1 for all sets, or 2 with a BEGIN; asyncpg does not report whether it prepares the statement."""
        connection = self._adapt_connection
        return 1 if connection.in_a_transaction() or connection.autocommit else 2

    def is_server_side(self) -> bool:
        return self.server_side


class _AsyncpgStream(_AsyncpgCursor):
    """A server-side cursor of the adapter, which fetches ahead: `_Portal` counts its round trips."""

    _cursor: Any

    def execute(self, operation: Any, parameters: Any = None) -> Any:
        result = super().execute(operation, parameters)
        self._cursor = _Portal(self._cursor)
        return result

    def fetchone(self) -> Any:
        with self.timing_fetch() as fetch:
            return fetch.row(super(TimedCursor, self).fetchone())  # type: ignore[misc]

    def trips_of_fetch(self) -> int:
        return self._cursor.take_trips() if isinstance(self._cursor, _Portal) else 0


class _Portal:
    """asyncpg's cursor with a count of its round trips."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._trips = 0

    async def fetch(self, count: int) -> Any:
        """Fetch the next rows; after the last row there is no round trip."""
        self._trips += not self._cursor._exhausted
        return await self._cursor.fetch(count)

    def take_trips(self) -> int:
        trips, self._trips = self._trips, 0
        return trips


class _AsyncpgConnection(AdaptedConnection):
    """SQLAlchemy's adapter of an asyncpg connection, timed; it knows whether it has sent a BEGIN."""

    __slots__ = ()
    _connection: Any
    _transaction: Any
    autocommit: bool

    @property
    def placebench_protocol(self) -> Any:
        """The protocol below, which times what the application asks of asyncpg's own connection."""
        return self._connection._protocol

    def ping(self) -> None:
        """Call the adapter's ping for the pool and time it; new releases of SQLAlchemy run it in a transaction."""
        begins = hasattr(self, "_async_ping") and not self.in_a_transaction() and not self.autocommit
        with self.timing_step("PING", 3 if begins else 1):
            super().ping()  # type: ignore[misc]

    def in_a_transaction(self) -> bool:
        return self._transaction is not None

    def trips_of_step(self, _step: str) -> int:
        """Return 1 if a transaction is open, else 0: then asyncpg sends no COMMIT or ROLLBACK."""
        return 1 if self.in_a_transaction() else 0


def time_asyncpg(recorder: CallRecorder, connection: Any) -> None:
    """Give SQLAlchemy's adapter of a new asyncpg connection its timed classes; its calls of the protocol are theirs."""
    driver_connection = connection._connection
    if not isinstance(driver_connection._protocol, _TimedProtocol):
        _time_protocol(recorder, driver_connection)
    driver_connection._protocol.placebench_adopted = True
    time_adapter(recorder, connection, "asyncpg", (_AsyncpgConnection, _AsyncpgCursor, _AsyncpgStream))


def patch_asyncpg(recorder: CallRecorder, replace: Replace) -> None:
    """Have asyncpg make timed connections, in pools too."""
    from asyncpg import connect_utils

    @replace(connect_utils, "_connect")
    async def timed_connect(*args: Any, **kwargs: Any) -> Any:
        with recorder.connecting_step():
            connection = await timed_connect.__wrapped__(*args, **kwargs)
        recorder.change(_time_protocol, connection)
        return connection


def _time_protocol(recorder: CallRecorder, connection: Any) -> None:
    connection._protocol = _TimedProtocol(recorder, connection)


class _Call:
    """One call of the protocol, with the attributes of a cursor that the profiler needs."""

    placebench_dialect = "postgresql"

    def __init__(self, connection: "_TimedProtocol") -> None:
        self.connection = connection
        self.placebench_pending: PendingStatement | None = None


class _TimedProtocol(TimedConnection):
    """asyncpg's protocol with timed calls; all rows come with the execution, unless the statement has a portal."""

    def __init__(self, recorder: CallRecorder, connection: Any) -> None:
        self._recorder = recorder
        self._protocol = connection._protocol
        self._transport = connection._transport
        self._addr, self._params = connection._addr, connection._params  # which name the database
        # By text: a preparation is part of the first execution, before which asyncpg may look up types.
        self._prepared: dict[str, PendingStatement] = {}
        self._portals: dict[str, PendingStatement] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    @property
    def placebench_meter(self) -> SocketMeter | None:
        """The meter of this connection's bytes; None if they cannot be measured."""
        encrypted = self._transport.get_extra_info("ssl_object") is not None
        socket = self._transport.get_extra_info("socket")
        return None if socket is None else socket_meter(socket.fileno(), encrypted=encrypted)

    def in_a_transaction(self) -> bool:
        return bool(self._protocol.is_connected() and self._protocol.is_in_transaction())

    async def query(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one or several statements without parameters; the response is the last status."""
        if _RESET.match(query):
            with TimedCall(self._recorder.driver_step(self, "RESET"), 1):
                return await self._protocol.query(query, *args, **kwargs)
        moved = _MOVE.match(query)
        if moved is not None:
            return await self._fetch(moved[1], self._protocol.query, query, *args, **kwargs)
        response = await self._timed(self._start(query), self._protocol.query, query, *args, **kwargs)
        if not self.in_a_transaction():  # its portals ended with it: their statements are complete
            self._portals.clear()
        return response

    async def prepare(self, name: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        """Prepare a statement: a round trip of its first execution, or a step if it is never executed."""
        pending = self._start(query, UNKNOWN)
        if pending is not None:
            pending.step = _PREPARE
        state = await self._timed(pending, self._protocol.prepare, name, query, *args, **kwargs)
        if pending is not None:
            pending.counted = True  # statistics count it only once it is executed
            _remember(self._prepared, query, pending)
        return state

    async def bind_execute(self, state: Any, args: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """Execute a prepared statement, and return all of its rows or the first rows of a portal."""
        pending = self._executed(state.query, args)
        if pending is not None and portal_name:
            _remember(self._portals, portal_name, pending)
        return await self._timed(pending, self._protocol.bind_execute, state, args, portal_name, *rest, **kwargs)

    async def bind_execute_many(self, state: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        """Execute a prepared statement for each parameter set; the sets are sent without waiting."""
        if has_no_sets(args):  # the prepared statement is never executed
            return await self._protocol.bind_execute_many(state, args, *rest, **kwargs)
        pending = self._executed(state.query, UNKNOWN)
        if pending is not None:
            pending.executions = count_sets(args)
        return await self._timed(pending, self._protocol.bind_execute_many, state, args, *rest, **kwargs)

    async def bind(self, state: Any, args: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """Open a cursor (a portal) for a prepared statement."""
        pending = self._executed(state.query, args)
        if pending is not None:
            _remember(self._portals, portal_name, pending)
        return await self._timed(pending, self._protocol.bind, state, args, portal_name, *rest, **kwargs)

    async def execute(self, state: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """Fetch the next rows of a cursor."""
        return await self._fetch(portal_name, self._protocol.execute, state, portal_name, *rest, **kwargs)

    async def _fetch(self, portal_name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        """Await *call*, which fetches or skips rows of a cursor, as a fetch of the cursor's statement."""
        pending = self._portals.get(portal_name)
        if pending is None or pending.recording is not self._recorder.current.get():
            return await call(*args, **kwargs)
        pending.driver_called()
        rows: Any = ()
        try:
            response = await call(*args, **kwargs)
            rows = _rows_of(response) or ()
            return response
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.fetch_returned(rows, 1)

    async def copy_in(self, copy_stmt: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a COPY into the server; its time is from the first to the last byte."""
        return await self._timed(self._start(copy_stmt), self._protocol.copy_in, copy_stmt, *args, trips=2, **kwargs)

    async def copy_out(self, copy_stmt: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._timed(self._start(copy_stmt), self._protocol.copy_out, copy_stmt, *args, **kwargs)

    def _start(self, query: Any, values: object = None) -> PendingStatement | None:
        if self.placebench_adopted and _is_called_by_sqlalchemy():
            return None
        pending = self._recorder.driver_call(_Call(self), query, values)  # type: ignore[arg-type]
        if pending is not None:
            pending.fetched_rows = None  # known only if the response tells them
        return pending

    def _executed(self, query: str, values: object) -> PendingStatement | None:
        """Return the statement that was prepared for this execution, or start a new one."""
        prepared = self._prepared.pop(query, None)
        if prepared is None or prepared.recording is not self._recorder.current.get():
            return self._start(query, values)
        prepared.step = None
        prepared.counted = False
        if prepared.caller is not None:  # the line that prepared it may be another one
            prepared.caller, prepared.outer_caller = find_callers(sys._getframe(1), prepared.recording.application)
        self._recorder.driver_values(prepared, query, values)
        prepared.driver_called()
        return prepared

    async def _timed(
        self, pending: PendingStatement | None, call: Any, *args: Any, trips: int = 1, **kwargs: Any
    ) -> Any:
        """Await *call*, and record its time, rows, round trips and error in the statement."""
        if pending is None:
            return await call(*args, **kwargs)
        response = None
        try:
            response = await call(*args, **kwargs)
            return response
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.execute_returned(trips)
            _count_rows(pending, response)


def _is_called_by_sqlalchemy() -> bool:
    """Return whether SQLAlchemy's adapter has called asyncpg, maybe through a tracer, and not the application."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("sqlalchemy."):
            return True
        if not name.startswith(("asyncpg.", __name__)) and "-packages/" not in with_slashes(frame.f_code.co_filename):
            return False
        frame = frame.f_back
    return False


def _remember(kept: dict[str, PendingStatement], key: str, pending: PendingStatement) -> None:
    """Keep the statement that later calls belong to, and drop the oldest one if there are more than 100."""
    kept[key] = pending
    if len(kept) > _MAX_KEPT:
        del kept[next(iter(kept))]


def _rows_of(response: Any) -> list[Any] | None:
    """Return the rows of a response, which may hold a status and more, too; None if it has no rows."""
    rows = response[0] if isinstance(response, tuple) and response else response
    return rows if isinstance(rows, list) else None


def _count_rows(pending: PendingStatement, response: Any) -> None:
    """Add the rows in a response, or set the number of rows that its statement changed."""
    rows = _rows_of(response)
    # A write without RETURNING has its count only in the status, which `fetch` does not request.
    is_known = (
        isinstance(response, tuple) or statement_facts(pending.sql).kind == "read" or _RETURNS.search(pending.sql)
    )
    if rows or (rows is not None and is_known):
        pending.add_rows(len(rows))
    status = response[1] if isinstance(response, tuple) and len(response) > 1 else response
    text = status.decode(errors="replace") if isinstance(status, bytes) else status if isinstance(status, str) else ""
    found = _COUNT.search(text)
    if found:
        pending.set_row_count(int(found[0]))
