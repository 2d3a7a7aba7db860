"""The PostgreSQL of each variant: that of the comparison, or one of its own where the variant names settings.

The key pieces are `Servers` and `check_settings`.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

from placebench.errors import DatabaseError, PlacebenchError
from placebench.experiment.variants import Variant
from placebench.runtime.postgres import Server, open_server

_NOT_FOR_VARIANTS = {
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


class Servers:
    """The servers of a comparison; a context manager that ends those it started."""

    def __init__(self, shared: Server) -> None:
        """shared: of the variants that name no settings; it stays."""
        self._shared = shared
        self._own: dict[frozenset[tuple[str, str]], Server] = {}
        self._started = ExitStack()

    def of(self, variant: Variant) -> Server:
        """The variant's server, started at the first call in 0.5 to 0.7 s; variants with the same settings share one.

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
    """Ask PostgreSQL about every setting that a variant names; one that it does not take is a DatabaseError.

    Raises PlacebenchError for a server that the user named: we do not restart it.
    """
    for variant in variants:
        if variant.postgres and server.kind == "named":
            raise PlacebenchError(
                f"the variant {variant.name} wants a PostgreSQL with settings of its own, and placebench sets none on "
                "a server that you named: leave --db and PLACEBENCH_DATABASE_URL away"
            )
        for name, value in variant.postgres.items():
            if name in _NOT_FOR_VARIANTS:
                raise PlacebenchError(f"pg:{name} in the variant {variant.name}: placebench needs that for itself")
            try:
                server.check_setting(name, value)
            except DatabaseError as error:
                said = str(error).rpartition(f"/{_MAINTENANCE}: ")[2]
                raise DatabaseError(f"pg:{name}={value}: PostgreSQL {server.version} says {said}") from error
