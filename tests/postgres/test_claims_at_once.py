"""The two ways to write a claim agree: in one round trip on PostgreSQL, and step by step in portable SQL on SQLite."""

import random
from collections import Counter
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, event, insert, select, text, update

from placebench import tables
from placebench.reference.api.problems import Problem
from placebench.reference.store.claims import PLAN_SERVES, WRITERS
from placebench.reference.store.consumers import ConsumerClaim
from placebench.reference.store.database import Database

PROVIDERS = [str(UUID(int=number)) for number in (1, 2, 3, 4)]
STOCKS = [
    {"total": 10, "reserved": 2, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.5},  # room for 12
    {"total": 4096, "reserved": 0, "min_unit": 256, "max_unit": 1024, "step_size": 256, "allocation_ratio": 1.0},
]


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
    """What the client would be told."""
    try:
        WRITERS[way](database, claim)
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


def test_both_ways_give_the_same_answers_and_leave_the_same_rows(on_postgresql: Engine, on_sqlite: Engine) -> None:
    """600 random claims one after the other, many of them refused; the statements are prepared anew on the way."""
    quick, plain = provide(on_postgresql), provide(on_sqlite)
    chance, generations, seen = random.Random(7), Counter[str](), Counter[str]()

    for _ in range(600):
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
