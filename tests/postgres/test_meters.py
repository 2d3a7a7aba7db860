"""What PostgreSQL's processes take, on real servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from placebench.meters import meters
from placebench.meters.meters import Backends, ServerMeter, inspect_backends, read_backends
from placebench.meters.wait_events import sample_wait_events
from placebench.runtime.postgres import Server, open_connection, open_server

WORK = text("SELECT count(*) FROM pg_class a, pg_class b, generate_series(1, 10)")


@pytest.fixture(scope="module")
def stock(server: Server) -> Iterator[Server]:
    """A server with what PostgreSQL 18 has by itself, named by its URL."""
    if server.kind == "named":
        pytest.skip("settings are for a server of ours")
    settings = {"max_parallel_workers_per_gather": "2"}
    settings |= {"io_method": "worker"} if server.version_number >= 180000 else {}
    with open_server(settings=settings) as ours, open_server(ours.url) as named:
        yield named


@pytest.fixture
def service(database_url: str) -> Iterator[Connection]:
    """A service's connection to the test's database, which stays."""
    with connection_to(database_url) as connection:
        yield connection


def connection_to(url: str) -> Connection:
    """A connection that ends when it is closed."""
    return create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect()


def look(url: str) -> Backends:
    """At a database of which everything can be read."""
    seen = inspect_backends(url)
    assert isinstance(seen, Backends)
    return seen


def test_a_backend_that_works_is_seen(service: Connection, database_url: str) -> None:
    """One backend, the same before and after, and what it took."""
    before = look(database_url)
    service.execute(WORK)
    after = look(database_url)

    assert len(after.cpu_s) == 1
    assert after.unchanged_since(before)
    assert (after.spent_since(before) or 0.0) > 0.01


def test_a_backend_that_came_and_stays_counts_whole(service: Connection, database_url: str) -> None:
    """It is another one than before, and all it took can be read."""
    before = look(database_url)
    with connection_to(database_url) as second:
        second.execute(WORK)
        after = look(database_url)

    assert not after.unchanged_since(before)
    assert (after.spent_since(before) or 0.0) > 0.01


def test_backends_that_came_and_went_are_not_measured(server: Server, service: Connection, database_url: str) -> None:
    """Both looks see the same backend, and PostgreSQL tells of more than the one that it may have counted late."""
    if server.version_number < 150000:
        pytest.skip("before PostgreSQL 15 nobody tells of it")
    before = look(database_url)
    for _ in range(2):
        with connection_to(database_url) as another:
            another.execute(WORK)
    after = look(database_url)

    assert after.cpu_s.keys() == before.cpu_s.keys()
    assert not after.unchanged_since(before)
    assert after.spent_since(before) is None


def test_our_own_looks_are_no_work_of_the_service(service: Connection, database_url: str, tmp_path: Path) -> None:
    """Neither who meters nor who watches for telemetry is among the backends, nor a session that came."""
    with sample_wait_events(database_url, tmp_path):
        with ServerMeter(list, database_url) as meter:
            pass
        pids = list(look(database_url).cpu_s)

    assert pids == [service.scalar(text("SELECT pg_backend_pid()"))]
    assert meter.read().backend_cpu_s == pytest.approx(0.0, abs=0.001)


def test_parallel_workers_are_not_measured(stock: Server) -> None:
    """Where the database lets backends have them; what we make on a server that was named does not."""
    made = stock.create_database("placebench_measured")

    assert inspect_backends(stock.url) == ("max_parallel_workers_per_gather is 2: parallel workers come and go unseen")
    assert read_backends(stock.url) is None
    assert read_backends(made) is not None


def test_workers_that_read_for_backends_are_counted(stock: Server) -> None:
    """Those of io_method=worker, which a role without a right on others' statistics sees by their processes."""
    if stock.version_number < 180000:
        pytest.skip("PostgreSQL 18 is the first to have them")
    made = stock.create_database("placebench_read")
    with open_connection(stock.url) as connection:
        workers = set(connection.scalars(text("SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'")))
    with open_connection(made) as connection:
        seen = set(connection.scalars(text("SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'")))

    assert workers
    assert seen == set()
    assert set(look(made).cpu_s) == workers


def test_pids_of_a_container_are_not_ours(
    service: Connection, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has the backend's pid here is not PostgreSQL's: a kernel's thread has no command line."""
    pid = tmp_path / str(service.scalar(text("SELECT pg_backend_pid()")))
    pid.mkdir()
    (pid / "cmdline").write_bytes(b"")
    monkeypatch.setattr(meters, "_PROC", tmp_path)

    assert str(inspect_backends(database_url)).startswith("the database is in a container of its own")
