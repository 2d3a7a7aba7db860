"""The databases of a run: `ScratchData` fills one and copies it, `variant_databases` gives each variant its own.

A variant that sets PostgreSQL parameters has its own server (`VariantServers`); the others share the run's server.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Self

from sqlalchemy import make_url

from placebench.compare.what.data_setup import DataSetup, run_command
from placebench.compare.what.database_copies import copy_sqlite, sqlite_url
from placebench.compare.what.variants import Variant
from placebench.errors import DatabaseError, PlacebenchError, UsageError
from placebench.runtime.mariadb import temporary_mariadb
from placebench.runtime.mod_wsgi import apache_account_limit
from placebench.runtime.postgres import Server, open_server

_RESERVED = {
    "config_file",
    "data_directory",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "listen_addresses",
    "port",
    "unix_socket_directories",
}
"""Settings that variants must not set, because placebench finds and reaches the server by them."""
_MAINTENANCE = "postgres"
_TEMPLATE = "template"
"""The name of the filled database on MariaDB."""


def database_name(folder: Path) -> str:
    """Return the name of the first database of the run in *folder*; the names of its other databases begin with it."""
    return f"placebench_{folder.name.lower().replace('-', '_')}"


class ScratchData:
    """The filled database of a run on one server, and its copies; each is made when it is first needed."""

    def __init__(self, server: Server, data: DataSetup, folder: Path) -> None:
        self.server = server
        self.receipt: dict[str, Any] = {}
        """The receipt of the filled database; empty until it is filled."""
        self._data = data
        self._folder = folder
        self.prefix = database_name(folder)
        """The common prefix of the names of the run's databases."""
        self.made: dict[str, str] = {}
        """The URLs of the databases by name; the filled one has the empty name."""
        self._labels: dict[str, str] = {}
        self._numbers = count(1)

    @property
    def url(self) -> str:
        """The URL of the filled database; nobody may be connected to it while it is copied."""
        if "" not in self.made:
            owned = self.server.create_database(self.prefix)
            admin = self.server.admin_url(self.prefix)
            self.receipt = self._data.fill(owned, self._folder, admin)
            self.made[""] = admin if self._data.superuser else owned
        return self.made[""]

    def copy(self, name: str, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of the copy *name* of the filled database, upgraded to the optional *revisions*."""
        if name not in self.made:
            assert self.url
            label = self._labels[name] = f"{self.prefix}_{next(self._numbers)}"
            owned = self.server.create_database(label, self.prefix)
            self.made[name] = self.server.admin_url(label) if self._data.superuser else owned
            if revisions:
                self._data.upgrade(self.made[name], revisions)
        return self.made[name]

    def drop(self, name: str) -> None:
        """Drop the copy *name*, if there is one."""
        if self.made.pop(name, None):
            self.server.drop_database(self._labels.pop(name))


class VariantServers:
    """The PostgreSQL servers of a comparison; a context manager that stops those it started."""

    def __init__(self, shared: Server) -> None:
        """shared: the server of the variants without settings; it is not stopped."""
        self._shared = shared
        self._own: dict[frozenset[tuple[str, str]], Server] = {}
        self._started = ExitStack()

    def of(self, variant: Variant) -> Server:
        """Return the variant's server, started at the first call in 0.5 to 0.7 s; variants of equal settings share one.

        Raises DatabaseError with PostgreSQL's message if the server does not start with these settings.
        """
        if not variant.postgres:
            return self._shared
        chosen = frozenset(variant.postgres.items())
        if chosen not in self._own:
            try:
                self._own[chosen] = self._started.enter_context(open_server(settings=variant.postgres))
            except DatabaseError as error:
                raise DatabaseError(f"{variant.name}: {' '.join(str(error).split())}") from error
        return self._own[chosen]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()


class VariantDatabases(ABC):
    """A database for each variant of a comparison, copied from one that is filled once; a context manager."""

    def __init__(self, data: DataSetup, folder: Path) -> None:
        self._data = data
        self._folder = folder
        self._urls: dict[str, str] = {}

    @abstractmethod
    def template(self) -> tuple[str, dict[str, Any]]:
        """Return the URL of the filled database and the receipt of its data."""

    @abstractmethod
    def _copy(self, variant: Variant) -> str:
        """Return the URL of a new copy for *variant*."""

    def of(self, variant: Variant) -> str:
        """Return the URL of the variant's copy, with its migrations applied; empty if it has no database."""
        if variant.name not in self._urls:
            self._urls[variant.name] = url = self._copy(variant)
            if variant.migrate:
                log = self._folder / "log" / f"migrate-{variant.name}.log"
                try:
                    run_command(
                        "migrate",
                        variant.migrate,
                        url,
                        variant.folder,
                        log=log,
                        python=variant.python,
                        variables=variant.variables,
                    )
                except PlacebenchError as error:
                    self._drop(variant, self._urls.pop(variant.name))  # nobody is served on a copy half migrated
                    raise PlacebenchError(f"{variant.name}: {error}") from error
        return self._urls[variant.name]

    def renew(self, variant: Variant) -> str:
        """Return the URL of a new copy for *variant*, in place of the one that its requests have changed."""
        if old := self._urls.pop(variant.name, ""):
            self._drop(variant, old)
        return self.of(variant)

    def _drop(self, variant: Variant, url: str) -> None:  # noqa: B027
        """Drop the variant's copy at *url*."""

    def server_of(self, variant: Variant) -> Server | None:  # noqa: ARG002
        """Return the PostgreSQL server of the variant's database, or None if the database is not PostgreSQL."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027
        """Stop the servers that were started."""


class _OnPostgres(VariantDatabases):
    def __init__(self, data: DataSetup, folder: Path, server: Server) -> None:
        super().__init__(data, folder)
        self._servers = VariantServers(server)
        self._first = server
        self._filled: dict[Server, ScratchData] = {}

    def template(self) -> tuple[str, dict[str, Any]]:
        filled = next(iter(self._filled.values()), None) or self._on(self._first)
        return filled.url, filled.receipt

    def server_of(self, variant: Variant) -> Server:
        return self._servers.of(variant)

    def _copy(self, variant: Variant) -> str:
        return self._on(self.server_of(variant)).copy(variant.name, variant.revisions)

    def _drop(self, variant: Variant, url: str) -> None:  # noqa: ARG002
        self._on(self.server_of(variant)).drop(variant.name)

    def _on(self, server: Server) -> ScratchData:
        if server not in self._filled:
            self._filled[server] = ScratchData(server, self._data, self._folder)
        return self._filled[server]

    def __exit__(self, *_: object) -> None:
        self._servers.__exit__()


class _InFiles(VariantDatabases):
    """SQLite files in the run's folder, deleted at the end of the `with` block."""

    def template(self) -> tuple[str, dict[str, Any]]:
        return sqlite_url(self._template), self._receipt

    def __enter__(self) -> Self:
        self._place = self._folder / "databases"
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir(mode=0o700)
        self._template = self._place / "template.db"
        self._template.touch()
        self._numbers = count()
        self._receipt = self._data.fill(sqlite_url(self._template), self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def of(self, variant: Variant) -> str:
        if variant.server == "mod_wsgi" and (reason := apache_account_limit()):
            raise UsageError(f'server = "mod_wsgi": {reason}')
        return super().of(variant)

    def _copy(self, variant: Variant) -> str:  # noqa: ARG002
        path = self._place / f"{next(self._numbers)}.db"
        copy_sqlite(self._template, path)
        return sqlite_url(path)

    def _drop(self, variant: Variant, url: str) -> None:  # noqa: ARG002
        Path(str(make_url(url).database)).unlink(missing_ok=True)


class _OnMariaDb(VariantDatabases):
    """Databases on our own MariaDB server, which ends with the run."""

    def __enter__(self) -> Self:
        self._started = ExitStack()
        self._server = self._started.enter_context(temporary_mariadb())
        self._filled, self._receipt, self._numbers = "", dict[str, Any](), count(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def template(self) -> tuple[str, dict[str, Any]]:
        if not self._filled:
            url = self._server.database(_TEMPLATE)
            self._receipt = self._data.fill(url, self._folder)
            self._filled = url
        return self._filled, self._receipt

    def _copy(self, variant: Variant) -> str:  # noqa: ARG002
        self.template()
        return self._server.copy(_TEMPLATE, f"variant_{next(self._numbers)}")

    def _drop(self, variant: Variant, url: str) -> None:  # noqa: ARG002
        self._server.drop(str(make_url(url).database))


class _Without(VariantDatabases):
    """No database: the applications have none, or one that placebench does not fill."""

    def template(self) -> tuple[str, dict[str, Any]]:
        return "", self._data.fill("", self._folder)

    def _copy(self, variant: Variant) -> str:  # noqa: ARG002
        return ""


def variant_databases(data: DataSetup, folder: Path, server: Server | None) -> VariantDatabases:
    """Return the databases of a comparison on *data*; *server* is required for PostgreSQL."""
    if data.database == "postgresql":
        assert server is not None
        return _OnPostgres(data, folder, server)
    others: dict[str, type[VariantDatabases]] = {"sqlite": _InFiles, "mariadb": _OnMariaDb, "none": _Without}
    return others[data.database](data, folder)


def check_settings(variants: Iterable[Variant], server: Server | None) -> None:
    """Let PostgreSQL check every setting that a variant names; raises DatabaseError for one that it refuses.

    server: None for a comparison without PostgreSQL. Raises PlacebenchError for settings without PostgreSQL, or on a
    server that the user named, because placebench does not restart that; UsageError for a revision or packages that
    root's Apache could not read.
    """
    for variant in variants:
        if variant.origin and variant.server == "mod_wsgi" and (reason := apache_account_limit()):
            raise UsageError(f'server = "mod_wsgi": {reason}')
        if not variant.postgres:
            continue
        if server is None:
            raise PlacebenchError(
                f"the variant {variant.name} has pg, the settings of PostgreSQL, but another database: leave pg out"
            )
        if server.kind == "named":
            raise PlacebenchError(
                f"the variant {variant.name} needs a PostgreSQL with its own settings, and placebench sets none on "
                "a server that you named: leave --db and PLACEBENCH_DATABASE_URL out"
            )
        for name, value in variant.postgres.items():
            if name in _RESERVED:
                raise PlacebenchError(f"pg:{name} in the variant {variant.name}: placebench needs that for itself")
            try:
                server.check_setting(name, value)
            except DatabaseError as error:
                said = str(error).rpartition(f"/{_MAINTENANCE}: ")[2]
                raise DatabaseError(f"pg:{name}={value}: PostgreSQL {server.version} says {said}") from error
