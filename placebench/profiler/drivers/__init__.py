"""Timed cursor and connection classes of psycopg2, psycopg 3, asyncpg, sqlite3, aiosqlite, PyMySQL, mysqlclient.

The main functions are `use_timed_classes`, called before a driver connects, and `adopt_connection`, called with a
new connection. With other drivers the times inside the driver are "not measured". A class that the user chose is
subclassed, never replaced.
"""

import sys
from collections.abc import MutableMapping
from typing import Any

from placebench.profiler.capture.connection_state import driver_connection
from placebench.profiler.drivers.base import CallRecorder, TimedConnection


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
