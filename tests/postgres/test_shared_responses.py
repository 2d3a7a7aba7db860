"""Responses in a cache service: shared by workers, never of another state of the data, and computed where it fails."""

import logging
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from meddlers import CLOUD, QUERIES, Meddler, Service, compare, meddling, send_to
from sqlalchemy import Engine, NullPool, create_engine, text

from placebench.compare.what.http_request import fetch
from placebench.errors import ServerError
from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.api.handlers.candidates import find_candidates
from placebench.lab.reference.candidates.shared_responses import CacheService
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.database import Database
from placebench.lab.reference.variants import variant
from placebench.runtime.application_servers import serve
from placebench.runtime.cache_server import start_cache_server
from placebench.runtime.running_server import ServerSpec

NAME = "dedup+responses:redis"
SEED = 11
LESS = "UPDATE inventories SET total = 1 WHERE resource_provider_id = 11"

Eventually = Callable[[Callable[[], bool]], bool]


@pytest.fixture
def url(database_url: str) -> str:
    """Twelve trees of four providers, one that shares, and the log."""
    migrate(database_url)
    run(database_url, *CLOUD.split(";\n"))
    return database_url


@pytest.fixture
def workers(url: str) -> Iterator[list[Engine]]:
    """Of two processes, as far as the service can tell: each with a pool, and so with a lease, of its own."""
    made = [create_engine(url) for _ in range(2)]
    yield made
    for each in made:
        each.dispose()


@pytest.fixture
def settings(cache_url: str) -> ServiceSettings:
    """With the cache service."""
    return replace(DEFAULTS, cache_url=cache_url)


def run(url: str, *statements: str) -> None:
    """What another program does, each statement committed by itself."""
    with create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))


def hits(settings: ServiceSettings) -> int:
    """How many keys that were asked for were there."""
    from redis import Redis

    with Redis.from_url(settings.cache_url) as client:
        return int(client.info("stats")["keyspace_hits"])


def is_hit(engine: Engine, settings: ServiceSettings, query: str = "resources=VCPU:1") -> bool:
    """Whether the response comes from the service."""
    before = hits(settings)
    with Database(engine).snapshot() as connection:
        find_candidates(connection, parse_query(query), variant(NAME), settings)
    return hits(settings) > before


def test_a_response_is_computed_once_for_all_workers(workers: list[Engine], settings: ServiceSettings) -> None:
    """The second worker finds what the first one has kept, until something is written."""
    first, second = workers
    is_hit(first, settings)
    is_hit(second, settings)

    assert is_hit(first, settings)
    assert is_hit(second, settings)
    run(url_of(first), LESS)
    assert not is_hit(second, settings)
    assert is_hit(first, settings)
    run(url_of(first), "UPDATE resource_providers SET generation = generation + 1")
    assert is_hit(second, settings)


def url_of(engine: Engine) -> str:
    """Its database, with the password."""
    return engine.url.render_as_string(hide_password=False)


@pytest.mark.long
def test_every_response_is_naives(url: str, workers: list[Engine], settings: ServiceSettings) -> None:
    """After every few steps of transactions that overlap, naive and either worker agree in one transaction."""
    chance, databases = random.Random(SEED), [Database(each) for each in workers]
    meddler, service = Meddler(url, SEED), Service(send_to(workers[0]), SEED)
    differing, before = [], hits(settings)
    for _ in range(200):
        for _ in range(chance.randint(0, 4)):
            meddler.step()
        if chance.random() < 0.2:
            meddler.settle()
            service.step()
        if chance.random() < 0.03:
            meddler.empty()
        query = chance.choice(QUERIES[:5])
        for database in databases:
            if seen := compare(database, query, naive_first=False, name=NAME, settings=settings):
                differing.append((query, seen))
    meddler.close()

    assert differing == []
    assert hits(settings) - before > 100
    assert all(meddler.done[way] for way in ("commit", "rollback", "savepoint", "back", "refused"))


@pytest.mark.long
def test_threads_with_older_snapshots_respond_as_naive(
    url: str, workers: list[Engine], settings: ServiceSettings
) -> None:
    """Writers and requests in threads of their own; some requests have an older snapshot than the last response."""
    differing: list[tuple[str, str]] = []
    meddler, service = Meddler(url, SEED), Service(send_to(workers[0]), SEED)

    def request(number: int) -> None:
        chance = random.Random(number)
        for _ in range(30):
            go_on()
            query, first = chance.choice(QUERIES[:5]), chance.random() < 0.3
            database = Database(workers[number % 2])
            if seen := compare(database, query, naive_first=first, name=NAME, settings=settings):
                differing.append((query, seen))

    threads = [threading.Thread(target=request, args=(number,)) for number in range(3)]
    with meddling(meddler, service) as go_on:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    meddler.close()

    assert differing == []


def test_transactions_that_commit_in_another_order_than_they_began(
    url: str, workers: list[Engine], settings: ServiceSettings
) -> None:
    """The first writer commits last: what was kept after the second one's commit is not served any more."""
    database = Database(workers[0])

    def differs() -> str | None:
        return compare(database, "resources=VCPU:2", naive_first=False, name=NAME, settings=settings)

    with create_engine(url).connect() as early:
        early.execute(text(LESS))
        run(url, LESS.replace("11", "22"))
        between = [differs(), differs()]
        assert is_hit(workers[1], settings, "resources=VCPU:2") or is_hit(workers[1], settings, "resources=VCPU:2")
        early.commit()

    assert between == [None, None]
    assert not is_hit(workers[0], settings, "resources=VCPU:2")
    assert differs() is None


