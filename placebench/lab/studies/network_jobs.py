"""Jobs over an emulated network: the same work by several variants or protocols, with added latency.

`NetworkStudy` makes applications of variants and a workload of a job, which `placebench.study.network` measures.
`ProtocolStudy` measures the jobs http, rows and walk, in which a variant is a protocol instead of a program: all
protocols of a job read, write or find the same data, which is checked after each measurement. A job begins when its
first request is sent, and ends when the body of its last response is read.
"""

import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar
from urllib.parse import urlsplit

from msgspec import structs
from sqlalchemy import make_url

from placebench.compare.what.http_request import HEADERS
from placebench.compare.what.variants import Variant, read_variant
from placebench.compare.what.workload import Workload
from placebench.errors import GateFailedError, LoadError, MissingExtraError
from placebench.lab.inventory.topology import Topology
from placebench.lab.placement_api import placement_workload
from placebench.lab.studies.study import StudySetup, StudySpec
from placebench.runtime.application_servers import serve
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import open_database_link, open_service_link
from placebench.study.behind_link import Between, Links, NetworkSetup, Sent, measure_job
from placebench.study.network import ApplicationNetwork
from placebench.study.session import Measure, Point, Restartable

if TYPE_CHECKING:
    import psycopg

TINY_OPERATIONS: Final = 1000
MIXED_OPERATIONS: Final = 20
WAITING_JOBS: Final = ("waits", "mixed")
"""The jobs in which requests for candidates wait in the database."""
_READS_PER_WAIT: Final = 4
_WAITING: Final = "placebench.lab.reference.waiting:application"


