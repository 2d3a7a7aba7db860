"""The profiler's hooks in SQLAlchemy: `Hooks`, installed on one engine or on all of them.

Connections and their pools come from events of pools and dialects. The timed cursors that `do_connect` and `connect`
hand to the driver tell how long the driver took; statements come from `StatementHooks`.
"""

import gc
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.pool import Pool

from placebench.profiler.capture.active_recording import ActiveRecording, PendingCheckout
from placebench.profiler.capture.driver_recorder import while_recording
from placebench.profiler.capture.options import Clock
from placebench.profiler.capture.pending_statement import guarded
from placebench.profiler.drivers.driver_hooks import DriverHooks, DriverPatches, adopt_connection, use_timed_classes
from placebench.profiler.drivers.engine import (
    PoolRequest,
    PoolTimer,
    classes_of_engines,
    unwatch_connections,
    watch_connections,
)
from placebench.profiler.drivers.statement_hooks import StatementHooks
from placebench.profiler.model.statement import DatabaseAddress


class Hooks(StatementHooks):
    """The hooks in SQLAlchemy: installed on one engine, or on all engines and the drivers, until `remove`."""

    def __init__(self, target: Engine | type[Engine], clock: Clock, *, whole_process: bool = False) -> None:
        super().__init__(target, whole_process=whole_process)
        self._replacements["connect"] = self._timed_connect
        self.patches: DriverPatches | None = None if isinstance(target, Engine) else DriverPatches(self)
        self._pools = PoolTimer(clock, self._on_pool_wait, self._checkout_failed)
        self._databases: WeakKeyDictionary[Pool, DatabaseAddress | None] = WeakKeyDictionary()
        self._checkouts: WeakKeyDictionary[Any, PendingCheckout] = WeakKeyDictionary()  # by the pool's record of it
        self._listeners: dict[str, Callable[..., Any]] = {
            "do_connect": self._do_connect,
            "connect": self._connect,
            "checkout": self._checkout,
            "checkin": self._checkin,
        }

    @property
    def sources(self) -> str:
        """The places where statements are recorded, as text."""
        return "one engine of SQLAlchemy" if self.patches is None else f"SQLAlchemy and {self.patches}"

    def unseen_drivers(self) -> list[str]:
        """Return the imported drivers that have no hooks beside SQLAlchemy's; none if only one engine is recorded."""
        return [] if self.patches is None else self.patches.unseen()

    def take_over(self, drivers: DriverHooks) -> None:
        """Go on with the recordings of hooks in drivers alone; their open connections share the state from here on."""
        own = {"installed", "patches", "timed_classes"}
        vars(self).update({name: value for name, value in vars(drivers).items() if name not in own})
        drivers.remove()

    def install(self) -> None:
        """Start listening. Connections that are already open keep the driver's class: their fetches are not timed."""
        for name, listener in self._listeners.items():
            event.listen(self._target, name, listener)
        gc.callbacks.append(self.garbage_collected)
        for owner in classes_of_engines(self._target):
            watch_connections(owner, self)
        # Existing engines may have connections in use, and SQLAlchemy keeps no list of its engines.
        every = (each for each in gc.get_objects() if issubclass(type(each), Engine))
        for engine in (self._target,) if isinstance(self._target, Engine) else every:
            self._pools.time(engine.pool)
            self.add_dialect(engine.dialect)
        self.installed = True
        if self.patches is not None:
            self.patches.install()

    def remove(self) -> None:
        """Stop listening; idempotent. Open connections keep their timed classes, which then only pass calls on."""
        if not self.installed:
            return
        self.installed = False
        self.stop_commenting()
        for name, listener in self._listeners.items():
            event.remove(self._target, name, listener)
        with suppress(ValueError):  # the application may have emptied the list
            gc.callbacks.remove(self.garbage_collected)
        for owner in (*classes_of_engines(self._target), *self._engines):
            unwatch_connections(owner)
        self.stop_timing()
        self._pools.remove()
        if self.patches is not None:
            self.patches.remove()

    @guarded
    def _do_connect(
        self, dialect: Dialect, record: object, _arguments: object, keywords: MutableMapping[str, Any]
    ) -> None:
        self._pools.time(getattr(record, "_ConnectionRecord__pool", None))
        self.add_dialect(dialect)
        use_timed_classes(self, dialect.driver, keywords)
        recording = self.recording_of_work()
        if recording is not None:  # it ends with the checkout of the connection
            self.connecting.set(recording.start_statement(None, "CONNECT", "CONNECT"))

    def _timed_connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dialect's *connect*, wrapped: a failure ends the pending CONNECT, a success notes the connection.

        It is not called if a listener of the application connects instead.
        """

        def timed(*args: Any, **kwargs: Any) -> Any:
            connecting = self.connecting.get()
            try:
                dbapi_connection = connect(*args, **kwargs)
            except BaseException as error:
                self._checkout_failed(error)
                raise
            if connecting is not None:
                connecting.dbapi_connection = dbapi_connection
            return dbapi_connection

        return timed

    @guarded
    def _checkout_failed(self, error: BaseException) -> None:
        """End the request for a connection, and the CONNECT that is pending, if any."""
        self.pool_request.set(None)
        connecting = self.connecting.get()
        if connecting is not None:
            connecting.execute_returned(None)
            connecting.set_error(error)
            self.connecting.set(None)

    @guarded
    def _connect(self, dbapi_connection: object, _record: object) -> None:
        adopt_connection(self, dbapi_connection)
        connecting = self.connecting.get()
        if connecting is not None:
            connecting.dbapi_connection = dbapi_connection

    @guarded
    def _checkin(self, dbapi_connection: object, record: Any) -> None:
        if (checkout := self._checkouts.pop(record, None)) is not None:
            checkout.end()
        self.stop_plans(dbapi_connection)

    @guarded
    def _checkout(self, dbapi_connection: object, record: Any, proxy: Any) -> None:
        self.add_dialect(proxy._pool._dialect)
        self._pools.time(proxy._pool)
        recording = self.recording_of_work()
        if recording is None:
            return
        connecting, request = self.pending_connect(recording, dbapi_connection), self.pool_request.get()
        if connecting is not None:
            connecting.execute_returned(None)
            connecting.dbapi_connection = None  # a recording keeps no connection
            self.connecting.set(None)
        state = recording.connection_state(dbapi_connection)
        if connecting is not None:
            connecting.connection = state
        requested, pending = None if connecting is None else connecting.started, 0
        self.pool_request.set(None)
        if request is not None and request.started >= recording.started:  # else it led to no connection
            requested, pending = request.started, request.pending
            state.pool_wait_s = request.seconds
            state.measured_s += request.seconds
        checkout = recording.start_checkout(requested, pending, proxy._pool)
        checkout.database = self._databases[proxy._pool] = state.database
        checkout.create_s = None if connecting is None else connecting.execute_s
        self._checkouts[record] = checkout

    @while_recording
    def _on_pool_wait(self, recording: ActiveRecording, request: PoolRequest) -> None:
        """Keep a wait for the checkout that follows it, or record that the wait timed out."""
        if request.came:
            earlier: PoolRequest | None = self.pool_request.get()
            if earlier is not None:  # a get whose connection was not made after all
                request = request._replace(started=earlier.started, seconds=earlier.seconds + request.seconds)
            self.pool_request.set(request)
            return
        pending = recording.start_statement(None, "POOL TIMEOUT", "POOL TIMEOUT")
        pending.started -= request.seconds
        pending.entered = pending.started
        pending.execute_returned(None)
        pool = request.pool()
        checkout = recording.start_checkout(request.started, request.pending, pool)
        checkout.database = None if pool is None else self._databases.get(pool)
        checkout.timed_out = True
