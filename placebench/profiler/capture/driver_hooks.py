"""How connections come to be timed, of SQLAlchemy's engines and of the drivers themselves (`DriverHooks`).

An engine calls `use_timed_classes` before its driver connects, and `adopt_connection` with the new connection. For what
does not go through SQLAlchemy, each driver's way to connect is exchanged until the profiler is removed, so that it
makes timed connections: at once if the driver has been imported, or else as soon as it is.
"""

import gc
import sys
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from placebench.errors import ProfilerError
from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.capture.driver_recorder import DriverRecorder
from placebench.profiler.capture.stack import add_libraries
from placebench.profiler.drivers.base import CallRecorder, TimedConnection

# By the name that is imported: the module of placebench.profiler.drivers, and its function.
_PATCHES = {
    "MySQLdb": ("mysql", "patch_mysqlclient"),
    "aiosqlite": ("aiosqlite", "patch_aiosqlite"),
    "asyncpg": ("asyncpg", "patch_asyncpg"),
    "psycopg": ("psycopg3", "patch_psycopg"),
    "psycopg2": ("psycopg2", "patch_psycopg2"),
    "pymysql": ("mysql", "patch_pymysql"),
    "sqlite3": ("sqlite", "patch_sqlite"),
}
_DRIVERS = tuple(_PATCHES)
# Patched beside each choice of drivers.
_HELPERS = {"asgiref.sync": ("asgiref", "patch_asgiref"), "psycopg_pool": ("psycopg3", "patch_psycopg_pool")}
# Between the application and its driver: their lines are not the ones that ran a statement.
_LIBRARIES = ("contextlib", "django", "peewee", "playhouse", "psycopg_pool", "pony", "tortoise")
_UNSUPPORTED = (
    *("aiomysql", "apsw", "asyncmy", "clickhouse_driver", "cx_Oracle", "duckdb", "ibm_db", "mariadb"),
    *("mysql.connector", "oracledb", "pg8000", "pymssql", "pyodbc", "pysqlite3", "snowflake.connector"),
)


class DriverPatches:
    """The drivers' ways to connect, exchanged until `remove`; connections that are open already stay unseen.

    names: packages, which are imported now; by default all drivers, each of them as soon as somebody imports it.
    """

    def __init__(self, recorder: DriverRecorder, names: Iterable[str] = ()) -> None:
        """Raises ProfilerError for a name that is unknown or not installed."""
        self._recorder = recorder
        self._named = tuple(names)
        self._watch = _ImportWatch(self._patch)
        self._originals: list[tuple[Any, str, Any]] = []
        for name in self._named:
            if name not in _PATCHES:
                raise ProfilerError(f"unknown driver {name!r}: expected one of {', '.join(_DRIVERS)}")
            if find_spec(name) is None:
                raise ProfilerError(f"the driver {name} is not installed")

    def install(self) -> None:
        """Exchange those of the drivers that are imported, and of the others when they are."""
        for name in self._named:
            _import(name)
        watched = {*(self._named or _DRIVERS), *_HELPERS}
        for name in watched & sys.modules.keys():
            self._patch(name)
        self._watch.begin(watched - sys.modules.keys())
        add_libraries(*_DRIVERS, *_LIBRARIES)

    def remove(self) -> None:
        """Give the drivers their own ways to connect back; again is harmless. Open connections only pass on."""
        self._watch.end()
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)
        self._originals.clear()

    def __str__(self) -> str:
        """Which drivers are watched, and which others have been imported."""
        watched = self._named or _DRIVERS
        imported = ", ".join(name for name in watched if name in sys.modules)
        absent = ", ".join(name for name in watched if name not in sys.modules)
        other = ", ".join(name for name in _UNSUPPORTED if name in sys.modules)
        parts = [f"{imported} (imported)" if imported else "", f"{absent} (not imported)" if absent else ""]
        drivers = f"the drivers {' and '.join(filter(None, parts))}"
        return f"{drivers}, but not for {other}, which placebench does not support" if other else drivers

    def _patch(self, name: str) -> None:
        """Exchange a driver's functions; one that has changed costs its statements, and nothing else."""
        module, function = (_PATCHES | _HELPERS)[name]
        try:
            getattr(import_module(f"placebench.profiler.drivers.{module}"), function)(self._recorder, self._replace)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._recorder.report_failure(error)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a driver's, and remember its own: of a class, the class method and not its call."""
        self._originals.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)


