"""A database that ends its sessions costs no request: connections are replaced, and no claim is made twice."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import psycopg2.extensions
import pytest
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import OperationalError

from placebench.http_session import Request
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.reference.api.event_loop import EventLoopApplication
from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.deployment import make_engine
from placebench.lab.reference.domain.problems import CommitUnconfirmed
from placebench.lab.reference.store.database import Database, ReplicatedDatabase
from placebench.lab.reference.variants import variant
from placebench.profiler.integrations.in_process_client import InProcessClient, in_process_client
from placebench.runtime.mariadb import MariaDbServer
from placebench.runtime.postgres import Server, open_connection
from placebench.runtime.postgres.cluster import Cluster

VARIANTS = ("tuned", "cached", "tuned+driver:psycopg3", "tuned+driver:asyncpg", "tuned+driver:psycopg3_async")
HEADERS = {"X-Auth-Token": "admin", "OpenStack-API-Version": "placement 1.39", "Content-Type": "application/json"}
TOPOLOGY = find_topology("nested-perfload", trees=2)
OTHERS = (
    "FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
READS = (TOPOLOGY.request, "/traits", "/resource_classes")
DEADLINE_S = 60


@contextmanager
def client_of(name: str, url: str) -> Iterator[tuple[InProcessClient, Engine]]:
    """A client of the service in this variant, in this process, and its engine."""
    environment = {"PLACEBENCH_DATABASE_URL": url, "PLACEBENCH_VARIANT": name}
    interface, engine = variant(name).interface, make_engine(environment)
    app = make_app(engine, name)
    with in_process_client(EventLoopApplication(app, engine) if interface == "asgi" else app, interface) as client:
        yield client, engine
    if interface == "wsgi":
        engine.dispose()


def send(client: InProcessClient, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The status, and the document if there is one."""
    response = client.send(Request(method, path, HEADERS, b"" if body is None else orjson.dumps(body)))
    return response.status, orjson.loads(response.body) if response.body else None


class Claims:
    """Claims of new consumers, made and counted."""

    def __init__(self, client: InProcessClient) -> None:
        self._client = client
        _, found = send(client, "GET", "/allocation_candidates?resources=DISK_GB:1")
        self._allocations = found["allocation_requests"][0]["allocations"]
        self.made = 0

    def make(self) -> tuple[int, int]:
        """The status of a claim, and the consumer's generation afterwards."""
        self.made += 1
        path = f"/allocations/00000000-0000-4000-8000-{self.made:012d}"
        owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "consumer_generation": None}
        status, _ = send(self._client, "PUT", path, {"allocations": self._allocations, **owner})
        return status, send(self._client, "GET", path)[1].get("consumer_generation")

    def stored(self) -> int:
        """How many times the first provider is allocated."""
        provider = next(iter(self._allocations))
        return len(send(self._client, "GET", f"/resource_providers/{provider}/allocations")[1]["allocations"])


def requests_after(cut: Any, client: InProcessClient, engine: Engine, claims: Claims) -> list[object]:
    """What is answered after a cut to reads, and after another one to a claim and reads."""
    found: list[object] = []
    for first in (lambda: send(client, "GET", TOPOLOGY.request)[0], claims.make):
        if not engine.dialect.is_async:
            for connection in [engine.connect() for _ in range(3)]:  # of which one is used, and the others come later
                connection.close()
        cut()
        found += [
            first(),
            *(send(client, "GET", path)[0] for path in (TOPOLOGY.request, "/traits", "/resource_classes")),
        ]
    return found


