"""Time inside the driver: cursor and connection classes of our own, handed to the driver when it connects.

SQLAlchemy has no event for a fetch, nor for the end of a COMMIT. The key pieces are `use_timed_classes`, called from
the `do_connect` event, and `time_connection` from `connect`. They know psycopg2, psycopg 3, asyncpg and sqlite3; with
other drivers those times are "not measured". A class that the user chose is subclassed, never replaced.
"""

import sys
from collections.abc import MutableMapping
from typing import Any

from placebench.profiler.drivers.base import WatchedConnection, Watcher
from placebench.profiler.drivers.cursor import TimedCursor

__all__ = ["TimedCursor", "WatchedConnection", "physical", "time_connection", "use_timed_classes"]


def use_timed_classes(watcher: Watcher, driver: str, connect_arguments: MutableMapping[str, Any]) -> None:
    """Change the arguments of the driver's connect so that it makes timed cursors and connections.

    driver: SQLAlchemy's name of the driver, `dialect.driver`. Others than psycopg2 and pysqlite are left as they are.
    """
    if driver == "psycopg2":
        from placebench.profiler.drivers.psycopg2 import time_psycopg2

        time_psycopg2(watcher, connect_arguments)
    elif driver == "pysqlite":
        from placebench.profiler.drivers.sqlite import time_sqlite

        time_sqlite(watcher, connect_arguments)


def time_connection(watcher: Watcher, dbapi_connection: object) -> None:
    """Time a connection that has just been made, of a driver that takes its classes only then: psycopg 3, asyncpg.

    Of psycopg2 only the cursors can still be timed: that is for connections that the application makes by itself.
    """
    asyncpg = sys.modules.get("sqlalchemy.dialects.postgresql.asyncpg")
    if asyncpg is not None and isinstance(dbapi_connection, asyncpg.AsyncAdapt_asyncpg_connection):
        from placebench.profiler.drivers.asyncpg import time_asyncpg

        time_asyncpg(watcher, dbapi_connection)
        return
    connection = physical(dbapi_connection)
    psycopg2 = sys.modules.get("psycopg2.extensions")
    if psycopg2 is not None and isinstance(connection, psycopg2.connection):
        from placebench.profiler.drivers.psycopg2 import time_cursors

        time_cursors(watcher, connection)
        return
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        from placebench.profiler.drivers.psycopg3 import time_psycopg

        time_psycopg(watcher, connection, awaited=isinstance(connection, psycopg.AsyncConnection))


def physical(dbapi_connection: object) -> object:
    """The driver's own connection behind SQLAlchemy's adapter of an async one; any other as it is."""
    if isinstance(dbapi_connection, WatchedConnection):
        return dbapi_connection
    return getattr(dbapi_connection, "driver_connection", dbapi_connection)
