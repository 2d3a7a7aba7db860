"""Whom a server runs as: PostgreSQL refuses root, so that root's servers run as an unprivileged user.

That user may neither enter every folder of root's nor read programs in it (a virtual environment below /root).
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placebench.errors import DatabaseError

_UNPRIVILEGED = ("nobody", "postgres", "daemon")


@dataclass(frozen=True)
class Account:
    """A user that servers run as; uid and gid are None for "as this process"."""

    name: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def ids(self) -> tuple[int, int] | None:
        """What the guard wants to know; None for "as this process"."""
        return None if self.uid is None or self.gid is None else (self.uid, self.gid)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None, *, inherit: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a short *command* as this user; PermissionError when it may not read the program.

        inherit: descriptors that it, and what it starts, keep open.
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
        """Become the owner of *path*, which has to lie in a folder that is not this user's.

        (chown follows links: in a folder of its own the user could have put one there, to get whatever it points to.)
        """
        if self.ids:
            os.chown(path, *self.ids)

    def enter(self, folder: Path) -> None:
        """Be let into a private *folder*, through the user's group, without a right to change it."""
        if self.gid is not None:
            os.chown(folder, -1, self.gid)
            folder.chmod(0o710)

    def may_enter(self, folder: Path) -> bool:
        """Whether this user can reach what lies in *folder*, from the root of the file system down."""
        return not self.ids or all(_anybody_may_enter(step) for step in (folder.resolve(), *folder.resolve().parents))


def server_account() -> Account:
    """The user to run servers as: this one, or for root the first of nobody, postgres and daemon that exists.

    Raises DatabaseError when there is none.
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


def _anybody_may_enter(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)
