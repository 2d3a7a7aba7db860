"""The profiler's hooks on the drivers themselves, for programs without SQLAlchemy: `DriverHooks`.

Each driver's way to connect is exchanged until the profiler is removed, so that it makes timed connections.
"""

import gc
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from placebench.errors import ProfilerError
from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.connection_state import ConnectionState
from placebench.profiler.capture.driver_recorder import DriverRecorder
from placebench.profiler.capture.pending_statement import PendingStatement
from placebench.profiler.capture.stack import add_libraries
from placebench.profiler.drivers.base import TimedConnection

# By the name that is imported: the module of placebench.profiler.drivers, and its function.
_PATCHES = {
    "MySQLdb": ("mysql", "patch_mysqlclient"),
    "asyncpg": ("asyncpg_protocol", "patch_asyncpg"),
    "psycopg": ("psycopg3", "patch_psycopg"),
    "psycopg2": ("psycopg2", "patch_psycopg2"),
    "pymysql": ("mysql", "patch_pymysql"),
    "sqlite3": ("sqlite", "patch_sqlite"),
}
DRIVERS = tuple(_PATCHES)
# Between the application and its driver: their lines are not the ones that ran a statement.
_LIBRARIES = ("contextlib", "django", "peewee", "playhouse", "psycopg_pool", "pony", "tortoise")


class DriverHooks(DriverRecorder):
    """Installed on drivers until `remove`; connections that are open already stay unseen."""

    def __init__(self, drivers: Iterable[str] = (), *, whole_process: bool = False) -> None:
        """drivers: names of packages; by default all that are installed. Raises ProfilerError for an unknown one."""
        super().__init__(whole_process=whole_process)
        self.installed = False
        self._drivers = tuple(drivers) or tuple(name for name in DRIVERS if find_spec(name))
        self._originals: list[tuple[Any, str, Any]] = []
        for name in self._drivers:
            if name not in _PATCHES:
                raise ProfilerError(f"unknown driver {name!r}: expected one of {', '.join(DRIVERS)}")
            if find_spec(name) is None:
                raise ProfilerError(f"the driver {name} is not installed")

    def install(self) -> None:
        """Exchange the drivers' ways to connect; imports the drivers."""
        for name in self._drivers:
            module, function = _PATCHES[name]
            getattr(import_module(f"placebench.profiler.drivers.{module}"), function)(self, self._replace)
        add_libraries(*self._drivers, *_LIBRARIES)
        gc.callbacks.append(self.garbage_collected)
        self.installed = True

    def remove(self) -> None:
        """Give the drivers their own ways to connect back; again is harmless. Open connections only pass on."""
        if not self.installed:
            return
        self.installed = False
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()
        gc.callbacks.remove(self.garbage_collected)

    def recording_started(self, recording: ActiveRecording) -> None:
        """A recording runs."""
        self.running.add(recording)
        if recording.options.mode == "plans":
            recording.note("no plans: only with SQLAlchemy does the profiler see when a connection is idle")

    def recording_ended(self, recording: ActiveRecording) -> None:
        """It runs no more."""
        self.running.discard(recording)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a driver's, and remember its own: of a class, the class method and not its call."""
        self._originals.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def _start(self, recording: ActiveRecording, cursor: Any, sql: object) -> PendingStatement:
        """A statement, in the transaction that the driver or the text itself begins."""
        connection: TimedConnection = cursor.connection
        state = recording.connection_state(connection)
        if state.transaction is None and connection.begins(str(sql)):
            self._begin(recording, state)
            recording.start_statement(connection, "BEGIN", "BEGIN")
        pending = super()._start(recording, cursor, sql)
        if pending.step == "BEGIN":
            self._begin(recording, state)
            pending.number = state.transaction
        elif pending.step in ("COMMIT", "ROLLBACK"):
            state.transaction = None
        return pending

    @staticmethod
    def _begin(recording: ActiveRecording, state: ConnectionState) -> None:
        """A transaction begins on this connection."""
        recording.transaction_count += 1
        state.transaction = recording.transaction_count
