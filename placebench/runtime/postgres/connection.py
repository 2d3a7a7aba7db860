"""Connections to PostgreSQL: URLs as users write them, and the check that placebench may work on a server.

`normalise_url` reads a URL, `open_connection` connects, `check_database` checks the rights. Each error is one line,
without the password.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from placebench.errors import DatabaseError

APPLICATION_NAME = "placebench"
"""The application_name of our own connections in pg_stat_activity; measurements leave these connections out."""
_OLDEST_VERSION = 12
_CONNECT_TIMEOUT_S = "10"


@dataclass(frozen=True)
class ServerFacts:
    """The version of a server, and the rights of our role."""

    version: str
    version_number: int
    superuser: bool
    may_create_databases: bool


@contextmanager
def open_connection(url: str) -> Iterator[Connection]:
    """Open a separate connection to the normalised *url*, in autocommit; raises DatabaseError for database errors."""
    parsed = make_url(url)
    patience = {} if "connect_timeout" in parsed.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    given = {"application_name": APPLICATION_NAME, **patience}
    engine = create_engine(parsed, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=given)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        lines = (" ".join(line.split()) for line in str(error.orig).strip().splitlines())
        said = "; ".join(line for line in lines if not line.startswith("Is the server running"))
        raise DatabaseError(f"{describe(url)}: {said}") from error
    finally:
        engine.dispose()


def check_server(url: str) -> ServerFacts:
    """Return the facts about the server at the normalised *url*; raises DatabaseError if it is down or too old."""
    with open_connection(url) as connection:
        return _facts(connection, url)


def check_database(url: str) -> int:
    """Check that placebench may work on the database at *url*; return the server's version number (180006 for 18.6).

    Raises DatabaseError if the server does not respond within 10 s, is older than PostgreSQL 12 or read-only, or if the
    role may not make tables in the database.

    SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'),
           current_setting('transaction_read_only')::bool
    """
    url = normalise_url(url)
    with open_connection(url) as connection:
        facts = _facts(connection, url)
        schema, may_create, read_only = connection.execute(
            text(
                "SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'),"
                " current_setting('transaction_read_only')::bool"
            )
        ).one()
    if read_only:
        raise DatabaseError(f"{describe(url)} is read-only: name a server that can be written to")
    if not may_create:
        raise DatabaseError(
            f"{describe(url)}: the role may not make tables in the schema {schema or 'public'}: "
            f"name the owner of the database, or GRANT CREATE ON SCHEMA {schema or 'public'} to the role"
        )
    return facts.version_number


def _facts(connection: Connection, url: str) -> ServerFacts:
    """Read the version of the server and the rights of our role; one round trip.

    SELECT current_setting('server_version'), current_setting('server_version_num')::int, rolsuper,
           rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user
    """
    row = connection.execute(
        text(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, rolsuper,"
            " rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
        )
    ).one()
    facts = ServerFacts(row[0].split()[0], row[1], row[2], row[3])
    if facts.version_number < _OLDEST_VERSION * 10000:
        raise DatabaseError(
            f"{describe(url)} is PostgreSQL {facts.version}, but {_OLDEST_VERSION} or later is needed: name a newer one"
        )
    return facts


_DRIVER = "postgresql+psycopg2"
SUPERUSER = "postgres"
_MAINTENANCE = "postgres"
_OUR_DRIVERS = {"postgres", "postgresql", _DRIVER}
_EXAMPLE = "postgresql://user:password@host:5432/database"


def normalise_url(url: str) -> str:
    """Return the URL with the driver named, because SQLAlchemy 2.1 reads a bare `postgresql://` as psycopg 3.

    Raises DatabaseError if it is not the URL of a PostgreSQL; the message never shows the URL (it may hold a password).
    """
    parsed = _parse(url)
    if parsed.drivername not in _OUR_DRIVERS:
        raise DatabaseError(
            f"the database URL begins with {parsed.drivername}://, but placebench works on PostgreSQL through "
            f"psycopg2: write it as {_EXAMPLE}"
        )
    return parsed.set(drivername=_DRIVER).render_as_string(hide_password=False)


def describe(url: str) -> str:
    """Return the URL for a message: `user@host:5432/database`, without the password and the query."""
    parsed = make_url(url)
    hosts = parsed.query.get("host")
    host = parsed.host or (hosts[0] if isinstance(hosts, tuple) else hosts) or "localhost"
    port = f":{parsed.port}" if parsed.port else ""
    user = f"{parsed.username}@" if parsed.username else ""
    return f"{user}{host}{port}/{parsed.database or ''}"


def own_url(password: str, port: int, host: str = "127.0.0.1") -> str:
    """Return the URL of the maintenance database of a server that placebench started."""
    return URL.create(_DRIVER, SUPERUSER, password, host, port, _MAINTENANCE).render_as_string(hide_password=False)


def with_database(url: str, name: str) -> str:
    """Return the URL of the database *name* on the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def plain_url(url: str) -> str:
    """Return the URL for DATABASE_URL of applications, such as `postgresql://…`, without the driver of SQLAlchemy."""
    return url.replace(f"{_DRIVER}://", "postgresql://", 1).replace("mysql+pymysql://", "mysql://", 1)


def sqlalchemy_url(url: str, python: str | None = None) -> str:
    """Return the URL for SQLALCHEMY_DATABASE_URL of applications, with the driver that their environment has.

    python: the Python of the application's environment; None for this one. If that environment has SQLAlchemy 2.1 and
    psycopg2, the URL names the driver, because this SQLAlchemy would read a bare URL as psycopg 3.
    """
    plain = plain_url(url)
    is_named = url.startswith("mysql") or (plain != url and _needs_driver_name(python or sys.executable))
    return url if is_named else plain


@cache
def _needs_driver_name(python: str) -> bool:
    """Return whether SQLAlchemy would read a bare `postgresql://` as another driver; costs the start of a Python."""
    code = (
        "import sys; from importlib.metadata import version; from importlib.util import find_spec as has\n"
        "old = not has('sqlalchemy') or tuple(map(int, version('sqlalchemy').split('.')[:2])) < (2, 1)\n"
        "sys.exit(0 if old or not has('psycopg2') else 3)"
    )
    return subprocess.run([python, "-c", code], cwd="/", capture_output=True, check=False).returncode == 3


def as_role(url: str, name: str, password: str) -> str:
    """Return the URL of the same database for another role."""
    parsed = make_url(url).difference_update_query(["user", "password", "passfile"])
    return parsed.set(username=name, password=password).render_as_string(hide_password=False)


def libpq_variables(url: str) -> dict[str, str]:
    """Return the variables by which psql, pg_dump and pg_restore find the database at *url*."""
    parts = make_url(url)
    given = {
        "PGHOST": parts.query.get("host", parts.host),
        "PGPORT": parts.query.get("port", parts.port),
        "PGUSER": parts.username,
        "PGPASSWORD": parts.password,
        "PGDATABASE": parts.database,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url.strip())
    except (ArgumentError, ValueError):
        raise DatabaseError(f"the database URL cannot be read: expected the form {_EXAMPLE}") from None
    if "@" in (parsed.host or ""):
        raise DatabaseError("the database URL has two @: write the one in the password as %40")
    return parsed
