"""Does a server answer, is it new enough, and may we work on it? Each "no" is one line, without the password."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from placebench.errors import DatabaseError
from placebench.runtime.postgres.urls import describe, normalise_url

APPLICATION_NAME = "placebench"
"""Of the connections that look, as pg_stat_activity has it: what is measured leaves them out."""
OLDEST_VERSION = 12
_CONNECT_TIMEOUT_S = "10"


@dataclass(frozen=True)
class Facts:
    """What a server says about itself and about the role that asks."""

    version: str
    version_number: int
    superuser: bool
    may_create_databases: bool


@contextmanager
def connected(url: str) -> Iterator[Connection]:
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


def check_server(url: str) -> Facts:
    """The facts about the server at the normalised *url*; raises DatabaseError when it is silent or too old."""
    with connected(url) as connection:
        return _facts(connection, url)


def check_database(url: str) -> int:
    """The version number (180006 for 18.6) of the server behind *url*, after making sure that we may work there.

    Raises DatabaseError when it does not answer within 10 s, is older than PostgreSQL 12, only reads, or when the role
    may not make tables in it.

    SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'),
           current_setting('transaction_read_only')::bool
    """
    url = normalise_url(url)
    with connected(url) as connection:
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


def _facts(connection: Connection, url: str) -> Facts:
    """Ask the server about itself and our role, in one round trip.

    SELECT current_setting('server_version'), current_setting('server_version_num')::int, rolsuper,
           rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user
    """
    row = connection.execute(
        text(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, rolsuper,"
            " rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
        )
    ).one()
    facts = Facts(row[0].split()[0], row[1], row[2], row[3])
    if facts.version_number < OLDEST_VERSION * 10000:
        raise DatabaseError(
            f"{describe(url)} is PostgreSQL {facts.version}, but {OLDEST_VERSION} or later is needed: name a newer one"
        )
    return facts


def _one_line(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())
