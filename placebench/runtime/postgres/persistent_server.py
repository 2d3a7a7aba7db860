"""A server that outlives the command that started it, with persistent data, for `placebench db`.

The main class is `PersistentServer`. Its folder holds `server.json` (port and password, readable by its owner only),
`data`, the logs, `programs` (a copy for an account that cannot read the installed ones), and `running`, a file that all
processes of the server keep locked, because process ids mean nothing in another container. Unlike a private server it
syncs its writes to the disk, because this data may matter.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shlex
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Self

from msgspec import Meta

from placebench.decoding import read_json
from placebench.errors import DatabaseError
from placebench.runtime.ports import free_port, is_free
from placebench.runtime.postgres.binaries import (
    Account,
    Binaries,
    copy_binaries,
    find_binaries,
    needs_copy,
    server_account,
)
from placebench.runtime.postgres.connection import own_url
from placebench.runtime.postgres.private_server import ServerInstance, make_data, measuring_settings, one_line_errors
from placebench.runtime.private_files import check_owned, write_private
from placebench.runtime.supervisor import Supervisor, tail_file

_LIMIT_S = 60
_POLL_S = 0.02
_LAST_PROCESSES_S = 5.0
_CONTENTS = ("data", "programs", "initdb.log", "postgresql.log", "postgresql.conf", "running", "server.json")


@dataclass(frozen=True)
class _AccessFile:
    """The content of `server.json`: access to the server, and the PostgreSQL version that made its data, if any."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    password: str
    data_version: int | None = None
    format_version: int = 1

    def save(self, path: Path) -> None:
        """Write the file atomically, readable by its owner only."""
        fresh = path.with_suffix(".new")
        write_private(fresh, json.dumps(asdict(self)))
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file; raises DatabaseError if `save` did not write it."""
        try:
            return read_json(path, cls, error=DatabaseError)
        except DatabaseError as error:
            raise DatabaseError(f"{error}; it is damaged: remove {path.parent}; its data is lost") from error


@dataclass(frozen=True)
class PersistentServer:
    """The server whose files are in *folder*; any process of the same user can start, find and stop it."""

    folder: Path

    def start(self) -> bool:
        """Start the server, with new data the first time; return False if it was already running.

        Raises DatabaseError with the end of its log if it does not start, or if *folder* holds something else.
        """
        account = server_account()
        with one_line_errors(f"no server could be started in {self.folder}"):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            if not account.may_enter(self.folder.parent):
                raise DatabaseError(
                    f"the user {account.name}, who runs root's servers, cannot enter {self.folder.parent}: "
                    "name another --dir"
                )
            self.folder.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # one process at a time starts a server here
                _take_folder(self.folder, account)
                if self._pid() is not None:
                    return False
                self._start(ServerInstance(self.folder, self._programs(account), account))
            finally:
                os.close(descriptor)
        return True

    def url(self) -> str:
        """Return the URL of the server's maintenance database; raises DatabaseError if it is not running."""
        if self._pid() is None:
            raise DatabaseError(f"no server runs in {self.folder}: start it with placebench db start")
        access = _AccessFile.load(self._access_file)
        return own_url(access.password, access.port)

    def stop(self) -> bool:
        """Stop the server even if clients are connected; return False if it was not running. The data is kept."""
        if (pid := self._pid()) is None:
            return False
        os.kill(pid, signal.SIGINT)
        deadline = time.monotonic() + _LIMIT_S
        while self._pid() is not None:
            if time.monotonic() > deadline:
                said = tail_file(self.folder / "postgresql.log")
                raise DatabaseError(f"the server in {self.folder} did not stop in {_LIMIT_S} s: {said}")
            time.sleep(_POLL_S)
        return True

    def remove(self) -> bool:
        """Remove the files and data of a stopped server; return False if the folder has none."""
        if not self._access_file.exists():
            return False
        check_owned(self.folder, error=DatabaseError)
        for path in (self.folder / name for name in _CONTENTS):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
        return True

    @property
    def _access_file(self) -> Path:
        return self.folder / "server.json"

    @property
    def _lock_file(self) -> Path:
        return self.folder / "running"

    def _pid(self) -> int | None:
        """Return the postmaster's process id; None if no process of a server is left.

        A process that reuses the id of a crashed postmaster has another working directory. Raises DatabaseError for a
        server whose processes are not visible to this process.
        """
        data = self.folder / "data"
        if data.exists() or self._access_file.exists():
            check_owned(self.folder, error=DatabaseError)
        try:
            said = (data / "postmaster.pid").read_text(errors="replace").split()
            pid = int(said[0]) if said and said[0].isdecimal() else 0
            if Path(f"/proc/{pid}/cwd").readlink() == data.resolve():
                return pid
        except (FileNotFoundError, NotADirectoryError):
            pass  # no server, or one that is not visible to this process
        except PermissionError as error:
            raise DatabaseError(
                f"{error.filename} belongs to another user: work as that user, or name --dir"
            ) from error
        with suppress(FileNotFoundError, NotADirectoryError), self._lock_file.open("r+") as file:
            self._lock(file)
        return None

    def _lock(self, file: IO[str]) -> None:
        """Lock *file*, waiting some seconds until the last process of an earlier server has ended."""
        deadline = time.monotonic() + _LAST_PROCESSES_S
        while True:
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise DatabaseError(
                        f"a server runs in {self.folder} that is not seen from here, as one in another container is "
                        "not: work with it there, or name another --dir"
                    ) from error
                time.sleep(_POLL_S)

    def _programs(self, account: Account) -> Binaries:
        """Return the installed programs, or a fresh copy of them in the folder if *account* cannot run them."""
        binaries = find_binaries()
        if not needs_copy(account, binaries):
            return binaries
        copies = self.folder / "programs"
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        return copy_binaries(account, binaries, copies)

    def _start(self, place: ServerInstance) -> None:
        if not self._access_file.exists():  # saved before the data is made
            _AccessFile(free_port(), secrets.token_urlsafe(32)).save(self._access_file)
        access = _AccessFile.load(self._access_file)
        if access.data_version is None:
            shutil.rmtree(place.data, ignore_errors=True)  # an earlier attempt may have left it half made
            with Supervisor() as supervisor:
                make_data(place, supervisor, access.password, measuring_settings(place))
        elif access.data_version != place.version:
            raise DatabaseError(
                f"the data in {self.folder} was made by PostgreSQL {access.data_version}, but {place.version} is "
                f"installed here: name another --dir, or give the data up with placebench db stop --remove"
            )
        if not is_free(access.port):
            access = replace(access, port=free_port())
        replace(access, data_version=place.version).save(self._access_file)
        self._run_pg_ctl(place, access.port)

    def _run_pg_ctl(self, place: ServerInstance, port: int) -> None:
        """Let pg_ctl start the server in its own session and wait until it accepts connections.

        The pid file of a crashed server is removed first. If process 1 does not reap children (a container without an
        init), the crashed postmaster stays a zombie, which PostgreSQL takes for alive. PostgreSQL 12 and later detects
        backends that are still running by their shared memory.
        """
        (place.data / "postmaster.pid").unlink(missing_ok=True)
        place.log.touch(mode=0o600)
        place.account.own(place.log)
        self._lock_file.touch(mode=0o600)
        command = [place.binaries.program("pg_ctl"), "start", "--wait", f"--timeout={_LIMIT_S}", "--silent"]
        options = shlex.join(["-p", str(port), *place.server_options])
        where = [f"--pgdata={place.data}", f"--log={place.log}", f"--options={options}"]
        with self._lock_file.open("r+") as file:
            self._lock(file)
            done = place.account.run([*command, *where], environment=place.environment, inherit=[file.fileno()])
        if done.returncode:
            raise DatabaseError(f"PostgreSQL {place.version} did not start in {self.folder}: {tail_file(place.log)}")


def state_folder() -> Path:
    """Return the default folder of the server: in $XDG_STATE_HOME or ~/.local/state.

    Root's folder is in /var/lib, one per $HOME, because the unprivileged user that runs root's servers cannot enter
    /root.
    """
    if named := os.environ.get("XDG_STATE_HOME"):
        return Path(named) / "placebench" / "postgres"
    if os.geteuid() != 0:
        return Path.home() / ".local" / "state" / "placebench" / "postgres"
    return Path("/var/lib/placebench") / f"postgres-{hashlib.sha256(os.fsencode(Path.home())).hexdigest()[:12]}"


def _take_folder(folder: Path, account: Account) -> None:
    """Let *account* enter the folder; refuses another user's folder, and one that holds anything but our server."""
    if any(folder.iterdir()):
        if not (folder / "server.json").exists():
            raise DatabaseError(f"{folder} holds other files: name a new or an empty folder with --dir")
    elif folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)
    check_owned(folder, error=DatabaseError)
    account.enter(folder)
