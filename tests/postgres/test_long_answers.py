"""A body over 50 MB is sent by uWSGI while it is written, whole or visibly broken; a query too long is 414."""

import http.client
import json
from collections.abc import Iterator
from itertools import count
from urllib.parse import urlsplit

import pytest
from sqlalchemy import create_engine, insert, text

from placebench.compare.what.http_request import HEADERS, get
from placebench.lab.inventory import tables
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import RunningServer, ServerSpec

DEVICES = 54
CLASSES = ("VGPU", "FPGA", "PGPU")
REQUEST = "/allocation_candidates?resources1=VGPU:1&resources2=FPGA:1&resources3=PGPU:1&group_policy=none"


@pytest.fixture(scope="module")
def rack(server: Server) -> Iterator[str]:
    """A root with 54 devices of each of three classes: 157 464 candidates for one of each, in 56 MB."""
    url = server.create_database("placebench_test_long_answers")
    engine = create_engine(url)
    tables.metadata.create_all(engine)
    keys = count(2)
    devices = [(next(keys), class_id) for class_id in range(len(CLASSES)) for _ in range(DEVICES)]
    whole = {"reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1, "allocation_ratio": 1.0, "total": 1}
    with engine.begin() as connection:
        connection.execute(insert(tables.resource_classes), [{"id": n, "name": name} for n, name in enumerate(CLASSES)])
        connection.execute(insert(tables.resource_providers), [provider(key) for key in (1, *dict(devices))])
        connection.execute(
            insert(tables.inventories),
            [{"resource_provider_id": key, "resource_class_id": class_id, **whole} for key, class_id in devices],
        )
    engine.dispose()
    yield url
    server.drop_database("placebench_test_long_answers")


def provider(key: int) -> dict[str, object]:
    """The row of a provider; all stand below the first."""
    parent = None if key == 1 else 1
    uuid = f"00000000-0000-4000-8000-{key:012d}"
    place = {"root_provider_id": 1, "parent_provider_id": parent}
    return {"id": key, "uuid": uuid, "name": f"rp{key}", "generation": 0, **place}


@pytest.fixture(scope="module")
def served(rack: str) -> Iterator[RunningServer]:
    """The service under uWSGI, in a variant that reads the summaries after it has begun to answer."""
    with serve(ServerSpec(database_url=rack, variant="tuned")) as running:
        yield running


def begun(served: RunningServer) -> http.client.HTTPResponse:
    """An answer of which the first 50 MB are written and the rest, with all summaries, is not."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=60)
    connection.request("GET", REQUEST, headers=HEADERS)
    return connection.getresponse()


def meanwhile(url: str, statement: str) -> None:
    """Run a statement on the database, and commit."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.mark.long
def test_both_halves_are_from_one_snapshot(rack: str, served: RunningServer) -> None:
    """Who uses everything up between the first byte and the last changes nothing in the answer."""
    response = begun(served)
    start = response.read(1000)
    meanwhile(
        rack,
        "INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used)"
        " SELECT resource_provider_id, resource_class_id, 'nobody', 1 FROM inventories",
    )
    body = start + response.read()
    meanwhile(rack, "DELETE FROM allocations")
    document = json.loads(body)

    assert response.headers["Transfer-Encoding"] == "chunked"
    assert len(body) > 50_000_000
    assert len(document["allocation_requests"]) == DEVICES**3 == 157_464
    assert len(document["provider_summaries"]) == 3 * DEVICES + 1 == 163
    stocks = [stock for each in document["provider_summaries"].values() for stock in each["resources"].values()]
    assert [stock["used"] for stock in stocks] == [0] * 162


@pytest.mark.long
def test_a_failure_on_the_way_is_seen_by_the_client(rack: str, served: RunningServer) -> None:
    """The database goes away in the middle: the last chunk is missing, and the service answers on."""
    response = begun(served)
    response.read(1000)
    meanwhile(
        rack,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )

    with pytest.raises(http.client.IncompleteRead):
        response.read()
    assert get(served.url, f"{REQUEST}&limit=1").status == 200


def test_a_tree_whose_root_has_none_is_seen_before_the_first_byte(rack: str, served: RunningServer) -> None:
    """The 157 464 candidates that the devices would make are not begun: nothing below such a root is there."""
    meanwhile(rack, "UPDATE resource_providers SET root_provider_id = NULL WHERE id = 1")
    reply = get(served.url, REQUEST)
    meanwhile(rack, "UPDATE resource_providers SET root_provider_id = 1 WHERE id = 1")

    assert (200, {"allocation_requests": [], "provider_summaries": {}}) == (reply.status, json.loads(reply.body))


def test_a_query_that_uwsgi_does_not_hand_over_is_told(served: RunningServer) -> None:
    """uWSGI passes 42 KB of query as none at all; the answer is 414 with the error document, not that of no query."""
    reply = get(served.url, "/allocation_candidates?resources=" + "VCPU:1," * 6000)

    assert reply.status == 414
    assert json.loads(reply.body)["errors"][0]["status"] == 414
