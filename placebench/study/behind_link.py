"""Parts of every network study: a job that is measured behind a link, the links, and the session of a study."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from placebench.decoding import Amount, Count, Positive
from placebench.study.network_report import read_link
from placebench.study.session import StudySession

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.meters.meters import Backends
    from placebench.runtime.network.delay_queue import LinkProfile
    from placebench.runtime.network.link import Link
    from placebench.runtime.running_server import RunningServer, ServerSpec

Between = Literal["database", "client"]


class _Trace(TypedDict):
    bin_s: Positive
    sent: list[Count]
    received: list[Count]


class LinkedValues(TypedDict):
    """The values of one measurement behind a link."""

    elapsed_s: Positive
    cpu_s: Amount | None
    client_cpu_s: NotRequired[Amount | None]
    starved_s: Amount
    round_trips: Count
    connections: Count
    bytes_sent: Count
    bytes_received: Count
    in_transit_s: Amount
    proxy_cpu_s: Amount
    body_bytes: NotRequired[Count]
    trace: _Trace


# --- a measurement


@dataclass(frozen=True)
class Sent:
    """The duration, CPU and bytes of the requests of a job, as seen by the client."""

    elapsed_s: float
    cpu_s: float
    body_bytes: int


def measure_job(
    link: "Link",
    profiles: "Sequence[LinkProfile]",
    database_url: str,
    workers: Callable[[], Sequence[int]],
    job: Callable[[], Sent],
) -> dict[str, Any]:
    """Run *job* over *link* with these profiles, one for each of its proxies; return the values of `LinkedValues`.

    database_url: the database without the link, or an empty text. workers: returns the process ids of the service.
    cpu_s is that of the service and of its database; None if it could not be read completely.
    """
    from placebench.meters.meters import read_backends
    from placebench.meters.processes import cpu_between, read_cpu_by_pid, read_cpu_wait_s

    link.set_profiles(profiles)
    worker_pids, backends_before = workers(), read_backends(database_url)
    pids = [*worker_pids, *(backends_before.cpu_s if backends_before else ())]
    before, cpu_before, starved_before_s = link.traffic(), read_cpu_by_pid(worker_pids), read_cpu_wait_s(pids)
    server_before_s = _server_cpu_s(backends_before)
    link.trace()
    sent = job()
    worker_cpu_s = cpu_between(cpu_before, read_cpu_by_pid(worker_pids))
    starved_s = read_cpu_wait_s(pids) - starved_before_s
    backend_cpu_s = _backend_cpu_s(backends_before, server_before_s, database_url)
    traffic = link.traffic().since(before)
    return {
        "elapsed_s": sent.elapsed_s,
        "cpu_s": None if backend_cpu_s is None else worker_cpu_s + backend_cpu_s,
        "client_cpu_s": sent.cpu_s,
        "starved_s": max(0.0, starved_s),
        **asdict(traffic),
        "in_transit_s": min(traffic.in_transit_s, sent.elapsed_s),
        "body_bytes": sent.body_bytes,
        "trace": link.trace(),
    }


def _server_cpu_s(backends: "Backends | None") -> float | None:
    from placebench.meters.processes import read_family_cpu_s

    return None if backends is None or backends.server_pid is None else read_family_cpu_s(backends.server_pid)


def _backend_cpu_s(before: "Backends | None", server_before_s: float | None, database_url: str) -> float | None:
    """Return the database's CPU since *before*: that of its backends, or of the server if some of these have ended.

    The server's is read for an application that connects anew for each request; nothing else works at that time.
    """
    from placebench.meters.meters import backend_cpu_between, read_backends

    after = read_backends(database_url)
    spent_s = backend_cpu_between(before, after)
    if spent_s is None and server_before_s is not None and (server_s := _server_cpu_s(after)) is not None:
        return max(0.0, server_s - server_before_s)
    return spent_s


@contextmanager
def serve_behind_link(
    spec_of: "Callable[[str], ServerSpec]", database_url: str, between: Between, proxies: int, log: Path
) -> "Iterator[tuple[RunningServer, Link]]":
    """Serve an application, with the link before its database or before its client.

    spec_of: returns the server for the URL of a database, which is that of the link if the link is before it.
    """
    from placebench.runtime.application_servers import serve
    from placebench.runtime.network.link import open_database_link, open_service_link

    with ExitStack() as stack:
        if between == "database":
            link = stack.enter_context(open_database_link(database_url, proxies=proxies, log=log))
            server = stack.enter_context(serve(spec_of(link.url)))
        else:
            server = stack.enter_context(serve(spec_of(database_url)))
            link = stack.enter_context(open_service_link(server.url, proxies=proxies, log=log))
        yield server, link


# --- what is measured


@dataclass(frozen=True)
class Links:
    """The links of a study, and what all of them have in common."""

    links: tuple[str, ...]
    """Latencies in milliseconds as text, such as 26; 50+180 is a jump box: two links, one behind the other."""
    bytes_per_s: float | None = None
    loss: float = 0.0

    def profiles(self, link: str, seed: int) -> "list[LinkProfile]":
        """Return the profile of each proxy of a link; *seed* decides which packets are lost."""
        from placebench.runtime.network.delay_queue import LinkProfile

        return [
            LinkProfile(latency_ms / 1e3, self.bytes_per_s, self.loss, seed + number)
            for number, latency_ms in enumerate(read_link(link))
        ]

    def points(self, variants: Sequence[str], more: Sequence[Mapping[str, Any]] = ({},)) -> tuple[dict[str, Any], ...]:
        """Return every variant behind every link, the nearest first; *more*: further keys of a point."""
        return tuple(
            {"variant": variant, **each, "link": link, "latency_ms": sum(read_link(link))}
            for variant in variants
            for each in more
            for link in sorted(self.links, key=lambda link: sum(read_link(link)))
        )

    def settings(self) -> dict[str, Any]:
        """Return what all links have in common, for the head of a run."""
        return {"bytes_per_s": self.bytes_per_s, "loss": self.loss}


def seed_of(repeat: int) -> int:
    """Return the seed of the losses: the same for all variants of a repeat."""
    return 100 * repeat


@dataclass(frozen=True)
class NetworkSetup:
    """What the measurements of a session share."""

    folder: Path
    database_of: "Callable[[Variant], str]" = lambda _: ""
    """Returns the URL of a variant's own database; empty if it has none."""
    variants: "tuple[Variant, ...]" = ()
    """The variants, with their revisions in place."""
    repeats: int = 1
    save: Callable[..., object] = lambda **_: None
    note: Callable[[str], object] = lambda _: None
    copy: "Callable[[], Any] | None" = None
    """Returns a context manager with the URL of a new copy of the data; None if the command has its own database."""


# --- the session


class LinkSession(StudySession[NetworkSetup]):
    """A session that keeps databases and sources for as long as it runs."""

    _stack: ExitStack

    def run(self, say: Callable[[str], None], note: Callable[[str], None] = lambda _: None) -> None:
        """Measure what is missing, as `StudySession.run` does."""
        with ExitStack() as self._stack:
            super().run(say, note)

    def _set_up(self) -> NetworkSetup:
        self._run.begin_step("data", self._title())
        return self._describe()

    @abstractmethod
    def _title(self) -> str:
        """Return what the data is, as the first step that is announced."""

    @abstractmethod
    def _describe(self) -> NetworkSetup:
        """Prepare the data and record the environment."""
