"""Time inside asyncpg without SQLAlchemy: `patch_asyncpg`.

All that asyncpg sends passes through the protocol object of a connection: statements, prepared statements, cursors,
COPY and the steps of its transactions. It is exchanged for `_TimedProtocol`; the connection keeps its own class.
"""

import functools
import re
from typing import Any

from placebench.profiler.capture.connection_state import SocketMeter, socket_meter
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.drivers.base import CallRecorder, Replace, TimedConnection

_COUNT = re.compile(r"\d+\Z")
_MOST_PORTALS = 100


def patch_asyncpg(recorder: CallRecorder, replace: Replace) -> None:
    """Have asyncpg make timed connections, in pools too."""
    from asyncpg import connect_utils

    connect = connect_utils._connect

    @functools.wraps(connect)
    async def timed_connect(*args: Any, **kwargs: Any) -> Any:
        with recorder.connecting_step():
            connection = await connect(*args, **kwargs)
        recorder.change(_time_protocol, connection)
        return connection

    replace(connect_utils, "_connect", timed_connect)


def _time_protocol(recorder: CallRecorder, connection: Any) -> None:
    """Exchange the protocol of a connection that has just been made."""
    connection._protocol = _TimedProtocol(recorder, connection)


def restore_protocol(connection: Any) -> None:
    """Give a connection its own protocol back."""
    if isinstance(connection._protocol, _TimedProtocol):
        connection._protocol = connection._protocol._protocol


class _Call:
    """One call of the protocol's: what the profiler needs of a cursor."""

    def __init__(self, connection: "_TimedProtocol") -> None:
        self.connection = connection
        self.placebench_pending: PendingStatement | None = None


class _TimedProtocol(TimedConnection):
    """asyncpg's protocol, its calls timed; all rows of a statement come with its execution, unless it has a portal."""

    def __init__(self, recorder: CallRecorder, connection: Any) -> None:
        self._recorder = recorder
        self._protocol = connection._protocol
        self._transport = connection._transport
        # The text that has just been prepared, and is part of its first execution: (text, the statement).
        self._prepared: tuple[str, PendingStatement] | None = None
        self._portals: dict[str, PendingStatement] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._protocol, name)

    @property
    def placebench_meter(self) -> SocketMeter | None:
        """Counts this connection's bytes; None where nobody can."""
        encrypted = self._transport.get_extra_info("ssl_object") is not None
        socket = self._transport.get_extra_info("socket")
        return None if socket is None else socket_meter(socket.fileno(), encrypted=encrypted)

    def in_a_transaction(self) -> bool:
        """Whether a BEGIN has been sent."""
        return bool(self._protocol.is_in_transaction())

    async def query(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        """A statement without parameters, or several; its response is their last status."""
        return await self._timed(self._start(query), self._protocol.query, query, *args, **kwargs)

    async def prepare(self, name: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        """The preparation of a statement: a round trip of its first execution."""
        pending = self._start(query)
        state = await self._timed(pending, self._protocol.prepare, name, query, *args, **kwargs)
        self._prepared = None if pending is None else (query, pending)
        return state

    async def bind_execute(self, state: Any, args: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """The execution of a prepared statement, with all its rows or the first ones of a portal."""
        pending = self._executed(state.query, args)
        if pending is not None and portal_name:
            self._remember(portal_name, pending)
        return await self._timed(pending, self._protocol.bind_execute, state, args, portal_name, *rest, **kwargs)

    async def bind_execute_many(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        """The execution for each of many parameters, which are sent without waiting."""
        pending = self._executed(state.query, None)
        return await self._timed(pending, self._protocol.bind_execute_many, state, *args, **kwargs)

    async def bind(self, state: Any, args: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """The beginning of a cursor."""
        pending = self._executed(state.query, args)
        if pending is not None:
            self._remember(portal_name, pending)
        return await self._timed(pending, self._protocol.bind, state, args, portal_name, *rest, **kwargs)

    async def execute(self, state: Any, portal_name: str, *rest: Any, **kwargs: Any) -> Any:
        """The next rows of a cursor."""
        pending = self._portals.get(portal_name)
        if pending is None or pending.recording is not self._recorder.current.get():
            return await self._protocol.execute(state, portal_name, *rest, **kwargs)
        pending.enter()
        rows: Any = ()
        try:
            response = await self._protocol.execute(state, portal_name, *rest, **kwargs)
            rows = _rows_of(response) or ()
            return response
        except BaseException as error:
            pending.set_error(error)
            raise
        finally:
            pending.leave_fetch(rows, 1)

    async def copy_in(self, copy_stmt: Any, *args: Any, **kwargs: Any) -> Any:
        """A COPY into the server, from its first to its last byte."""
        return await self._timed(self._start(copy_stmt), self._protocol.copy_in, copy_stmt, *args, trips=2, **kwargs)

    async def copy_out(self, copy_stmt: Any, *args: Any, **kwargs: Any) -> Any:
        """A COPY out of the server."""
        return await self._timed(self._start(copy_stmt), self._protocol.copy_out, copy_stmt, *args, **kwargs)

    def _start(self, query: Any, values: object = None) -> PendingStatement | None:
        """A new statement; None if nothing is being recorded."""
        self._prepared = None
        pending = self._recorder.driver_call(_Call(self), query, values)  # type: ignore[arg-type]
        if pending is not None:
            pending.fetched_rows = None  # the response tells them, or nobody knows
        return pending

    def _executed(self, query: str, values: object) -> PendingStatement | None:
        """The statement that was prepared for this execution, or a new one."""
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] != query or prepared[1].recording is not self._recorder.current.get():
            return self._start(query, values)
        self._recorder.driver_values(prepared[1], query, values)
        prepared[1].enter()
        return prepared[1]

    def _remember(self, portal_name: str, pending: PendingStatement) -> None:
        """The statement that the fetches of this portal belong to; the oldest ones are forgotten."""
        self._portals[portal_name] = pending
        if len(self._portals) > _MOST_PORTALS:
            del self._portals[next(iter(self._portals))]

    async def _timed(
        self, pending: PendingStatement | None, call: Any, *args: Any, trips: int = 1, **kwargs: Any
    ) -> Any:
        """Await *call*: its time, rows, round trips and error go to the statement."""
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
            pending.leave_execute(trips)
            _count_rows(pending, response)


def _rows_of(response: Any) -> list[Any] | None:
    """The rows of a response: alone, or with the status and whether there are more."""
    rows = response[0] if isinstance(response, tuple) and response else response
    return rows if isinstance(rows, list) else None


def _count_rows(pending: PendingStatement, response: Any) -> None:
    """Add the rows that a response brought, or those that its statement changed."""
    rows = _rows_of(response)
    if rows is not None:
        pending.fetched_rows = (pending.fetched_rows or 0) + len(rows)
    status = response[1] if isinstance(response, tuple) and len(response) > 1 else response
    text = status.decode(errors="replace") if isinstance(status, bytes) else status if isinstance(status, str) else ""
    found = _COUNT.search(text)
    if found:
        pending.set_row_count(int(found[0]))
