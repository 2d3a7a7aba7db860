"""Jobs over a link: what each variant takes for the same work when its bytes have a way to go.

The key piece is `network_study`, which makes the `Question` of `placebench lab study network`.
Each variant is one worker with one thread
on a database of its own and stays up for the whole survey, as its link does, unless a measurement fails; a point only
changes the link's shape. A job begins when its first request is sent and ends when the body of its last one is read.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal

from placebench.errors import LoadError
from placebench.experiment.http_request import get
from placebench.experiment.same_responses import Agreement
from placebench.experiment.study import Ground, Measure, Point, Question, Renewed
from placebench.experiment.variants import Variant
from placebench.measure.meters import backend_cpu_between, read_backends
from placebench.measure.processes import cpu_between, read_cpu_by_pid, read_starved_s
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import Link, open_database_link, open_service_link
from placebench.runtime.wsgi_servers import RunningServer, ServerSpec, serve
from placebench.topology import Topology

JOBS: Final = {
    "query": "the request, once",
    "tiny": "small reads one after the other: GET /resource_providers/UUID",
    "waits": "the request, once, after 250 ms of pg_sleep() in the database",
}
TINY_OPERATIONS: Final = 1000
_WAITING: Final = "placebench.reference.waiting:application"
_HASH_SEED = 1
_WARM_UP_REQUESTS = 2

Between = Literal["database", "client"]


@dataclass(frozen=True)
class NetworkStudy:
    """What goes over which link."""

    variants: tuple[Variant, ...]
    """The baseline first."""
    latencies_ms: tuple[float, ...]
    request: str
    job: str = "query"
    operations: int = 1
    between: Between = "database"
    bytes_per_s: float | None = None
    proxies: int = 1
    compress: bool = False
    """Whether each variant is also measured with answers in gzip."""

    @property
    def points(self) -> tuple[Point, ...]:
        """Variant by variant, each without and with gzip where that is asked for, from the shortest latency on."""
        ways = ({"compress": False}, {"compress": True}) if self.compress else ({},)
        return tuple(
            {"variant": variant.name, **way, "latency_ms": latency_ms}
            for variant in self.variants
            for way in ways
            for latency_ms in sorted(self.latencies_ms)
        )

    def to_json(self) -> dict[str, Any]:
        """For the head of the run."""
        return {
            "job": self.job,
            "operations": self.operations,
            "between": self.between,
            "bytes_per_s": self.bytes_per_s,
            "proxies": self.proxies,
        }


def network_study(asked: NetworkStudy, *, repeats: int) -> Question:
    """The question of `placebench lab study network`.

    A measurement has `elapsed_s, cpu_s, proxy_cpu_s, round_trips, connections, bytes_sent, bytes_received,
    in_transit_s, body_bytes, trace`, of the whole job; cpu_s is None where not all could be read.
    """
    return Question(
        command="network",
        points=asked.points,
        repeats=repeats,
        prepare=partial(_standing, asked),
        request=asked.request,
        settings=asked.to_json(),
        variants=tuple(variant.name for variant in asked.variants),
    )


@contextmanager
def _standing(asked: NetworkStudy, ground: Ground) -> Iterator[Measure]:
    """Every variant up and warm from its first point on, held to the same answers."""
    requests, agreement = _requests(asked, ground.topology), Agreement()
    with ExitStack() as stack:
        ups = {
            variant.name: partial(_Standing.up, asked, variant, ground, agreement, requests)
            for variant in asked.variants
        }
        standing = {name: stack.enter_context(Renewed(up)) for name, up in ups.items()}

        def measured(point: Point, _: int) -> dict[str, Any]:
            with standing[point["variant"]].in_use() as variant:
                return variant.measured(point, requests, asked.bytes_per_s)

        yield measured


def _requests(asked: NetworkStudy, topology: Topology) -> list[str]:
    """What the job asks, in this order."""
    if asked.job != "tiny":
        return [asked.request] * asked.operations
    roots = [topology.uuids(number)[0] for number in range(min(topology.trees, asked.operations))]
    return [f"/resource_providers/{roots[number % len(roots)]}" for number in range(asked.operations)]


class _Standing:
    """One variant with its link."""

    def __init__(
        self, variant: Variant, server: RunningServer, link: Link, database_url: str, agreement: Agreement
    ) -> None:
        self._variant = variant
        self._server = server
        self._link = link
        self._database_url = database_url
        self._agreement = agreement

    @classmethod
    @contextmanager
    def up(
        cls, asked: NetworkStudy, variant: Variant, ground: Ground, agreement: Agreement, requests: Sequence[str]
    ) -> Iterator["_Standing"]:
        """The variant served on its own copy of the data, with a link on one side, warmed up."""
        database_url = ground.copy(variant.name)
        log = ground.folder / "log" / f"network-{variant.name}.log"
        with ExitStack() as stack:
            if asked.between == "database":
                link = stack.enter_context(open_database_link(database_url, proxies=asked.proxies, log=log))
                server = stack.enter_context(serve(_spec(asked, variant, link.url, ground.folder)))
            else:
                server = stack.enter_context(serve(_spec(asked, variant, database_url, ground.folder)))
                link = stack.enter_context(open_service_link(server.url, proxies=asked.proxies, log=log))
            up = cls(variant, server, link, database_url, agreement)
            for request in requests[:_WARM_UP_REQUESTS]:  # compile and connect, and give the first answers
                up._ask(server.url, request, "identity")
            yield up

    def measured(self, point: Point, requests: Sequence[str], bytes_per_s: float | None) -> dict[str, Any]:
        """One job over a link of the point's shape."""
        encoding = "gzip" if point.get("compress") else "identity"
        url = self._link.url if self._link.url.startswith("http") else self._server.url
        self._link.set_profile(LinkProfile(point["latency_ms"] / 1e3, bytes_per_s))
        workers, backends_before = self._server.worker_pids(), read_backends(self._database_url)
        pids = [*workers, *(backends_before.cpu_s if backends_before else ())]
        before, cpu_before, starved_before_s = self._link.traffic(), read_cpu_by_pid(workers), read_starved_s(pids)
        self._link.trace()
        asked = [self._ask(url, request, encoding) for request in requests]
        worker_cpu_s, starving_s = (
            cpu_between(cpu_before, read_cpu_by_pid(workers)),
            read_starved_s(pids) - starved_before_s,
        )
        backend_cpu_s = backend_cpu_between(backends_before, read_backends(self._database_url))
        traffic = self._link.traffic().since(before)
        self._server.check()
        elapsed_s = sum(each.elapsed_s for each in asked)
        return {
            "elapsed_s": elapsed_s,
            "cpu_s": None if backend_cpu_s is None else worker_cpu_s + backend_cpu_s,
            "starved_s": starving_s,
            **asdict(traffic),
            "in_transit_s": min(traffic.in_transit_s, elapsed_s),
            "body_bytes": sum(each.packed_bytes for each in asked),
            "trace": self._link.trace(),
        }

    def _ask(self, url: str, request: str, encoding: str) -> "_Asked":
        """One request, timed until its body is read; then its answer is held to the others'."""
        started = time.perf_counter()
        try:
            reply = get(url, request, encoding=encoding)
        except OSError as error:
            raise LoadError(f"{self._variant.name} gave no answer: {error}; {self._state()}") from error
        elapsed_s = time.perf_counter() - started
        if reply.status != HTTPStatus.OK:
            raise LoadError(f"{self._variant.name} answered {reply.status} where 200 was expected; {self._state()}")
        self._agreement.hold(self._variant.name, request, reply.body)
        return _Asked(elapsed_s, reply.packed_bytes)

    def _state(self) -> str:
        """Whether its link still stands: that is the first thing to look at."""
        try:
            self._link.traffic()
        except LoadError as error:
            return str(error)
        return "its link stands"


@dataclass(frozen=True)
class _Asked:
    """One request as the client saw it."""

    elapsed_s: float
    packed_bytes: int


def _spec(asked: NetworkStudy, variant: Variant, database_url: str, folder: Path) -> ServerSpec:
    made = variant.spec(database_url, hash_seed=_HASH_SEED, log=folder / "log" / f"uwsgi-{variant.name}.log")
    environment = {**made.environment, "PLACEBENCH_COMPRESS": str(int(asked.compress))}
    return replace(made, environment=environment, module=_WAITING if asked.job == "waits" else made.module)
