"""The connection that seeding works on, and the migration of its database to a revision of our Alembic history.

`exclusive_connection` and `read_only_connection` tell what goes wrong in one line. `migrate` brings a database to a
revision of the folder `schema`, `migrate_options` makes what only some variants want of their database.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, func, inspect, make_url, pool, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from placebench.errors import DatabaseError
from placebench.paths import resource_folder

# Any number that nobody else takes.
_LOCK = 7_362_651_118
_PATIENCE = "30s"
_NO_RIGHTS = frozenset({"42501", "25006"})  # insufficient privilege, read-only transaction


@contextmanager
def exclusive_connection(url: str) -> Iterator[Connection]:
    """One connection, closed afterwards, nobody else seeding meanwhile.

    Raises DatabaseError, in one line and without the password, for no URL, no response, a lost connection, a full disk,
    missing rights, and what the database refuses. What was not committed by then is gone.
    """
    with _open_engine(url) as connection:
        _wait_for_others(connection)
        yield connection


@contextmanager
def read_only_connection(url: str) -> Iterator[Connection]:
    """One connection that only reads, and sees one moment where the database can; waits for nobody.

    Raises DatabaseError as `exclusive_connection` does.
    """
    with _open_engine(url) as connection:
        if connection.dialect.name == "sqlite":
            yield connection
        else:
            yield connection.execution_options(isolation_level="REPEATABLE READ")


@contextmanager
def _open_engine(url: str) -> Iterator[Connection]:
    engine = _engine(url)
    driver = engine.dialect.loaded_dbapi
    refusals = (driver.OperationalError, driver.InterfaceError, driver.NotSupportedError)
    try:
        with engine.connect() as connection:
            yield connection
    except (DBAPIError, driver.Error) as error:
        cause: BaseException = error
        # The trouble that the others came from: a connection that was lost cannot be rolled back either.
        while isinstance(cause.__context__, (DBAPIError, driver.Error)):
            cause = cause.__context__
        if not isinstance(cause, refusals) and getattr(cause, "pgcode", None) not in _NO_RIGHTS:
            raise
        # What the driver said first, such as "server closed the connection unexpectedly".
        said = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
        raise DatabaseError(f"{_describe_url(engine)}: {said}") from error


def _describe_url(engine: Engine) -> str:
    """The engine's URL as a message shows it, without anything that may be a password."""
    return engine.url.set(query={}).render_as_string(hide_password=True)


def advance_id_sequence(connection: Connection, table: Table) -> None:
    """Let the table's sequence go on after the highest id, which a loader has given and not the sequence.

    SELECT setval(pg_get_serial_sequence('<table>', 'id'), coalesce(max(id), 0) + 1, false) FROM <table>
    """
    if connection.dialect.name == "postgresql" and "id" in table.c:
        following = func.coalesce(func.max(table.c.id), 0) + 1
        connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), following, False)))


def _engine(url: str) -> Engine:
    """An engine without a pool; a bare `postgresql://` means psycopg2, as everywhere in placebench."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg2")
        return create_engine(parsed, poolclass=pool.NullPool)
    except (ArgumentError, ValueError) as error:
        raise DatabaseError(f"no database URL: {error}; expected postgresql://user:password@host/name") from error


def _wait_for_others(connection: Connection) -> None:
    """Wait for another seeding of the database to end; the wait for a table that is in use is shorter."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(f"SET lock_timeout = '{_PATIENCE}'"))
        connection.commit()
    elif connection.dialect.name in ("mysql", "mariadb"):  # it has one for all databases of a server
        connection.execute(text("SELECT GET_LOCK(CONCAT('placebench ', LEFT(DATABASE(), 50)), 3600)"))
        connection.commit()


_OPTIONS_TABLE = "placebench_option_version"


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database to *revision*; tables that Placement made are adopted as they are, in one transaction.

    Raises DatabaseError when the database does not respond, lacks rights, or holds strangers under Placement's names.
    """
    with exclusive_connection(url) as connection:
        migrate_connection(connection, revision)


def migrate_connection(connection: Connection, revision: str = "head") -> None:
    """Upgrade the database of a connection that is in no transaction, as `migrate` does."""
    _upgrade(connection, revision, versions="versions")


def migrate_options(url: str, revisions: Iterable[str]) -> None:
    """Bring the database to each of these optional *revisions* (the files of schema/options), and tidy up after them.

    Rows stay as they are, and so does the digest. Raises DatabaseError for one that there is not.
    """
    wanted = list(revisions)
    if not wanted:
        return
    with exclusive_connection(url) as connection:
        for revision in wanted:
            _upgrade(connection, revision, versions="options", version_table=_OPTIONS_TABLE)
        if connection.dialect.name == "postgresql":
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def applied_options(url: str) -> frozenset[str]:
    """Return the optional revisions that the database is at; one query."""
    with exclusive_connection(url) as connection:
        if not inspect(connection).has_table(_OPTIONS_TABLE):
            return frozenset()
        return frozenset(connection.scalars(text(f"SELECT version_num FROM {_OPTIONS_TABLE}")))


def has_change_log(url: str) -> bool:
    """Whether the database has the log that the variant `cached` reads; one query."""
    with exclusive_connection(url) as connection:
        if connection.dialect.name != "postgresql":
            return False
        return connection.scalar(text("SELECT to_regproc('placebench_look') IS NOT NULL")) is True


def _upgrade(connection: Connection, revision: str, *, versions: str, **attributes: Any) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    for name, path in (
        ("script_location", resource_folder("schema")),
        ("version_locations", resource_folder("schema") / versions),
    ):
        config.set_main_option(name, str(path).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes.update(attributes, connection=connection)
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise DatabaseError(f"{_describe_url(connection.engine)}: {error}") from error
    connection.commit()
