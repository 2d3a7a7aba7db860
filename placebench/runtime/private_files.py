"""Files with secrets, and folders of earlier runs: `write_private` makes the former, `check_owned` checks the latter.

A folder for temporary files is shared with all users of the machine. Someone who got hold of a folder of ours could put
a link where a file with a password is about to be written: it would be read, or another file overwritten.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from placebench.errors import PlacebenchError


def write_private(path: Path, text: str, *, owner: tuple[int, int] | None = None, readers: int | None = None) -> None:
    """Write a new file in place of *path*, which its owner alone can read; a link that lies there is not followed.

    owner: uid and gid that get the file before anything is in it; only root can give it away.
    readers: gid of a group that may read the file, and not change it.
    Raises FileExistsError if somebody puts something there at the same moment.
    """
    with create_private(path) as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        if readers is not None:
            os.fchown(file.fileno(), -1, readers)
            os.fchmod(file.fileno(), 0o640)
        file.write(text.encode())


def create_private(path: Path) -> BinaryIO:
    """Open a new file in place of *path*, as `write_private` makes it."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def check_owned(folder: Path, *, error: type[PlacebenchError] = PlacebenchError) -> None:
    """Raise *error* unless *folder*, which exists, belongs to this user and only this user can change it.

    A link to it may be root's, too: its owner decides where it leads.
    """
    link = folder.lstat()
    there = folder.stat() if folder.exists() else link
    if there.st_uid != os.geteuid() or link.st_uid not in (there.st_uid, 0):
        uid = (link if there.st_uid == os.geteuid() else there).st_uid
        owner = str(uid)
        with suppress(KeyError):
            owner = pwd.getpwuid(uid).pw_name
        raise error(f"{folder} belongs to the user {owner}: work as that user, or name another folder")
    if there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        mode = stat.S_IMODE(there.st_mode)
        raise error(f"other users can change {folder} (its mode is {mode:04o}): expected 0700; name another folder")
