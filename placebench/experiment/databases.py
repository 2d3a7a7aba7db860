"""The PostgreSQL servers and databases of a run: `SeededData` seeds one and copies it, `VariantServers` starts servers.

A variant that names settings of PostgreSQL has a server of its own, the others share the one of the run.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from placebench.errors import DatabaseError, PlacebenchError
from placebench.experiment.variants import Variant
from placebench.runtime.postgres import Server, open_server
from placebench.seeding import migrate_options, seed
from placebench.topology import Topology

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
"""By these we find and reach the server."""
_MAINTENANCE = "postgres"


def database_name(folder: Path) -> str:
    """Return how the databases of the run in *folder* are called; each but the first has something appended."""
    return f"placebench_{folder.name.lower().replace('-', '_')}"


class SeededData:
    """One seeded database of a run on one server, with its copies; each is made when it is first needed."""

    def __init__(self, server: Server, topology: Topology, folder: Path) -> None:
        self.server = server
        self.topology = topology
        self.receipt: dict[str, Any] = {}
        """Of the seeded database, once it is made."""
        self._prefix = database_name(folder)
        self._made: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of the seeded database; nobody may be connected to it while it is copied."""
        if "" not in self._made:
            self._made[""] = self.server.create_database(self._prefix)
            self.receipt = seed(self.topology, self._made[""]).to_json()
        return self._made[""]

    def of(self, topology: Topology, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of a database of another topology, at these optional revisions."""
        if topology == self.topology and not revisions:
            return self.url
        if (name := f" {topology.name} {topology.trees} {revisions}") not in self._made:
            self._made[name] = url = self.server.create_database(f"{self._prefix}_{len(self._made)}")
            seed(topology, url)
            migrate_options(url, revisions)
        return self._made[name]

    def with_trees(self, trees: int, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of a database of the same topology with so many trees, at these optional revisions."""
        return self.of(replace(self.topology, trees=trees), revisions)

    def copy(self, name: str, revisions: tuple[str, ...] = ()) -> str:
        """Return the URL of the copy *name* of the seeded database, at these optional revisions."""
        if name not in self._made:
            assert self.url
            self._made[name] = self.server.create_database(f"{self._prefix}_{len(self._made)}", self._prefix)
            migrate_options(self._made[name], revisions)
        return self._made[name]


class VariantServers:
    """The servers of a comparison; a context manager that ends those it started."""

    def __init__(self, shared: Server) -> None:
        """shared: of the variants that name no settings; it stays."""
        self._shared = shared
        self._own: dict[frozenset[tuple[str, str]], Server] = {}
        self._started = ExitStack()

    def of(self, variant: Variant) -> Server:
        """Return the variant's server, started at the first call in 0.5 to 0.7 s; the same settings share one.

        Raises DatabaseError with what PostgreSQL said when it does not start with the settings.
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


def check_settings(variants: Iterable[Variant], server: Server) -> None:
    """Read from PostgreSQL every setting that a variant names; one that it does not take is a DatabaseError.

    Raises PlacebenchError for a server that the user named: we do not restart it.
    """
    for variant in variants:
        if variant.postgres and server.kind == "named":
            raise PlacebenchError(
                f"the variant {variant.name} wants a PostgreSQL with settings of its own, and placebench sets none on "
                "a server that you named: leave --db and PLACEBENCH_DATABASE_URL away"
            )
        for name, value in variant.postgres.items():
            if name in _RESERVED:
                raise PlacebenchError(f"pg:{name} in the variant {variant.name}: placebench needs that for itself")
            try:
                server.check_setting(name, value)
            except DatabaseError as error:
                said = str(error).rpartition(f"/{_MAINTENANCE}: ")[2]
                raise DatabaseError(f"pg:{name}={value}: PostgreSQL {server.version} says {said}") from error
