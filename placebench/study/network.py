"""The network study: applications, or a command with values of its options, behind links of several latencies.

`CommandNetwork` runs a command with its connections sent through the link; `ApplicationNetwork` serves applications of
a plan, with the link before their database or before their client. `measure_job` and `serve_behind_link` are the parts
that the laboratory's study of its own variants shares.
"""

import math
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.decoding import Amount, AtLeastOne, Count, Meta, Positive
from placebench.errors import LoadError, UsageError
from placebench.report.study_report import StudyResults
from placebench.results import Run
from placebench.study.link_target import LinkTarget
from placebench.study.network_report import network_results, read_link
from placebench.study.session import Measure, Point, Restartable, StudySession, StudySpec, study_kind

if TYPE_CHECKING:
    from placebench.compare.load.client_process import Driven, HttpClient
    from placebench.compare.measure.databases import VariantDatabases
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.compare.what.data_setup import DataSetup
    from placebench.compare.what.variants import Variant
    from placebench.compare.what.workload import Workload
    from placebench.meters.meters import Backends
    from placebench.runtime.network.delay_queue import LinkProfile
    from placebench.runtime.network.link import Link
    from placebench.runtime.postgres import Server
    from placebench.runtime.running_server import RunningServer, ServerSpec

Between = Literal["database", "client"]
_HASH_SEED = 1
_WARM_UPS = 2


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


class _LinkPoint(TypedDict):
    variant: str
    link: str
    latency_ms: Annotated[float, Meta(ge=0, le=1e6)]
    compress: NotRequired[bool]


class _LinkSettings(StudySettings[_LinkPoint]):
    between: Literal["database", "client", "command"]
    target: NotRequired[str]
    bytes_per_s: Positive | None
    loss: Annotated[float, Meta(ge=0, lt=1)]
    operations: AtLeastOne
    clients: AtLeastOne


# --- a measurement


@dataclass(frozen=True)
class Sent:
    """The duration, CPU and bytes of one or more requests, as seen by the client."""

    elapsed_s: float
    cpu_s: float
    packed_bytes: int


