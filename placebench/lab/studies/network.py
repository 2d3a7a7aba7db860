"""Jobs over an emulated network: what each variant takes for the same work when its bytes have a way to go.

The main class is `NetworkStudy`, the study of `placebench lab study network`. Each variant is one
worker with one thread on a database of its own and stays up for the whole study, as its link does, unless a measurement
fails; a point only changes the link's shape. A job begins when its first request is sent and ends when the body of its
last one is read.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal

from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.http_request import get
from placebench.compare.what.variants import Variant
from placebench.errors import LoadError
from placebench.lab.inventory.topology import Topology
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.meters.meters import backend_cpu_between, read_backends
from placebench.meters.processes import cpu_between, read_cpu_by_pid, read_starved_s
from placebench.runtime.application_servers import serve
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import Link, open_database_link, open_service_link
from placebench.runtime.running_server import RunningServer, ServerSpec

TINY_OPERATIONS: Final = 1000
_WAITING: Final = "placebench.lab.reference.waiting:application"
_HASH_SEED = 1
_WARM_UP_ROUNDS = 2

_Between = Literal["database", "client"]


@dataclass(frozen=True)
class NetworkStudy:
    """What goes over which link."""

    variants: tuple[Variant, ...]
    """The baseline first."""
    latencies_ms: tuple[float, ...]
    request: str
    job: str = "query"
    """query: the request, once; tiny: GET /resource_providers/UUID, one after the other; waits: the request
    once, after 250 ms of pg_sleep() in the database."""
    operations: int = 1
    between: _Between = "database"
    bytes_per_s: float | None = None
    proxies: int = 1
    compress: bool = False
    """Whether each variant is also measured with responses in gzip."""
    clients: int = 1
    """How many do the job at the same time, each on connections of its own; as many workers serve them."""

    @property
    def points(self) -> tuple[Point, ...]:
        """Variant by variant, each without and, where wanted, with gzip, from the shortest latency on."""
        ways = ({"compress": False}, {"compress": True}) if self.compress else ({},)
        return tuple(
            {"variant": variant.name, **way, "latency_ms": latency_ms}
            for variant in self.variants
            for way in ways
            for latency_ms in sorted(self.latencies_ms)
        )

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured.

        A measurement has `elapsed_s, cpu_s, client_cpu_s, proxy_cpu_s, round_trips, connections, bytes_sent,
        bytes_received, in_transit_s, body_bytes, trace`, of the jobs of all clients; elapsed_s is that of the client
        that waited longest, and cpu_s is None where not all could be read.
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
        """Start every variant at its first point, and warm it up."""
        requests, same = _requests(self, setup.data.topology), setup.same_responses()
        with ExitStack() as stack:
            starts = {each.name: partial(_Served.start, self, each, setup, same, requests) for each in self.variants}
            served = {name: stack.enter_context(Restartable(start)) for name, start in starts.items()}

            def measure(point: Point, _: int) -> dict[str, Any]:
                with served[point["variant"]].in_use() as variant:
                    return variant.measure(point, requests, self)

            yield measure


def _requests(study: NetworkStudy, topology: Topology) -> list[str]:
    """Return the requests of the job, in this order."""
    return small_reads(topology, study.operations) if study.job == "tiny" else [study.request] * study.operations


def small_reads(topology: Topology, operations: int) -> list[str]:
    """Return requests for the roots of *topology*, one after the other."""
    roots = [topology.uuids(number)[0] for number in range(min(topology.trees, operations))]
    return [f"/resource_providers/{roots[number % len(roots)]}" for number in range(operations)]


@dataclass(frozen=True)
class Sent:
    """One request as the client saw it, or several."""

    elapsed_s: float
    cpu_s: float
    packed_bytes: int


def measure_job(
    link: Link,
    profile: LinkProfile,
    database_url: str,
    workers: Callable[[], Sequence[int]],
    job: Callable[[], Sequence[Sent]],
) -> dict[str, Any]:
    """Run *job* over *link* with this profile; return what `NetworkStudy.spec` names.

    database_url: without the link. workers: the processes of the service.
    """
    link.set_profile(profile)
    worker_pids, backends_before = workers(), read_backends(database_url)
    pids = [*worker_pids, *(backends_before.cpu_s if backends_before else ())]
    before, cpu_before, starved_before_s = link.traffic(), read_cpu_by_pid(worker_pids), read_starved_s(pids)
    link.trace()
    sent = job()
    worker_cpu_s = cpu_between(cpu_before, read_cpu_by_pid(worker_pids))
    starved_s = read_starved_s(pids) - starved_before_s
    backend_cpu_s = backend_cpu_between(backends_before, read_backends(database_url))
    traffic, elapsed_s = link.traffic().since(before), sum(each.elapsed_s for each in sent)
    return {
        "elapsed_s": elapsed_s,
        "cpu_s": None if backend_cpu_s is None else worker_cpu_s + backend_cpu_s,
        "client_cpu_s": sum(each.cpu_s for each in sent),
        "starved_s": starved_s,
        **asdict(traffic),
        "in_transit_s": min(traffic.in_transit_s, elapsed_s),
        "body_bytes": sum(each.packed_bytes for each in sent),
        "trace": link.trace(),
    }


class _Served:
    """One variant with its link."""

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
        """The variant served on its own copy of the data, with a link on one side, warmed up."""
        database_url = setup.data.copy(variant.name)
        log = setup.folder / "log" / f"network-{variant.name}.log"
        with ExitStack() as stack:
            if study.between == "database":
                link = stack.enter_context(open_database_link(database_url, proxies=study.proxies, log=log))
                server = stack.enter_context(serve(_spec(study, variant, link.url, setup.folder)))
            else:
                server = stack.enter_context(serve(_spec(study, variant, database_url, setup.folder)))
                link = stack.enter_context(open_service_link(server.url, proxies=study.proxies, log=log))
            made = cls(variant, server, link, database_url, same)
            for _ in range(_WARM_UP_ROUNDS):  # compile and connect, and give the first responses
                made._send_all(server.url, requests[:1], "identity", study.clients)
            yield made

    def measure(self, point: Point, requests: Sequence[str], study: NetworkStudy) -> dict[str, Any]:
        """One job over the emulated network of the point."""
        encoding = "gzip" if point.get("compress") else "identity"
        url = self._link.url if self._link.url.startswith("http") else self._server.url
        profile = LinkProfile(point["latency_ms"] / 1e3, study.bytes_per_s)
        made = measure_job(
            self._link,
            profile,
            self._database_url,
            self._server.metered_pids,
            lambda: [self._send_all(url, requests, encoding, study.clients)],
        )
        self._server.check()
        return made

    def _send_all(self, url: str, requests: Sequence[str], encoding: str, clients: int) -> Sent:
        """The requests one after the other, by so many clients at once: the longest time, and the sums."""

        def job(_: int) -> Sent:
            made = [self._send(url, request, encoding) for request in requests]
            return Sent(*(sum(values) for values in zip(*map(astuple, made), strict=True)))

        with ThreadPoolExecutor(clients) as threads:
            made = list(threads.map(job, range(clients)))
        longest_s = max(each.elapsed_s for each in made)
        return Sent(longest_s, sum(each.cpu_s for each in made), sum(each.packed_bytes for each in made))

    def _send(self, url: str, request: str, encoding: str) -> Sent:
        """One request, timed until its body is read; then its response is compared with the others'."""
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
        """Whether its proxy still runs, which is the first thing to check."""
        try:
            self._link.traffic()
        except LoadError as error:
            return str(error)
        return "its proxy runs"


def _spec(study: NetworkStudy, variant: Variant, database_url: str, folder: Path) -> ServerSpec:
    made = variant.spec(database_url, hash_seed=_HASH_SEED, log=folder / "log" / f"uwsgi-{variant.name}.log")
    environment = {**made.environment, "PLACEBENCH_COMPRESS": str(int(study.compress))}
    module = _WAITING if study.job == "waits" else made.module
    return replace(made, environment=environment, module=module, processes=max(study.clients, made.processes))
