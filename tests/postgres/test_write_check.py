"""`placebench load --check-writes` against real services: each write is accounted for."""

import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from placebench.cli import main
from placebench.errors import DatabaseError
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import open_connection
from placebench.runtime.postgres.persistent_server import PersistentServer
from placebench.runtime.running_server import ServerSpec

LOAD = ("load", "--check-writes", "--users", "6")
Eventually = Callable[..., bool]
FAKES = Path(__file__).parents[1] / "fakes"


@pytest.fixture
def seeded(database_url: str) -> str:
    """40 nested trees, room for 80 claims."""
    seed(find_topology("nested-perfload", trees=40, seed=1), database_url)
    return database_url


@pytest.fixture
def standing() -> Iterator[PersistentServer]:
    """A PostgreSQL that writes through to the disk, and may be killed."""
    parent = Path(tempfile.mkdtemp(dir="/tmp"))
    parent.chmod(0o755)  # root's servers run as another user, who has to come through
    server = PersistentServer(parent / "standing")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(parent)


def accounts(printed: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed)["write_check"]
    return found


@pytest.mark.long
def test_nothing_is_lost(seeded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """More claims than there is room for, from a pool of one connection: every acknowledged one is found, by the
    service and in the tables alike, also those of a second run beside those of the first."""
    spec = ServerSpec(database_url=seeded, processes=2, threads=4, environment={"PLACEBENCH_POOL_SIZE": "1"})
    with serve(spec) as server:
        by_service = main([*LOAD, server.url, "--requests", "100"])
        said = capsys.readouterr().out
        in_tables = main([*LOAD, server.url, "--requests", "60", "--db", seeded, "--json"])
    second = accounts(capsys.readouterr().out)

    assert (0, 0) == (by_service, in_tables)
    assert ", lost 0, doubled 0\n" in said
    assert second["sent"] == second["acknowledged"] + second["refused"] > 20
    assert (second["found"], second["lost"], second["refused_and_found"]) == (second["acknowledged"], 0, 0)


@pytest.mark.long
def test_a_write_that_is_lost_fails_the_run(seeded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A service that forgets every fifth claim that it acknowledged: exit code 1, and how many."""
    forgetful = {"PYTHONPATH": os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")])}
    with serve(ServerSpec(database_url=seeded, module="forgetful:application", environment=forgetful)) as server:
        exit_code = main([*LOAD, server.url, "--requests", "60", "--db", seeded, "--json"])
    seen = accounts(capsys.readouterr().out)

    assert exit_code == 1
    assert seen["lost"] == seen["acknowledged"] - seen["found"] > 4
    assert seen["doubled"] == 0


@pytest.mark.long
def test_kill_9_of_a_worker(seeded: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests under way are in doubt; no acknowledged write is lost; the answers that did not come fail the run."""
    with serve(ServerSpec(database_url=seeded, processes=2, threads=4)) as server:
        killer = threading.Timer(2.5, lambda: os.kill(server.worker_pids()[0], signal.SIGKILL))
        killer.start()
        main([*LOAD, server.url, "--time", "2", "--json"])
        killer.join()
    seen = accounts(capsys.readouterr().out)

    assert (seen["lost"], seen["doubled"], seen["refused_and_found"]) == (0, 0, 0)
    assert seen["found"] == seen["acknowledged"] > 20


@pytest.mark.long
def test_kill_9_of_postgresql(
    standing: PersistentServer, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    """The postmaster and all its children at once, and a start on the same data: what was acknowledged is there."""
    seed(find_topology("nested-perfload", trees=40, seed=1), url := standing.url())

    def kill() -> None:
        eventually(lambda: claims_in(url) > 20)
        postmaster = psutil.Process(int((standing.folder / "data" / "postmaster.pid").read_text().split()[0]))
        for process in (postmaster, *postmaster.children(recursive=True)):
            process.kill()
        eventually(lambda: not runs(standing))
        standing.start()

    with serve(ServerSpec(database_url=url, processes=2, threads=4)) as server, ThreadPoolExecutor(1) as beside:
        killed = beside.submit(kill)
        exit_code = main([*LOAD, server.url, "--time", "3", "--db", url, "--json"])
        killed.result()
    seen = accounts(capsys.readouterr().out)

    assert exit_code == 1
    assert seen["statuses"].keys() & {"500", "503"}, "503: the database accepts no connection"
    assert (seen["lost"], seen["doubled"], seen["refused_and_found"]) == (0, 0, 0)
    assert seen["found"] == seen["acknowledged"] > 20


def runs(standing: PersistentServer) -> bool:
    """Whether its postmaster is there; one that was killed just now may be, for a moment."""
    try:
        return bool(standing.url())
    except DatabaseError:
        return False


def claims_in(url: str) -> int:
    """How many consumers hold something."""
    with open_connection(url) as connection:
        return int(connection.execute(text("SELECT count(DISTINCT consumer_id) FROM allocations")).scalar_one())
