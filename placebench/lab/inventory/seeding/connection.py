"""The database connections of seeding, and the migration to a revision of the Alembic history in the folder `schema`.

`exclusive_connection` and `read_only_connection` turn errors into a DatabaseError of one line. `migrate` upgrades a
database to a revision, `migrate_options` to optional revisions that only some variants need.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, func, inspect, make_url, pool, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from placebench.errors import DatabaseError
from placebench.paths import resource_folder

# An arbitrary number that no other program uses.
_LOCK = 7_362_651_118
_PATIENCE = "30s"
_NO_RIGHTS = frozenset({"42501", "25006"})  # insufficient privilege, read-only transaction


@contextmanager
def exclusive_connection(url: str) -> Iterator[Connection]:
    """Yield a connection that is closed afterwards; no other process can seed the database meanwhile.

    Raises DatabaseError, in one line and without the password, for an invalid URL, no response, a lost connection, a
    full disk, missing permissions, and anything that the database refuses. Uncommitted changes are lost.
    """
    with _open_engine(url) as connection:
        _wait_for_others(connection)
        yield connection


@contextmanager
def read_only_connection(url: str) -> Iterator[Connection]:
    """Yield a read-only connection, with one consistent snapshot if the database supports it; it waits for no lock.

    Raises DatabaseError like `exclusive_connection`.
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
        # The first error is the cause: after a lost connection, the rollback fails too.
        while isinstance(cause.__context__, (DBAPIError, driver.Error)):
            cause = cause.__context__
        if not isinstance(cause, refusals) and getattr(cause, "pgcode", None) not in _NO_RIGHTS:
            raise
        # The first line of the driver's message, such as "server closed the connection unexpectedly".
        said = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
        raise DatabaseError(f"{_describe_url(engine)}: {said}") from error


def _describe_url(engine: Engine) -> str:
    """Return the engine's URL for a message, as a user writes it, without anything that may be a password."""
    plain = engine.url.set(drivername=engine.url.get_backend_name(), query={})
    return plain.render_as_string(hide_password=True)


def advance_id_sequence(connection: Connection, table: Table) -> None:
    """Let the table's sequence continue after the highest id, because loaders assign ids without using the sequence.

    SELECT setval(pg_get_serial_sequence('<table>', 'id'), coalesce(max(id), 0) + 1, false) FROM <table>
    """
    if connection.dialect.name == "postgresql" and "id" in table.c:
        following = func.coalesce(func.max(table.c.id), 0) + 1
        connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, "id"), following, False)))


def _engine(url: str) -> Engine:
    """Return an engine without a pool; a bare `postgresql://` means psycopg2, as everywhere in placebench."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg2")
        return create_engine(parsed, poolclass=pool.NullPool)
    except (ArgumentError, ValueError) as error:
        raise DatabaseError(f"no database URL: {error}; expected postgresql://user:password@host/name") from error


def _wait_for_others(connection: Connection) -> None:
    """Wait until another seeding has ended; on PostgreSQL also limit the wait for a locked table to 30 s."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        connection.execute(text(f"SET lock_timeout = '{_PATIENCE}'"))
        connection.commit()
    elif connection.dialect.name in ("mysql", "mariadb"):  # it has one for all databases of a server
        connection.execute(text("SELECT GET_LOCK(CONCAT('placebench ', LEFT(DATABASE(), 50)), 3600)"))
        connection.commit()


_OPTIONS_TABLE = "placebench_option_version"


def migrate(url: str, revision: str = "head") -> None:
    """Upgrade the database to *revision* in one transaction; tables that Placement created are adopted unchanged.

    Raises DatabaseError if the database does not respond, lacks permissions, or has other tables under Placement's
    names.
    """
    with exclusive_connection(url) as connection:
        migrate_connection(connection, revision)


def migrate_connection(connection: Connection, revision: str = "head") -> None:
    """Upgrade the database of *connection*, which must not be in a transaction, like `migrate`."""
    _upgrade(connection, revision, versions="versions")


def migrate_options(url: str, revisions: Iterable[str]) -> None:
    """Upgrade the database to each of the optional *revisions* (files of schema/options), then vacuum and analyze it.

    The seeded rows and their digest do not change. Raises DatabaseError if a revision does not exist.
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
    """Return the optional revisions of the schema that the database has."""
    with exclusive_connection(url) as connection:
        if not inspect(connection).has_table(_OPTIONS_TABLE):
            return frozenset()
        return frozenset(connection.scalars(text(f"SELECT version_num FROM {_OPTIONS_TABLE}")))


def has_change_log(url: str) -> bool:
    """Return whether the database has the change log that the variant `cached` reads."""
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
