"""Brings a database to a revision of our own Alembic history, which lies in the room `schema`."""

from sqlalchemy import Connection

from placebench.errors import DatabaseError
from placebench.paths import room
from placebench.seeding.database import connected, shown


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database to *revision*; tables that Placement made are adopted as they are, in one transaction.

    Raises DatabaseError when the database does not answer, lacks rights, or holds strangers under Placement's names.
    """
    with connected(url) as connection:
        migrate_connection(connection, revision)


def migrate_connection(connection: Connection, revision: str = "head") -> None:
    """The same, on a connection that is in no transaction."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(room("schema")).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise DatabaseError(f"{shown(connection.engine)}: {error}") from error
    connection.commit()
