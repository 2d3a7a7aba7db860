"""The two ways to write a claim or a release agree: in one round trip on PostgreSQL, and step by step on SQLite."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, NullPool, create_engine, delete, event, insert, select, text, update

from placebench.lab.inventory import tables
from placebench.lab.reference.domain.problems import ConcurrentUpdate, NotFound, Problem
from placebench.lab.reference.store.allocations import delete_allocations, read_consumer_allocations
from placebench.lab.reference.store.claims import PLAN_SERVES, WRITERS
from placebench.lab.reference.store.consumers import ConsumerClaim
from placebench.lab.reference.store.database import Database

PROVIDERS = [str(UUID(int=number)) for number in (1, 2, 3, 4)]
STOCKS = [
    {"total": 10, "reserved": 2, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.5},  # room for 12
    {"total": 4096, "reserved": 0, "min_unit": 256, "max_unit": 1024, "step_size": 256, "allocation_ratio": 1.0},
]

_WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


def provide(engine: Engine) -> Database:
    """Four providers, of which the third has no memory and the last no root."""
    roots = [1, 2, 3, None]
    rows = [
        {"id": key, "uuid": uuid, "name": uuid, "generation": 0, "root_provider_id": root}
        for key, (uuid, root) in enumerate(zip(PROVIDERS, roots, strict=True), 1)
    ]
    stocks = [{"resource_provider_id": key, "resource_class_id": kind} for key in (1, 2, 4, 3) for kind in (0, 1)][:-1]
    with engine.begin() as connection:
        connection.execute(insert(tables.resource_classes), [{"id": 0, "name": "VCPU"}, {"id": 1, "name": "MEMORY_MB"}])
        connection.execute(insert(tables.resource_providers), rows)
        connection.execute(insert(tables.inventories), [stock | STOCKS[stock["resource_class_id"]] for stock in stocks])
    return Database(engine)


def drawn(chance: random.Random, generations: Counter[str]) -> ConsumerClaim:
    """Any claim, which mostly could be accepted by a provider that is not full yet."""
    consumer = str(UUID(int=100 + chance.randrange(12)))
    last: int | None = generations[consumer] or None
    providers = chance.sample([*PROVIDERS, PROVIDERS[0], PROVIDERS[1]], chance.choice([0, 1, 1, 2]))
    amounts = {"VCPU": chance.choice([1, 1, 2, 5, 10**12]), "MEMORY_MB": chance.choice([256, 512, 1024, 300, 2048])}
    names = [["VCPU"], ["VCPU", "MEMORY_MB"], ["MEMORY_MB", "VCPU"], ["VCPU", "CUSTOM_NONE"]]
    named = {
        uuid: {name: amounts[name] for name in chance.choices(names, [6, 6, 6, 1])[0] if name in amounts}
        for uuid in providers
    }
    return ConsumerClaim(
        consumer,
        chance.choice([last] * 8 + [None, 3, 10**12]),
        project=chance.choice(["blue", "red"]),
        user="user",
        consumer_type=chance.choice(["INSTANCE", "MIGRATION"]),
        allocations=named,
    )


def outcome(way: str, database: Database, claim: ConsumerClaim) -> tuple[str, str]:
    """What the client would be told of a claim."""
    return told_of(lambda: WRITERS[way](database, claim))


def told_of(write: Callable[[], None]) -> tuple[str, str]:
    """What the client would be told of a write."""
    try:
        write()
    except Problem as problem:
        return f"{problem.status.value} {problem.code}", problem.detail
    return "204", ""


def content(engine: Engine) -> dict[str, list[Any]]:
    """What the claims left behind, without ids and stamps."""
    own, project, kind = tables.consumers.c, tables.projects.c, tables.consumer_types.c
    held, provider = tables.allocations.c, tables.resource_providers.c
    joined = tables.consumers.join(tables.projects, project.id == own.project_id).join(tables.consumer_types)
    queries = {
        "consumers": select(own.uuid, own.generation, project.external_id, kind.name).select_from(joined),
        "allocations": select(held.consumer_id, held.resource_provider_id, held.resource_class_id, held.used),
        "providers": select(provider.uuid, provider.generation),
    }
    with engine.connect() as connection:
        return {name: sorted(map(tuple, connection.execute(query))) for name, query in queries.items()}


@pytest.mark.long
def test_both_ways_give_the_same_answers_and_leave_the_same_rows(on_postgresql: Engine, on_sqlite: Engine) -> None:
    """600 random claims one after the other, many of them refused; the statements are prepared anew on the way. After
    every tenth a consumer is released, who may have nothing."""
    quick, plain = provide(on_postgresql), provide(on_sqlite)
    chance, generations, seen = random.Random(7), Counter[str](), Counter[str]()

    for number in range(600):
        if number % 10 == 9:
            consumer = str(UUID(int=100 + chance.randrange(12)))
            told = told_of(lambda who=consumer: delete_allocations(plain, who))
            assert told == told_of(lambda who=consumer: delete_allocations(quick, who)), consumer
            seen[told[0]] += 1
            generations[consumer] = 0
        claim = drawn(chance, generations)
        told = outcome("step_by_step", plain, claim)
        assert told == outcome("at_once", quick, claim), claim
        seen[told[0]] += 1
        if told[0] == "204":
            generations[claim.consumer] = generations[claim.consumer] + 1 if claim.allocations else 0

    assert content(on_sqlite) == content(on_postgresql)
    assert (
        min(seen[status] for status in ("204", "409 placement.undefined_code", "409 placement.concurrent_update")) > 40
    )
    assert min(generations.values()) == 0
    assert seen["404 placement.undefined_code"] > 5
    assert PLAN_SERVES < 600


def test_what_is_over_its_capacity_may_be_taken_again_but_not_more(on_postgresql: Engine, on_sqlite: Engine) -> None:
    """A provider that gave 8 of what has shrunk to 5: its consumer may keep 8 or take 6, and not 9."""
    consumer = str(UUID(int=100))

    def told(way: str, engine: Engine) -> list[str]:
        database = provide(engine)

        def claim(generation: int | None, amount: int) -> str:
            allocations = {PROVIDERS[0]: {"MEMORY_MB": 256}, PROVIDERS[1]: {"MEMORY_MB": amount * 256}}
            return outcome(way, database, ConsumerClaim(consumer, generation, "blue", "user", "INSTANCE", allocations))[
                0
            ]

        given = claim(None, 4)
        with engine.begin() as connection:
            connection.execute(
                update(tables.inventories).values(total=512).where(tables.inventories.c.resource_class_id == 1)
            )
        return [given, claim(1, 4), claim(2, 3), claim(3, 4), claim(3, 2)]

    expected = ["204", "204", "204", "409 placement.undefined_code", "204"]

    assert expected == told("step_by_step", on_sqlite)
    assert expected == told("at_once", on_postgresql)


def test_a_claim_is_one_message_and_a_forgotten_statement_no_failure(on_postgresql: Engine) -> None:
    """The first claim of a project goes step by step; after that one message each, but for a session that was changed
    under the connection, as a pooler between does: that claim goes step by step, and the next is one message again."""
    database, counts, sent = provide(on_postgresql), [], []
    event.listen(on_postgresql, "before_cursor_execute", lambda *call: sent.append(call[2]))

    def claim(number: int) -> None:
        sent.clear()
        claimed = {PROVIDERS[0]: {"VCPU": 1}}
        WRITERS["at_once"](database, ConsumerClaim(str(UUID(int=number)), None, "blue", "user", "INSTANCE", claimed))
        counts.append(len(sent))

    for number in (1, 2, 3):
        claim(number)
    with on_postgresql.connect() as connection:
        connection.execute(text("DEALLOCATE ALL"))
    claim(4)
    claim(5)

    assert [1, 1, 1] == [counts[1], counts[2], counts[4]]
    assert counts[0] > 10
    assert counts[3] > 10


def test_allocations_without_a_consumer_are_replaced_and_released(on_postgresql: Engine, on_sqlite: Engine) -> None:
    """As Placement of 2018 left some: a claim of a new consumer replaces them, and a release removes them."""
    claim = ConsumerClaim(str(UUID(int=100)), None, "blue", "user", "INSTANCE", {PROVIDERS[0]: {"VCPU": 2}})
    orphans = [
        {"consumer_id": str(UUID(int=number)), "resource_provider_id": 1, "resource_class_id": 0, "used": 1}
        for number in (100, 101)
    ]

    def left(way: str, engine: Engine) -> list[Any]:
        database = provide(engine)
        WRITERS[way](database, ConsumerClaim(str(UUID(int=99)), None, "blue", "user", "INSTANCE", claim.allocations))
        with engine.begin() as connection:
            connection.execute(insert(tables.allocations), orphans)
        WRITERS[way](database, claim)
        delete_allocations(database, orphans[1]["consumer_id"])
        return content(engine)["allocations"]

    expected = [(str(UUID(int=99)), 1, 0, 2), (claim.consumer, 1, 0, 2)]

    assert expected == left("step_by_step", on_sqlite)
    assert expected == left("at_once", on_postgresql)


def test_a_consumer_without_allocations_is_not_released(on_postgresql: Engine, on_sqlite: Engine) -> None:
    """Its row stays where there is nothing to take from it."""
    claim = ConsumerClaim(str(UUID(int=100)), None, "blue", "user", "INSTANCE", {PROVIDERS[0]: {"VCPU": 2}})

    def left(engine: Engine) -> list[Any]:
        database = provide(engine)
        WRITERS["step_by_step"](database, claim)
        with engine.begin() as connection:
            connection.execute(delete(tables.allocations))
        with pytest.raises(NotFound, match=claim.consumer):
            delete_allocations(database, claim.consumer)
        return content(engine)["consumers"]

    expected = [(claim.consumer, 1, "blue", "INSTANCE")]

    assert expected == left(on_sqlite)
    assert expected == left(on_postgresql)


def test_releases_beside_claims_of_the_same_consumer_leave_nothing_behind(on_postgresql: Engine) -> None:
    """Two threads claim for one consumer, at the generation that they read, and two release it: each time it has
    allocations and a row then, or neither. A release that did not see a claim's allocations would leave them."""
    database, consumer = provide(on_postgresql), str(UUID(int=100))

    def write(number: int) -> None:
        with suppress(Problem):
            if number % 2:
                delete_allocations(database, consumer)
                return
            with database.read_at_once() as connection:
                generation = read_consumer_allocations(connection, consumer).get("consumer_generation")
            claimed = {PROVIDERS[0]: {"VCPU": 1}}
            WRITERS["at_once"](database, ConsumerClaim(consumer, generation, "blue", "user", "INSTANCE", claimed))

    seen = Counter[tuple[int, int]]()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(150):
            list(pool.map(write, range(4)))
            left = content(on_postgresql)
            seen[len(left["allocations"]), len(left["consumers"])] += 1

    assert {(0, 0), (1, 1)} == set(seen)


