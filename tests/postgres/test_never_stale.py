"""The variants cached and dedup under foreign writers: no response is from a state that is over, or that is not yet."""

import json
import logging
import os
import random
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from meddlers import CLOUD, QUERIES, Meddler, Service, compare, meddling, send_to, uuid
from psycopg2_statements import after_each_statement
from sqlalchemy import Engine, NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from werkzeug.test import Client

from placebench.compare.what.http_request import HEADERS
from placebench.lab.inventory.seeding import migrate
from placebench.lab.placement_api import canonical_candidates
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.candidates import cached_index
from placebench.lab.reference.candidates.cached_index import CachedIndex
from placebench.lab.reference.domain.candidates_query import parse_query
from placebench.lab.reference.domain.settings import DEFAULTS
from placebench.lab.reference.store import change_log
from placebench.lab.reference.store.change_log import RENEWED_EVERY_S
from placebench.lab.reference.store.database import Database
from placebench.runtime.postgres import Server, open_server

SEED = 7

Eventually = Callable[[Callable[[], bool]], bool]


@pytest.fixture
def url(database_url: str) -> str:
    """Twelve trees of four providers, one that shares, and the log."""
    return with_cloud(database_url)


def with_cloud(url: str) -> str:
    """The URL of a database that was empty."""
    migrate(url)
    run(url, CLOUD)
    return url


def run(url: str, statements: str) -> None:
    """What another program does, each statement committed by itself unless it says BEGIN."""
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements.split(";\n"):
            connection.exec_driver_sql(statement.replace("%", "%%"))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """What responses are made of."""
    made = create_engine(url)
    yield made
    made.dispose()


@pytest.mark.long
def test_every_answer_is_naives(url: str, engine: Engine) -> None:
    """After every few steps of transactions that overlap, naive, cached and dedup agree in one transaction."""
    chance, database = random.Random(SEED), Database(engine)
    meddler, service = Meddler(url, SEED), Service(send_to(engine), SEED)
    differing = []
    for _ in range(200):
        for _ in range(chance.randint(0, 6)):
            meddler.step()
        if chance.random() < 0.2:
            meddler.settle()
            service.step()
        if chance.random() < 0.03:
            meddler.empty()
        query = chance.choice(QUERIES)
        if seen := compare(database, query, naive_first=False):
            differing.append((query, seen))
    meddler.close()

    assert differing == []
    assert all(meddler.done[way] for way in ("commit", "rollback", "savepoint", "back", "refused"))


@pytest.mark.long
def test_each_response_of_an_index_that_is_checked_without_a_transaction_is_naives(url: str, engine: Engine) -> None:
    """Over HTTP, beside transactions that overlap; each request is sent twice, so that half of them find no change."""
    chance = random.Random(SEED)
    meddler, service = Meddler(url, SEED), Service(send_to(engine), SEED)
    naive, cached = (Client(make_app(engine, name)) for name in ("naive", "cached"))
    differing = []
    for _ in range(100):
        for _ in range(chance.randint(0, 6)):
            meddler.step()
        if chance.random() < 0.2:
            meddler.settle()
            service.step()
        query = chance.choice(QUERIES)
        expected, *found = (
            client.get(f"/allocation_candidates?{query}", headers=HEADERS) for client in (naive, cached, cached)
        )
        for each in found:
            if each.status_code != expected.status_code or (
                each.status_code == 200 and canonical_candidates(each.json) != canonical_candidates(expected.json)
            ):
                differing.append(query)
    meddler.close()

    assert differing == []