class DriverHooks(DriverRecorder):
    """Records what goes through the drivers, whoever calls them, until `remove`."""

    def __init__(self, drivers: Sequence[str] = (), *, whole_process: bool = False) -> None:
        """drivers: names of packages; by default all. Raises ProfilerError for an unknown one."""
        super().__init__(whole_process=whole_process)
        self.installed: bool = False
        self.patches: DriverPatches = DriverPatches(self, drivers)

    @property
    def sources(self) -> str:
        """What statements are looked for."""
        return str(self.patches)

    def install(self) -> None:
        """Exchange the drivers' ways to connect."""
        self.patches.install()
        gc.callbacks.append(self.garbage_collected)
        self.installed = True

    def remove(self) -> None:
        """Take the patches away; again is harmless."""
        if self.installed:
            self.installed = False
            self.patches.remove()
            gc.callbacks.remove(self.garbage_collected)


class _ImportWatch:
    """A finder of modules that finds nothing by itself: it calls back when one of its modules has been imported."""

    def __init__(self, imported: Callable[[str], None]) -> None:
        self._imported = imported
        self._names: set[str] = set()

    def begin(self, names: set[str]) -> None:
        """Watch for these modules."""
        self._names = names
        sys.meta_path.insert(0, self)

    def end(self) -> None:
        """Watch no more; again is harmless."""
        self._names = set()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the finders after it find, another watch among them, with a loader that calls back."""
        if name not in self._names:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._call_back_after(spec.loader)
        return spec

    def _call_back_after(self, loader: Any) -> None:
        run = loader.exec_module

        def run_and_call_back(module: ModuleType) -> None:
            run(module)
            if module.__name__ in self._names:  # an archive's loader has other modules too
                self._names.discard(module.__name__)
                self._imported(module.__name__)

        loader.exec_module = run_and_call_back


def _import(name: str) -> None:
    try:
        import_module(name)
    except ImportError as error:
        raise ProfilerError(f"the driver {name} cannot be imported: {error}") from error


def use_timed_classes(recorder: CallRecorder, driver: str, connect_arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of the driver's connect so that it makes timed cursors and connections.

    driver: SQLAlchemy's name of the driver, `dialect.driver`. Others than psycopg2 and pysqlite are left as they are.
    """
    if driver == "psycopg2":
        from placebench.profiler.drivers.psycopg2 import time_psycopg2

        time_psycopg2(recorder, connect_arguments)
    elif driver == "pysqlite":
        from placebench.profiler.drivers.sqlite import time_sqlite

        time_sqlite(recorder, connect_arguments)


def adopt_connection(recorder: CallRecorder, dbapi_connection: object) -> None:
    """Time a connection that SQLAlchemy has just made, if its driver takes classes only then, and mark it as such."""
    # SQLAlchemy's adapters of async drivers.
    asyncpg = sys.modules.get("sqlalchemy.dialects.postgresql.asyncpg")
    if asyncpg is not None and isinstance(dbapi_connection, asyncpg.AsyncAdapt_asyncpg_connection):
        from placebench.profiler.drivers.asyncpg import time_asyncpg

        time_asyncpg(recorder, dbapi_connection)
        return
    aiosqlite = sys.modules.get("sqlalchemy.dialects.sqlite.aiosqlite")
    if aiosqlite is not None and isinstance(dbapi_connection, aiosqlite.AsyncAdapt_aiosqlite_connection):
        from placebench.profiler.drivers.aiosqlite import time_aiosqlite

        time_aiosqlite(recorder, dbapi_connection)
        return
    connection = driver_connection(dbapi_connection)
    _time_connection(recorder, connection)
    if isinstance(connection, TimedConnection):
        vars(connection)["placebench_adopted"] = True


def _time_connection(recorder: CallRecorder, connection: object) -> None:
    """Time a driver's own connection; of psycopg2, where the application made it, only its cursors."""
    psycopg2 = sys.modules.get("psycopg2.extensions")
    if psycopg2 is not None and isinstance(connection, psycopg2.connection):
        from placebench.profiler.drivers.psycopg2 import time_cursors

        time_cursors(recorder, connection)
        return
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        from placebench.profiler.drivers.psycopg3 import time_psycopg

        time_psycopg(recorder, connection, awaited=isinstance(connection, psycopg.AsyncConnection))
        return
    for package in ("pymysql", "MySQLdb"):
        connections = sys.modules.get(f"{package}.connections")
        if connections is not None and isinstance(connection, connections.Connection):
            from placebench.profiler.drivers.mysql import time_mysql

            time_mysql(recorder, connection)
