import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from placebench.cli import main
from placebench.compare.load.load_run import LoadSpec, run_load
from placebench.compare.what.http_request import HEADERS, get
from placebench.errors import ServerError
from placebench.lab.commands.serve import health_server
from placebench.lab.inventory.seeding import find_topology, migrate, seed
from placebench.lab.reference.variants import variant
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server
from placebench.runtime.running_server import ServerSpec
from placebench.runtime.supervisor import ChildSpec, start_child

NESTED = find_topology("nested-perfload", trees=3)
CLASS_HEADERS = "X-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[str]:
    """Three trees: six candidates for the headline query."""
    url = server.create_database("placebench_test_serve")
    seed(NESTED, url)
    yield url
    server.drop_database("placebench_test_serve")


@contextmanager
def placebench_serve(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The command in the foreground, and what it printed when it was ready."""
    command = [sys.executable, "-m", "placebench", "lab", "serve", "--db", url, "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def candidates(url: str) -> int:
    """How many allocation requests the headline query is answered with."""
    return len(json.loads(get(url, NESTED.request).body)["allocation_requests"])


@pytest.mark.usefixtures("in_foreground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_serve_answers_until_it_is_told_to_stop(seeded: str, number: signal.Signals) -> None:
    """The headline query finds two candidates a tree; Ctrl-C and the like end it with exit code 0."""
    with placebench_serve(seeded, "--variant", "naive", "--processes", "2", "--threads", "2") as (process, ready):
        found = candidates(ready["url"])
        process.send_signal(number)
        _, said = process.communicate(timeout=30)

    assert found == 6
    assert (process.returncode, said.strip()) == (0, f"naive is served at {ready['url']}; Ctrl-C stops it")
    with pytest.raises(OSError, match="Connection refused"):
        get(ready["url"], "/")


@pytest.mark.long
def test_serve_ends_when_a_worker_is_killed(seeded: str) -> None:
    """Exit code 2 and one line with the end of uWSGI's log; nothing keeps running. The default variant is cached."""
    with placebench_serve(seeded) as (process, ready):
        [worker] = Path(f"/proc/{ready['pid']}/task/{ready['pid']}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        _, said = process.communicate(timeout=30)

    assert process.returncode == 2
    assert said.startswith("cached is served at ")
    assert re.search(
        r"^placebench lab serve: a worker of uWSGI died while it served .*killed by signal 9.*$", said, re.M
    )
    assert not Path(f"/proc/{ready['pid']}").exists()


def test_serve_never_migrates(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty database is left empty: exit code 2, and what to do."""
    exit_code = main(["lab", "serve", "--db", database_url, "--port", "0"])

    assert exit_code == 2
    assert "has no table resource_providers: run `placebench lab seed --db URL` first" in capsys.readouterr().err


@pytest.mark.long
def test_serve_without_a_change_log(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables as Placement makes them: cached is refused with what to do, and dedup is the default."""
    migrate(database_url, "0001")
    exit_code = main(["lab", "serve", "--db", database_url, "--variant", "cached", "--port", "0"])

    assert exit_code == 2
    assert "this database has no change log; `placebench lab seed --trees 0" in capsys.readouterr().err
    with placebench_serve(database_url) as (_, ready):
        assert ready["variant"] == "dedup"


@pytest.mark.long
def test_a_response_is_not_lost_with_a_body_that_nobody_reads(seeded: str) -> None:
    """uWSGI resets a connection whose body was not read: 401 and 404 and a GET with a body of 5 MB have responses."""
    body = b" " * 5_000_000
    requests = [("PUT", "/traits/A", {}), ("POST", "/nothing", HEADERS), ("GET", NESTED.request, HEADERS)]
    statuses = []
    with placebench_serve(seeded, "--variant", "tuned") as (_, ready):
        for method, path, headers in requests:
            with closing(http.client.HTTPConnection(urlsplit(ready["url"]).netloc, timeout=30)) as connection:
                connection.request(method, path, body, {**headers, "Content-Type": "application/json"})
                statuses.append(connection.getresponse().status)

    assert statuses == [401, 404, 200]


def test_a_client_finds_what_every_placement_knows(database_url: str) -> None:
    """On tables that only our migrations made: standard traits and classes can be used, and a custom class begins at
    10000."""
    migrate(database_url)
    uuid = "00000000-0000-4000-8000-000000000001"
    provider = f"/resource_providers/{uuid}"
    stock = {"PCPU": {"total": 8}, "NET_BW_EGR_KILOBIT_PER_SEC": {"total": 1000}, "CUSTOM_GOLD": {"total": 1}}
    traits = ["COMPUTE_NODE", "HW_CPU_X86_AVX2"]

    with placebench_serve(database_url) as (_, ready):
        answers = [
            put(ready["url"], "/resource_classes/CUSTOM_GOLD"),
            put(ready["url"], "/resource_providers", {"uuid": uuid, "name": "cn"}, method="POST"),
            put(ready["url"], f"{provider}/inventories", {"resource_provider_generation": 0, "inventories": stock}),
            put(ready["url"], f"{provider}/traits", {"resource_provider_generation": 1, "traits": traits}),
        ]
        found = json.loads(get(ready["url"], "/allocation_candidates?resources=PCPU:4&required=HW_CPU_X86_AVX2").body)

    assert [201, 200, 200, 200] == answers
    assert [{uuid: {"resources": {"PCPU": 4}}}] == [each["allocations"] for each in found["allocation_requests"]]
    assert [10_000] == run(database_url, "SELECT id FROM resource_classes WHERE name = 'CUSTOM_GOLD'")


def put(url: str, path: str, body: Any = None, *, method: str = "PUT") -> int:
    """The status of a write; an iterator is a body that is sent in chunks as it is."""
    content = body if body is None or isinstance(body, Iterator) else json.dumps(body)
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request(method, path, content, {**HEADERS, "Content-Type": "application/json"})
        return connection.getresponse().status


def run(url: str, *statements: str) -> list[Any]:
    """Run the statements and commit; the first column of the last one's rows, if it has some."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements:
            result = connection.execute(text(statement))
        return list(result.scalars()) if result.returns_rows else []


@pytest.fixture
def reader(database_url: str) -> Iterator[str]:
    """The database after our migrations, and one provider without a root; its URL for a role that may only read."""
    migrate(database_url)
    run(
        database_url,
        "INSERT INTO resource_providers (id, uuid, name, generation) VALUES (1, 'a', 'a', 0)",
        "CREATE ROLE placebench_test_reader LOGIN PASSWORD 'reader'",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO placebench_test_reader",
    )
    url = make_url(database_url).set(username="placebench_test_reader", password="reader")
    yield url.render_as_string(hide_password=False)
    run(database_url, "DROP OWNED BY placebench_test_reader", "DROP ROLE placebench_test_reader")


@pytest.mark.long
@pytest.mark.parametrize("forbidden", ["permission denied for table traits", "read-only transaction"])
def test_a_role_that_may_only_read_can_serve(database_url: str, reader: str, forbidden: str) -> None:
    """By its rights, or by the server's word: what is missing is said in one line, and so is what is in no response."""
    if forbidden.startswith("read-only"):
        run(database_url, "ALTER ROLE placebench_test_reader SET default_transaction_read_only = on")
    with placebench_serve(reader, "--variant", "dedup") as (process, ready):
        status = get(ready["url"], "/allocation_candidates?resources=VCPU:1").status
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1].splitlines()

    assert status == 200
    assert 1 == sum("requests with them get 400" in line and forbidden in line for line in said)
    assert 1 == sum("without a root_provider_id, which no response shows: 1;" in line for line in said)
    assert not [line for line in said if "Traceback" in line]


def test_serve_without_a_database(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither --db nor the variable: exit code 2, and what to do."""
    monkeypatch.delenv("PLACEBENCH_DATABASE_URL", raising=False)
    exit_code = main(["lab", "serve"])

    assert exit_code == 2
    assert "which database? give --db postgresql://" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"variant": "quick"}, "could not serve .*the end of its log: .*quick"), ({"database_url": ""}, "DATABASE_URL")],
)
def test_a_service_that_cannot_be_made_is_told(seeded: str, wrong: dict[str, str], message: str) -> None:
    """The service's own line is in the message."""
    with pytest.raises(ServerError, match=message):
        serve(ServerSpec(**{"database_url": seeded, **wrong}))


@pytest.mark.parametrize("module", ["placebench.lab.reference.wsgi", "placebench.reference.wsgi"])
def test_uwsgi_by_hand(seeded: str, module: str, tmp_path: Path) -> None:
    """`uwsgi --module MODULE:application` with the environment variables is enough, by the former name too."""
    uwsgi = Path(sys.executable).with_name("uwsgi")
    command = [uwsgi, "--http-socket", "127.0.0.1:0", "--module", f"{module}:application"]
    log = tmp_path / "uwsgi.log"
    environment = {**os.environ, "PLACEBENCH_DATABASE_URL": seeded, "PLACEBENCH_VARIANT": "naive"}
    by_hand = ChildSpec("uwsgi", list(map(str, command)), environment, tmp_path, log, stop_signal=signal.SIGINT)
    with start_child(by_hand):
        address = first(lambda: re.search(r"bound to TCP address (\S+) ", log.read_text() if log.exists() else ""))

        assert candidates(f"http://{address}") == 6


def first(found: Callable[[], re.Match[str] | None], within_s: float = 20.0) -> str:
    """Wait until another process has written it."""
    give_up_at = time.monotonic() + within_s
    while (match := found()) is None:
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    return match[1]


@pytest.mark.long
def test_the_locustfiles_ask_the_headline_query(seeded: str, tmp_path: Path) -> None:
    """Without a request in the spec the query of nested-perfload is asked, and answered."""
    with serve(ServerSpec(database_url=seeded, threads=2)) as server:
        by_default = run_load(LoadSpec(url=server.url, users=2, requests=6), folder=tmp_path)
        body = get(server.url, NESTED.request).body

    assert by_default.statuses == {"200": 6}
    assert by_default.body_bytes == [len(body)] * 6


@pytest.mark.long
@pytest.mark.usefixtures("in_foreground")
def test_the_health_path_responds_while_all_workers_wait(seeded: str) -> None:
    """The only worker waits for a lock; another path is unknown. When the lock is released, so is the request."""
    engine = create_engine(seeded, poolclass=NullPool)
    with placebench_serve(seeded, "--variant", "tuned", "--health-port", "0") as (process, ready):
        with ThreadPoolExecutor(1) as pool:
            with engine.begin() as connection:
                connection.execute(text("LOCK TABLE resource_providers IN ACCESS EXCLUSIVE MODE"))
                waiting = pool.submit(candidates, ready["url"])
                of_own = "(SELECT oid FROM pg_database WHERE datname = current_database())"
                waits = text(f"SELECT count(*) FROM pg_locks WHERE NOT granted AND database = {of_own}")
                while not connection.scalar(waits):
                    pass
                parts = urlsplit(ready["health_url"])
                statuses = [get(f"http://{parts.netloc}", path).status for path in (parts.path, "/")]
                is_done = waiting.done()
            found = waiting.result(timeout=60)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert (statuses, is_done, found, process.returncode) == ([200, 404], False, 6, 0)


@pytest.mark.long
@pytest.mark.usefixtures("in_foreground")
def test_half_sent_requests_keep_no_thread(seeded: str) -> None:
    """One thread, and twelve connections with half a request or half a body: another client is served at once."""
    head = f"PUT /traits/CUSTOM_HALF HTTP/1.1\r\nHost: x\r\n{CLASS_HEADERS}"
    with placebench_serve(seeded, "--variant", "tuned", "--threads", "1") as (process, ready):
        address = urlsplit(ready["url"])
        where = address.hostname or "", address.port or 0
        half_sent = [socket.create_connection(where, timeout=60) for _ in range(12)]
        for number, connection in enumerate(half_sent):
            connection.sendall((head if number % 2 else f"{head}Content-Length: 100\r\n\r\n{{").encode())
        found = candidates(ready["url"])
        sockets = [connection for connection in half_sent if not select.select([connection], [], [], 0)[0]]
        for connection in half_sent:
            connection.close()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)

    assert (found, process.returncode) == (6, 0)
    assert len(sockets) == 12  # none has been given up


def test_a_dead_server_is_not_healthy() -> None:
    """503 where the check fails; a port that is taken is refused."""

    def fail() -> None:
        raise ServerError("it ended")

    with health_server("127.0.0.1", 0, fail) as url:
        parts = urlsplit(url)
        status = get(f"http://{parts.netloc}", parts.path).status
        with pytest.raises(ServerError, match="name another port"), health_server("127.0.0.1", parts.port or 0, fail):
            pass

    assert status == 503


@pytest.mark.parametrize("name", ["tuned", "tuned+driver:asyncpg"])
def test_a_body_that_breaks_off_changes_nothing(seeded: str, name: str) -> None:
    """Half of a body that is complete JSON by itself: under uWSGI a 400, under uvicorn, where the client has gone by
    then, no response; the class is not made, and the next request is served."""
    post = f"POST /resource_classes HTTP/1.1\r\nHost: x\r\n{CLASS_HEADERS}Content-Length: 100\r\n\r\n"
    with serve(ServerSpec(seeded, name, **variant(name).serving)) as running:
        address = urlsplit(running.url)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as connection:
            connection.sendall(post.encode() + b'{"name": "CUSTOM_HALF"}')
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        names = json.loads(get(running.url, "/resource_classes").body)["resource_classes"]

    assert "CUSTOM_HALF" not in {each["name"] for each in names}
    assert received.split(b" ")[1:2] == ([b"400"] if name == "tuned" else [])


@pytest.mark.parametrize("name", ["tuned", "tuned+driver:asyncpg"])
def test_a_body_in_chunks_is_read(seeded: str, name: str) -> None:
    """A body without a length, as http.client sends what it is given in parts: the class is made."""
    made = f"CUSTOM_CHUNKED_{'ASYNC' if '+' in name else 'WSGI'}"
    with placebench_serve(seeded, "--variant", name) as (_, ready):
        status = put(ready["url"], "/resource_classes", iter([b'{"name":', b' "', made.encode(), b'"}']), method="POST")
        names = json.loads(get(ready["url"], "/resource_classes").body)["resource_classes"]

    assert status == 201
    assert made in {each["name"] for each in names}
