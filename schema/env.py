"""Alembic's environment: where the database is, and which tables are ours to compare.

The database is `config.attributes["connection"]` when placebench.seeding.migrate calls, and the one that
PLACEBENCH_DATABASE_URL names when alembic runs by itself.
"""

import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, make_url, pool
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.sql.schema import SchemaItem

from placebench.tables import metadata

VARIABLE = "PLACEBENCH_DATABASE_URL"
VERSION_TABLE = "placebench_alembic_version"


def is_ours(_item: SchemaItem, _name: str | None, kind: str, reflected: bool, counterpart: SchemaItem | None) -> bool:
    """Whether alembic compares this item: tables that others made beside ours are none of our business."""
    return not (kind == "table" and reflected and counterpart is None)


def migrate(connection: Connection) -> None:
    """Run the revisions that alembic asks for, all in one transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        include_object=is_ours,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def migrate_named_database() -> None:
    """Run the revisions on the database that the environment variable names."""
    try:
        with create_engine(named_database(), poolclass=pool.NullPool).connect() as connection:
            migrate(connection)
    except OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise CommandError(f"the database that {VARIABLE} names does not answer: {reason}") from error


def named_database() -> str:
    """The URL in the environment variable; a bare `postgresql://` means psycopg2, as everywhere in placebench."""
    named = os.environ.get(VARIABLE)
    if not named:
        raise CommandError(f"which database? set {VARIABLE}=postgresql://user:password@host/name")
    try:
        url = make_url(named)
    except ArgumentError as error:
        raise CommandError(f"{VARIABLE} is no database URL: {error}") from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg2")
    return url.render_as_string(hide_password=False)


if context.is_offline_mode():
    raise CommandError("no --sql here: the first revision has to see which tables Placement has made already")
if (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    migrate_named_database()