@dataclass(frozen=True)
class NetworkStudy:
    """The variants, and the emulated networks over which they are measured."""

    variants: tuple[Variant, ...]
    """The variants, the baseline first."""
    latencies_ms: tuple[float, ...]
    request: str
    job: str = "query"
    """The kind of job: the request once (query), GET /resource_providers/UUID several times in sequence (tiny), the
    request once, after 250 ms of pg_sleep() in the database (waits), or small reads and after each four of them the
    request with its wait (mixed)."""
    operations: int = 1
    between: Between = "database"
    bytes_per_s: float | None = None
    proxies: int = 1
    compress: bool = False
    """Whether each variant is also measured with gzip responses."""
    clients: int = 1
    """Number of clients that do the job at the same time, on their own connections; as many workers serve them."""

    @property
    def points(self) -> tuple[Point, ...]:
        """The points, variant by variant, without and (if enabled) with gzip, by ascending latency."""
        ways = ({"compress": False}, {"compress": True}) if self.compress else ({},)
        return tuple(
            {"variant": variant.name, **way, "latency_ms": latency_ms}
            for variant in self.variants
            for way in ways
            for latency_ms in sorted(self.latencies_ms)
        )

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study.

        A measurement has `elapsed_s, cpu_s, client_cpu_s, proxy_cpu_s, round_trips, connections, bytes_sent,
        bytes_received, in_transit_s, body_bytes, trace`, for the jobs of all clients together. elapsed_s is until the
        last response; cpu_s is None if it could not be read completely.
        """
        named = ("job", "operations", "between", "bytes_per_s", "proxies", "clients")
        return StudySpec(
            command="network",
            points=self.points,
            repeats=repeats,
            prepare=self._prepare,
            request=self.request,
            settings={name: getattr(self, name) for name in named},
            variants=tuple(variant.name for variant in self.variants),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        """Measure the variants as applications of `placebench study network`, each at its revisions of the schema."""
        links = {latency_ms: "+".join([str(latency_ms)] * self.proxies) for latency_ms in self.latencies_ms}
        study = ApplicationNetwork(
            variants=tuple(map(self._served, self.variants)),
            workload=self._workload(setup.data.topology),
            links=Links(tuple(links.values()), self.bytes_per_s),
            between=self.between,
            compress=self.compress,
            operations=self.clients,
            clients=self.clients,
        )
        shared = NetworkSetup(
            setup.folder,
            database_of=lambda variant: setup.data.copy(variant.name, variant.revisions),
            variants=study.variants,
            save=setup.save,
        )
        with study.prepare(shared) as measure:
            yield lambda point, repeat: measure({**point, "link": links[point["latency_ms"]]}, repeat)

    def _workload(self, topology: Topology) -> Workload:
        requests = [self.request] * self.operations
        if self.job == "tiny":
            requests = small_reads(topology, self.operations)
        elif self.job == "mixed":
            cycle = _READS_PER_WAIT + 1
            reads = small_reads(topology, self.operations)
            requests = [self.request if number % cycle == cycle - 1 else read for number, read in enumerate(reads)]
        places = {request: place for place, request in enumerate(dict.fromkeys(requests))}
        return structs.replace(placement_workload(*places), cycle=tuple(places[request] for request in requests))

    def _served(self, variant: Variant) -> Variant:
        """Return the variant with a worker for each client, and with the waits and the compression of the job."""
        variables = {**variant.variables, "PLACEBENCH_COMPRESS": str(int(self.compress))}
        if self.job == "mixed":
            variables["PLACEBENCH_WAIT_PATH"] = urlsplit(self.request).path
        processes, threads = variant.workers
        return replace(
            variant,
            module=_WAITING if self.job in WAITING_JOBS else variant.module,
            variables=variables,
            workers=(max(self.clients, processes), threads),
        )


def small_reads(topology: Topology, operations: int) -> list[str]:
    """Return *operations* requests for the root providers of *topology*, in turn."""
    roots = [topology.uuids(number)[0] for number in range(min(topology.trees, operations))]
    return [f"/resource_providers/{roots[number % len(roots)]}" for number in range(operations)]


# --- the same work in several protocols


PROTOCOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "http": ("connection", "keep-alive", "pipelining"),
    "rows": ("insert", "pipeline", "multi-row", "copy"),
    "walk": ("loop", "recursive", "function"),
}
"""The protocols of each job, the baseline first."""
_TIMEOUT_S = 300.0
_INSERT = "INSERT INTO written VALUES (%s, %s)"
_RECURSIVE = """
WITH RECURSIVE walk(n, step) AS (
    SELECT %s::integer, 0 UNION ALL SELECT next, step + 1 FROM walk JOIN chain USING (n) WHERE step < %s
)
SELECT n FROM walk WHERE step = %s
"""
_WALK_FUNCTION = """
CREATE OR REPLACE FUNCTION walk(node integer, steps integer) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    FOR step IN 1..steps LOOP
        SELECT next INTO node FROM chain WHERE n = node;
    END LOOP;
    RETURN node;
