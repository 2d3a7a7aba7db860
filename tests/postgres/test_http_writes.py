"""Writers at the same time over PostgreSQL: nothing is lost, no tree is torn, and nobody gets a 5xx."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, func, insert, select, text
from werkzeug.test import Client, TestResponse

from placebench.lab.inventory import tables
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.domain.problems import ConcurrentUpdate
from placebench.lab.reference.store.database import Database

HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
WRITERS = 6

Send = Callable[..., TestResponse]


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An empty database with two resource classes and two traits."""
    made = create_engine(database_url, pool_size=WRITERS)
    tables.metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(insert(tables.resource_classes), [{"id": 0, "name": "VCPU"}, {"id": 1, "name": "DISK_GB"}])
        connection.execute(insert(tables.traits), [{"name": "CUSTOM_A"}, {"name": "CUSTOM_B"}])
    yield made
    made.dispose()


@pytest.fixture
def send(engine: Engine) -> Send:
    """A request to the service, each from a client of its own."""
    app = make_app(engine, "tuned")

    def send(method: str, path: str, body: Any = None) -> TestResponse:
        return Client(app).open(path, method=method, json=body, headers=HEADERS)

    return send


def together(work: Callable[[int], Any]) -> list[Any]:
    """What *work* returns for 0, 1, 2 and so on, all at the same time."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, range(WRITERS)))


def test_of_writers_with_one_generation_one_wins(send: Send) -> None:
    """The others get 409 concurrent_update, in every round; the generation counts the winners."""
    send("POST", "/resource_providers", {"name": "rp", "uuid": uuid(1)})
    path = f"/resource_providers/{uuid(1)}/inventories"

    for generation in range(5):
        body = {"resource_provider_generation": generation, "inventories": {"VCPU": {"total": 1}}}
        responses = together(lambda _, body=body: send("PUT", path, body))
        assert Counter(response.status_code for response in responses) == {200: 1, 409: WRITERS - 1}
    assert send("GET", path).json["resource_provider_generation"] == 5


def test_unconditional_writers_wait_for_each_other(send: Send) -> None:
    """Deleting what another one deletes, setting what another one sets: each one counts, none is refused."""
    send("POST", "/resource_providers", {"name": "rp", "uuid": uuid(1)})

    responses = together(lambda _: send("DELETE", f"/resource_providers/{uuid(1)}/inventories"))
    assert [response.status_code for response in responses] == [204] * WRITERS
    assert send("GET", f"/resource_providers/{uuid(1)}").json["generation"] == WRITERS


@pytest.mark.parametrize(
    ("method", "path", "body", "statuses"),
    [
        ("POST", "/resource_providers", {"name": "same"}, {200: 1, 409: WRITERS - 1}),
        ("PUT", "/traits/CUSTOM_NEW", None, {201: 1, 204: WRITERS - 1}),
        ("PUT", "/resource_classes/CUSTOM_NEW", None, {201: 1, 204: WRITERS - 1}),
        ("POST", "/resource_classes", {"name": "CUSTOM_NEW"}, {201: 1, 409: WRITERS - 1}),
    ],
)
def test_a_name_is_made_once(send: Send, method: str, path: str, body: Any, statuses: dict[int, int]) -> None:
    """Of writers that make the same name one makes it, and the others are told that it is there."""
    responses = together(lambda _: send(method, path, body))

    assert Counter(response.status_code for response in responses) == statuses


def test_different_classes_get_different_ids(send: Send, engine: Engine) -> None:
    """Writers that count from the same highest id end with ids in a row."""
    responses = together(lambda writer: send("PUT", f"/resource_classes/CUSTOM_{writer}"))

    assert {response.status_code for response in responses} == {201}
    with engine.connect() as connection:
        ids = connection.scalars(select(tables.resource_classes.c.id).where(tables.resource_classes.c.id >= 10_000))
        assert sorted(ids) == list(range(10_000, 10_000 + WRITERS))


def test_new_aggregates_are_shared(send: Send) -> None:
    """Writers that put their providers into the same new aggregates all succeed."""
    for number in range(WRITERS):
        send("POST", "/resource_providers", {"name": f"rp{number}", "uuid": uuid(number)})
    body = {"resource_provider_generation": 0, "aggregates": [uuid(50), uuid(51)]}

    responses = together(lambda number: send("PUT", f"/resource_providers/{uuid(number)}/aggregates", body))
    assert {response.status_code for response in responses} == {200}


def test_no_tree_is_torn(send: Send, engine: Engine) -> None:
    """Two trees are moved below each other while children are born in them: no loop, and each root is the right one."""
    for number in (1, 2):
        send("POST", "/resource_providers", {"name": f"root{number}", "uuid": uuid(number)})
        child = {"name": f"child{number}", "uuid": uuid(10 + number), "parent_provider_uuid": uuid(number)}
        send("POST", "/resource_providers", child)

    def work(writer: int) -> list[int]:
        own, other = (1, 2) if writer % 2 else (2, 1)
        return [step.status_code for attempt in range(6) for step in moves(send, writer, attempt, own, other)]

    assert {status for statuses in together(work) for status in statuses} <= {200, 400}
    assert roots_by_parents(engine) == roots_by_column(engine)


def moves(send: Send, writer: int, attempt: int, own: int, other: int) -> Iterator[TestResponse]:
    """A child is born below one tree's child; the tree goes below the other's child and comes out again."""
    path, root = f"/resource_providers/{uuid(own)}", {"name": f"root{own}"}
    name = f"leaf{writer}-{attempt}"
    yield send("POST", "/resource_providers", {"name": name, "parent_provider_uuid": uuid(10 + own)})
    yield send("PUT", path, root | {"parent_provider_uuid": uuid(10 + other)})
    yield send("PUT", path, root | {"parent_provider_uuid": None})


def roots_by_column(engine: Engine) -> dict[int, int]:
    """The root of each provider as it stands in its row."""
    own = tables.resource_providers.c
    with engine.connect() as connection:
        return {row.id: row.root_provider_id for row in connection.execute(select(own.id, own.root_provider_id))}


def roots_by_parents(engine: Engine) -> dict[int, int]:
    """The root of each provider as its chain of parents leads to it; a loop has none."""
    climb = text(
        "WITH RECURSIVE climb AS (SELECT id, id AS root FROM resource_providers WHERE parent_provider_id IS NULL"
        " UNION ALL SELECT child.id, climb.root FROM resource_providers child JOIN climb"
        " ON child.parent_provider_id = climb.id) SELECT id, root FROM climb"
    )
    with engine.connect() as connection:
        return {row.id: row.root for row in connection.execute(climb)}


def test_a_class_is_not_deleted_from_under_an_inventory(send: Send, engine: Engine) -> None:
    """One writer deletes the class, another one gives a provider an inventory of it: never both."""
    path = f"/resource_providers/{uuid(1)}/inventories"
    send("POST", "/resource_providers", {"name": "rp", "uuid": uuid(1)})
    body = {"resource_class": "CUSTOM_X", "total": 1}
    for _ in range(5):
        send("PUT", "/resource_classes/CUSTOM_X")
        together(lambda w: send("POST", path, body) if w % 2 else send("DELETE", "/resource_classes/CUSTOM_X"))
        with engine.connect() as connection:
            classes = set(connection.scalars(select(tables.resource_classes.c.id)))
            assert set(connection.scalars(select(tables.inventories.c.resource_class_id))) <= classes
        send("DELETE", path)


def test_claimants_never_get_more_than_there_is(send: Send, engine: Engine) -> None:
    """Claims on the same two providers in either order: the last unit goes once, nobody deadlocks, all is counted."""
    for number in (1, 2):
        send("POST", "/resource_providers", {"name": f"rp{number}", "uuid": uuid(number)})
        body = {"resource_class": "VCPU", "total": 10}
        send("POST", f"/resource_providers/{uuid(number)}/inventories", body)

    def work(writer: int) -> list[int]:
        providers = (uuid(1), uuid(2)) if writer % 2 else (uuid(2), uuid(1))
        return [claim(send, 100 + writer * 10 + attempt, providers) for attempt in range(5)]

    statuses = Counter(status for statuses in together(work) for status in statuses)
    assert statuses == {204: 10, 409: WRITERS * 5 - 10}
    for number in (1, 2):
        assert send("GET", f"/resource_providers/{uuid(number)}/usages").json == {
            "resource_provider_generation": 11,
            "usages": {"VCPU": 10},
        }
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.consumers)) == 10


def claim(send: Send, consumer: int, providers: tuple[str, ...]) -> int:
    """The status of one more claim, for one VCPU of each provider."""
    body = {
        "allocations": {provider: {"resources": {"VCPU": 1}} for provider in providers},
        "project_id": f"project{consumer % 3}",
        "user_id": "user",
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
    }
    return send("PUT", f"/allocations/{uuid(consumer)}", body).status_code


def test_of_claims_with_one_generation_one_wins(send: Send) -> None:
    """The others get 409 concurrent_update, for a new consumer too."""
    send("POST", "/resource_providers", {"name": "rp", "uuid": uuid(1)})
    send("POST", f"/resource_providers/{uuid(1)}/inventories", {"resource_class": "VCPU", "total": 100})

    responses = together(lambda _: claim(send, 100, (uuid(1),)))
    assert Counter(responses) == {204: 1, 409: WRITERS - 1}


def test_a_read_sees_one_snapshot(engine: Engine) -> None:
    """What is committed between two statements of a read is not seen, and a read cannot write."""
    with Database(engine).snapshot() as connection:
        before = list(connection.scalars(select(tables.traits.c.name)))
        with engine.begin() as other:
            other.execute(insert(tables.traits).values(name="CUSTOM_LATER"))
        assert list(connection.scalars(select(tables.traits.c.name))) == before
        assert connection.scalar(text("SHOW transaction_read_only")) == "on"


def test_a_write_that_always_collides_gives_up(engine: Engine) -> None:
    """After ten attempts the client is told to try again."""
    attempts = []

    def work(connection: Any) -> None:
        attempts.append(1)
        connection.execute(insert(tables.traits).values(name="CUSTOM_A"))

    with pytest.raises(ConcurrentUpdate):
        Database(engine).write(work)
    assert len(attempts) == 10
