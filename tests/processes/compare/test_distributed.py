"""Loads of one locust master and several workers, all on loopback."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from placebench.compare.keep.records import LoadResult
from placebench.compare.load.load_run import LOCUSTFILES, LoadSpec, run_load
from placebench.compare.what.http_request import get
from placebench.compare.what.validity import load_problem
from placebench.errors import LoadError
from placebench.loadgen.options import arrivals
from placebench.paths import resource_folder
from placebench.runtime.ports import free_port
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]
Locust = subprocess.Popen[bytes]
LIMIT_S = 90


def locustfile(kind: str) -> str:
    """The path of one of ours."""
    return str(resource_folder("locustfiles") / LOCUSTFILES[kind])


@pytest.fixture
def locust(tmp_path: Path) -> Iterator[Callable[..., Locust]]:
    """A function that starts locust with these options; each is killed after the test."""
    with ExitStack() as stack:

        def start(*options: str) -> Locust:
            # A worker writes the master's locustfile there, under a name that all of them choose.
            own = tempfile.mkdtemp(dir=tmp_path)
            process = subprocess.Popen(
                [sys.executable, "-m", "locust", "--headless", "--only-summary", *options],
                cwd=tmp_path,
                env={**os.environ, "TMPDIR": own},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def requests_seen(server: RunningServer) -> int:
    """How many requests reached the service."""
    return int(get(server.url, "/counts").body.split()[0])


def read_worker_files(folder: Path) -> list[dict[str, list[float]]]:
    """What each worker wrote by itself."""
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("worker*.json"))]


@pytest.mark.long
def test_three_workers_send_the_one_schedule(served: Served, locust: Callable[..., Locust], tmp_path: Path) -> None:
    """Each arrival of the seeded schedule is sent once, by one worker; the master has all samples to the last digit.

    The workers get the locustfile and the options from the master. On one machine the true offset of the clocks is 0,
    and what is said of it is below 100 ms.
    """
    server, port = served(threads=4), str(free_port())
    master = locust(
        *("-f", locustfile("open"), "-H", server.url, "--master", "--expect-workers", "3"),
        *("--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--samples-file", "all.json"),
        *("--rate", "60", "--requests", "90", "--warmup", "5", "--seed", "4", "--candidates-path", "/work"),
    )
    for number in range(3):
        address = ("--master-host", "127.0.0.1", "--master-port", port)
        locust("-f", "-", "--worker", *address, "--samples-file", f"worker{number}.json")

    assert master.wait(LIMIT_S) == 0
    result, parts = LoadResult.load(tmp_path / "all.json"), read_worker_files(tmp_path)
    assert sorted(result.started_s) == list(islice(arrivals(60.0, 4), 90))
    assert sorted(result.latency_s) == sorted(each for part in parts for each in part["latency_s"])
    assert len(parts) == 3
    assert min(len(part["latency_s"]) for part in parts) > 10
    assert (result.users, result.failures, result.in_flight) == (3, 0, 0)
    assert [each.requests for each in result.workers].count(None) == 0
    assert sum(each.requests or 0 for each in result.workers) == 90
    assert max(each.clock_error_s or 1.0 for each in result.workers) < 0.1
    assert requests_seen(server) == 95


@pytest.mark.long
def test_processes_of_this_machine_share_what_is_counted(served: Served, tmp_path: Path) -> None:
    """Two processes share 4 users, 41 requests and 7 of the warm-up, and together make exactly these."""
    server = served(threads=4)
    spec = LoadSpec(server.url, "/work?size=10", users=4, requests=41, warmup=7, processes=2)
    result = run_load(spec, folder=tmp_path)

    assert (result.requests, result.users, result.failures, result.in_flight) == (41, 4, 0, 0)
    assert sorted(each.requests or 0 for each in result.workers) == [20, 21]
    assert result.body_bytes == [10] * 41
    assert requests_seen(server) == 48


@pytest.mark.long
def test_a_lost_worker_is_named(served: Served, locust: Callable[..., Locust], tmp_path: Path) -> None:
    """One of two workers is killed under load: exit code 1, the samples of the other, and nothing said of the lost."""
    server, port = served(threads=4), str(free_port())
    master = locust(
        *("-f", locustfile("closed"), "-H", server.url, "-u", "2", "-r", "2", "--candidates-path", "/work?sleep=0.05"),
        *("--master", "--expect-workers", "2", "--master-bind-host", "127.0.0.1", "--master-bind-port", port),
        *("--samples-file", "all.json", "--measure-s", "3"),
    )
    workers = [locust("-f", "-", "--worker", "--master-port", port) for _ in range(2)]
    give_up_at = time.monotonic() + LIMIT_S
    while requests_seen(server) < 5 and time.monotonic() < give_up_at:
        time.sleep(0.02)
    os.kill(workers[0].pid, signal.SIGKILL)

    assert master.wait(LIMIT_S) == 1
    result = LoadResult.load(tmp_path / "all.json")
    assert sorted(each.requests is None for each in result.workers) == [False, True]
    assert result.requests == sum(each.requests or 0 for each in result.workers) > 5
    assert load_problem(result) == "1 of 2 load generators were lost"


def test_fewer_users_than_processes_are_refused(served: Served, tmp_path: Path) -> None:
    """A process without a user would send nothing of its part."""
    with pytest.raises(LoadError, match="1 users for 2 load generators"):
        run_load(LoadSpec(served().url, requests=1, processes=2), folder=tmp_path)


def test_workers_that_do_not_come_are_not_waited_for(served: Served, tmp_path: Path) -> None:
    """One line says how many came."""
    spec = LoadSpec(served().url, users=2, requests=2, expect_workers=2, wait_for_workers_s=1.0)
    with pytest.raises(LoadError, match="Gave up waiting for workers to connect"):
        run_load(replace(spec, bind=f"127.0.0.1:{free_port()}"), folder=tmp_path)
