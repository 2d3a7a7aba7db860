"""The section of the bench about losses: claims under overload, a small pool, kill -9 of workers and of PostgreSQL.

The main part is `bench_losses`. PostgreSQL writes through to the disk here, unlike in the other sections, but for the
last case, which shows that a loss is seen. Leaves losses.json, the accounts of every case, and losses.svg
beside it: the answers over time of the case in which PostgreSQL was killed.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from picture_file import picture_file
from raw_file import measured_here, write_raw
from sqlalchemy import create_engine, text

from placebench import units
from placebench.commands.load_result import write_check_lines
from placebench.compare.keep.records import WriteCheck
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import open_connection
from placebench.runtime.postgres.connection import with_database
from placebench.runtime.postgres.persistent_server import PersistentServer
from placebench.runtime.running_server import RunningServer, ServerSpec
from placebench.telemetry import load as telemetry_of

USERS, TREES = 40, 100
START_WITHIN_S = 60.0
NAME = "bench_losses"


@dataclass(frozen=True)
class Place:
    """What there is to disturb."""

    postgres: PersistentServer
    served: RunningServer
    url: str
    time_s: float
    """That the load lasts."""

    def wait_for_claims(self) -> None:
        """Until the load writes: locust takes a while to start, on a busy machine several seconds."""
        with open_connection(self.url) as connection:
            claimed = text("SELECT EXISTS (SELECT FROM allocations)")
            wait_until(lambda: connection.execute(claimed).scalar_one(), "no claim was written")


def wait_until(holds: Callable[[], object], otherwise: str) -> None:
    """Until the condition holds; what is said where it does not within `START_WITHIN_S`."""
    give_up_at = time.monotonic() + START_WITHIN_S
    while not holds():
        assert time.monotonic() < give_up_at, otherwise
        time.sleep(0.05)


def nothing(_: Place) -> None:
    """The load alone."""


def kill_workers(place: Place) -> None:
    """One worker after the other, three times."""
    place.wait_for_claims()
    for _ in range(3):
        time.sleep(place.time_s / 5)
        wait_until(place.served.worker_pids, "no worker was started again")
        os.kill(place.served.worker_pids()[0], signal.SIGKILL)


def kill_postgres(place: Place) -> None:
    """The postmaster and all its children at once, half-way. Started again on its data a second later."""
    place.wait_for_claims()
    time.sleep(place.time_s / 2)
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
    smoke: bool = False
    """Whether --smoke runs it: one case of each disturbance."""


DRAWN = Case("kill -9 of PostgreSQL", kill_postgres, smoke=True)
CASES = (
    Case("undisturbed", smoke=True),
    Case("overload: 200 users", users=200),
    Case("a pool of one connection", pool_size=1),
    Case("kill -9 of a worker, three times", kill_workers, smoke=True),
    DRAWN,
    Case("the same, synchronous_commit=off", kill_postgres, synchronous_commit="off"),
)


def bench_losses(arguments: argparse.Namespace, say: Callable[..., None], __: Callable[..., str]) -> None:
    """The accounts of each case; a loss ends the bench, but for the last case, where it is expected."""
    with tempfile.TemporaryDirectory(prefix="bench-losses-", dir="/var/tmp") as folder:
        postgres = PersistentServer(Path(folder) / "postgres")
        Path(folder).chmod(0o755)  # root's servers run as another user, who has to come through
        postgres.start()
        try:
            cases = [case for case in CASES if case.smoke or not arguments.smoke]
            seen: dict[str, list[WriteCheck]] = {case.name: [] for case in cases}
            for _ in range(arguments.repeats):
                for case in cases:
                    telemetry = Path(folder) / "telemetry" if case is DRAWN and not seen[case.name] else None
                    seen[case.name].append(_check_writes(case, postgres, Path(folder), telemetry, arguments, say))
            head = measured_here(postgres.url())
        finally:
            postgres.stop()
            postgres.remove()
    kept = {name: [asdict(each) for each in made] for name, made in seen.items()}
    load = {"users": USERS, "time_s": arguments.losing_s}
    write_raw(arguments.out / "losses.json", {**head, "n": arguments.repeats, **load, "cases": kept})
    lost = [name for name, made in seen.items() if not all(each.passed for each in made)]
    if lost and lost != [CASES[-1].name]:
        sys.exit(f"lost: {'; '.join(lost)}")


def _check_writes(
    case: Case,
    postgres: PersistentServer,
    folder: Path,
    telemetry: Path | None,
    arguments: argparse.Namespace,
    say: Callable[..., None],
) -> WriteCheck:
    """The account of one run; its picture is drawn if *telemetry* names a folder."""
    url = _prepared(postgres, case)
    pool = {"PLACEBENCH_POOL_SIZE": str(case.pool_size)}
    spec = ServerSpec(database_url=url, processes=2, threads=10, environment=pool)
    with serve(spec) as served, ThreadPoolExecutor(1) as beside:
        load = LoadSpec(
            served.url,
            kind="claims",
            users=case.users,
            time_s=arguments.losing_s,
            database_url=url,
            response_timeout_s=60,
            telemetry=telemetry,
        )
        disturbing = beside.submit(case.disturb, Place(postgres, served, url, arguments.losing_s))
        result = run_load(load, folder=folder)
        disturbing.result()
    assert result.write_check is not None
    for line in write_check_lines(result.write_check):
        say(case.name, line)
    if telemetry:
        (arguments.out / "losses.svg").write_text(_picture(telemetry))
    return result.write_check


def _picture(telemetry: Path) -> str:
    """Answers a second, by what they were."""
    durations = telemetry_of(telemetry).durations
    ended_s = durations["started_s"] + durations["duration_s"]
    seconds = (ended_s - durations["started_s"].min()).floordiv(1).astype("int64")
    answers = durations["status"].astype("str")
    sorts = {"done": answers.str.startswith("2"), "refused": answers.str.startswith("4")}
    sorts["failed"] = ~sorts["done"] & ~sorts["refused"]
    counts = {name: seconds[which].value_counts() for name, which in sorts.items()}
    roles: tuple[Role, ...] = ("variant", "between", "baseline")
    drawn = lines(
        [
            Line(name, [(float(second), float(count.get(second, 0))) for second in range(seconds.max() + 1)], role)
            for (name, count), role in zip(counts.items(), roles, strict=True)
        ],
        title="Answers a second while PostgreSQL is killed",
        description="Done (2xx), refused (4xx) and failed (5xx or no answer), by the second in which they ended.",
        show=units.rate,
        show_where=units.duration,
    )
    return picture_file(drawn)


def _prepared(postgres: PersistentServer, case: Case) -> str:
    """A fresh database in which nobody runs out of anything."""
    url = with_database(postgres.url(), NAME)
    _execute(postgres.url(), f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)", f"CREATE DATABASE {NAME}")
    seed(find_topology("nested-perfload", trees=TREES, seed=1), url)
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
