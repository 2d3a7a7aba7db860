"""The data of a comparison's databases: the user's data, or a generated data set.

`OwnData` copies a database, runs a setup command, or does nothing for an application that makes its tables itself.
`find_data` finds a generated data set by name. Both fill one database per server and run, and each variant gets a copy
of it (`placebench.compare.measure.databases`).
"""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from placebench.compare.keep.records import DataDescription
from placebench.compare.what.database_copies import dump_database, restore_database
from placebench.errors import PlacebenchError
from placebench.meters.table_contents import TableContents, read_tables
from placebench.registries import Registry
from placebench.runtime.postgres import normalise_url
from placebench.runtime.postgres.binaries import find_binaries
from placebench.runtime.postgres.connection import describe, libpq_variables, plain_url, sqlalchemy_url
from placebench.runtime.supervisor import ChildLog, ChildSpec, start_child

_COMMAND = "PLACEBENCH_COMMAND"
_RUN_COMMAND = f'command=${_COMMAND}; unset {_COMMAND}; eval "$command"'
"""A shell script that keeps the command, which may hold a password, off the command line that all users see."""
DatabaseKind = Literal["postgresql", "mariadb", "sqlite", "none"]


class DataSetup(DataDescription, Protocol):
    """Fills the database from which each variant gets a copy."""

    @property
    def database(self) -> DatabaseKind:
        """The kind of database that holds the data."""

    @property
    def superuser(self) -> bool:
        """Whether the variants connect to PostgreSQL as a superuser, if placebench has such a role."""

    def fill(self, url: str, folder: Path, admin_url: str = "") -> dict[str, Any]:
        """Fill the empty database at *url* and return the receipt, which holds the digest of the data.

        folder: the run's folder, for logs and for files that a resumed run needs. admin_url: the same PostgreSQL
        database with the role that placebench has on the server.
        """

    def contents(self, url: str) -> TableContents:
        """Return the digests of the data in the database at *url*."""

    def upgrade(self, url: str, revisions: tuple[str, ...]) -> None:
        """Upgrade the database at *url* to these optional revisions of its schema."""


class DataKind(Protocol):
    """A way to generate data sets."""

    def find(
        self, name: str, *, seed: int, trees: int | None, utilization: float | None, database: DatabaseKind
    ) -> tuple[DataSetup, str]:
        """Return the data set of this name, and the request that it is designed for.

        Raises PlacebenchError if no data set has this name, or if it cannot have these sizes.
        """


KINDS: Registry[DataKind] = Registry("placebench.data", "placebench.lab.inventory.data_sets:KINDS")
"""The kinds of generated data, by name."""


def find_data(
    name: str,
    *,
    seed: int,
    trees: int | None = None,
    utilization: float | None = None,
    database: DatabaseKind = "postgresql",
) -> tuple[DataSetup, str]:
    """Return the data set of this name, and the request that it is designed for.

    name: the name of a topology or its file; KIND:NAME for another kind of data. Raises PlacebenchError if there is no
    such data set.
    """
    named, _, rest = name.partition(":")
    kind = KINDS.get(named) if rest else None
    chosen, name = (kind, rest) if kind else (KINDS.own["topology"], name)
    return chosen.find(name, seed=seed, trees=trees, utilization=utilization, database=database)


