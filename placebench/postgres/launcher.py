"""Makes a private server that is gone with this process: folder, data, a free port, the running postmaster.

The key piece is `launch`.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from placebench.errors import DatabaseError
from placebench.guard import Child, Keeper, start
from placebench.postgres.account import server_account
from placebench.postgres.binaries import Binaries
from placebench.postgres.cluster import THROWAWAY, make_data, measuring_settings
from placebench.postgres.copies import private_folder, runnable
from placebench.postgres.place import Place, last_words, one_line
from placebench.postgres.ports import free_port
from placebench.postgres.urls import own_url

_START_LIMIT_S = 60.0
_POLL_S = 0.01
_PORTS_TRIED = 5
_PORT_TAKEN = "could not bind"


@dataclass(frozen=True)
class Launched:
    """A running private server; closing *keeper* ends it."""

    url: str
    keeper: Keeper
    child: Child


def launch(binaries: Binaries, settings: Mapping[str, str]) -> Launched:
    """Start a private server; *settings* go over those for measuring. Takes 0.5 to 0.7 s, most of it initdb.

    Raises DatabaseError with the end of the log when it does not start.
    """
    with one_line("no PostgreSQL server could be made"):
        account = server_account()
        place = Place(private_folder(account), runnable(binaries, account), account)
        keeper = Keeper(place.folder)
        try:
            return _launch(place, keeper, settings)
        except BaseException:
            keeper.close()
            raise


def _launch(place: Place, keeper: Keeper, settings: Mapping[str, str]) -> Launched:
    password = secrets.token_urlsafe(32)
    make_data(place, keeper, password, measuring_settings(place) | THROWAWAY | dict(settings))
    for _ in range(_PORTS_TRIED):
        port = free_port()
        command = [place.binaries.program("postgres"), "-D", str(place.data), "-p", str(port), *place.server_options]
        child = start(place.spec("PostgreSQL", *command), keeper)
        if _becomes_ready(child, place.data):
            return Launched(own_url(password, port), keeper, child)
        if _PORT_TAKEN not in child.log_tail():
            break
    raise DatabaseError(f"PostgreSQL {place.version} did not start: {last_words(child, place)}")


def _becomes_ready(child: Child, data: Path) -> bool:
    deadline = time.monotonic() + _START_LIMIT_S
    while child.poll() is None and time.monotonic() < deadline:
        if _is_ready(data):
            return True
        time.sleep(_POLL_S)
    return False


def _is_ready(data: Path) -> bool:
    """Whether the eighth line of the postmaster's pid file says that it accepts connections."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"