END
$$
"""
_T = TypeVar("_T")


@dataclass(frozen=True)
class ProtocolStudy:
    """The protocols of one job, and the emulated networks over which they are measured."""

    job: str
    """The job, a key of `PROTOCOLS`."""
    protocols: tuple[str, ...]
    """Protocols of that job, the baseline first."""
    latencies_ms: tuple[float, ...]
    operations: int
    """Number of requests, of rows, or of steps of the walk."""
    bytes_per_s: float | None = None
    proxies: int = 1

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec, with the values of `NetworkStudy.spec`; raise MissingExtraError if a package is missing."""
        package, extra = ("granian", "asyncio") if self.job == "http" else ("psycopg", "psycopg3")
        if find_spec(package) is None:
            raise MissingExtraError(f"--job {self.job} needs {package}: pip install 'placebench[{extra}]'")
        return StudySpec(
            command="network",
            points=tuple(
                {"variant": protocol, "latency_ms": latency_ms}
                for protocol in self.protocols
                for latency_ms in sorted(self.latencies_ms)
            ),
            repeats=repeats,
            prepare=self._prepare,
            request="GET /resource_providers/UUID" if self.job == "http" else self.job,
            settings={
                "between": "client" if self.job == "http" else "database",
                **{name: getattr(self, name) for name in ("job", "operations", "bytes_per_s", "proxies")},
            },
            variants=self.protocols,
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        start = _over_http if self.job == "http" else _over_sql
        with Restartable(partial(start, self, setup)) as started:

            def measure(point: Point, _: int) -> Mapping[str, Any]:
                with started.in_use() as measure_point:
                    return measure_point(point, LinkProfile(point["latency_ms"] / 1e3, self.bytes_per_s))

            yield measure


_MeasurePoint = Callable[[Point, LinkProfile], Mapping[str, Any]]


def _timed(work: Callable[[], _T], results: list[_T]) -> Sent:
    """Run *work*, append its result to *results*, and return its duration and CPU."""
    started, cpu_before = time.perf_counter(), time.thread_time()
    results.append(work())
    return Sent(time.perf_counter() - started, time.thread_time() - cpu_before, 0)


# --- http: small reads


@contextmanager
def _over_http(study: ProtocolStudy, setup: StudySetup) -> Iterator[_MeasurePoint]:
    """Serve tuned by granian, which keeps connections open and reads requests before it has sent earlier responses."""
    requests, same = small_reads(setup.data.topology, study.operations), setup.same_responses()
    at_once = {"connection": 0, "keep-alive": 1, "pipelining": len(requests)}
    database_url, log = setup.data.copy("tuned"), setup.folder / "log"
    spec = read_variant("tuned").spec(database_url, hash_seed=1, log=log / "granian.log")
    with (
        serve(spec, "granian") as server,
        open_service_link(server.url, proxies=study.proxies, log=log / "link.log") as link,
    ):

        def measure(point: Point, profile: LinkProfile) -> Mapping[str, Any]:
            bodies: list[list[bytes]] = []
            read = partial(_bodies, link.url, requests, at_once[point["variant"]])
            made = measure_job(
                link, [profile] * link.proxies, database_url, server.metered_pids, lambda: _timed(read, bodies)
            )
            for request, body in zip(requests, bodies[0], strict=True):
                same.check(point["variant"], request, body)
            return {**made, "body_bytes": sum(map(len, bodies[0]))}

        for protocol in study.protocols:
            measure({"variant": protocol}, LinkProfile())
        yield measure


def _bodies(url: str, requests: Sequence[str], at_once: int) -> list[bytes]:
    """Return the bodies; *at_once* requests are sent before reading, or 0 for a new connection per request."""
    if not at_once:
        return [body for request in requests for body in _bodies(url, [request], 1)]
    address, bodies = urlsplit(url), list[bytes]()
    headers = "".join(f"{name}: {value}\r\n" for name, value in {"Host": address.netloc, **HEADERS}.items())
    sent = [f"GET {request} HTTP/1.1\r\n{headers}\r\n".encode() for request in requests]
    try:
        with (
            socket.create_connection((address.hostname, address.port), timeout=_TIMEOUT_S) as connection,
            connection.makefile("rb") as replies,
        ):
            for first in range(0, len(sent), at_once):
                connection.sendall(b"".join(sent[first : first + at_once]))
                for _ in sent[first : first + at_once]:
                    status = replies.readline().decode("latin-1")
                    length = int(parse_headers(replies)["Content-Length"])
                    bodies.append(replies.read(length))
                    if f" {HTTPStatus.OK.value} " not in status or len(bodies[-1]) < length:
                        raise ValueError(f"{status.strip()!r} with {len(bodies[-1])} of {length} bytes")
    except (OSError, HTTPException, ValueError, TypeError) as error:
        raise LoadError(f"{url} sent no whole response: {type(error).__name__} {error}") from error
    return bodies


# --- rows and walk: on a database


class _Sql:
    """The jobs on a database: the connection *near* prepares and checks, the connection *far* is measured."""

    def __init__(self, near: "psycopg.Connection[Any]", far: "psycopg.Connection[Any]", operations: int) -> None:
        self._near, self._far = near, far
        self._rows = [(number, f"note {number}") for number in range(operations)]
        nodes = random.Random(operations).sample(range(operations + 1), operations + 1)
        self._first, self._last = nodes[0], nodes[-1]
        near.execute("DROP TABLE IF EXISTS written, chain")
        near.execute("CREATE TABLE written (n integer PRIMARY KEY, note text)")
        near.execute("CREATE TABLE chain (n integer PRIMARY KEY, next integer)")
        near.cursor().executemany("INSERT INTO chain VALUES (%s, %s)", list(pairwise(nodes)))
        near.execute(_WALK_FUNCTION)

    def insert(self) -> None:
        """Insert each row by its own INSERT: one round trip per row, and two for BEGIN and COMMIT."""
        with self._far.transaction():
            for row in self._rows:
                self._far.execute(_INSERT, row)

    def pipeline(self) -> None:
        """Insert the rows in pipeline mode, in one transaction: all statements are sent before a response is read."""
        with self._far.pipeline():
            for row in self._rows:
                self._far.execute(_INSERT, row)

    def multi_row(self) -> None:
        values = ", ".join(["(%s, %s)"] * len(self._rows))
        with self._far.transaction():
            self._far.execute(f"INSERT INTO written VALUES {values}".encode(), list(chain.from_iterable(self._rows)))

    def copy(self) -> None:
        """Insert all rows by COPY: one round trip for the statement, and one for the rows."""
        with self._far.transaction(), self._far.cursor().copy("COPY written FROM STDIN") as copy:
            for row in self._rows:
                copy.write_row(row)

    def loop(self) -> int:
        """Walk the chain by one SELECT per step; each step needs the result of the one before."""
        node = self._first
        for _ in self._rows:
            node = self._one("SELECT next FROM chain WHERE n = %s", node)
        return node

    def recursive(self) -> int:
        """Walk the whole chain in one statement, by WITH RECURSIVE."""
        return self._one(_RECURSIVE, self._first, len(self._rows), len(self._rows))

    def function(self) -> int:
        """Walk the chain in the database, by a loop in PL/pgSQL."""
        return self._one("SELECT walk(%s, %s)", self._first, len(self._rows))

    def check(self, protocol: str, result: object) -> None:
        """Delete the written rows; raise GateFailedError if the protocol wrote or found other values than expected."""
        written = self._near.execute("DELETE FROM written RETURNING n, note").fetchall()
        expected, seen = (self._last, result) if protocol in PROTOCOLS["walk"] else (self._rows, sorted(written))
        if seen != expected:
            raise GateFailedError(f"{protocol} came to {str(seen)[:200]}, expected {str(expected)[:200]}")

    def _one(self, statement: LiteralString, *parameters: int) -> int:
        row = self._far.execute(statement, parameters).fetchone()
        return int(row[0]) if row else -1


@contextmanager
def _over_sql(study: ProtocolStudy, setup: StudySetup) -> Iterator[_MeasurePoint]:
    """Yield a measuring function that uses two psycopg 3 connections to one new database, one of them with latency."""
    import psycopg

    database_url, log = setup.data.copy("protocols"), setup.folder / "log" / "link.log"
    with open_database_link(database_url, proxies=study.proxies, log=log) as link, ExitStack() as stack:
        # Prepared statements are off, because preparing one takes an additional round trip.
        libpq_urls = [
            make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
            for url in (database_url, link.url)
        ]
        near, far = (
            stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=None)) for url in libpq_urls
        )
        sql = _Sql(near, far, study.operations)

        def measure(point: Point, profile: LinkProfile) -> Mapping[str, Any]:
            results: list[object] = []
            work = getattr(sql, point["variant"].replace("-", "_"))
            try:
                made = measure_job(link, [profile] * link.proxies, database_url, list, lambda: _timed(work, results))
            except psycopg.Error as error:
                raise LoadError(f"{point['variant']}: {' '.join(str(error).split())}") from error
            sql.check(point["variant"], results[0])
            return made

        for protocol in study.protocols:
            measure({"variant": protocol}, LinkProfile())
        yield measure