@dataclass(frozen=True)
class OwnData:
    """The user's data: the contents of a template database, then the changes of a setup command."""

    seed: int
    database: DatabaseKind = "postgresql"
    command: str = ""
    template: str = ""
    """URL of a database that is copied first; it is only read."""
    folder: Path = Path()
    """The folder in which the command runs."""
    python: str | None = None
    """The Python of the environment whose programs come first on the command's PATH; None: this environment."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the command, such as the application's."""
    may_change: tuple[str, ...] = ()
    """Names of tables that requests may change."""
    superuser: bool = False
    """Whether the commands and the application connect as a superuser; a template is never restored as one."""
    trees: int = 0

    @property
    def title(self) -> str:
        """The origin of the data, without passwords."""
        parts = []
        if self.template:
            is_sqlite = self.template.startswith("sqlite")
            parts.append(f"copy of {make_url(self.template).database if is_sqlite else describe(self.template)}")
        if self.command:
            parts.append(f"setup: {self.command}")
        return "; ".join(parts) or ("no database" if self.database == "none" else "made by the application")

    def fill(self, url: str, folder: Path, admin_url: str = "") -> dict[str, Any]:
        """Copy the template and run the command; a resumed run gets the data that it began with, except on MariaDB.

        Raises DatabaseError for a template that cannot be copied, PlacebenchError for a command that fails.
        """
        kept, used, missing = folder / "data.dump", admin_url if self.superuser else url, list[str]()
        if self.database in ("none", "mariadb"):
            self._run_command(url, folder)
        elif kept.is_file():
            missing = restore_database(kept, url, admin_url)
        elif self.template or self.command:
            partial = kept.with_name(f"{kept.name}.partial")
            try:
                if self.template:
                    dump_database(self.template, partial)
                    missing = restore_database(partial, url, admin_url)
                if self.command:
                    self._run_command(used, folder)
                    dump_database(admin_url or url, partial)  # a table's policies may bind its owner
                partial.replace(kept)
            finally:
                partial.unlink(missing_ok=True)
        found = self.contents(used)
        receipt = {"tables": len(found.digests), "rows": found.rows, "unchecked_tables": list(found.unchecked)}
        if missing:
            receipt["not_restored"] = missing
        return {**receipt, "digest": found.digest} if found.digests else receipt

    def _run_command(self, url: str, folder: Path) -> None:
        if self.command:
            log = folder / "log" / "setup.log"
            run_command("setup", self.command, url, self.folder, log=log, python=self.python, variables=self.variables)

    def contents(self, url: str) -> TableContents:
        """Return the digests of all tables except those that may change."""
        return read_tables(url, without=self.may_change)

    def upgrade(self, url: str, revisions: tuple[str, ...]) -> None:
        """Do nothing, because the application manages its own schema."""


def fill_placeholders(value: str, url: str) -> str:
    """Replace {database_url} in *value* by SQLAlchemy's URL, and {database_address} by the URL without its scheme."""
    address = str(make_url(url).database) if url.startswith("sqlite") else url.partition("://")[2]
    return value.replace("{database_url}", url).replace("{database_address}", address)


def database_variables(url: str, python: str | None) -> dict[str, str]:
    """Return the database in the variables that programs read it from; empty without a database.

    DATABASE_URL as most tools take it, SQLALCHEMY_DATABASE_URL as SQLAlchemy does, and for PostgreSQL those of psql.

    python: the Python of the environment whose programs read the variables; None: this environment.
    """
    if not url:
        return {}
    libpq = libpq_variables(url) if url.startswith("postgres") else {}
    return {"DATABASE_URL": plain_url(url), "SQLALCHEMY_DATABASE_URL": sqlalchemy_url(url, python), **libpq}


def search_path(python: str | None) -> str:
    """Return PATH with an environment's programs first: those of *python*, by default of this environment."""
    return os.pathsep.join([str(Path(python or sys.executable).parent), os.environ.get("PATH", os.defpath)])


def run_command(
    key: str,
    command: str,
    url: str,
    folder: Path | None,
    *,
    log: Path,
    python: str | None = None,
    variables: Mapping[str, str] = {},
) -> None:
    """Run a shell command in *folder* that fills or changes the database at *url*.

    key: where the user wrote the command, such as setup. Raises PlacebenchError, which names it, with the end of the
    output for any exit code but 0.
    """
    programs = [search_path(python)]
    if url.startswith("postgresql"):
        programs.append(str(find_binaries().folder))  # psql and pg_restore, where the machine has none
    child_log = ChildLog(log)
    address = fill_placeholders("{database_address}", url)
    quoted = command.replace("{database_url}", shlex.quote(url)).replace("{database_address}", shlex.quote(address))
    given = {name: fill_placeholders(value, url) for name, value in variables.items()}
    spec = ChildSpec(
        name="the command",
        argv=["/bin/sh", "-c", _RUN_COMMAND],
        env={
            **os.environ,
            **database_variables(url, python),
            **given,
            _COMMAND: quoted,
            "PATH": os.pathsep.join(programs),
        },
        cwd=folder and folder.absolute(),
        log=log,
    )
    with start_child(spec) as child:
        exit_code = child.wait()
    if exit_code:
        raise PlacebenchError(f"{key} {command!r} ended with exit code {exit_code}; {child_log.end()}")


def kind_of_template(url: str) -> DatabaseKind:
    """Return the kind of a template's database; raises DatabaseError unless it is PostgreSQL or SQLite."""
    try:
        name = make_url(url).get_backend_name()
    except ArgumentError:
        name = ""
    if name == "sqlite":
        return "sqlite"
    normalise_url(url)
    return "postgresql"
