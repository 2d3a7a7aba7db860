"""Brings a database to a revision of our own Alembic history, which lies in the room `schema`.

The key pieces are `migrate`, and `migrate_options` for what only some variants want of their database.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, inspect, text

from placebench.errors import DatabaseError
from placebench.paths import room
from placebench.seeding.connection import connected, shown

_OPTIONS_TABLE = "placebench_option_version"


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database to *revision*; tables that Placement made are adopted as they are, in one transaction.

    Raises DatabaseError when the database does not answer, lacks rights, or holds strangers under Placement's names.
    """
    with connected(url) as connection:
        migrate_connection(connection, revision)


def migrate_connection(connection: Connection, revision: str = "head") -> None:
    """The same, on a connection that is in no transaction."""
    _upgrade(connection, revision, versions="versions")


def migrate_options(url: str, revisions: Iterable[str]) -> None:
    """Bring the database to each of these optional *revisions* (the files of schema/options), and tidy up after them.

    Rows stay as they are, and so does the digest. Raises DatabaseError for one that there is not.
    """
    wanted = list(revisions)
    if not wanted:
        return
    with connected(url) as connection:
        for revision in wanted:
            _upgrade(connection, revision, versions="options", version_table=_OPTIONS_TABLE)
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def options_at(url: str) -> frozenset[str]:
    """The optional revisions that the database is at: SELECT version_num FROM placebench_option_version"""
    with connected(url) as connection:
        if not inspect(connection).has_table(_OPTIONS_TABLE):
            return frozenset()
        return frozenset(connection.scalars(text(f"SELECT version_num FROM {_OPTIONS_TABLE}")))


def has_change_log(url: str) -> bool:
    """Whether the database has the log that the variant cached reads: SELECT to_regproc('placebench_look')"""
    with connected(url) as connection:
        if connection.dialect.name != "postgresql":
            return False
        return connection.scalar(text("SELECT to_regproc('placebench_look') IS NOT NULL")) is True


def _upgrade(connection: Connection, revision: str, *, versions: str, **attributes: Any) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    for name, path in (("script_location", room("schema")), ("version_locations", room("schema") / versions)):
        config.set_main_option(name, str(path).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes.update(attributes, connection=connection)
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise DatabaseError(f"{shown(connection.engine)}: {error}") from error
    connection.commit()
