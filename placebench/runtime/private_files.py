"""Files with secrets, and the check of existing folders: `write_private` and `check_owned`.

A folder for temporary files is shared by all users of the machine. A user who controls a folder of ours could put a
link where a file with a password is about to be written, to read the password or to overwrite another file.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from placebench.errors import PlacebenchError


def write_private(path: Path, text: str, *, owner: tuple[int, int] | None = None, readers: int | None = None) -> None:
    """Replace *path* by a new file that only its owner can read; a link at *path* is not followed.

    owner: uid and gid that get the file before it has content; only root can give it away.
    readers: gid of a group that may read the file, but not change it.
    Raises FileExistsError if another process makes a file there at the same moment.
    """
    with create_private(path) as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        if readers is not None:
            os.fchown(file.fileno(), -1, readers)
            os.fchmod(file.fileno(), 0o640)
        file.write(text.encode())


def create_private(path: Path) -> BinaryIO:
    """Open a new file in place of *path*, readable by its owner only, as `write_private` does."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb")


def check_owned(folder: Path, *, error: type[PlacebenchError] = PlacebenchError) -> None:
    """Raise *error* unless the existing *folder* belongs to this user and only this user can change it.

    A link to the folder may also belong to root, because the link's owner decides where it leads.
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
