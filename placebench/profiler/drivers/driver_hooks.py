"""Installs timing on database connections, whether SQLAlchemy or the driver itself opens them (`DriverHooks`).

An engine calls `use_timed_classes` before its driver connects, and `adopt_connection` with the new connection. For
connections that do not go through SQLAlchemy, each driver's way to connect is exchanged until the profiler is removed,
so that it makes timed connections: at once if the driver has been imported, or else as soon as it is.
"""

import gc
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from functools import update_wrapper
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FunctionType, MethodType, ModuleType
from typing import Any, cast

from placebench.errors import ProfilerError
from placebench.profiler.capture.call_sites import add_libraries
from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.capture.driver_recorder import DriverRecorder
from placebench.profiler.capture.timed_cursor import CallRecorder, TimedConnection

# By the name that is imported: the module of placebench.profiler.drivers and its function.
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
# Patched with every choice of drivers.
_HELPERS = {
    "_interpreters": ("children", "patch_interpreters"),
    "_xxsubinterpreters": ("children", "patch_interpreters"),
    "anyio.to_thread": ("threads", "patch_anyio"),
    "asgiref.sync": ("threads", "patch_asgiref"),
    "concurrent.futures.thread": ("threads", "patch_executors"),
    "multiprocessing.process": ("children", "patch_multiprocessing"),
    "os": ("children", "patch_os"),
    "psycopg_pool": ("psycopg3", "patch_psycopg_pool"),
    "threading": ("threads", "patch_threading"),
}
# Packages between the application and its driver: their lines are not the callers of statements.
_LIBRARIES = ("contextlib", "django", "peewee", "playhouse", "pony", "psycopg_pool", "sqlmodel", "tortoise")
_LAZY_MODULE = getattr(importlib.util, "_LazyModule", None)
_UNSUPPORTED = (
    *("aiomysql", "apsw", "asyncmy", "clickhouse_driver", "cx_Oracle", "duckdb", "ibm_db", "mariadb"),
    *("mysql.connector", "oracledb", "pg8000", "pymssql", "pyodbc", "pysqlite3", "snowflake.connector"),
)


class DriverPatches:
    """Wraps the connect functions of drivers until `remove`; connections that are open already are not seen.

    names: packages, which are imported now; by default all drivers, each as soon as it is imported.
    """

    def __init__(self, recorder: DriverRecorder, names: Iterable[str] = ()) -> None:
        """Raise ProfilerError for a name that is unknown or not installed."""
        self._recorder = recorder
        self._named = tuple(names)
        self._watch = ImportWatch(self._patch)
        self._wrappers: list[tuple[Any, str, Any]] = []
        for name in self._named:
            if name not in _PATCHES:
                raise ProfilerError(f"unknown driver {name!r}: expected one of {', '.join(_DRIVERS)}")
            if find_spec(name) is None:
                raise ProfilerError(f"the driver {name} is not installed")

    def install(self) -> None:
        """Wrap the functions of drivers that are imported already, and of others when they are imported."""
        for name in self._named:
            try:
                import_module(name)
            except ImportError as error:
                raise ProfilerError(f"the driver {name} cannot be imported: {error}") from error
        watched = {*(self._named or _DRIVERS), *_HELPERS}
        self._watch.begin(watched)
        for name in filter(_is_imported, watched):
            if not self._watch.is_deferred(sys.modules[name]):
                self._patch(name)
        add_libraries(*_DRIVERS, *_LIBRARIES)

    def remove(self) -> None:
        """Remove the wrappers from the drivers' functions, even below wrappers of other libraries; idempotent.

        Open connections then only pass calls on, and so does a wrapper that an outer one still calls directly.
        """
        self._watch.end()
        own = {id(wrapper) for _, _, wrapper in self._wrappers}  # a reload copies a wrapper to several places
        for owner, name, _ in self._wrappers:
            while layer := next((each for each in _layers(owner, name) if id(each[2]) in own), None):
                holder, attribute, wrapper = layer
                before = getattr(wrapper, _BEFORE)
                if _is_wrapper(holder):  # another profiler's
                    holder.__wrapped__ = wrapper.__wrapped__
                    attribute = _BEFORE
                setattr(holder, attribute, before)
        self._wrappers.clear()

    def __str__(self) -> str:
        """Return the drivers that are watched, and others that have been imported, as text."""
        watched = self._named or _DRIVERS
        imported = ", ".join(name for name in watched if _is_imported(name))
        absent = ", ".join(name for name in watched if not _is_imported(name))
        other = ", ".join(name for name in _UNSUPPORTED if _is_imported(name))
        unnamed = ", ".join(name for name in _DRIVERS if _is_imported(name) and name not in watched)
        parts = [f"{imported} (imported)" if imported else "", f"{absent} (not imported)" if absent else ""]
        drivers = f"the drivers {' and '.join(filter(None, parts))}"
        if unnamed:
            drivers += f", but not for {unnamed}, which the program has imported and nobody has named"
        return f"{drivers}, but not for {other}, which placebench does not support" if other else drivers

    def unseen(self) -> list[str]:
        """Return the drivers that have been imported and have no hooks; none if drivers were named."""
        return [] if self._named else [name for name in _UNSUPPORTED if _is_imported(name)]

    def _patch(self, name: str) -> None:
        """Wrap a driver's functions; if that fails, only the statements of this driver are missing."""
        module, function = (_PATCHES | _HELPERS)[name]
        try:
            getattr(import_module(f"placebench.profiler.drivers.{module}"), function)(self._recorder, self._replace)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._recorder.report_failure(error)

    def _replace(self, owner: Any, name: str) -> Callable[[Callable[..., Any]], Any]:
        """Return a decorator that puts its function around one of a driver, which is then its `__wrapped__`.

        A function that is wrapped already, as when a module is loaded a second time, stays as it is. The wrapper goes
        below the proxies of wrapt, by which OpenTelemetry and ddtrace instrument the driver: they remove the topmost
        layer, which would otherwise be our wrapper.
        """

        def put_around(wrapper: Callable[..., Any]) -> Any:
            own = {id(wrapper) for _, _, wrapper in self._wrappers}
            layers = list(_layers(owner, name))
            if any(id(function) in own for _, _, function in layers):
                return wrapper
            holder, attribute, function = next(layer for layer in layers if not _is_proxy(layer[2]))
            before = vars(holder)[attribute] if holder is owner else getattr(holder, attribute)
            if isinstance(function, type):
                update_wrapper(wrapper, function, assigned=("__doc__",), updated=())
            else:
                update_wrapper(wrapper, function)
            setattr(wrapper, _BEFORE, before)
            setattr(wrapper, _WRAPPER, wrapper)
            self._wrappers.append((owner, name, wrapper))
            bound: Any = wrapper
            if type(before) is classmethod:
                bound = classmethod(wrapper)
            elif isinstance(holder, type) and type(before) in (staticmethod, MethodType):  # bound already
                bound = staticmethod(wrapper)
            setattr(holder, attribute, bound)
            return wrapper

        return put_around