def measure_job(
    link: "Link",
    profiles: "Sequence[LinkProfile]",
    database_url: str,
    workers: Callable[[], Sequence[int]],
    job: Callable[[], Sequence[Sent]],
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
    traffic, elapsed_s = link.traffic().since(before), sum(each.elapsed_s for each in sent)
    return {
        "elapsed_s": elapsed_s,
        "cpu_s": None if backend_cpu_s is None else worker_cpu_s + backend_cpu_s,
        "client_cpu_s": sum(each.cpu_s for each in sent),
        "starved_s": max(0.0, starved_s),
        **asdict(traffic),
        "in_transit_s": min(traffic.in_transit_s, elapsed_s),
        "body_bytes": sum(each.packed_bytes for each in sent),
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


def _seed_of(repeat: int) -> int:
    """Return the seed of the losses: the same for all variants of a repeat."""
    return 100 * repeat


@dataclass(frozen=True)
class NetworkSetup:
    """What the measurements of a session share."""

    folder: Path
    databases: "VariantDatabases | None" = None
    variants: "tuple[Variant, ...]" = ()
    """The variants, with their revisions in place."""
    repeats: int = 1
    save: Callable[..., object] = lambda **_: None
    note: Callable[[str], object] = lambda _: None
    copy: "Callable[[], Any] | None" = None
    """Returns a context manager with the URL of a new copy of the data; None if the command has its own database."""


@dataclass(frozen=True)
class CommandNetwork:
    """A command with `{AXIS}` in its words, behind links to the server that it talks to."""

    command: tuple[str, ...]
    links: Links
    target: LinkTarget | None
    """What the links lead to; None: a copy of the data that is made for each measurement."""
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prepare: str = ""
    """A shell command that is run before each measurement, without the link."""
    timeout_s: float = 600.0

    @property
    def variants(self) -> dict[str, dict[str, str]]:
        """The values of the axes by the name of the variant; one variant without axes."""
        named = (dict(zip(self.axes, values, strict=True)) for values in product(*self.axes.values()))
        return {", ".join(values.values()) or "command": values for values in named}

    def spec(self, *, repeats: int) -> StudySpec[NetworkSetup]:
        """Return the spec of the study; a measurement has `LinkedValues`, of one run of the command."""
        target = self.target.address if self.target else "its database"
        return StudySpec(
            command="study-network",
            points=self.links.points(tuple(self.variants)),
            repeats=repeats,
            prepare=self._prepare,
            request=" ".join(self.command),
            settings={
                "between": "command",
                "target": target,
                **self.links.settings(),
                "operations": 1,
                "clients": 1,
                "prepare": self.prepare,
            },
        )

    @contextmanager
    def _prepare(self, setup: NetworkSetup) -> Iterator[Measure]:
        """Run every variant once without latency, for warming up; raises UsageError if all of them fail."""
        from placebench.compare.keep.run_folder import FAILURES, error_text

        seen: dict[str, dict[str, Any]] = {}
        broken: dict[str, str] = {}
        for name in self.variants:
            try:
                seen[name] = self._run({"variant": name, "link": "0"}, 0, setup)
            except FAILURES as error:
                broken[name] = error_text(error)
        if not seen:
            raise UsageError(next(iter(broken.values())))
        setup.note(f"without latency {', '.join(_seen_text(name, each) for name, each in seen.items())}")
        points = [(values, link) for values in seen.values() for link in self.links.links]
        whole_s = setup.repeats * sum(_expected_s(values, read_link(link)) for values, link in points)
        minutes = units.numbered(math.ceil(whole_s / 60), "minute")
        setup.note(f"about {minutes} for {units.numbered(setup.repeats, 'repeat')} of all latencies")

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            if point["variant"] in broken:
                raise LoadError(broken[point["variant"]])
            return self._run(point, repeat, setup)

        yield measure

    def _run(self, point: Point, repeat: int, setup: NetworkSetup) -> dict[str, Any]:
        """Run the command once behind the link of *point*."""
        from placebench.compare.what.data_setup import database_variables, run_command

        with ExitStack() as stack:
            target, given = self.target, dict[str, str]()
            if setup.copy is not None:
                database_url = stack.enter_context(setup.copy())
                given = database_variables(database_url, None)
                target = LinkTarget.parse(given["DATABASE_URL"])
            assert target is not None
            if self.prepare:
                log = setup.folder / "log" / "prepare.log"
                run_command(self.prepare, given.get("DATABASE_URL", ""), None, log=log)
            return self._measure(point, repeat, target, {**os.environ, **given}, setup.folder / "log")

    def _measure(
        self, point: Point, repeat: int, target: LinkTarget, environment: Mapping[str, str], log: Path
    ) -> dict[str, Any]:
        from placebench.meters.processes import read_ended_cpu_s
        from placebench.runtime.network.link import open_link
        from placebench.runtime.supervisor import ChildLog, ChildSpec, Supervisor, start_child

        profiles = self.links.profiles(point["link"], _seed_of(repeat))
        with open_link(target.host, target.port, proxies=len(profiles)) as link, Supervisor() as supervisor:
            link.set_profiles(profiles)
            address = f"127.0.0.1:{link.port}"
            spec = ChildSpec(
                name="the command",
                argv=target.fill(self.command, address, self.variants[point["variant"]]),
                env={**environment, **target.variables(environment, address)},
                log=log / "command.log",
                grace_s=1.0,
            )
            output, before = ChildLog(log / "command.log"), link.traffic()
            link.trace()
            started = time.perf_counter()
            with start_child(spec, supervisor) as child:
                try:
                    code = child.wait(self.timeout_s)
                except TimeoutError:
                    raise LoadError(
                        f"the command did not end in {self.timeout_s:g} s: give it more time with --timeout, or leave "
                        "long latencies out of --latency-ms"
                    ) from None
                elapsed_s = time.perf_counter() - started
                cpu_s = read_ended_cpu_s(child.guard_pid)
            traffic = link.traffic().since(before)
            if code:
                raise LoadError(f"the command ended with exit code {code}; {output.end()}")
            if not traffic.connections:
                raise LoadError(
                    f"the command opened no connection to {target.address} through the link: put {{url}} or "
                    "{address} into its words, or let it read an environment variable that has this address, such as "
                    "DATABASE_URL"
                )
            return {
                "elapsed_s": elapsed_s,
                "cpu_s": cpu_s,
                "starved_s": 0.0,
                **asdict(traffic),
                "in_transit_s": min(traffic.in_transit_s, elapsed_s),
                "trace": link.trace(),
            }


def _expected_s(values: Mapping[str, Any], link: Sequence[float]) -> float:
    """Return how long a command takes behind *link* that took these *values* without latency."""
    waits_s = values["round_trips"] * sum(link) / 1e3 + values["connections"] * link[0] / 1e3
    return float(values["elapsed_s"] + waits_s)


def _seen_text(name: str, values: Mapping[str, Any]) -> str:
    trips = units.numbered(values["round_trips"] + values["connections"], "round trip")
    return f"{name} takes {units.duration(values['elapsed_s'])} and {trips}"


@dataclass(frozen=True)
class ApplicationNetwork:
    """Applications behind links to their database, or with the links before their client."""

    variants: "tuple[Variant, ...]"
    workload: "Workload"
    links: Links
    between: Between = "database"
    compress: bool = False
    """Whether responses compressed by gzip are measured too."""
    operations: int = 1
    """Number of times that the requests of the workload are sent in one measurement."""
    clients: int = 1

    def spec(self, *, repeats: int) -> StudySpec[NetworkSetup]:
        """Return the spec of the study; a measurement has `LinkedValues`, of all requests together."""
        names = tuple(variant.name for variant in self.variants)
        return StudySpec(
            command="study-network",
            points=self.links.points(names, ({"compress": False}, {"compress": True}) if self.compress else ({},)),
            repeats=repeats,
            prepare=self._prepare,
            request=self.workload.title,
            settings={
                "between": self.between,
                **self.links.settings(),
                "operations": self.operations,
                "clients": self.clients,
                "requests": max(1, len(self.workload.cycle)),
                "workload": self.workload.to_json(),
            },
            variants=names,
        )

    @contextmanager
    def _prepare(self, setup: NetworkSetup) -> Iterator[Measure]:
        """Serve every variant when it is first needed, once for each number of links in a row."""
        from placebench.compare.measure.same_responses import SameResponses

        same = SameResponses(setup.save, self.workload.rules)
        with ExitStack() as stack:
            served = {
                (variant.name, proxies): stack.enter_context(
                    Restartable(partial(_ServedApplication.start, self, variant, proxies, setup, same))
                )
                for variant in setup.variants
                for proxies in sorted({len(read_link(link)) for link in self.links.links})
            }

            def measure(point: Point, repeat: int) -> dict[str, Any]:
                with served[point["variant"], len(read_link(point["link"]))].in_use() as application:
                    return application.measure(point, repeat)

            yield measure


@dataclass(frozen=True)
class _ServedApplication:
    """One application that is being served, with its link and its client."""

    study: ApplicationNetwork
    name: str
    server: "RunningServer"
    link: "Link"
    client: "HttpClient"
    database_url: str
    folder: Path
    same: "SameResponses"

    @classmethod
    @contextmanager
    def start(
        cls,
        study: ApplicationNetwork,
        variant: "Variant",
        proxies: int,
        setup: NetworkSetup,
        same: "SameResponses",
    ) -> Iterator["_ServedApplication"]:
        """Serve the variant on its copy of the data, log in, and warm it up without latency."""
        from placebench.compare.load.client_process import http_client
        from placebench.compare.measure.counted_pass import failures_with_log, no_traffic

        assert setup.databases is not None
        log = setup.folder / "log"
        database_url = setup.databases.of(variant)
        server_log = log / f"server-{variant.name}.log"
        with failures_with_log(variant.name, server_log), ExitStack() as stack:
            ready = variant.with_server(database_url)
            spec_of = partial(ready.spec, hash_seed=_HASH_SEED, log=server_log)
            server, link = stack.enter_context(
                serve_behind_link(spec_of, database_url, study.between, proxies, log / "link.log")
            )
            client = stack.enter_context(http_client(setup.folder))
            made = cls(study, variant.name, server, link, client, database_url, setup.folder, same)
            made._check(client.drive(made._url, study.workload, times=_WARM_UPS, users=study.clients, login=True))
            if study.between == "database" and not link.traffic().bytes_sent:
                raise no_traffic(variant.name)
            yield made

    @property
    def _url(self) -> str:
        return self.server.url if self.study.between == "database" else self.link.url

    def measure(self, point: Point, repeat: int) -> dict[str, Any]:
        """Send the requests once over the link of the point, and compare the responses."""
        study, driven = self.study, list["Driven"]()
        workload = _compressed(study.workload) if point.get("compress") else study.workload

        def job() -> Sequence[Sent]:
            made = self.client.drive(self._url, workload, times=study.operations, users=study.clients)
            driven.append(made)
            elapsed_s = made.elapsed_s if study.clients > 1 or workload.script else sum(made.wall_s)
            return [Sent(elapsed_s, made.client_cpu_s, made.body_bytes)]

        profiles = study.links.profiles(point["link"], _seed_of(repeat))
        values = measure_job(self.link, profiles, self.database_url, self.server.metered_pids, job)
        self.server.check()
        self._check(driven[0])
        return values

    def _check(self, driven: "Driven") -> None:
        """Raise LoadError if a request failed, GateFailedError if a response differs from the other variants'."""
        from placebench.compare.load.client_process import responses_folder

        driven.check()
        self.same.check_calls(self.name, driven.calls)
        self.same.check_all(self.name, driven.responses, responses_folder(self.folder))


def _compressed(workload: "Workload") -> "Workload":
    """Return the workload with requests that accept gzip."""
    from msgspec import structs

    calls = tuple(structs.replace(call, headers={**call.headers, "Accept-Encoding": "gzip"}) for call in workload.calls)
    return structs.replace(workload, calls=calls)


# --- the sessions


class _LinkSession(StudySession[NetworkSetup]):
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


class CommandSession(_LinkSession):
    """A session of `CommandNetwork`, on the user's own server or on copies of data that placebench made."""

    def __init__(
        self, spec: StudySpec[NetworkSetup], data: "DataSetup", folder: Path, server: "Server | None" = None
    ) -> None:
        """server: the PostgreSQL server of the copies; None if the command has its own database."""
        super().__init__(spec, data, folder)
        self._data, self._server = data, server

    def _title(self) -> str:
        return self._data.title if self._server else "describe the machine"

    def _describe(self) -> NetworkSetup:
        from placebench.compare.keep.environment import manifest
        from placebench.compare.measure.databases import ScratchData, database_name

        server, folder = self._server, self._run.path
        if server is None:
            self._run.record_environment(receipt={}, manifest=manifest(""))
            return NetworkSetup(folder, repeats=self._spec.repeats, note=self._run.note)
        self._run.claim_server(server)
        filled = ScratchData(server, self._data, folder)
        self._run.record_environment(receipt=filled.receipt if filled.url else {}, manifest=manifest(filled.url))
        label = f"{database_name(folder)}_copy"

        @contextmanager
        def copy() -> Iterator[str]:
            owned = server.create_database(label, filled.prefix)
            yield server.admin_url(label) if self._data.superuser else owned
            server.drop_database(label)

        return NetworkSetup(folder, repeats=self._spec.repeats, note=self._run.note, copy=copy)


class ApplicationSession(_LinkSession):
    """A session of `ApplicationNetwork`, with a copy of the data for each variant."""

    def __init__(
        self,
        spec: StudySpec[NetworkSetup],
        data: "DataSetup",
        folder: Path,
        server: "Server | None",
        variants: "tuple[Variant, ...]",
    ) -> None:
        """server: the PostgreSQL server, for data in PostgreSQL."""
        super().__init__(spec, data, folder)
        self._data, self._server, self._variants = data, server, variants

    def _title(self) -> str:
        return self._data.title

    def _describe(self) -> NetworkSetup:
        from placebench.compare.keep.environment import manifest
        from placebench.compare.measure.databases import variant_databases
        from placebench.compare.what.variants import in_place

        folder = self._run.path
        if self._server is not None:
            self._run.claim_server(self._server)
        databases = self._stack.enter_context(variant_databases(self._data, folder, self._server))
        variants = self._stack.enter_context(in_place(self._variants, folder / "sources"))
        for variant in variants:
            databases.of(variant)
        url, receipt = databases.template()
        self._run.record_environment(receipt=receipt, manifest=manifest(url))
        return NetworkSetup(folder, databases, variants, self._spec.repeats, self._run.save, self._run.note)


# --- the report


def results(run: Run) -> StudyResults:
    """Return the results, with a text on what was measured."""
    settings = run.head.settings
    if settings["between"] == "command":
        job = "A measurement is one run of the command in a fresh process; its time has the start of the program."
        limits = (
            "CPU of a command has steps of 10 ms. Bytes in flight of several connections at once are added up.",
            "The server's own CPU: placebench study network over an application has it.",
        )
        return network_results(run, job, limits)
    each = units.numbered(settings["operations"] * settings["requests"], "request")
    clients = settings["clients"]
    by = "one client" if clients == 1 else f"{clients} clients at once"
    job = f"A measurement is {each} by {by}, after {_WARM_UPS} rounds for warming up."
    return network_results(
        run, job, ("Several clients at once: a request that waits for the network holds its thread.",)
    )


KIND = study_kind(__name__, _LinkSettings, _LinkPoint, LinkedValues)