EXPECTED = [200, 200, 200, 200, (204, 1), 200, 200, 200]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL of this module, with data."""
    with Cluster(0) as running:
        seed(TOPOLOGY, running.url(running.primary))
        yield running


@pytest.mark.long
@pytest.mark.parametrize("name", VARIANTS)
def test_sessions_that_the_server_ends_cost_no_request(cluster: Cluster, name: str) -> None:
    """Terminated, timed out while idle, and gone with a server that is killed and started again: each of two reads and
    a claim is served, and each claim is there once."""
    url = cluster.url(cluster.primary)

    def terminate() -> None:
        with open_connection(url) as connection:
            connection.execute(text(f"SELECT pg_terminate_backend(pid) {OTHERS}"))
        await_nobody()

    def await_nobody() -> None:
        give_up_at = time.monotonic() + DEADLINE_S
        with open_connection(url) as connection:
            while connection.scalar(text(f"SELECT count(*) {OTHERS}")):
                assert time.monotonic() < give_up_at
                time.sleep(0.01)

    def time_out() -> None:
        await_nobody()  # each session has the timeout of the role by now

    def crash() -> None:
        cluster.kill(cluster.primary)
        (cluster.primary.place.data / "postmaster.pid").unlink()  # which says that it accepts connections
        cluster.restart(cluster.primary)

    def set_timeout(value: str) -> None:
        with open_connection(url) as connection:
            connection.execute(text(f"ALTER ROLE CURRENT_USER SET idle_session_timeout = {value}"))

    with client_of(name, url) as (client, engine):
        claims = Claims(client)
        before = claims.stored()
        found = [requests_after(cut, client, engine, claims) for cut in (terminate, crash)]
        set_timeout("'300ms'")
        terminate()
        found.append(requests_after(time_out, client, engine, claims))
        set_timeout("DEFAULT")
        terminate()
        stored = claims.stored() - before
        for number in range(claims.made):
            send(client, "DELETE", f"/allocations/00000000-0000-4000-8000-{number + 1:012d}")

    assert found == [EXPECTED] * 3
    assert stored == claims.made == 3


@pytest.mark.long
def test_sessions_that_mariadb_ends_cost_no_request(mariadb: MariaDbServer) -> None:
    """Each is killed by its number, twice: before reads and before a claim."""
    url = mariadb.database("lost")
    seed(TOPOLOGY, url, loader="sql")

    def kill() -> None:
        administrator = create_engine(url)
        with administrator.connect() as connection:
            own = "db = DATABASE() AND id <> CONNECTION_ID()"
            for (number,) in connection.execute(text(f"SELECT id FROM information_schema.processlist WHERE {own}")):
                with suppress(OperationalError):
                    connection.execute(text(f"KILL {number}"))
        administrator.dispose()

    with client_of("tuned", url) as (client, engine):
        claims = Claims(client)

        assert requests_after(kill, client, engine, claims) == EXPECTED
        assert claims.stored() == claims.made == 1


@pytest.fixture(scope="module")
def seeded(server: Server) -> Iterator[str]:
    """A database with data."""
    url = server.create_database("placebench_test_lost")
    seed(TOPOLOGY, url)
    yield url
    server.drop_database("placebench_test_lost")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A table of one number, and a database on it."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE numbers AS SELECT 0 AS number"))
    yield Database(engine)
    engine.dispose()


def end_session(connection: Connection, url: str) -> None:
    """End the connection's session from another one, and wait until it is gone."""
    pid = connection.scalar(text("SELECT pg_backend_pid()"))
    with open_connection(url) as other:
        other.execute(text(f"SELECT pg_terminate_backend({pid}, 60000)"))


def test_a_transaction_is_repeated_once_if_its_session_ends_before_the_commit(
    database: Database, database_url: str
) -> None:
    """The first attempt is lost after its UPDATE, the second one is committed; if both are lost the error is raised."""
    attempts: list[int] = []

    def add(connection: Connection, losses: int) -> None:
        attempts.append(losses)
        connection.execute(text("UPDATE numbers SET number = number + 1"))
        if len(attempts) <= losses:
            end_session(connection, database_url)
            connection.execute(text("SELECT 1"))

    database.write(lambda connection: add(connection, 1))
    assert attempts == [1, 1]
    attempts.clear()
    with pytest.raises(OperationalError):
        database.write(lambda connection: add(connection, 2))

    assert attempts == [2, 2]
    with database.snapshot() as connection:
        assert connection.scalar(text("SELECT number FROM numbers")) == 1


def test_what_may_be_committed_is_not_repeated(database: Database, database_url: str) -> None:
    """The session ends after a message that changes the database by itself, or at COMMIT: one attempt each."""
    attempts: list[str] = []

    def add_at_once(connection: Connection) -> None:
        attempts.append("at once")
        connection.execute(text("UPDATE numbers SET number = number + 1"))
        end_session(connection, database_url)
        connection.execute(text("SELECT 1"))

    def add(connection: Connection) -> None:
        attempts.append("transaction")
        connection.execute(text("UPDATE numbers SET number = number + 10"))
        event.listen(connection, "commit", lambda own: end_session(own, database_url))

    with pytest.raises(CommitUnconfirmed):
        database.write_at_once(add_at_once)
    with pytest.raises(CommitUnconfirmed):
        database.write(add)

    assert attempts == ["at once", "transaction"]
    with database.snapshot() as connection:
        assert connection.scalar(text("SELECT number FROM numbers")) == 1


