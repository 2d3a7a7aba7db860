"""The data of a server of ours (`make_data`) and what its postgresql.conf says (`measuring_settings`).

The settings are made for measuring: nothing works beside the backend that answers (its CPU time is what gets measured),
a login costs next to nothing, and throwaway data is not written through to the disk. Dynamic shared memory lies in the
data folder, so that a server that is killed leaves none in /dev/shm.
"""

import signal
from collections.abc import Mapping
from pathlib import Path

from placebench.errors import DatabaseError
from placebench.guard import Keeper, start
from placebench.postgres.place import Place, last_words
from placebench.postgres.urls import SUPERUSER

_IN_THE_DATA = {"dynamic_shared_memory_type": "mmap"}
THROWAWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
OF_A_DATABASE = {"jit": "off", "max_parallel_workers_per_gather": "0"}
"""Those of the settings for measuring that a single database can have."""


def make_data(place: Place, keeper: Keeper, password: str, settings: Mapping[str, str]) -> None:
    """Make the data folder with *settings* in it; takes 0.4 to 0.6 s. Raises DatabaseError with what initdb said."""
    place.account.enter(place.folder)
    place.data.mkdir(mode=0o700)
    place.account.own(place.data)
    password_file = place.folder / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    place.account.own(password_file)
    command = _initdb_command(place, password_file, durable="fsync" not in settings)
    # By any other signal it would first finish what it is at, seconds on a busy disk.
    initdb = start(place.spec("initdb", *command, stop_signal=signal.SIGKILL), keeper)
    if initdb.wait():
        raise DatabaseError(f"initdb failed: {last_words(initdb, place)}")
    password_file.unlink()
    write_configuration(place, settings)


def measuring_settings(place: Place) -> dict[str, str]:
    """What every server of ours is told: reachable by TCP from this machine alone, one process for one connection."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "off",
        **OF_A_DATABASE,
        **_IN_THE_DATA,
        "shared_preload_libraries": ",".join(place.binaries.preloadable()),
    }
    quick_login = {"scram_iterations": "1"} if place.version >= 16 else {}
    no_helpers = {"io_method": "sync"} if place.version >= 18 else {}
    return settings | quick_login | no_helpers


def write_configuration(place: Place, settings: Mapping[str, str]) -> None:
    """Write our postgresql.conf: what initdb chose for the data, and over it *settings* (the last mention wins)."""
    lines = (f"{name} = '{_escaped(value)}'\n" for name, value in settings.items())
    with place.configuration.open("w") as stream:
        stream.writelines((f"include = '{_escaped(str(place.data / 'postgresql.conf'))}'\n", *lines))
    place.configuration.chmod(0o644)


def _initdb_command(place: Place, password_file: Path, *, durable: bool) -> list[str]:
    """The command line that makes the data folder.

    A password is hashed with the `scram_iterations` of that moment, hence the setting here too (PostgreSQL 16 and
    later): a login costs 2.4 ms then, as without a password, instead of 8.5 ms with the usual 4096 iterations.
    They protect weak passwords; ours has 256 random bits. An initdb that fails leaves its data to the guard, which
    finds there what shared memory is left.
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


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")
