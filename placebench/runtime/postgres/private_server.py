"""A private PostgreSQL server that ends with this process: folder, data, configuration, free port, running program.

The main function is `launch_private_server`.
"""

import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from placebench.errors import DatabaseError, PlacebenchError
from placebench.runtime.ports import free_port
from placebench.runtime.postgres.binaries import Account, Binaries, make_runnable, private_folder, server_account
from placebench.runtime.postgres.connection import SUPERUSER, own_url
from placebench.runtime.private_files import write_private
from placebench.runtime.supervisor import Child, ChildSpec, Supervisor, start_child

_LITTLE_SPACE_MB = 200


@dataclass(frozen=True)
class ServerInstance:
    """The folder of a server that placebench makes, its programs, and the account that runs them.

    Only the data in *folder* belongs to that account, so that nobody can put a link in place of a file that root makes
    or whose owner root changes.
    """

    folder: Path
    binaries: Binaries
    account: Account

    @cached_property
    def version(self) -> int:
        """The major version (18 for PostgreSQL 18.6); raises DatabaseError if the server's program does not run."""
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
        """The options of `postgres` in addition to its data folder."""
        return ["-c", f"config_file={self.configuration}"]

    @property
    def log(self) -> Path:
        """The log of the server."""
        return self.folder / "postgresql.log"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the server's programs: ours without libpq's variables, with messages in English."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return ours | {"LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}

    def spec(self, name: str, *command: str, stop_signal: int = signal.SIGINT) -> ChildSpec:
        """Return the child spec of one of the server's programs.

        The default stop signal SIGINT is PostgreSQL's fast shutdown; SIGTERM would wait for clients.
        """
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


def failure_reason(child: Child, place: ServerInstance) -> str:
    """Return why a program of *place* failed: the end of its log, and the free space if there is little."""
    free_mb = shutil.disk_usage(place.folder).free // 1_000_000
    space = f" ({free_mb} MB are free in {place.folder})" if free_mb < _LITTLE_SPACE_MB else ""
    return f"{child.log_tail(6) or 'its log is empty'}{space}"


@contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Convert system errors in the `with` block (a full disk, a program that may not run) to DatabaseError."""
    try:
        yield
    except DatabaseError:
        raise
    except (OSError, PlacebenchError) as error:
        raise DatabaseError(f"{what}: {error}") from error


_IN_THE_DATA = {"dynamic_shared_memory_type": "mmap"}
_THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
DATABASE_SETTINGS = {"jit": "off", "max_parallel_workers_per_gather": "0"}
"""Settings for measuring that can be set for a single database."""


def make_data(place: ServerInstance, supervisor: Supervisor, password: str, settings: Mapping[str, str]) -> None:
    """Make the data folder with *settings* in it; takes 0.4 to 0.6 s. Raises DatabaseError with initdb's message."""
    place.account.enter(place.folder)
    place.data.mkdir(mode=0o700)
    place.account.own(place.data)
    password_file = place.folder / "password"
    write_private(password_file, password, owner=place.account.ids)
    command = _initdb_command(place, password_file, durable="fsync" not in settings)
    # On any other signal initdb would first finish its current step, which takes seconds on a busy disk.
    initdb = start_child(place.spec("initdb", *command, stop_signal=signal.SIGKILL), supervisor)
    if initdb.wait():
        raise DatabaseError(f"initdb failed: {failure_reason(initdb, place)}")
    password_file.unlink()
    write_configuration(place, settings)


def measuring_settings(place: ServerInstance) -> dict[str, str]:
    """Return the settings of all our servers: TCP from this machine only, and one process per connection."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "off",
        **DATABASE_SETTINGS,
        **_IN_THE_DATA,
        "shared_preload_libraries": ",".join(place.binaries.preloadable()),
    }
    quick_login = {"scram_iterations": "1"} if place.version >= 16 else {}
    no_helpers = {"io_method": "sync"} if place.version >= 18 else {}
    return settings | quick_login | no_helpers


def write_configuration(place: ServerInstance, settings: Mapping[str, str]) -> None:
    """Write our postgresql.conf: it includes initdb's file, and *settings* override that (the last mention wins)."""
    lines = (f"{name} = '{_escape(value)}'\n" for name, value in settings.items())
    included = f"include = '{_escape(str(place.data / 'postgresql.conf'))}'\n"
    write_private(place.configuration, included + "".join(lines), readers=place.account.gid)


def _initdb_command(place: ServerInstance, password_file: Path, *, durable: bool) -> list[str]:
    """Return the command line that makes the data folder.

    A password is hashed with the `scram_iterations` at that moment, so the setting is needed here too (PostgreSQL 16
    and later): a login then costs 2.4 ms, as without a password, instead of 8.5 ms with the usual 4096 iterations.
    These protect weak passwords; ours has 256 random bits. An initdb that fails leaves its data to the supervisor,
    which finds there the shared memory that is left.
    """
    no_instructions = ["--no-instructions"] if place.version >= 14 else []
    settings = {"scram_iterations": "1", **_IN_THE_DATA} if place.version >= 16 else {}
    return [
        place.binaries.program("initdb"),
        f"--pgdata={place.data}",
        f"--username={SUPERUSER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-clean",
        *([] if durable else ["--no-sync"]),
        *no_instructions,
        *(f"--set={name}={value}" for name, value in settings.items()),
    ]


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


_START_LIMIT_S = 60.0
_POLL_S = 0.01


@dataclass(frozen=True)
class LaunchedServer:
    """A running private server; closing *supervisor* ends it."""

    url: str
    supervisor: Supervisor
    child: Child


def launch_private_server(binaries: Binaries, settings: Mapping[str, str]) -> LaunchedServer:
    """Start a private server; *settings* override those for measuring. Takes 0.5 to 0.7 s, most of it initdb.

    Raises DatabaseError with the end of the log if the server does not start.
    """
    with one_line_errors("no PostgreSQL server could be made"):
        account = server_account()
        place = ServerInstance(private_folder(account), make_runnable(binaries, account), account)
        supervisor = Supervisor(place.folder)
        try:
            return _launch(place, supervisor, settings)
        except BaseException:
            supervisor.close()
            raise


def _launch(place: ServerInstance, supervisor: Supervisor, settings: Mapping[str, str]) -> LaunchedServer:
    password = secrets.token_urlsafe(32)
    make_data(place, supervisor, password, measuring_settings(place) | _THROWAWAY | dict(settings))
    port = free_port()
    return LaunchedServer(own_url(password, port), supervisor, start_server(place, supervisor, port))


def start_server(place: ServerInstance, supervisor: Supervisor, port: int) -> Child:
    """Start the server of *place*, whose data exists, and wait until it accepts connections.

    Raises DatabaseError with the end of the log if the server does not accept them within 60 s.
    """
    command = [place.binaries.program("postgres"), "-D", str(place.data), "-p", str(port), *place.server_options]
    child = start_child(place.spec("PostgreSQL", *command), supervisor)
    deadline = time.monotonic() + _START_LIMIT_S
    while child.poll() is None and time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            # The eighth line of the postmaster's pid file says whether it accepts connections.
            lines = (place.data / "postmaster.pid").read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready":
                return child
        time.sleep(_POLL_S)
    raise DatabaseError(f"PostgreSQL {place.version} did not start: {failure_reason(child, place)}")
