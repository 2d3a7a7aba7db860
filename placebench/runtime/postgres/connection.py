"""Connections to PostgreSQL: URLs as users write them, and whether a server may be worked on.

`normalise_url` reads a URL, `open_connection` connects, `check_database` says whether placebench may work there. Each
"no" is one line, without the password.
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
"""Of the connections that look, as pg_stat_activity has it: what is measured leaves them out."""
_OLDEST_VERSION = 12
_CONNECT_TIMEOUT_S = "10"


@dataclass(frozen=True)
class ServerFacts:
    """What a server says about itself and about our role."""

    version: str
    version_number: int
    superuser: bool
    may_create_databases: bool


@contextmanager
def open_connection(url: str) -> Iterator[Connection]:
    """A connection of its own to the normalised *url*, in autocommit; what the database refuses is a DatabaseError."""
    parsed = make_url(url)
    patience = {} if "connect_timeout" in parsed.query else {"connect_timeout": _CONNECT_TIMEOUT_S}
    given = {"application_name": APPLICATION_NAME, **patience}
    engine = create_engine(parsed, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=given)
    try:
        with engine.connect() as connection:
            yield connection
    except DBAPIError as error:
        raise DatabaseError(f"{describe(url)}: {_one_line(error)}") from error
    finally:
        engine.dispose()


def check_server(url: str) -> ServerFacts:
    """The facts about the server at the normalised *url*; raises DatabaseError when it is silent or too old."""
    with open_connection(url) as connection:
        return _facts(connection, url)


def check_database(url: str) -> int:
    """The version number (180006 for 18.6) of the server behind *url*, after making sure that we may work there.

    Raises DatabaseError when it does not respond within 10 s, is older than PostgreSQL 12, only reads, or when the role
    may not make tables in it.

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
    """Read what the server says about itself and our role; one round trip.

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


def _one_line(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())


_DRIVER = "postgresql+psycopg2"
SUPERUSER = "postgres"
_MAINTENANCE = "postgres"
_OUR_DRIVERS = {"postgres", "postgresql", _DRIVER}
_EXAMPLE = "postgresql://user:password@host:5432/database"


def normalise_url(url: str) -> str:
    """The same URL with the driver named: SQLAlchemy 2.1 reads a bare `postgresql://` as psycopg 3.

    Raises DatabaseError, which never shows the URL (it may hold a password), for what is no URL of a PostgreSQL.
    """
    parsed = _parse(url)
    if parsed.drivername not in _OUR_DRIVERS:
        raise DatabaseError(
            f"the database URL begins with {parsed.drivername}://, but placebench works on PostgreSQL through "
            f"psycopg2: write it as {_EXAMPLE}"
        )
    return parsed.set(drivername=_DRIVER).render_as_string(hide_password=False)


def describe(url: str) -> str:
    """The URL as a message shows it: `user@host:5432/database`, without the password and the query."""
    parsed = make_url(url)
    host = parsed.host or _first(parsed.query.get("host")) or "localhost"
    port = f":{parsed.port}" if parsed.port else ""
    user = f"{parsed.username}@" if parsed.username else ""
    return f"{user}{host}{port}/{parsed.database or ''}"


def own_url(password: str, port: int, host: str = "127.0.0.1") -> str:
    """The URL of the maintenance database of a server of ours."""
    return URL.create(_DRIVER, SUPERUSER, password, host, port, _MAINTENANCE).render_as_string(hide_password=False)


def with_database(url: str, name: str) -> str:
    """The URL of the database *name* on the same server."""
    return make_url(url).set(database=name).render_as_string(hide_password=False)


def application_url(url: str, python: str | None = None) -> str:
    """The URL as applications expect it in DATABASE_URL: `postgresql://…`, which psql, Django and asyncpg take too.

    python: of the environment of the application; None: this one. Where SQLAlchemy 2.1 is installed with psycopg2 the
    driver stays in it, for that SQLAlchemy takes a bare URL for psycopg 3: nobody's driver changes.
    """
    plain = url.replace(f"{_DRIVER}://", "postgresql://", 1)
    return url if plain != url and _needs_driver_name(python or sys.executable) else plain


@cache
def _needs_driver_name(python: str) -> bool:
    """Whether SQLAlchemy would read a bare `postgresql://` as another driver; costs the start of a Python."""
    code = (
        "import sys; from importlib.metadata import version; from importlib.util import find_spec as has\n"
        "old = not has('sqlalchemy') or tuple(map(int, version('sqlalchemy').split('.')[:2])) < (2, 1)\n"
        "sys.exit(0 if old or not has('psycopg2') else 3)"
    )
    return subprocess.run([python, "-c", code], cwd="/", capture_output=True, check=False).returncode == 3


def as_role(url: str, name: str, password: str) -> str:
    """The URL of the same database for another role."""
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


def _first(value: str | tuple[str, ...] | None) -> str:
    return (value if isinstance(value, str) else value[0]) if value else ""
