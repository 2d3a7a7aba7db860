"""Telemetry of the real thing: two workers of uWSGI, a locust client, statements, and the counts of both sides."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine

from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.meters.wait_events import read_waits, sample_wait_events
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server, open_connection
from placebench.runtime.running_server import ServerSpec
from placebench.telemetry import Telemetry, load

REQUESTS = 60
PATH = "/allocation_candidates"


@pytest.fixture(scope="module")
def telemetry(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Telemetry]:
    """Of 60 requests by two users to two workers, each statement recorded."""
    folder, url = tmp_path_factory.mktemp("telemetry"), server.create_database("placebench_test_telemetry")
    topology = find_topology("nested-perfload", trees=3, seed=1)
    seed(topology, url)
    spec = ServerSpec(
        database_url=url, processes=2, telemetry=folder / "served", environment={"PLACEBENCH_PROFILE": "light"}
    )
    with serve(spec) as served, sample_wait_events(url, folder / "served"):
        load_spec = LoadSpec(
            url=served.url,
            request=topology.request,
            users=2,
            requests=REQUESTS,
            warmup=4,
            telemetry=folder / "client",
        )
        run_load(load_spec, folder=folder / "log")
    yield load(folder)
    server.drop_database("placebench_test_telemetry")


def counted(telemetry: Telemetry, series: str) -> int:
    """Rows of this series on the path that was loaded."""
    rows = telemetry.durations
    return len(rows[(rows["series"] == series) & (rows["path"] == PATH)])


def test_both_sides_count_the_same_requests(telemetry: Telemetry) -> None:
    """Every request of the client is found at a worker by its number; the warm-up is the worker's alone."""
    assert telemetry.truncated == 0
    assert (counted(telemetry, "client"), counted(telemetry, "server")) == (REQUESTS, REQUESTS + 4)
    assert len(telemetry.paired()) == REQUESTS


def test_each_series_lies_inside_of_the_one_around_it(telemetry: Telemetry) -> None:
    """Of every request: client and server over framework and handler, handler over its statements.

    The client may have read the last byte before the worker's thread runs again to note its end. A request for which
    nothing had changed has no transaction.
    """
    by_request = telemetry.durations.pivot_table(
        index="request", columns="series", values="duration_s", aggfunc="sum", observed=True
    ).dropna(subset=["client"])
    inside_s = by_request[["statement", "transaction"]].sum(axis="columns")

    application_s = by_request["framework"] + by_request["handler"]
    assert (by_request["client"] > application_s).all()
    assert (by_request["server"] > application_s).all()
    assert (by_request["handler"] > inside_s).all()


def test_client_and_server_are_of_one_clock(telemetry: Telemetry) -> None:
    """On one machine nothing is estimated, and no request begins before it was sent."""
    pairs = telemetry.paired()

    assert {host.offset_s for host in telemetry.offset().hosts} == {0.0}
    assert (pairs["started_s_server"] > pairs["started_s_client"]).all()


def test_each_worker_has_a_file_with_its_figures(telemetry: Telemetry) -> None:
    """Two workers, a client and the harness that looks at the backends."""
    roles = sorted(file.head["role"] for file in telemetry.files)
    workers = telemetry.runtime[telemetry.runtime["worker"].str.contains("worker-")]

    assert roles == ["client", "harness", "worker", "worker"]
    assert {"rss_bytes", "cpu_user_s", "cpu_system_s", "gc_collections", "threads", "pool_in_use"} <= set(
        workers["name"]
    )
    assert 0.0 < telemetry.by_worker()["share"].max() < 1.0


def test_backends_are_counted_by_what_they_wait_for(database_url: str, eventually: Callable[..., bool]) -> None:
    """An idle one waits for its client to say something, soon after its last response."""
    idle = create_engine(database_url)
    with idle.connect(), open_connection(database_url) as looking:
        assert eventually(lambda: read_waits(looking) == {"backends idle Client:ClientRead": 1})
