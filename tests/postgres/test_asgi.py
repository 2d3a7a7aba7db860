"""The asyncio variants: in an event loop, under uvicorn and granian, they respond as those with threads do."""

import asyncio
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url, text

from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.what.canonical_response import parse_response
from placebench.errors import DatabaseError
from placebench.http_session import Request
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.placement_api import RULES
from placebench.lab.reference.api.event_loop import EventLoopApplication
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.deployment import load_application, make_engine
from placebench.lab.reference.variants import variant
from placebench.lab.reference.workloads import workload as make_workload
from placebench.profiler.integrations.in_process_client import InProcessClient, Response, in_process_client
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server, open_connection
from placebench.runtime.running_server import ServerSpec

ASYNCHRONOUS = ("tuned+driver:asyncpg", "tuned+driver:psycopg3_async")
NAMES = ("tuned", *ASYNCHRONOUS)
COPY = "placebench_test_asgi_copy"
PROVIDER = "00000000-0000-4000-8000-000000000001"
INVENTORIES = b'{"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}}}'
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39"}
TOPOLOGY = find_topology("nested-perfload", trees=3)


@contextmanager
def client_of(name: str, url: str, workload: str = "") -> Iterator[InProcessClient]:
    """Of the service in this variant, or of a workload that waits as the variant does, in this process."""
    environment = {"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": name, "PLACEBENCH_WORKLOAD": workload}
    chosen, engine = variant(name), make_engine(environment)
    application = make_workload(environment, engine) if workload else make_app(engine, name)
    in_loop = EventLoopApplication(application, engine) if chosen.interface == "asgi" else application
    with in_process_client(in_loop, chosen.interface) as client:
        yield client
    if chosen.interface == "wsgi":
        engine.dispose()


def get(client: InProcessClient, path: str) -> Response:
    return client.send(Request("GET", path, HEADERS))


@contextmanager
def copied(server: Server, url: str) -> Iterator[str]:
    """A copy of the database at *url*, dropped in the end."""
    yield server.create_database(COPY, make_url(url).database)
    with suppress(DatabaseError):  # a test may have dropped it
        server.drop_database(COPY)


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[str]:
    url = server.create_database("placebench_test_asgi")
    seed(TOPOLOGY, url)
    yield url
    server.drop_database("placebench_test_asgi")


@pytest.mark.long
def test_no_write_is_lost_among_tasks(server: Server, seeded: str, tmp_path: Path) -> None:
    """Four users claim and release at once in one process: what was acknowledged is in the tables, once."""
    chosen = variant("tuned+driver:asyncpg")

    with copied(server, seeded) as url, serve(ServerSpec(url, chosen.name, threads=4, **chosen.serving)) as running:
        load = LoadSpec(url=running.url, kind="claims", users=4, requests=20, database_url=url)
        check = run_load(load, folder=tmp_path).write_check

    assert check is not None
    assert check.passed
    assert check.acknowledged > 0
    assert (0, 0, 0) == (check.lost, check.doubled, check.in_doubt)


@pytest.mark.parametrize("name", NAMES)
def test_a_database_that_is_gone_is_the_same_status_for_all(server: Server, seeded: str, name: str) -> None:
    """200, also where the connection was ended, which is made anew; 503 once the database is dropped."""
    statuses = []
    with copied(server, seeded) as url, client_of(name, url) as client:

        def request() -> None:
            response = get(client, "/resource_classes")
            statuses.append(response.status)
            assert response.status == 200 or json.loads(response.body)["errors"][0]["status"] == response.status

        request()
        with open_connection(url) as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            connection.execute(text(f"{others} AND pid <> pg_backend_pid() AND backend_type = 'client backend'"))
        request()
        request()
        server.drop_database(COPY)
        request()
        request()

    assert [200, 200, 200, 503, 503] == statuses


DOCUMENT = {**HEADERS, "Content-Type": "application/json"}
REQUESTS = (
    Request("GET", "/"),
    Request("GET", TOPOLOGY.request, HEADERS),
    Request("GET", "/nowhere", HEADERS),
    Request("GET", "/traits"),
    Request("GET", "/traits/%E2%98%83", HEADERS),
    Request("GET", "/allocation_candidates?resources=NO:1", HEADERS),
    Request("GET", "/allocation_candidates?resources=VCPU:1&required=NO", HEADERS),
    Request("PUT", "/traits/CUSTOM_NEW", HEADERS),
    Request("PUT", "/traits/CUSTOM_NEW", HEADERS),
    Request("POST", "/resource_classes", DOCUMENT, b'{"name": "CUSTOM_A"}'),
    Request("POST", "/resource_classes", DOCUMENT, b'{"name": "CUSTOM_A"}'),
    Request("POST", "/resource_classes", DOCUMENT, b"no JSON"),
    Request("POST", "/resource_providers", DOCUMENT, b'{"name": "new", "uuid": "%s"}' % PROVIDER.encode()),
    Request("PUT", f"/resource_providers/{PROVIDER}/inventories", DOCUMENT, INVENTORIES),
    Request("PUT", f"/resource_providers/{PROVIDER}/inventories", DOCUMENT, INVENTORIES),
    Request("GET", f"/resource_providers/{PROVIDER}/inventories", HEADERS),
    Request("DELETE", "/traits/CUSTOM_NEW", HEADERS),
)


