"""The place of a server of ours: its folder, the programs it runs, and the user it runs as."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from placebench.errors import DatabaseError, PlacebenchError
from placebench.guard import Child, ChildSpec
from placebench.postgres.account import Account
from placebench.postgres.binaries import Binaries

_LITTLE_SPACE_MB = 200


@dataclass(frozen=True)
class Place:
    """Where a server of ours lives, whose programs it runs, and as whom.

    Of all that is in *folder*, only the data belongs to that user: when root makes a file or changes its owner, nobody
    else can have put a link in its place.
    """

    folder: Path
    binaries: Binaries
    account: Account

    @cached_property
    def version(self) -> int:
        """18 for PostgreSQL 18.6; raises DatabaseError when the server's program does not run."""
        program = self.binaries.program("postgres")
        try:
            said = self.account.run([program, "--version"])
        except PermissionError as error:
            raise DatabaseError(
                f"the user {self.account.name}, who runs root's servers, may not run {program}: "
                "open its folders to all users, or name a server with --db URL"
            ) from error
        if not (number := re.search(r"\d+", said.stdout)):
            raise DatabaseError(f"{self.binaries.folder} holds no working PostgreSQL: {said.stdout}{said.stderr}")
        return int(number.group())

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def configuration(self) -> Path:
        """Our postgresql.conf, beside the data folder."""
        return self.folder / "postgresql.conf"

    @property
    def server_options(self) -> list[str]:
        """What `postgres` has to be told besides its data folder."""
        return ["-c", f"config_file={self.configuration}"]

    @property
    def log(self) -> Path:
        """What the server said."""
        return self.folder / "postgresql.log"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its programs: ours without libpq's variables, with messages in English."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return ours | {"LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}

    def spec(self, name: str, *command: str, stop_signal: int = signal.SIGINT) -> ChildSpec:
        """One of its programs under the guard; SIGINT is PostgreSQL's fast shutdown (SIGTERM waits for clients)."""
        return ChildSpec(
            name,
            command,
            env=self.environment,
            cwd=self.folder,
            log=self.folder / f"{name.lower()}.log",
            user=self.account.ids,
            stop_signal=stop_signal,
            data=self.data,
        )


def last_words(child: Child, place: Place) -> str:
    """Why a program of *place* failed: the end of its log, and the space that is left where that is little."""
    free_mb = shutil.disk_usage(place.folder).free // 1_000_000
    space = f" ({free_mb} MB are free in {place.folder})" if free_mb < _LITTLE_SPACE_MB else ""
    return f"{child.log_tail(6) or 'its log is empty'}{space}"


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turn what the system refuses meanwhile (a full disk, a program that may not run) into a DatabaseError."""
    try:
        yield
    except DatabaseError:
        raise
    except (OSError, PlacebenchError) as error:
        raise DatabaseError(f"{what}: {error}") from error