class DriverHooks(DriverRecorder):
    """Records what goes through the drivers, whoever calls them, until `remove`."""

    def __init__(self, drivers: Sequence[str] = (), *, whole_process: bool = False) -> None:
        """Take the names of driver packages, by default all. Raises ProfilerError for an unknown name."""
        super().__init__(whole_process=whole_process)
        self.patches: DriverPatches = DriverPatches(self, drivers)

    @property
    def sources(self) -> str:
        """The places where statements are recorded, as text."""
        return str(self.patches)

    def unseen_drivers(self) -> list[str]:
        """Return the drivers that have been imported and have no hooks."""
        return self.patches.unseen()

    def install(self) -> None:
        """Wrap the connect functions of the drivers."""
        self.installed = True
        self.patches.install()
        gc.callbacks.append(self.garbage_collected)

    def remove(self) -> None:
        """Remove the wrappers; idempotent."""
        if self.installed:
            self.installed = False
            self.patches.remove()
            with suppress(ValueError):  # the application may have emptied the list
                gc.callbacks.remove(self.garbage_collected)


_BEFORE = "placebench_before"
"""The attribute of a wrapper that holds the function or class method it replaced."""
_WRAPPER = "placebench_wrapper"
"""The attribute of a wrapper that holds itself: `functools.wraps` copies both attributes to functions around it."""
_METHODS = (classmethod, staticmethod)