@pytest.fixture(scope="module")
def by_threads(server: Server, seeded: str) -> list[object]:
    return told("tuned", server, seeded)


def told(name: str, server: Server, template: str) -> list[object]:
    """Status, body and names of the headers of each response, on a fresh copy of the data."""
    with copied(server, template) as url, client_of(name, url) as client:
        responses = [client.send(each) for each in REQUESTS]
    return [
        (str(request), response.status, digest(response), sorted({key.lower() for key, _ in response.headers}))
        for request, response in zip(REQUESTS, responses, strict=True)
    ]


def digest(response: Response) -> object:
    """The document; of candidates, whose order means nothing, their digest; of an error all but the request's id."""
    document = json.loads(response.body or "{}")
    if "allocation_requests" in document:
        return parse_response(response.body, RULES).digest
    for error in document.get("errors", []):
        error.pop("request_id")
    return document


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_each_request_has_the_response_that_threads_give_it(
    server: Server, seeded: str, by_threads: list[object], name: str
) -> None:
    """Reads, writes, conflicts and what is refused: status, body and headers are those of the variant with threads."""
    assert by_threads == told(name, server, seeded)


def test_the_event_loop_serves_others_while_a_request_waits(seeded: str) -> None:
    """Another service responds once two are connected to it: one loop has both requests wait at the same time."""
    both = threading.Barrier(2, timeout=30)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            both.wait()
            self.request.sendall(b"both\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as service:
        threading.Thread(target=service.serve_forever, args=(0.01,)).start()
        environment = {
            "PLACEBENCH_WORKLOAD": "network",
            "PLACEBENCH_VARIANT": ASYNCHRONOUS[0],
            "PLACEBENCH_UPSTREAM": f"127.0.0.1:{service.server_address[1]}",
            "PLACEBENCH_DATABASE_URL": seeded,
        }
        engine = make_engine(environment)
        application = EventLoopApplication(make_workload(environment, engine), engine)
        bodies = asyncio.run(at_once(application, "/network/1", "/network/2"))
        service.shutdown()

    assert [b'{"number":1,"upstream":"both\\n"}', b'{"number":2,"upstream":"both\\n"}'] == bodies


async def at_once(application: EventLoopApplication, *paths: str) -> list[bytes]:
    """The bodies of the responses to requests that are sent together."""

    async def body(path: str) -> bytes:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        scope = {"type": "http", "method": "GET", "path": path, "http_version": "1.1", "headers": []}
        await application(scope, receive, send)
        return b"".join(sent)

    return await asyncio.gather(*map(body, paths))


@pytest.mark.parametrize("name", NAMES[:2])
def test_a_wait_for_the_database_is_a_request_of_either_kind(seeded: str, name: str) -> None:
    """PostgreSQL sleeps, and the response follows from the path."""
    with client_of(name, seeded, "database") as client:
        response = get(client, "/database/7")

    assert (200, b'{"number":7}') == (response.status, response.body)


def test_a_program_that_an_event_loop_starts_prints_for_its_request(seeded: str) -> None:
    """The response is that of threads."""
    with client_of(ASYNCHRONOUS[0], seeded, "subprocess") as client:
        response = get(client, "/subprocess/7")

    assert (200, b'{"number":7,"printed":"7"}') == (response.status, response.body)


def test_each_kind_of_server_is_told_which_application_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """uWSGI with a variant for an event loop, uvicorn with one for threads: one line, which names the other module."""
    monkeypatch.setenv("PLACEBENCH_DATABASE_URL", "postgresql://nobody@localhost/nothing")
    for interface, name, other in (("wsgi", "tuned+driver:asyncpg", "asgi"), ("asgi", "tuned", "wsgi")):
        monkeypatch.setenv("PLACEBENCH_VARIANT", name)
        with pytest.raises(
            SystemExit, match=rf"placebench: .*{re.escape(name)} .*placebench.lab.reference.{other}:app"
        ):
            load_application(interface)