def test_a_release_waits_for_a_claim_and_takes_what_it_has_written(
    on_postgresql: Engine, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """The claim has replaced the consumer's allocations and is not committed when the release begins."""
    database, consumer = provide(on_postgresql), str(UUID(int=100))
    row = {"consumer_id": consumer, "resource_provider_id": 1, "resource_class_id": 0, "used": 3}
    WRITERS["at_once"](database, ConsumerClaim(consumer, None, "blue", "user", "INSTANCE", {PROVIDERS[0]: {"VCPU": 2}}))

    def is_waiting() -> bool:
        with on_postgresql.connect() as connection:
            return connection.scalar(_WAITING) == 1

    with ThreadPoolExecutor(1) as pool:
        with on_postgresql.begin() as connection:
            connection.execute(update(tables.consumers).values(generation=2))
            connection.execute(delete(tables.allocations))
            connection.execute(insert(tables.allocations).values(row))
            release = pool.submit(delete_allocations, database, consumer)
            assert eventually(is_waiting)
        release.result()
    left = content(on_postgresql)

    assert [] == left["allocations"] == left["consumers"]


def test_a_claim_whose_consumer_is_deleted_while_it_is_written_leaves_nothing(
    on_postgresql: Engine, eventually: Callable[[Callable[[], bool]], bool]
) -> None:
    """The consumer was not there to be locked, then made again at the same generation, and is being deleted."""
    database, consumer = provide(on_postgresql), str(UUID(int=100))
    claim = ConsumerClaim(consumer, None, "blue", "user", "INSTANCE", {PROVIDERS[0]: {"VCPU": 1}})

    def is_waiting() -> bool:
        with on_postgresql.connect() as connection:
            return connection.scalar(_WAITING) == 1

    WRITERS["at_once"](database, claim)
    delete_allocations(database, consumer)
    held = select(tables.resource_providers).where(tables.resource_providers.c.uuid == PROVIDERS[0]).with_for_update()
    with ThreadPoolExecutor(1) as pool, on_postgresql.connect() as release:
        with on_postgresql.begin() as holder:
            holder.execute(held)
            again = pool.submit(WRITERS["at_once"], database, replace(claim, generation=1))
            assert eventually(is_waiting)
            with on_postgresql.begin() as connection:
                projects = [connection.scalar(select(each.c.id)) for each in (tables.projects, tables.users)]
                kind = connection.scalar(select(tables.consumer_types.c.id))
                row = dict(zip(("project_id", "user_id"), projects, strict=True), consumer_type_id=kind)
                connection.execute(insert(tables.consumers).values(uuid=consumer, generation=1, **row))
            release.execute(delete(tables.consumers))
        assert eventually(is_waiting)
        release.commit()
        with pytest.raises(ConcurrentUpdate):
            again.result()
    left = content(on_postgresql)

    assert [] == left["allocations"] == left["consumers"]


def test_nothing_is_sent_after_the_message(on_postgresql: Engine) -> None:
    """Not after a snapshot has set an isolation level and read-only mode, which the next snapshot has again."""
    database, consumer = provide(on_postgresql), str(UUID(int=100))
    claim = ConsumerClaim(consumer, None, "blue", "user", "INSTANCE", {PROVIDERS[0]: {"VCPU": 2}})
    last = text("SELECT query FROM pg_stat_activity WHERE pid = :pid")

    def sent_last(use: Callable[[], Any]) -> str:
        with database.snapshot() as connection:
            assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"
            assert connection.scalar(text("SHOW transaction_read_only")) == "on"
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
        use()
        with other.connect() as connection:
            return connection.scalars(last, {"pid": pid}).one()

    def read() -> None:
        with database.read_at_once() as connection:
            connection.execute(text("SELECT 1 AS read"))

    on_postgresql.dispose()  # so that the pool has one connection from now on
    other = create_engine(on_postgresql.url, poolclass=NullPool)
    WRITERS["at_once"](database, claim)

    assert "SELECT 1 AS read" == sent_last(read)
    assert sent_last(lambda: delete_allocations(database, consumer)).strip().startswith("SELECT FROM consumers")
    assert "placebench_claim_as_new" in sent_last(lambda: WRITERS["at_once"](database, claim))
