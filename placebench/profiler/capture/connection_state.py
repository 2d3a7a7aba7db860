"""The state of one driver connection within one recording, and the bytes that its socket carried.

The main classes are `ConnectionState` and `SocketMeter`. Linux reports the bytes of a TCP connection in TCP_INFO. They
are "not measured" over TLS, which changes their number, and on a Unix socket, which has no such counters.
"""

import _socket
import os
import socket
import struct
import sys
from collections.abc import Hashable
from typing import Any
from weakref import WeakKeyDictionary

from placebench.profiler.capture.auto_explain import PlanFeed
from placebench.profiler.model.statement import DatabaseAddress

# struct tcp_info of linux/tcp.h: tcpi_bytes_acked and tcpi_bytes_received, both 64 bits wide.
_OFFSET = 120
_SIZE = _OFFSET + 16
_TCP = int(socket.IPPROTO_TCP)
_TCP_INFO: int = getattr(socket, "TCP_INFO", -1) if sys.platform == "linux" else -1  # other systems' structs differ
_unpack_counters = struct.Struct("=QQ").unpack_from


class SocketMeter(_socket.socket):  # not socket.socket, which gevent exchanges
    """Reads the byte counters of one TCP socket that the driver owns; one system call per reading."""

    def __init__(self, descriptor: int) -> None:
        blocking = os.get_blocking(descriptor)
        super().__init__(fileno=descriptor)
        os.set_blocking(descriptor, blocking)  # the application's default timeout would have changed it

    def __del__(self) -> None:
        self.detach()  # the driver closes the descriptor

    def read(self) -> tuple[int, int]:
        """Return the bytes sent (and acknowledged) and received since the connect. Raises OSError if it is closed."""
        information = self.getsockopt(_TCP, _TCP_INFO, _SIZE)
        if len(information) < _SIZE:
            raise OSError("a kernel whose TCP_INFO has no byte counters")
        counters: tuple[int, int] = _unpack_counters(information, _OFFSET)
        return counters


def socket_meter(descriptor: int, *, encrypted: bool) -> SocketMeter | None:
    """Return a meter of the socket, or None if its bytes cannot be measured."""
    if encrypted or _TCP_INFO < 0:
        return None
    try:
        meter = SocketMeter(descriptor)
        meter.read()
    except OSError:
        return None
    return meter


def meter_of(connection: object) -> SocketMeter | None:
    """Return the meter of a driver's connection; None if its bytes cannot be measured, or if it is closed already."""
    try:
        meter: SocketMeter | None = getattr(connection, "placebench_meter", None)
    except Exception:  # noqa: BLE001  the driver's error: a closed connection has no socket
        return None
    return meter


def driver_connection(dbapi_connection: object) -> object:
    """Return the driver's own connection behind SQLAlchemy's adapter of an async driver; return others unchanged."""
    if hasattr(type(dbapi_connection), "placebench_recorder"):  # a timed connection may be an adapter itself
        return getattr(dbapi_connection, "placebench_protocol", dbapi_connection)
    return getattr(dbapi_connection, "driver_connection", dbapi_connection)


_SYSTEMS = {
    "aiosqlite": "sqlite",
    "asyncpg": "postgresql",
    "MySQLdb": "mysql",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pymysql": "mysql",
    "sqlite3": "sqlite",
}


# Cached because the drivers take 5 to 10 µs to report them.
_ADDRESSES: WeakKeyDictionary[Any, DatabaseAddress | None] = WeakKeyDictionary()
_LOGINS: WeakKeyDictionary[Any, Hashable] = WeakKeyDictionary()


def database_address(connection: Any) -> DatabaseAddress | None:
    """Return the database of a driver's connection, without a round trip; None if the driver is unknown."""
    try:
        if connection not in _ADDRESSES:
            _ADDRESSES[connection] = _address_of(connection)
        return _ADDRESSES[connection]
    except TypeError:  # an object without weak references
        return _address_of(connection)


def _address_of(connection: Any) -> DatabaseAddress | None:
    connection = getattr(connection, "driver_connection", connection)  # behind SQLAlchemy's adapter
    packages = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    if hasattr(connection, "_params"):  # asyncpg's connection, or the timed protocol of one
        packages.add("asyncpg")
    system = next((_SYSTEMS[package] for package in packages if package in _SYSTEMS), None)
    if system is None:
        return None
    try:
        if system == "mysql":
            system = "mariadb" if "mariadb" in connection.get_server_info().lower() else system
            # mysqlclient has no such attributes; PyMySQL has the name as bytes once it is connected.
            host, port, name = (getattr(connection, each, None) for each in ("host", "port", "db"))
            return DatabaseAddress(system, host, port, name.decode() if isinstance(name, bytes) else name)
        if "asyncpg" in packages:
            address, parameters = connection._addr, connection._params
            host, port = address if isinstance(address, tuple) else (address, None)
            return DatabaseAddress(system, host, port, parameters.database)
        if system == "postgresql":
            info = connection.info
            return DatabaseAddress(system, info.host, info.port, info.dbname)
    except Exception:  # noqa: BLE001  a closed connection, or another release of the driver's
        return DatabaseAddress(system)
    return DatabaseAddress(system)


