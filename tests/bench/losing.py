"""The section of the bench about losses: claims under overload, a small pool, kill -9 of workers and of PostgreSQL.

The key piece is `bench_losses`. PostgreSQL writes through to the disk here, unlike in the other sections, but for the
last case, which shows that a loss is seen.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from placebench.commands.accounts import accounts_in_words
from placebench.experiment.load import LoadSpec, run_load
from placebench.experiment.server import RunningServer, ServerSpec, serve
from placebench.postgres.standing import StandingServer
from placebench.postgres.urls import with_database
from placebench.seeding import seed, topology_named

TIME_S, USERS, TREES = 10.0, 40, 100
NAME = "bench_losses"


@dataclass(frozen=True)
class Place:
    """What there is to disturb."""

    postgres: StandingServer
    served: RunningServer


def nothing(_: Place) -> None:
    """The load alone."""


def kill_workers(place: Place) -> None:
    """One worker after the other, three times."""
    for _ in range(3):
        time.sleep(TIME_S / 5)
        os.kill(place.served.worker_pids()[0], signal.SIGKILL)


def kill_postgres(place: Place) -> None:
    """The postmaster and all its children at once, half-way. Started again on its data a second later."""
    time.sleep(TIME_S / 2)
    postmaster = psutil.Process(int((place.postgres.folder / "data" / "postmaster.pid").read_text().split()[0]))
    for process in (postmaster, *postmaster.children(recursive=True)):
        process.kill()
    time.sleep(1)
    place.postgres.start()


@dataclass(frozen=True)
class Case:
    """A load and what happens to the service meanwhile."""

    name: str
    disturb: Callable[[Place], None] = nothing
    users: int = USERS
    pool_size: int = 10
    synchronous_commit: str = "on"


CASES = (
    Case("undisturbed"),
    Case("overload: 200 users", users=200),
    Case("a pool of one connection", pool_size=1),
    Case("kill -9 of a worker, three times", kill_workers),
    Case("kill -9 of PostgreSQL", kill_postgres),
    Case("the same, synchronous_commit=off", kill_postgres, synchronous_commit="off"),
)


def bench_losses(_: argparse.Namespace, say: Callable[..., None], __: Callable[..., str]) -> None:
    """The accounts of each case; a loss ends the bench, but for the last case, where it is expected."""
    with tempfile.TemporaryDirectory(prefix="bench-losses-", dir="/var/tmp") as folder:
        postgres = StandingServer(Path(folder) / "postgres")
        Path(folder).chmod(0o755)  # root's servers run as another user, who has to come through
        postgres.start()
        try:
            lost = [case.name for case in CASES if _loses(case, postgres, Path(folder), say)]
        finally:
            postgres.stop()
            postgres.remove()
    if lost and lost != [CASES[-1].name]:
        sys.exit(f"lost: {'; '.join(lost)}")


def _loses(case: Case, postgres: StandingServer, folder: Path, say: Callable[..., None]) -> bool:
    url = _prepared(postgres, case)
    pool = {"PLACEBENCH_POOL_SIZE": str(case.pool_size)}
    spec = ServerSpec(database_url=url, processes=2, threads=10, environment=pool)
    with serve(spec) as served, ThreadPoolExecutor(1) as beside:
        load = LoadSpec(
            served.url, kind="claims", users=case.users, time_s=TIME_S, database_url=url, answer_timeout_s=60
        )
        disturbing = beside.submit(case.disturb, Place(postgres, served))
        result = run_load(load, folder=folder)
        disturbing.result()
    assert result.accounts is not None
    for line in accounts_in_words(result.accounts):
        say(case.name, line)
    return not result.accounts.well


def _prepared(postgres: StandingServer, case: Case) -> str:
    """A fresh database in which nobody runs out of anything."""
    url = with_database(postgres.url(), NAME)
    _execute(postgres.url(), f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)", f"CREATE DATABASE {NAME}")
    seed(topology_named("nested-perfload", trees=TREES, seed=1), url)
    _execute(
        url,
        "UPDATE inventories SET total = 1000000000",
        f"ALTER DATABASE {NAME} SET synchronous_commit = {case.synchronous_commit}",
        "VACUUM ANALYZE",
    )
    return url


def _execute(url: str, *statements: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()