def test_a_log_that_is_pruned_leads_to_no_earlier_state(
    url: str, workers: list[Engine], settings: ServiceSettings
) -> None:
    """Write, respond, prune, again and again: the log keeps its newest transaction, and each state is another one."""
    database, counts = Database(workers[0]), list[int | None]()
    for total in (8, 1, 8, 2, 1):
        run(url, f"UPDATE inventories SET total = {total}", "SELECT placebench_prune()")
        for _ in range(2):
            assert compare(database, "resources=VCPU:2", naive_first=False, name=NAME, settings=settings) is None
        with create_engine(url, poolclass=NullPool).connect() as connection:
            run(url, "DELETE FROM placebench_readers", "SELECT placebench_prune()")
            counts.append(connection.scalar(text("SELECT count(DISTINCT xact) FROM placebench_changes")))

    assert counts == [1] * 5


@pytest.mark.long
@pytest.mark.parametrize(
    "statements",
    [
        ["TRUNCATE inventories"],
        ["ALTER TABLE inventories DISABLE TRIGGER placebench_update", LESS],
        [
            "ALTER TABLE inventories DISABLE TRIGGER placebench_update",
            LESS,
            "ALTER TABLE inventories ENABLE ALWAYS TRIGGER placebench_update",
        ],
        ["ALTER TABLE inventories ALTER total TYPE integer USING total / 8"],
        [LESS, "TRUNCATE placebench_changes"],
    ],
)
def test_what_fires_no_trigger_is_in_the_next_response(
    url: str, workers: list[Engine], settings: ServiceSettings, statements: list[str]
) -> None:
    """The catalog shows it, and nothing that was kept before is served."""

    def differing() -> list[str | None]:
        databases = [Database(worker) for worker in workers]
        queries = ("resources=VCPU:1", "resources=VCPU:2")
        return [
            compare(each, query, naive_first=False, name=NAME, settings=settings)
            for each in databases
            for query in queries
        ]

    before = differing() + differing()
    run(url, *statements)

    assert before == [None] * 8
    assert differing() == differing() == differing() == [None] * 4


def test_without_a_change_log_responses_are_computed(
    url: str, workers: list[Engine], settings: ServiceSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """What is written unseen is in the next response; the log says why, once."""
    run(url, "DROP FUNCTION placebench_revision")
    with caplog.at_level(logging.WARNING):
        for total in (4, 2, 1):
            run(url, f"UPDATE inventories SET total = {total}")
            seen = compare(Database(workers[0]), QUERIES[0], naive_first=False, name=NAME, settings=settings)

            assert seen is None

    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("no response is kept in the cache service: this database has no change log")


def test_a_service_that_fails_is_left_alone_for_a_while(cache_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """One line when it fails, one when it is back; nothing is sent to it in the five seconds between."""
    from redis import Redis

    clock = [0.0]
    service, admin = CacheService(cache_url, lambda: clock[0]), Redis.from_url(cache_url)
    password = admin.config_get("requirepass")["requirepass"]
    service.keep("a", b"1")
    with caplog.at_level(logging.WARNING):
        admin.config_set("requirepass", "another")
        admin.client_kill_filter(_type="normal")
        failed = [service.get("a"), service.get("a")]
        admin.config_set("requirepass", password)
        left_alone = service.get("a")
        clock[0] += 5
        back = service.get("a")
    admin.close()

    assert [None, None] == failed
    assert (None, b"1") == (left_alone, back)
    assert ["fails", "responds again"] == [
        word for record in caplog.records for word in ("fails", "responds again") if word in record.getMessage()
    ]


@pytest.mark.long
def test_a_service_is_served_beside_its_cache_server(
    url: str, cache_url: str, tmp_path: Path, eventually: Eventually
) -> None:
    """The server's process is metered with the workers and ends with them; killed, it takes no request with it."""
    assert cache_url  # or skipped
    chosen, path = variant(NAME), "/allocation_candidates?resources=VCPU:1"
    spec = ServerSpec(url, NAME, **chosen.serving, processes=2, log=tmp_path / "log")
    with serve(spec) as server:
        bodies = [fetch(server.url, path).body for _ in range(6)]
        (cache,) = set(server.metered_pids()) - set(server.worker_pids())
        named = psutil.Process(cache).name()
        assert cache in server.pids()
        psutil.Process(cache).send_signal(signal.SIGKILL)
        assert eventually(lambda: not psutil.pid_exists(cache))
        bodies += [fetch(server.url, path).body for _ in range(4)]
        pids = server.pids()

    assert named in ("redis-server", "valkey-server")
    assert len(set(bodies)) == 1
    assert (tmp_path / "log").read_text().count("the cache service fails, and responses are computed") in (1, 2)
    assert eventually(lambda: not any(map(psutil.pid_exists, pids)))


def test_a_cache_server_is_gone_with_its_folder(cache_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wants its password, and one that is not installed is one line."""
    from redis import Redis
    from redis.exceptions import AuthenticationError

    assert cache_url  # or skipped
    running = start_cache_server()
    folder = Path(psutil.Process(running.pid).cwd())
    with Redis.from_url(running.url) as known, Redis(port=known.connection_pool.connection_kwargs["port"]) as stranger:
        assert known.ping()
        with pytest.raises(AuthenticationError):
            stranger.ping()
    running.stop()
    running.stop()

    assert not psutil.pid_exists(running.pid)
    assert not folder.exists()
    monkeypatch.setattr("placebench.runtime.cache_server._PROGRAMS", ("no-such-server",))
    with pytest.raises(ServerError, match="apt-get install"):
        start_cache_server()
