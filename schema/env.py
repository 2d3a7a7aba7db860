"""Alembic's environment: where the database is, and which tables are ours to compare.

The database is `config.attributes["connection"]` when placebench.lab.inventory.seeding.migrate calls, and the one that
PLACEBENCH_DATABASE_URL names when alembic runs by itself. The optional revisions have a version table of their own,
`config.attributes["version_table"]`, so that they are outside of the one line of `alembic upgrade head`.
"""

import os

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, make_url, pool
from sqlalchemy.exc import ArgumentError, OperationalError

from placebench.lab.inventory.tables import metadata

VARIABLE = "PLACEBENCH_DATABASE_URL"
VERSION_TABLE = "placebench_alembic_version"


def is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether alembic looks at this item: of tables only at those that `inventory.tables` draws, whoever made others.

    The change log is not among them: it has a type that SQLAlchemy does not know, and only PostgreSQL has it. Nor are
    the indexes of an optional revision.
    """
    if kind == "index":
        return not (name or "").startswith("placebench_")
    return kind != "table" or name in metadata.tables


def migrate(connection: Connection) -> None:
    """Run the revisions that alembic wants, all in one transaction."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=context.config.attributes.get("version_table", VERSION_TABLE),
        include_name=is_ours,
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
        raise CommandError(f"{VARIABLE} is not a database URL: {error}") from error
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg2")
    return url.render_as_string(hide_password=False)


if context.is_offline_mode():
    raise CommandError("no --sql here: the first revision has to see which tables Placement has made already")
if (given := context.config.attributes.get("connection")) is not None:
    migrate(given)
else:
    migrate_named_database()
