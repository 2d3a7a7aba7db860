"""Makes a private server that is gone with this process: folder, data, settings, a free port, the running postmaster.

The key piece is `launch`. Measured on two cores: 0.5 to 0.7 s from here to the first query, most of it initdb.
"""

import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import DatabaseError
from placebench.guard import Child, ChildSpec, Keeper, start
from placebench.postgres.account import Account, give, private_folder, readable_by, run_as, server_account
from placebench.postgres.binaries import Binaries
from placebench.postgres.cluster import SUPERUSER, benchmark_settings, initdb_command, write_settings
from placebench.postgres.urls import DRIVER

_START_LIMIT_S = 60.0
_POLL_S = 0.01
_PORTS_TRIED = 5
_PORT_TAKEN = "could not bind"


@dataclass(frozen=True)
class Place:
    """Where a server of ours lives and as whom it runs."""

    folder: Path
    binaries: Binaries
    account: Account | None
    version: int

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What initdb and the server said."""
        return self.folder / "log"

    def environment(self) -> dict[str, str]:
        """The environment of its programs: ours without libpq's variables, with messages in English."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return ours | {"LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)}

    def spec(self, name: str, argv: list[str]) -> ChildSpec:
        """One of its programs under the guard; SIGINT is PostgreSQL's fast shutdown (SIGTERM waits for clients)."""
        return ChildSpec(
            name,
            argv,
            env=self.environment(),
            cwd=self.folder,
            log=self.log,
            user=self.account,
            stop_signal=signal.SIGINT,
        )


@dataclass(frozen=True)
class Launched:
    """A running private server; closing *keeper* ends it."""

    url: str
    keeper: Keeper
    child: Child


def launch(binaries: Binaries, settings: Mapping[str, str]) -> Launched:
    """Start a private server; *settings* go over the benchmark's. Raises DatabaseError with the end of its log."""
    account = server_account()
    runnable = readable_by(account, binaries)
    version = major_version(runnable, account)
    place = Place(private_folder(account), runnable, account, version)
    keeper = Keeper(place.folder)
    try:
        return _launch(keeper, place, settings)
    except OSError as error:
        keeper.close()
        raise DatabaseError(f"no PostgreSQL could be made in {place.folder}: {error}") from error
    except BaseException:
        keeper.close()
        raise


def major_version(binaries: Binaries, account: Account | None) -> int:
    """The number before the dot, 18 for PostgreSQL 18.6; raises DatabaseError when the program does not run."""
    done = run_as(account, [str(binaries.postgres), "--version"])
    if not (found := re.search(r"\b(\d+)", done.stdout)):
        raise DatabaseError(f"{binaries.postgres} does not run: {done.stderr or done.stdout}")
    return int(found.group(1))


def make_data(keeper: Keeper, place: Place, password: str, settings: Mapping[str, str]) -> None:
    """Make the data folder of *place* with *settings* in it."""
    give([place.folder], place.account)
    password_file = place.folder / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    give([password_file], place.account)
    command = initdb_command(place.binaries, place.version, place.data, password_file)
    initdb = start(place.spec("initdb", command), keeper)
    if initdb.wait():
        raise DatabaseError(f"initdb failed: {initdb.log_tail()}")
    password_file.unlink()
    write_settings(place.data, settings)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _launch(keeper: Keeper, place: Place, settings: Mapping[str, str]) -> Launched:
    password = secrets.token_urlsafe(32)
    make_data(keeper, place, password, benchmark_settings(place.binaries, place.version) | dict(settings))
    for _ in range(_PORTS_TRIED):
        port = free_port()
        command = [str(place.binaries.postgres), "-D", str(place.data), "-p", str(port)]
        child = start(place.spec("PostgreSQL", command), keeper)
        if _becomes_ready(child, place.data):
            return Launched(f"{DRIVER}://{SUPERUSER}:{password}@127.0.0.1:{port}/postgres", keeper, child)
        if _PORT_TAKEN not in child.log_tail():
            break
    raise DatabaseError(f"PostgreSQL {place.version} did not start: {child.log_tail()}")


def _becomes_ready(child: Child, data: Path) -> bool:
    """Wait until the postmaster writes "ready" into its pid file, which it does when it accepts connections."""
    deadline = time.monotonic() + _START_LIMIT_S
    while child.poll() is None and time.monotonic() < deadline:
        if is_ready(data):
            return True
        time.sleep(_POLL_S)
    return False


def is_ready(data: Path) -> bool:
    """Whether the postmaster of *data* says that it accepts connections."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"
