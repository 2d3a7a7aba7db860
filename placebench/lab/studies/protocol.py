"""The same work over an emulated network in several protocols: HTTP, writes of rows, and a walk that is a loop.

The main class is `ProtocolStudy`, the jobs http, rows and walk of `placebench lab study network`. A variant here is
a protocol, not a program: all of a job read, write or find the same, which is checked after each measurement.
"""

import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from importlib.util import find_spec
from io import BufferedReader
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar
from urllib.parse import urlsplit

from sqlalchemy import make_url

from placebench.compare.what.http_request import HEADERS
from placebench.compare.what.variants import read_variant
from placebench.errors import GateFailedError, LoadError, MissingExtraError
from placebench.lab.studies.network import Sent, measure_job, small_reads
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.runtime.application_servers import serve
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import open_database_link, open_service_link

if TYPE_CHECKING:
    import psycopg

PROTOCOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "http": ("connection", "keep-alive", "pipelining"),
    "rows": ("insert", "pipeline", "multi-row", "copy"),
    "walk": ("loop", "recursive", "function"),
}
"""By job, the baseline first."""
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
    """Which protocols of one job are measured over which link."""

    job: str
    """A key of `PROTOCOLS`."""
    protocols: tuple[str, ...]
    """Of that job, the baseline first."""
    latencies_ms: tuple[float, ...]
    operations: int
    """Requests, rows, or steps of the walk."""
    bytes_per_s: float | None = None
    proxies: int = 1

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured, the values as of `NetworkStudy.spec`; raises MissingExtraError without a package."""
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
    """Run *work*, whose result is added to *results*."""
    started, cpu_before = time.perf_counter(), time.thread_time()
    results.append(work())
    return [Sent(time.perf_counter() - started, time.thread_time() - cpu_before, 0)]


# --- http: small reads


@contextmanager
def _over_http(study: ProtocolStudy, setup: StudySetup) -> Iterator[_MeasurePoint]:
    """Serve tuned by granian, which keeps connections open and reads a request before it has responded to the last."""
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
            made = measure_job(link, profile, database_url, server.metered_pids, lambda: _timed(read, bodies))
            for request, body in zip(requests, bodies[0], strict=True):
                same.check(point["variant"], request, body)
            return {**made, "body_bytes": sum(map(len, bodies[0]))}

        for protocol in study.protocols:
            measure({"variant": protocol}, LinkProfile())
        yield measure


def _bodies(url: str, requests: Sequence[str], at_once: int) -> list[bytes]:
    """The bodies of the responses: so many requests are sent before they are read; 0: each on its own connection."""
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
                bodies += [_read_body(replies) for _ in sent[first : first + at_once]]
    except (OSError, HTTPException, ValueError, TypeError) as error:
        raise LoadError(f"{url} gave no whole response: {type(error).__name__} {error}") from error
    return bodies


def _read_body(replies: BufferedReader) -> bytes:
    status = replies.readline().decode("latin-1")
    length = int(parse_headers(replies)["Content-Length"])
    body = replies.read(length)
    if f" {HTTPStatus.OK.value} " not in status or len(body) < length:
        raise ValueError(f"{status.strip()!r} with {len(body)} of {length} bytes")
    return body


# --- rows and walk: on a database


class _Sql:
    """The jobs on a database: *near* prepares and checks, *far* is measured."""

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
        """INSERT INTO written VALUES (...): a round trip for each row, and two for BEGIN and COMMIT."""
        with self._far.transaction():
            for row in self._rows:
                self._far.execute(_INSERT, row)

    def pipeline(self) -> None:
        """The same statements; no response is waited for before the last is sent. A pipeline is a transaction."""
        with self._far.pipeline():
            for row in self._rows:
                self._far.execute(_INSERT, row)

    def multi_row(self) -> None:
        """INSERT INTO written VALUES (...), (...), ...: one statement."""
        values = ", ".join(["(%s, %s)"] * len(self._rows))
        with self._far.transaction():
            self._far.execute(f"INSERT INTO written VALUES {values}".encode(), list(chain.from_iterable(self._rows)))

    def copy(self) -> None:
        """COPY written FROM STDIN: the response to the statement is waited for, and that to the rows."""
        with self._far.transaction(), self._far.cursor().copy("COPY written FROM STDIN") as copy:
            for row in self._rows:
                copy.write_row(row)

    def loop(self) -> int:
        """SELECT next FROM chain WHERE n = ...: each step needs the one before."""
        node = self._first
        for _ in self._rows:
            node = self._one("SELECT next FROM chain WHERE n = %s", node)
        return node

    def recursive(self) -> int:
        """WITH RECURSIVE: the whole walk in one statement."""
        return self._one(_RECURSIVE, self._first, len(self._rows), len(self._rows))

    def function(self) -> int:
        """SELECT walk(...): the loop of the program, in PL/pgSQL."""
        return self._one("SELECT walk(%s, %s)", self._first, len(self._rows))

    def check(self, protocol: str, result: object) -> None:
        """Delete what was written; raises GateFailedError for a protocol that wrote or found something else."""
        written = self._near.execute("DELETE FROM written RETURNING n, note").fetchall()
        expected, seen = (self._last, result) if protocol in PROTOCOLS["walk"] else (self._rows, sorted(written))
        if seen != expected:
            raise GateFailedError(f"{protocol} came to {str(seen)[:200]}, expected {str(expected)[:200]}")

    def _one(self, statement: LiteralString, *parameters: int) -> int:
        row = self._far.execute(statement, parameters).fetchone()
        return int(row[0]) if row else -1


@contextmanager
def _over_sql(study: ProtocolStudy, setup: StudySetup) -> Iterator[_MeasurePoint]:
    """Two connections of psycopg 3 to a database of their own, one of them over the link."""
    import psycopg

    database_url, log = setup.data.copy("protocols"), setup.folder / "log" / "link.log"
    with open_database_link(database_url, proxies=study.proxies, log=log) as link, ExitStack() as stack:
        # Without prepared statements, whose preparation is a round trip now and then.
        near, far = (
            stack.enter_context(psycopg.connect(_libpq_url(url), autocommit=True, prepare_threshold=None))
            for url in (database_url, link.url)
        )
        sql = _Sql(near, far, study.operations)

        def measure(point: Point, profile: LinkProfile) -> Mapping[str, Any]:
            results: list[object] = []
            work = getattr(sql, point["variant"].replace("-", "_"))
            try:
                made = measure_job(link, profile, database_url, list, lambda: _timed(work, results))
            except psycopg.Error as error:
                raise LoadError(f"{point['variant']}: {' '.join(str(error).split())}") from error
            sql.check(point["variant"], results[0])
            return made

        for protocol in study.protocols:
            measure({"variant": protocol}, LinkProfile())
        yield measure


def _libpq_url(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