@pytest.mark.parametrize("method", ["write", "write_at_once"])
@pytest.mark.parametrize("is_refused", [False, True], ids=["session ended", "connection refused"])
def test_a_write_whose_wal_position_cannot_be_read_was_committed_once(
    database: Database, database_url: str, method: str, is_refused: bool
) -> None:
    """The session of the read ends, or the primary accepts no new connection: the error says that it is committed."""
    name, beside = database.engine.url.database, make_url(database_url).set(database="postgres")
    primary = create_engine(database_url, poolclass=NullPool)
    replicated = ReplicatedDatabase(primary, database.engine)
    attempts: list[str] = []

    def add(connection: Connection) -> None:
        attempts.append(method)
        connection.execute(text("UPDATE numbers SET number = number + 1"))
        if is_refused:
            allow_connections(False)

    def allow_connections(allowed: bool) -> None:
        with open_connection(beside) as other:
            other.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}"))

    def end_before_position(connection: Connection, _: Any, statement: str, *__: Any) -> None:
        if "pg_current_wal_flush_lsn" in statement:
            driver: Any = connection.connection.dbapi_connection
            with open_connection(database_url) as other:
                other.execute(text(f"SELECT pg_terminate_backend({driver.info.backend_pid}, 60000)"))

    event.listen(primary, "before_cursor_execute", end_before_position)
    with pytest.raises(CommitUnconfirmed, match="committed"):
        getattr(replicated, method)(add)
    allow_connections(True)

    assert (attempts, replicated.position) == ([method], None)
    with database.snapshot() as connection:
        assert connection.scalar(text("SELECT number FROM numbers")) == 1


@pytest.mark.parametrize(("name", "expected"), [("tuned", 500), ("tuned+driver:psycopg3", 503)])
def test_a_client_learns_what_is_known_of_a_request_that_was_lost(seeded: str, name: str, expected: int) -> None:
    """Each session ends before its first statement: a claim of one message may be stored, one of a transaction is not.

    A read is repeated once; neither it nor a claim is an unexpected error.
    """

    def end(connection: Connection, *_: object) -> None:
        driver: Any = connection.connection.dbapi_connection
        with open_connection(seeded) as other:
            other.execute(text(f"SELECT pg_terminate_backend({driver.info.backend_pid}, 60000)"))

    with client_of(name, seeded) as (client, engine):
        _, found = send(client, "GET", "/allocation_candidates?resources=DISK_GB:1")
        owner = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE", "consumer_generation": None}
        claim = {"allocations": found["allocation_requests"][0]["allocations"], **owner}
        consumer = "/allocations/11111111-0000-4000-8000-000000000001"
        event.listen(engine, "before_cursor_execute", end)
        lost = [send(client, method, consumer, body) for method, body in (("PUT", claim), ("GET", None))]
        event.remove(engine, "before_cursor_execute", end)
        _, stored = send(client, "GET", consumer)

    assert [status for status, _ in lost] == [expected, 503]
    details = [document["errors"][0]["detail"] for _, document in lost]
    assert ["may or may not be stored" in each for each in details] == [expected == 500, False]
    assert stored == {"allocations": {}}


def test_a_message_that_is_no_end_leaves_the_connection(database: Database, database_url: str) -> None:
    """A notification makes the socket of the idle connection readable: it is used again."""
    with database.engine.connect() as connection:
        connection.execute(text("LISTEN news"))
        connection.commit()
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    with open_connection(database_url) as other:
        other.execute(text("NOTIFY news"))

    with database.snapshot() as connection:
        assert connection.scalar(text("SELECT pg_backend_pid()")) == pid


@pytest.mark.parametrize("name", VARIANTS)
def test_a_database_that_accepts_no_connection_is_503(server: Server, seeded: str, name: str) -> None:
    """An error document, and 200 once it accepts one again."""
    database = make_url(seeded).database
    with (
        client_of(name, seeded) as (client, _),
        open_connection(server.create_database("placebench_test_beside")) as connection,
    ):
        connection.execute(text(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false"))
        status, document = send(client, "GET", "/traits")
        connection.execute(text(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true"))
        found = send(client, "GET", "/traits")[0]

    assert (status, document["errors"][0]["title"]) == (503, "Service Unavailable")
    assert found == 200


class HiddenSocket(psycopg2.extensions.connection):
    """A connection of a driver that does not show its socket."""

    fileno = property()  # type: ignore[assignment]


def test_a_driver_that_hides_its_socket_is_served(seeded: str) -> None:
    """The connection is used again, and one that the server has ended fails a read, which is repeated."""
    engine = create_engine(seeded, connect_args={"connection_factory": HiddenSocket})
    with in_process_client(make_app(engine, "tuned"), "wsgi") as client:
        statuses = [send(client, "GET", "/traits")[0] for _ in range(2)]
        with open_connection(seeded) as connection:
            connection.execute(text(f"SELECT pg_terminate_backend(pid, 60000) {OTHERS}"))
        statuses.append(send(client, "GET", "/traits")[0])
    engine.dispose()

    assert statuses == [200, 200, 200]
