"""A request sees one state of the database, however many statements it takes; the next one sees what others wrote."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from psycopg2_statements import after_each_statement
from sqlalchemy import Engine, create_engine, insert, text
from werkzeug.test import Client

from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding import migrate
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.variants import ALGORITHMS

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
QUERY = "/allocation_candidates?resources=DISK_GB:1&resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate"
VARIANTS = pytest.mark.parametrize("name", ["naive", "tuned", *ALGORITHMS])
STOCK = {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 4, "step_size": 1, "allocation_ratio": 1.0}
EMPTY = {"allocation_requests": [], "provider_summaries": {}}

Ask = Callable[[str], Any]


def uuid(key: int) -> str:
    return f"00000000-0000-4000-8000-{key:012d}"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """cn (DISK_GB 4) ┬ n2 (VCPU 4)
    └ n3 (VCPU 4)"""
    migrate(database_url)
    made = create_engine(database_url)
    with made.begin() as connection:
        for key, parent, class_id in ((1, None, 2), (2, 1, 0), (3, 1, 0)):
            place = {"root_provider_id": 1, "parent_provider_id": parent}
            row = {"id": key, "uuid": uuid(key), "name": f"rp{key}", "generation": 0, **place}
            connection.execute(insert(tables.resource_providers).values(row))
            stock = {"resource_provider_id": key, "resource_class_id": class_id, **STOCK}
            connection.execute(insert(tables.inventories).values(stock))
    yield made
    made.dispose()


def asked(engine: Engine, name: str, path: str) -> Any:
    """The document at this path, from the variant of this name."""
    response = Client(make_app(engine, name)).get(path, headers=HEADERS)
    assert response.status_code == 200, response.text
    return response.json


@pytest.mark.long
@VARIANTS
def test_who_writes_between_two_statements_is_not_seen(engine: Engine, database_url: str, name: str) -> None:
    """After whichever statement another program takes everything away, the answer is the one of before; the next
    request finds nothing."""
    writer = create_engine(database_url)
    before = asked(engine, name, QUERY)
    statements, at = 0, 0

    def intrude(_: object) -> None:
        nonlocal statements
        statements += 1
        if statements == at:
            run(writer, "DELETE FROM inventories; UPDATE resource_providers SET name = name || 'x'")

    after_each_statement(engine, intrude)
    while at <= statements:
        statements, at = 0, at + 1
        with writer.begin() as connection:
            rows = connection.execute(text("SELECT * FROM inventories")).mappings().all()
        assert asked(engine, name, QUERY) == before
        if statements >= at:
            assert asked(engine, name, QUERY) == EMPTY
            with writer.begin() as connection:
                connection.execute(insert(tables.inventories), [dict(row) for row in rows])
    writer.dispose()

    assert len(before["allocation_requests"]) == 2
    assert at > (1 if name in ALGORITHMS else 7)


def run(engine: Engine, statements: str) -> None:
    """Commit what another program does."""
    with engine.begin() as connection:
        connection.execute(text(statements))


@VARIANTS
def test_what_the_other_program_writes_is_seen(engine: Engine, name: str) -> None:
    """A new trait on a provider, a new provider with a new class, an allocation, a moved provider."""
    app = Client(make_app(engine, name))

    def found(query: str) -> list[dict[str, Any]]:
        """What each candidate takes, or an error's status."""
        response = app.get(f"/allocation_candidates?{query}", headers=HEADERS)
        if response.status_code != 200:
            return [{"status": response.status_code}]
        return sorted((each["allocations"] for each in response.json["allocation_requests"]), key=json.dumps)

    assert found("resources=VCPU:1&required=CUSTOM_NEW") == [{"status": 400}]
    run(engine, "INSERT INTO traits (id, name) VALUES (1, 'CUSTOM_NEW')")
    assert found("resources=VCPU:1&required=CUSTOM_NEW") == []
    run(engine, "INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 3)")
    assert found("resources=VCPU:1&required=CUSTOM_NEW") == [{uuid(3): {"resources": {"VCPU": 1}}}]

    run(
        engine,
        "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used) VALUES (3, 0, 'c', 4)",
    )
    assert found("resources=VCPU:1") == [{uuid(2): {"resources": {"VCPU": 1}}}]

    assert found("resources1=VCPU:1&resources=DISK_GB:1") != []
    run(engine, "UPDATE resource_providers SET root_provider_id = 2, parent_provider_id = NULL WHERE id = 2")
    assert found("resources1=VCPU:1&resources=DISK_GB:1") == []


@VARIANTS
def test_a_custom_class_whose_id_is_used_again(engine: Engine, name: str) -> None:
    """Placement deletes CUSTOM_OLD and gives its id to CUSTOM_NEW: the answers follow at once."""
    app = Client(make_app(engine, name))

    def outcome(resource_class: str) -> Any:
        """The status, and what the one candidate takes."""
        response = app.get(f"/allocation_candidates?resources={resource_class}:1", headers=HEADERS)
        requests = response.json.get("allocation_requests")
        return response.status_code, [each["allocations"] for each in requests] if requests is not None else None

    stock = {"resource_provider_id": 1, "resource_class_id": 10_000, **STOCK}
    run(engine, "INSERT INTO resource_classes (id, name) VALUES (10000, 'CUSTOM_OLD')")
    with engine.begin() as connection:
        connection.execute(insert(tables.inventories).values(stock))
    assert outcome("CUSTOM_OLD") == (200, [{uuid(1): {"resources": {"CUSTOM_OLD": 1}}}])

    run(engine, "DELETE FROM resource_classes WHERE id = 10000")
    run(engine, "INSERT INTO resource_classes (id, name) VALUES (10000, 'CUSTOM_NEW')")

    assert outcome("CUSTOM_OLD") == (400, None)
    assert outcome("CUSTOM_NEW") == (200, [{uuid(1): {"resources": {"CUSTOM_NEW": 1}}}])
