"""The variant snapshot under foreign writers: no answer is from a state that is over, or that is not yet."""

import logging
import random
import threading
from collections.abc import Iterator

import pytest
from meddlers import CLOUD, QUERIES, Meddler, Service, compare, meddling, send_to
from sqlalchemy import Engine, create_engine, text

from placebench.reference.database import Database
from placebench.reference.query import parse
from placebench.reference.settings import DEFAULTS
from placebench.reference.snapshot.keeper import Keeper
from placebench.seeding import migrate

SEED = 7


@pytest.fixture
def url(database_url: str) -> str:
    """Twelve trees of four providers, one that shares, and the log."""
    migrate(database_url)
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(CLOUD))
    engine.dispose()
    return database_url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """What requests are answered from."""
    made = create_engine(url)
    yield made
    made.dispose()


def test_every_answer_is_naives(url: str, engine: Engine) -> None:
    """After every few steps of transactions that overlap, naive and snapshot agree in one transaction."""
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


def test_threads_that_share_a_picture_answer_as_naive(url: str, engine: Engine) -> None:
    """Writers and requests in threads of their own; some requests have an older snapshot than the picture."""
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
            "DROP FUNCTION placebench_is_watching, placebench_look CASCADE",
            "this database has no change log; `placebench",
        ),
        ("ALTER TABLE inventories DISABLE TRIGGER placebench_update", "triggers of the change log are missing or"),
    ],
)
def test_without_a_whole_log_every_answer_is_read_anew(
    engine: Engine, caplog: pytest.LogCaptureFixture, trouble: str, reason: str
) -> None:
    """What is written unseen is in the next answer; the log says why no picture is kept, once."""
    database = Database(engine)
    with engine.begin() as connection:
        connection.execute(text(trouble))
    with caplog.at_level(logging.WARNING):
        for total in (4, 2, 1):
            with engine.begin() as connection:
                connection.execute(text(f"UPDATE inventories SET total = {total}"))

            assert compare(database, "resources=VCPU:2", naive_first=False) is None

    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"the variant snapshot keeps no picture and answers as shapes: {reason}")


def test_no_request_waits_for_who_has_removed_the_readers_entry(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer prunes in a transaction that goes on; a worker that was silent for long gives up and reads by itself."""
    clock = [0.0]
    keeper, request = Keeper(engine.url, lambda: clock[0]), parse("resources=VCPU:1")

    def answered() -> bool:
        with Database(engine).snapshot() as connection:
            return keeper.answer(connection, request, DEFAULTS) is not None

    assert answered()
    clock[0] += 600
    with engine.connect() as pruner:
        pruner.execute(text("DELETE FROM placebench_readers"))

        assert not answered()
    assert "canceling statement due to lock timeout" in caplog.text
    clock[0] += 60
    assert answered()
