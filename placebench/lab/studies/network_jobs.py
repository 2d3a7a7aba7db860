"""Jobs over an emulated network: the same work by several variants or protocols, with added latency.

`NetworkStudy` measures variants. Each has one worker with one thread and its own database, and runs with its emulated
network for the whole study, unless a measurement fails; a point only changes latency and bandwidth. `ProtocolStudy`
measures the jobs http, rows and walk, in which a variant is a protocol instead of a program: all protocols of a job
read, write or find the same data, which is checked after each measurement. A job begins when its first request is sent,
and ends when the body of its last response is read.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import make_url

from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.http_request import HEADERS, get
from placebench.compare.what.variants import Variant, read_variant
from placebench.errors import GateFailedError, LoadError, MissingExtraError
from placebench.lab.inventory.topology import Topology
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.runtime.application_servers import serve
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import Link, open_database_link, open_service_link
from placebench.runtime.running_server import RunningServer, ServerSpec
from placebench.study.behind_link import Between, Sent, measure_job, serve_behind_link

if TYPE_CHECKING:
    import psycopg

TINY_OPERATIONS: Final = 1000
MIXED_OPERATIONS: Final = 20
WAITING_JOBS: Final = ("waits", "mixed")
"""The jobs in which requests for candidates wait in the database."""
_READS_PER_WAIT: Final = 4
_WAITING: Final = "placebench.lab.reference.waiting:application"
_HASH_SEED = 1
_WARM_UP_ROUNDS = 2


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
        bytes_received, in_transit_s, body_bytes, trace`, for the jobs of all clients together. elapsed_s is that of the
        slowest client; cpu_s is None if it could not be read completely.
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
        """Start every variant on first use, and warm it up."""
        requests, same = [self.request] * self.operations, setup.same_responses()
        if self.job == "tiny":
            requests = small_reads(setup.data.topology, self.operations)
        elif self.job == "mixed":
            cycle = _READS_PER_WAIT + 1
            reads = small_reads(setup.data.topology, self.operations)
            requests = [self.request if number % cycle == cycle - 1 else read for number, read in enumerate(reads)]
        with ExitStack() as stack:
            starts = {each.name: partial(_Served.start, self, each, setup, same, requests) for each in self.variants}
            served = {name: stack.enter_context(Restartable(start)) for name, start in starts.items()}

            def measure(point: Point, _: int) -> dict[str, Any]:
                with served[point["variant"]].in_use() as variant:
                    return variant.measure(point, requests, self)

            yield measure


def small_reads(topology: Topology, operations: int) -> list[str]:
    """Return *operations* requests for the root providers of *topology*, in turn."""
    roots = [topology.uuids(number)[0] for number in range(min(topology.trees, operations))]
    return [f"/resource_providers/{roots[number % len(roots)]}" for number in range(operations)]


class _Served:
    """One variant that is being served, with its emulated network."""

    def __init__(
        self, variant: Variant, server: RunningServer, link: Link, database_url: str, same: SameResponses
    ) -> None:
        self._variant = variant
        self._server = server
        self._link = link
        self._database_url = database_url
        self._same = same
        self._checking = threading.Lock()

    @classmethod
    @contextmanager
    def start(
        cls, study: NetworkStudy, variant: Variant, setup: StudySetup, same: SameResponses, requests: Sequence[str]
    ) -> Iterator["_Served"]:
        """Serve the variant, warmed up, on its own copy of the data, with the emulated network on one side."""
        database_url = setup.data.copy(variant.name)
        log = setup.folder / "log" / f"network-{variant.name}.log"
        spec_of = partial(_spec, study, variant, folder=setup.folder)
        with serve_behind_link(spec_of, database_url, study.between, study.proxies, log) as (server, link):
            made = cls(variant, server, link, database_url, same)
            for _ in range(_WARM_UP_ROUNDS):  # compile and connect, and give the first responses
                made._send_all(server.url, requests[:1], "identity", study.clients)
            yield made

    def measure(self, point: Point, requests: Sequence[str], study: NetworkStudy) -> dict[str, Any]:
        encoding = "gzip" if point.get("compress") else "identity"
        url = self._link.url if self._link.url.startswith("http") else self._server.url
        profile = LinkProfile(point["latency_ms"] / 1e3, study.bytes_per_s)
        made = measure_job(
            self._link,
            [profile] * self._link.proxies,
            self._database_url,
            self._server.metered_pids,
            lambda: [self._send_all(url, requests, encoding, study.clients)],
        )
        self._server.check()
        return made

    def _send_all(self, url: str, requests: Sequence[str], encoding: str, clients: int) -> Sent:
        """Let each client send the requests in sequence; return the longest duration, and sums of CPU and bytes."""

        def job(_: int) -> Sent:
            made = [self._send(url, request, encoding) for request in requests]
            return Sent(*(sum(values) for values in zip(*map(astuple, made), strict=True)))

        with ThreadPoolExecutor(clients) as threads:
            made = list(threads.map(job, range(clients)))
        longest_s = max(each.elapsed_s for each in made)
        return Sent(longest_s, sum(each.cpu_s for each in made), sum(each.packed_bytes for each in made))

    def _send(self, url: str, request: str, encoding: str) -> Sent:
        """Send one request, timed until its body is read; then compare the response with the other variants'."""
        started, cpu_before = time.perf_counter(), time.thread_time()
        try:
            reply = get(url, request, encoding=encoding)
        except OSError as error:
            raise LoadError(f"{self._variant.name} gave no response: {error}; {self._state()}") from error
        elapsed_s, cpu_s = time.perf_counter() - started, time.thread_time() - cpu_before
        if reply.status != HTTPStatus.OK:
            raise LoadError(f"{self._variant.name} returned {reply.status}, expected 200; {self._state()}")
        with self._checking:
            self._same.check(self._variant.name, request, reply.body)
        return Sent(elapsed_s, cpu_s, reply.packed_bytes)

    def _state(self) -> str:
        """Return whether the variant's proxy still runs, as text for an error message."""
        try:
            self._link.traffic()
        except LoadError as error:
            return str(error)
        return "its proxy runs"


def _spec(study: NetworkStudy, variant: Variant, database_url: str, *, folder: Path) -> ServerSpec:
    made = variant.spec(database_url, hash_seed=_HASH_SEED, log=folder / "log" / f"uwsgi-{variant.name}.log")
    environment = {**made.environment, "PLACEBENCH_COMPRESS": str(int(study.compress))}
    module = _WAITING if study.job in WAITING_JOBS else made.module
    if study.job == "mixed":
        environment["PLACEBENCH_WAIT_PATH"] = urlsplit(study.request).path
    return replace(made, environment=environment, module=module, processes=max(study.clients, made.processes))


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


def _timed(work: Callable[[], _T], results: list[_T]) -> list[Sent]:
    """Run *work*, append its result to *results*, and return its duration and CPU."""
    started, cpu_before = time.perf_counter(), time.thread_time()
    results.append(work())
    return [Sent(time.perf_counter() - started, time.thread_time() - cpu_before, 0)]


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
        raise LoadError(f"{url} gave no whole response: {type(error).__name__} {error}") from error
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