def test_an_index_follows_a_few_changes_without_a_transaction(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request makes the index; then one statement is sent in autocommit, and one more after a write. If more
    than a few providers have changed, or others while they are read, the request needs a snapshot."""
    database, index, request = Database(engine), CachedIndex(engine.url), parse_query("resources=VCPU:1")

    def at_once() -> Any:
        with database.primary_at_once() as connection:
            return index.respond_at_once(connection, request, DEFAULTS)

    def in_snapshot(index: CachedIndex) -> Any:
        with database.snapshot() as connection:
            return index.respond(connection, request, DEFAULTS)

    assert at_once() is None
    bodies = [in_snapshot(index)]
    assert at_once() == bodies[0]
    for _ in range(2):  # the statement is prepared at the first one
        run(url, "UPDATE inventories SET total = total + 1 WHERE resource_class_id = 0")
        bodies.append(at_once())
        assert bodies[-1] == in_snapshot(CachedIndex(engine.url))
    assert len(set(bodies)) == 3

    read_changed = cached_index.read_changed

    def read_late(*arguments: Any) -> Any:
        run(url, "UPDATE inventories SET total = total + 1 WHERE resource_provider_id = 21")
        return read_changed(*arguments)

    monkeypatch.setattr(cached_index, "read_changed", read_late)
    run(url, "UPDATE inventories SET total = total + 1 WHERE resource_provider_id = 11")
    assert at_once() is None
    monkeypatch.setattr(change_log, "MAX_FEW_PROVIDERS", 1)
    assert at_once() is None
    both = (canonical_candidates(json.loads(in_snapshot(each))) for each in (index, CachedIndex(engine.url)))
    assert next(both) == next(both)


def test_a_session_without_the_prepared_statement_is_noticed(url: str, engine: Engine) -> None:
    """A pooler may give each transaction another session: one without the statement, or one that has it already."""
    database, index, request = Database(engine), CachedIndex(engine.url), parse_query("resources=VCPU:1")
    with database.snapshot() as connection:
        index.respond(connection, request, DEFAULTS)

    def at_once(before: str = "") -> bool:
        run(url, "UPDATE inventories SET total = total + 1 WHERE resource_provider_id = 11")
        with database.primary_at_once() as connection:
            if before == "forget":
                connection.info.clear()
            elif before:
                connection.exec_driver_sql(before)
            return index.respond_at_once(connection, request, DEFAULTS) is not None

    assert [at_once(), at_once("DEALLOCATE ALL"), at_once(), at_once("forget"), at_once()] == [
        *(True, False, True, False, True)
    ]


def test_an_in_tree_that_is_new_in_a_request_needs_no_transaction(url: str, engine: Engine) -> None:
    """Its root is read in autocommit, too; after a change of the providers it is read again with them."""
    database, index = Database(engine), CachedIndex(engine.url)
    with database.snapshot() as connection:
        uuid = connection.scalar(text("SELECT min(uuid) FROM resource_providers WHERE parent_provider_id IS NULL"))
        index.respond(connection, parse_query("resources=VCPU:1"), DEFAULTS)
        expected = CachedIndex(engine.url).respond(
            connection, parse_query(f"resources=VCPU:1&in_tree={uuid}"), DEFAULTS
        )

    def unchanged() -> Any:
        with database.primary_at_once() as connection:
            return index.respond_at_once(connection, parse_query(f"resources=VCPU:1&in_tree={uuid}"), DEFAULTS)

    assert expected == unchanged()
    run(url, f"UPDATE resource_providers SET uuid = upper(uuid) WHERE uuid = '{uuid}'")
    assert unchanged() is None


class Register:
    """A writer of one number into two trees, in one transaction per step; the number grows by one with each step."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url, poolclass=NullPool)
        self.sent = self.acknowledged = 0

    def step(self) -> None:
        """Commit the next number; `sent` grows before the transaction begins, `acknowledged` after its COMMIT."""
        self.sent += 1
        with self._engine.begin() as connection:
            for number in (11, 21):
                values = {"total": self.sent + 100, "p": number}
                statement = "UPDATE inventories SET total = :total WHERE resource_provider_id = :p"
                connection.execute(text(statement), values)
        self.acknowledged = self.sent

    def settle(self) -> None:
        """Each step has ended its transaction."""


def test_responses_of_threads_that_share_an_index_are_linearizable(url: str, engine: Engine) -> None:
    """Over HTTP: no response is older than a commit or a response that ended before its request began, none shows a
    part of a transaction, and 40 requests of each of 3 threads beside at most 18 commits reach the path of one message.
    """
    register, app, seen = Register(url), make_app(engine, "cached"), [0]
    in_autocommit: defaultdict[int, list[bool]] = defaultdict(list)
    after_one_message, wrong = [], []
    register.step()

    def note(connection: Any) -> None:
        in_autocommit[threading.get_ident()].append(connection.autocommit)

    after_each_statement(engine, note)

    def ask(number: int) -> None:
        client = Client(app)
        for turn in range(40):
            if number == 0 and turn % 5 == 4:
                go_on()
            in_autocommit[threading.get_ident()] = []
            oldest = max(register.acknowledged, *seen)
            found: Any = client.get("/allocation_candidates?resources=VCPU:1", headers=HEADERS).json
            newest = register.sent
            summaries = found["provider_summaries"]
            shown = [summaries[uuid(each)]["resources"]["VCPU"]["capacity"] - 100 for each in (11, 21)]
            if shown[0] != shown[1] or not oldest <= shown[0] <= newest:
                wrong.append((oldest, shown, newest))
            seen.append(shown[0])
            if in_autocommit[threading.get_ident()] == [True]:
                after_one_message.append(shown[0])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    with meddling(register) as go_on:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert wrong == []
    assert len(seen) == 1 + 3 * 40
    assert len(after_one_message) >= 3 * (40 - 18 - 1)


@pytest.mark.long
def test_threads_that_share_a_picture_answer_as_naive(url: str, engine: Engine) -> None:
    """Writers and requests in threads of their own; some requests have an older snapshot than the index."""
    database, differing = Database(engine), []
    meddler, service = Meddler(url, SEED), Service(send_to(engine), SEED)

    def ask(number: int) -> None:
        chance = random.Random(number)
        for _ in range(30):
            go_on()
            query = chance.choice(QUERIES)
            if seen := compare(database, query, naive_first=chance.random() < 0.3):
                differing.append((query, seen))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    with meddling(meddler, service) as go_on:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    meddler.close()

    assert differing == []


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (
            "DROP FUNCTION placebench_register, placebench_look CASCADE",
            "this database has no change log; `placebench",
        ),
        ("ALTER TABLE inventories DISABLE TRIGGER placebench_update", "triggers of the change log are missing or"),
    ],
)
def test_without_a_whole_log_every_answer_is_read_anew(
    engine: Engine, caplog: pytest.LogCaptureFixture, trouble: str, reason: str
) -> None:
    """What is written unseen is in the next response; the log says why no index is kept, once."""
    database = Database(engine)
    with engine.begin() as connection:
        connection.execute(text(trouble))
    with caplog.at_level(logging.WARNING):
        for total in (4, 2, 1):
            with engine.begin() as connection:
                connection.execute(text(f"UPDATE inventories SET total = {total}"))

            assert compare(database, "resources=VCPU:2", naive_first=False) is None

    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"the variant cached keeps no index and responds as dedup: {reason}")