def _layers(owner: Any, name: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield the layers of a function, the outermost first: its holder, the attribute there, and the function itself.

    The walk ends at a layer that always calls the same function, whatever is written into its `__wrapped__`.
    """
    holder, attribute, value = owner, name, vars(owner)[name]
    while True:
        function: Any = value.__func__ if type(value) in _METHODS else value
        if type(value) is MethodType and _is_wrapper(value.__func__):  # a proxy's `__wrapped__`, read by its class
            function = value.__func__
        yield holder, attribute, function
        if not _is_proxy(function) and not _is_wrapper(function):
            return
        holder, attribute, value = function, "__wrapped__", function.__wrapped__


def _is_imported(name: str) -> bool:
    """Return whether a module is loaded; a name whose entry is None is blocked, so that its import fails."""
    return sys.modules.get(name) is not None


def _is_wrapper(value: object) -> bool:
    return type(value) is FunctionType and vars(value).get(_WRAPPER) is value


def _is_proxy(value: object) -> bool:
    """Return whether this is a proxy of wrapt. Proxies look like the wrapped function, except for their type."""
    return type(value) not in _METHODS and hasattr(type(value), "__wrapped__")


class ImportWatch:
    """A meta path finder that calls *loaded* when a watched module has been loaded; it finds nothing by itself."""

    def __init__(self, loaded: Callable[[str], None]) -> None:
        self._loaded = loaded
        self._names: set[str] = set()

    def begin(self, names: set[str]) -> None:
        """Start watching for modules with these names."""
        self._names = names
        sys.meta_path.insert(0, self)

    def is_deferred(self, module: ModuleType) -> bool:
        """Return whether `importlib.util.LazyLoader` has yet to load a module in `sys.modules`; if so, watch it."""
        if type(module) is not _LAZY_MODULE:
            return False
        spec = object.__getattribute__(module, "__spec__")  # any other way to read it would load the module
        if spec.loader_state.get("is_loading"):  # from Python 3.12 on a module has this class until it has run
            return False
        if not isinstance(spec.loader, _WatchedLoader) or not spec.loader.is_of(self):
            spec.loader = _WatchedLoader(spec.loader, self)
        return True

    def module_loaded(self, name: str) -> None:
        """Call *loaded*, unless the module is no longer watched."""
        if name in self._names:
            self._loaded(name)

    def end(self) -> None:
        """Stop watching; idempotent."""
        self._names = set()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that later finders find, another watch among them, with a loader that notifies this watch."""
        if name not in self._names:
            return None
        spec = None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target)
            # Another watch for this name has already called every finder after it.
            if spec is not None or (isinstance(finder, ImportWatch) and name in finder._names):
                break
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = cast(Loader, _WatchedLoader(spec.loader, self))
        return spec


class _WatchedLoader:
    """Wraps the loader of one module: notifies a watch when the module has run, and else behaves like the loader.

    Nothing is written into the loader itself: several modules may share it, and it may be a proxy of another loader.
    """

    def __init__(self, loader: Any, watch: ImportWatch) -> None:
        self._loader = loader
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self).get("_loader"), name)

    def is_of(self, watch: ImportWatch) -> bool:
        return self._watch is watch

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, give it its own loader back, and notify the watch."""
        spec = object.__getattribute__(module, "__spec__")
        spec.loader = self._loader
        if "__loader__" in object.__getattribute__(module, "__dict__"):
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        if not self._watch.is_deferred(module):
            self._watch.module_loaded(spec.name)


def use_timed_classes(recorder: CallRecorder, driver: str, connect_arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of the driver's connect so that it makes timed cursors and connections.

    driver: SQLAlchemy's name of the driver, `dialect.driver`; only psycopg2 and pysqlite need other arguments.
    """
    if driver == "psycopg2":
        from placebench.profiler.drivers.psycopg2 import time_psycopg2

        time_psycopg2(recorder, connect_arguments)
    elif driver == "pysqlite":
        from placebench.profiler.drivers.sqlite import time_sqlite

        time_sqlite(recorder, connect_arguments)


def adopt_connection(recorder: CallRecorder, dbapi_connection: object) -> None:
    """Time a connection that SQLAlchemy has just made, if it is not timed yet, and mark it as SQLAlchemy's."""
    # SQLAlchemy's adapters of async drivers.
    if isinstance(
        dbapi_connection, _loaded_class("sqlalchemy.dialects.postgresql.asyncpg", "AsyncAdapt_asyncpg_connection")
    ):
        from placebench.profiler.drivers.asyncpg import time_asyncpg

        time_asyncpg(recorder, dbapi_connection)
        return
    if isinstance(
        dbapi_connection, _loaded_class("sqlalchemy.dialects.sqlite.aiosqlite", "AsyncAdapt_aiosqlite_connection")
    ):
        from placebench.profiler.drivers.aiosqlite import time_aiosqlite

        time_aiosqlite(recorder, dbapi_connection)
        return
    connection = driver_connection(dbapi_connection)
    _time_connection(recorder, connection)
    if isinstance(connection, TimedConnection):
        vars(connection)["placebench_adopted"] = True


def _loaded_class(module: str, name: str) -> Any:
    """Return the class if its module is loaded; else (), of which nothing is an instance.

    A module that another thread is importing may lack the class, but then no connection is of that class.
    """
    return getattr(sys.modules.get(module), name, ())


def _time_connection(recorder: CallRecorder, connection: object) -> None:
    """Time a driver's own connection; for a psycopg2 connection that the application made, time only its cursors."""
    if isinstance(connection, _loaded_class("psycopg2.extensions", "connection")):
        from placebench.profiler.drivers.psycopg2 import time_cursors

        time_cursors(recorder, connection)
        return
    awaited = isinstance(connection, _loaded_class("psycopg", "AsyncConnection"))
    if awaited or isinstance(connection, _loaded_class("psycopg", "Connection")):
        from placebench.profiler.drivers.psycopg3 import time_psycopg

        time_psycopg(recorder, connection, awaited=awaited)
        return
    for package in ("pymysql", "MySQLdb"):
        if isinstance(connection, _loaded_class(f"{package}.connections", "Connection")):
            from placebench.profiler.drivers.mysql import time_mysql

            time_mysql(recorder, connection)