def database_identity(connection: Any, address: DatabaseAddress | None, number: int) -> Hashable:
    """Return a value that is equal for connections that read the same rows: same user, database and search_path.

    It is the connection's *number* if the database may be visible to it alone, as with SQLite's in-memory databases.
    """
    file = getattr(connection, "placebench_file", None)
    if not (file or (address is not None and address.name)):
        return number
    try:
        if connection not in _LOGINS:
            _LOGINS[connection] = _login_of(connection)
        return address, file, _LOGINS[connection]
    except TypeError:  # an object without weak references
        return address, file, _login_of(connection)


def _login_of(connection: Any) -> Hashable:
    """Return the user and the settings of a connection, which decide the rows that a table name stands for."""
    connection = getattr(connection, "driver_connection", connection)
    try:
        if hasattr(connection, "_params"):  # asyncpg's
            parameters = connection._params
            return parameters.user, repr(parameters.server_settings)
        if hasattr(connection, "info"):  # psycopg's
            return connection.info.user, connection.info.options
    except Exception:  # noqa: BLE001  a closed connection, or another release of the driver's
        return None
    return getattr(connection, "user", None)


class ConnectionState:
    """The state of one pooled connection within one recording.

    measured_s: all seconds charged to anything on this connection, so that nested statements are not counted twice.
    row_count: all rows that its cursors handed out, counted apart from the statements.
    pool_wait_s: the wait of this checkout, which goes to its first statement; later statements get 0.
    plans: the feed of the server's plans; None if the server sends none.
    identity: equal for connections that read the same rows, also by their `SET search_path` and the like.
    quiet: whether there is nothing to read after a round trip: no bytes, no plans.
    number: the number of the connection in its recording, from 1 on; None for statements without a connection.
    written: the tables that were written since its last transaction ended; None among them if not all are known.
    batch: the number of the latest chunk of an ORM's bulk method.
    streaming: the statement whose rows still come from the socket.
    """

    __slots__ = (
        "_local",
        "_login",
        "_meter",
        "_read",
        "_settings",
        "_settings_before",
        "batch",
        "database",
        "identity",
        "measured_s",
        "number",
        "plans",
        "pool_wait_s",
        "quiet",
        "row_count",
        "streaming",
        "transaction",
        "written",
    )

    def __init__(self, meter: SocketMeter | None) -> None:
        self._meter = meter
        self.number: int | None = None
        self.database: DatabaseAddress | None = None
        self.identity: Hashable = None
        self._read = (0, 0)
        self.quiet: bool = meter is None
        self.read_bytes()
        self.plans: PlanFeed | None = None
        self.measured_s: float = 0.0
        self.row_count: int = 0
        self.pool_wait_s: float | None = None
        self.transaction: int | None = None
        self.written: set[str | None] = set()
        self.batch: int = 0
        self.streaming: Any = None
        self._login: Hashable = None
        self._settings: dict[str, Hashable] = {}
        self._settings_before: dict[str, Hashable] | None = None
        self._local: set[str] = set()

    @property
    def has_changed(self) -> bool:
        """Whether the running transaction has changed a setting that decides which rows a name stands for."""
        return self._settings_before is not None

    def change_setting(self, name: str, is_local: bool, value: Hashable) -> None:
        """Note a setting that decides which rows the names of tables stand for; None resets it, or all of them."""
        if not self._settings:
            self._login = self.identity
        if self._settings_before is None and (is_local or self.transaction is not None):
            self._settings_before = self._settings
        if is_local:
            self._local.add(name)
        others = {each: kept for each, kept in self._settings.items() if name not in (each, "all")}
        self._keep_settings(others if value is None else {**others, name: value})

    def end_settings(self, step: str) -> None:
        """Restore the settings as a COMMIT, a ROLLBACK or the RESET of a pool does."""
        before = {} if step == "RESET" else self._settings_before
        if before is not None:
            if step == "COMMIT":
                lasting = {each: kept for each, kept in self._settings.items() if each not in self._local}
                before = {each: kept for each, kept in before.items() if each in self._local} | lasting
            self._keep_settings(before)
        self._settings_before = None
        self._local.clear()

    def _keep_settings(self, settings: dict[str, Hashable]) -> None:
        if self._settings or settings:
            self.identity = (self._login, frozenset(settings.items())) if settings else self._login
        self._settings = settings

    def read_bytes(self) -> tuple[int, int] | None:
        """Return the bytes sent and received since the last call; None if they cannot be measured."""
        if self._meter is None:
            return None
        try:
            now = self._meter.read()
        except OSError:
            self._meter = None  # the connection is gone
            return None
        before, self._read = self._read, now
        return now[0] - before[0], now[1] - before[1]
