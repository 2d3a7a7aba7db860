"""The network study: applications of a plan behind links of several latencies, before their database or their client.

`command_network` has the study of a command, and `behind_link` what both share with the laboratory's own study.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.decoding import AtLeastOne, Meta, Positive
from placebench.report.study_report import StudyResults
from placebench.results import Run
from placebench.study.behind_link import (
    Between,
    LinkedValues,
    Links,
    LinkSession,
    NetworkSetup,
    Sent,
    measure_job,
    seed_of,
    serve_behind_link,
)
from placebench.study.network_report import network_results, read_link
from placebench.study.session import Measure, Point, Restartable, StudySpec, study_kind

if TYPE_CHECKING:
    from placebench.compare.load.client_process import Driven
    from placebench.compare.load.clients import HttpClient
    from placebench.compare.measure.same_responses import SameResponses
    from placebench.compare.what.data_setup import DataSetup
    from placebench.compare.what.variants import Variant
    from placebench.compare.what.workload import Workload
    from placebench.runtime.network.link import Link
    from placebench.runtime.postgres import Server
    from placebench.runtime.running_server import RunningServer

_HASH_SEED = 1
_WARM_UPS = 2


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
            prepare=self.prepare,
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
    def prepare(self, setup: NetworkSetup) -> Iterator[Measure]:
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
        cls, study: ApplicationNetwork, variant: "Variant", proxies: int, setup: NetworkSetup, same: "SameResponses"
    ) -> Iterator["_ServedApplication"]:
        """Serve the variant on its copy of the data, log in, and warm it up without latency."""
        from placebench.compare.load.clients import http_client
        from placebench.compare.measure.counted_pass import failures_with_log, no_traffic

        log = setup.folder / "log"
        database_url = setup.database_of(variant)
        server_log = log / f"server-{variant.name}.log"
        with failures_with_log(variant.name, server_log), ExitStack() as stack:
            ready = variant.with_server(database_url)
            spec_of = partial(ready.spec, hash_seed=_HASH_SEED, log=server_log)
            server, link = stack.enter_context(
                serve_behind_link(spec_of, database_url, study.between, proxies, log / "link.log")
            )
            client = stack.enter_context(http_client(setup.folder))
            made = cls(study, variant.name, server, link, client, database_url, setup.folder, same)
            warm_ups = _WARM_UPS * study.clients
            made._check(client.drive(made._url, study.workload, times=warm_ups, users=study.clients, login=True))
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

        def job() -> Sent:
            made = self.client.drive(self._url, workload, times=study.operations, users=study.clients)
            driven.append(made)
            elapsed_s = made.elapsed_s if study.clients > 1 or workload.script else sum(made.wall_s)
            return Sent(elapsed_s, made.client_cpu_s, made.body_bytes)

        profiles = study.links.profiles(point["link"], seed_of(repeat))
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
    from msgspec import structs

    calls = tuple(structs.replace(call, headers={**call.headers, "Accept-Encoding": "gzip"}) for call in workload.calls)
    return structs.replace(workload, calls=calls)


class ApplicationSession(LinkSession):
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
        return NetworkSetup(folder, databases.of, variants, self._spec.repeats, self._run.save, self._run.note)


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
    warm_ups = units.numbered(_WARM_UPS * clients, "round")
    job = f"A measurement is {each} by {by}, after {warm_ups} for warming up."
    return network_results(
        run, job, ("Several clients at once: a request that waits for the network holds its thread.",)
    )


KIND = study_kind(__name__, _LinkSettings, _LinkPoint, LinkedValues)