def test_no_request_waits_for_who_has_removed_the_readers_entry(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer prunes in a transaction that goes on; a worker that was silent for long gives up and reads by itself."""
    clock = [0.0]
    index = CachedIndex(engine.url, lambda: clock[0])
    assert is_cached(index, engine)
    clock[0] += 600
    with engine.connect() as pruner:
        pruner.execute(text("DELETE FROM placebench_readers"))

        assert not is_cached(index, engine)
    assert "canceling statement due to lock timeout" in caplog.text
    clock[0] += 60
    assert is_cached(index, engine)


def is_cached(index: CachedIndex, engine: Engine) -> bool:
    """Whether the cached index has a response, or leaves it to `dedup`."""
    with Database(engine).snapshot() as connection:
        return index.respond(connection, parse_query("resources=VCPU:1"), DEFAULTS) is not None


LESS = "UPDATE inventories SET total = 1"
DISABLED = f"ALTER TABLE inventories DISABLE TRIGGER placebench_update;\n{LESS}"
INHERITED = """
CREATE TABLE child () INHERITS (inventories);
INSERT INTO child SELECT * FROM inventories WHERE resource_class_id = 0;
UPDATE child SET resource_class_id = 10000
"""
SWAPPED = """
CREATE TABLE other (LIKE inventories INCLUDING ALL);
INSERT INTO other SELECT * FROM inventories WHERE id % 2 = 0;
BEGIN; ALTER TABLE inventories RENAME TO before; ALTER TABLE other RENAME TO inventories; COMMIT
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("statements", "cached"),
    [
        (DISABLED, False),
        (f"{DISABLED};\nALTER TABLE inventories ENABLE ALWAYS TRIGGER placebench_update", True),
        (f"ALTER TABLE inventories DISABLE TRIGGER ALL;\n{LESS};\nALTER TABLE inventories ENABLE TRIGGER ALL", False),
        (f"SET session_replication_role = replica;\n{LESS}", True),
        (SWAPPED, False),
        ("ALTER TABLE inventories ALTER total TYPE integer USING total / 8", True),
        (INHERITED, False),
        ("TRUNCATE inventories", True),
        (f"{LESS};\nTRUNCATE placebench_changes", True),
    ],
)
def test_what_fires_no_trigger_is_in_the_next_response(url: str, engine: Engine, statements: str, cached: bool) -> None:
    """The catalog shows it, and the cache is dropped. The request after makes another one, unless what is written may
    still fire no trigger."""
    database, index = Database(engine), CachedIndex(engine.url)
    before = [compare(database, query, naive_first=False) for query in QUERIES]
    assert is_cached(index, engine)

    run(url, statements)

    assert before == [compare(database, query, naive_first=False) for query in QUERIES] == [None] * len(QUERIES)
    assert cached == (is_cached(index, engine) or is_cached(index, engine))


