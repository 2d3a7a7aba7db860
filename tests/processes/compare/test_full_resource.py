"""What limits a real service at its highest throughput is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from placebench.compare.load.knee import KneeLoad
from placebench.compare.load.load_run import LoadSpec
from placebench.compare.load.load_steps import parse_objective
from placebench.http_session import Request
from placebench.meters.full_resource import find_service
from placebench.meters.readings import Full
from placebench.runtime.running_server import RunningServer

Served = Callable[..., RunningServer]


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "full"),
    [
        ("/cpu", {"worker CPU", "machine CPU"}),
        ("/lock", {"one lock", "limit"}),  # the second, if the machine was busy while the user was alone
        ("/limit", {"limit"}),
        ("/wait", {"workers"}),
    ],
)
def test_what_was_full_is_named(path: str, full: set[Full], served: Served, tmp_path: Path) -> None:
    """One process of eight threads: its CPU, a lock, a semaphore of two, or all of its threads."""
    server = served(module="full_app:application", threads=8)
    spec = LoadSpec(server.url, workload=(Request("GET", path),))
    load = KneeLoad(spec, parse_objective("p95 <= 1s"), tmp_path, step_s=2.0)

    found = load.saturate(load.alone())

    assert found.full in full, found


def test_the_processes_of_a_service_are_found_by_its_port(served: Served) -> None:
    """The master and its workers; none for a host that is another machine."""
    server = served(processes=2)
    port = int(server.url.rpartition(":")[2])

    assert {*server.pids()} <= {*find_service("127.0.0.1", port)}
    assert [] == find_service("service.example", port)