@pytest.fixture(scope="module")
def private() -> Iterator[Server]:
    """A server that may crash, where what was committed asynchronously is not on disk for 10 s; it can publish."""
    settings = {"synchronous_commit": "on", "wal_writer_delay": "10s", "autovacuum": "off", "wal_level": "logical"}
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PLACEBENCH_DATABASE_URL", raising=False)
        with open_server(settings=settings) as opened:
            yield opened


@pytest.mark.long
@pytest.mark.parametrize("name", ["cached", "dedup", "dedup+responses:redis"])
def test_after_a_crash_that_lost_what_was_seen_every_response_is_right(
    private: Server, eventually: Eventually, name: str, request: pytest.FixtureRequest
) -> None:
    """A commit that every worker saw is lost, and its transaction id used again; whatever a worker's pool is.

    Each query is sent over HTTP first, where an index responds after one statement in autocommit if nothing changed.
    """
    redis = "redis" in name
    settings = replace(DEFAULTS, cache_url=request.getfixturevalue("cache_url")) if redis else DEFAULTS
    url = with_cloud(private.create_database(f"crashing_{len(name)}"))
    pools: list[dict[str, Any]] = [{}, {"pool_pre_ping": True}, {"poolclass": NullPool}]
    workers = [create_engine(url, **pool) for pool in pools]

    def differing() -> list[str | None]:
        found = []
        for worker in workers:
            own, naive = (Client(make_app(worker, each, settings)) for each in (name, "naive"))
            for query in QUERIES[:7]:
                sent, expected = (
                    canonical_candidates(client.get(f"/allocation_candidates?{query}", headers=HEADERS).json)
                    for client in (own, naive)
                )
                found.append(None if sent == expected else query)
                found.append(compare(Database(worker), query, naive_first=False, name=name, settings=settings))
        return found

    before = differing()
    with suppress(OperationalError), create_engine(url).connect() as writer:
        writer.execute(text("SET synchronous_commit = off"))
        writer.execute(text(LESS))
        writer.commit()
        seen = differing()
        os.kill(writer.scalar(text("SELECT pg_backend_pid()")) or 0, signal.SIGKILL)
    assert eventually(lambda: total(url) == 8 * 48)
    run(url, ";\n".join(["SELECT pg_current_xact_id()"] * 5))
    with suppress(OperationalError), workers[0].connect() as dead:
        dead.execute(text("SELECT 1"))

    assert before == seen == differing() == [None] * 42
    for worker in workers:
        worker.dispose()


def total(url: str) -> int | None:
    """Of all inventories; nothing while the server does not respond."""
    try:
        with create_engine(url, poolclass=NullPool).connect() as connection:
            return connection.scalar(text("SELECT sum(total) FROM inventories"))
    except OperationalError:
        return None


def test_nothing_is_cached_of_a_table_that_a_subscription_fills(private: Server) -> None:
    """The worker of logical replication fires no statement's trigger; a cache made before ends within half a minute."""
    for name in ("published", "subscribed"):
        private.create_database(name)
    source, url = (with_cloud(private.admin_url(name)) for name in ("published", "subscribed"))
    address = make_url(source).set(drivername="postgresql").render_as_string(hide_password=False)
    engine, clock = create_engine(url), [0.0]
    index = CachedIndex(engine.url, lambda: clock[0])
    assert is_cached(index, engine)
    run(
        source,
        "CREATE PUBLICATION p FOR TABLE inventories;\nSELECT pg_create_logical_replication_slot('s', 'pgoutput')",
    )

    run(url, f"CREATE SUBSCRIPTION s CONNECTION '{address}' PUBLICATION p WITH (create_slot = false)")
    clock[0] += RENEWED_EVERY_S
    subscribed = is_cached(index, engine), is_cached(index, engine)
    run(url, "DROP SUBSCRIPTION s")
    clock[0] += RENEWED_EVERY_S

    assert subscribed == (False, False)
    assert is_cached(index, engine)
    engine.dispose()
