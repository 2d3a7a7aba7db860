"""What each setting of the real Placement is worth, on inventories of the size that operators have.

The main class is `OperatorsStudy`, the study of `placebench lab study operators`; `read_plan` reads what is varied.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Meta, Struct

from placebench import limits
from placebench.compare.load.load_run import responses_of
from placebench.compare.what.http_request import Reply, get
from placebench.compare.what.variants import Variant
from placebench.decoding import read_toml
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.inventory.topology import Topology
from placebench.lab.studies.study import Measure, Point, StudySetup, StudySpec
from placebench.lab.variants import PLACEMENT
from placebench.meters.meters import ServerMeter
from placebench.runtime.application_servers import STANDALONE, serve
from placebench.runtime.running_server import RunningServer, ServerSpec

CLIENTS = 4
"""Each sends the next request after the response to the one before."""
TIMES = ("elapsed_s", "latency_s", "cpu_s")
"""What a measurement has in seconds; None where a request had no response in time."""
_PLAN = Path(__file__).with_name("operators.toml")
_FROZEN = "frozen_placement:application"
_Number = Annotated[int, Meta(ge=1, le=limits.WORKERS)]


class Setting(Struct, frozen=True, forbid_unknown_fields=True):
    """One setting, or several together."""

    name: str
    limit: Annotated[int, Meta(ge=1)] | None = None
    """Of the request; None: the inventory's."""
    processes: _Number = 1
    threads: _Number = 1
    freeze: bool = False
    """Whether gc.freeze() follows the start."""
    options: dict[str, dict[str, str | int | bool]] = {}
    """Of placement.conf, by group and name."""

    def request(self, request: str) -> str:
        """The request with the setting's limit."""
        if self.limit is None:
            return request
        path, query = urlsplit(request).path, dict(parse_qsl(urlsplit(request).query))
        return f"{path}?{urlencode({**query, 'limit': self.limit}, safe=':,')}"

    def spec(self, placement: Variant, url: str, *, hash_seed: int, log: Path) -> ServerSpec:
        """How Placement is served with it."""
        variables = {
            f"OS_{group}__{name}".upper(): str(value)
            for group, values in self.options.items()
            for name, value in values.items()
        }
        if self.freeze:
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (str(STANDALONE), os.environ.get("PYTHONPATH"))))
        spec = placement.spec(url, hash_seed=hash_seed, log=log)
        return replace(
            spec,
            module=_FROZEN if self.freeze else spec.module,
            environment={**spec.environment, **variables},
            processes=self.processes,
            threads=self.threads,
            grace_s=1.0,  # a request that nobody waits for any more may have minutes to go
        )


class OperatorsPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured."""

    inventories: Annotated[list[str], Meta(min_length=1)]
    """Names of topologies."""
    settings: Annotated[list[Setting], Meta(min_length=1)]
    """The first is what the others are compared with."""


def read_plan(path: Path | None = None) -> OperatorsPlan:
    """Return the plan in a file, or that of placebench; raises PlacebenchError that names the file and the key."""
    plan: OperatorsPlan = read_toml(path or _PLAN, OperatorsPlan, error=PlacebenchError)
    return plan


@dataclass
class _Sent:
    """What clients saw."""

    replies: list[Reply | None] = field(default_factory=list)
    """None: no response in time."""
    latency_s: list[float] = field(default_factory=list)
    elapsed_s: float = 0.0

    def values(self) -> dict[str, Any]:
        """Counts, for the measurement; candidates and hosts are None without a response."""
        replies = [reply for reply in self.replies if reply is not None]
        counted: dict[str, Any] = {"requests": len(self.replies), "unanswered": len(self.replies) - len(replies)}
        if not replies:
            return {**counted, "candidates": None, "hosts": None}
        response = json.loads(replies[-1].body)
        summaries, found = response["provider_summaries"], response["allocation_requests"]
        hosts = {summaries[uuid]["root_provider_uuid"] for each in found for uuid in each["allocations"]}
        return {**counted, "candidates": len(found), "hosts": len(hosts)}


@dataclass(frozen=True)
class OperatorsStudy:
    """Which settings are measured on which inventories."""

    placement: Variant
    topologies: Sequence[Topology]
    """The first is the run's."""
    settings: Sequence[Setting]
    """The base first."""
    requests: int
    """By each client in a measurement."""
    timeout_s: float
    """How long a client waits for a response."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured: every setting on every inventory.

        A measurement has `requests`, `unanswered` (of them, those without a response in time), `candidates` and `hosts`
        (different trees) of the last response, and TIMES: of all, the median latency, and the CPU of Placement and of
        PostgreSQL's backends.
        """
        points = tuple(
            {"topology": topology.name, "setting": setting.name}
            for topology in self.topologies
            for setting in self.settings
        )
        settings = {
            "clients": CLIENTS,
            "timeout_s": self.timeout_s,
            "base": self.settings[0].name,
            "trees": {topology.name: topology.trees for topology in self.topologies},
            "requests": {topology.name: topology.request for topology in self.topologies},
        }
        return StudySpec(
            "operators",
            points,
            repeats,
            self._prepare,
            self.topologies[0].request,
            settings=settings,
            variants=(PLACEMENT,),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        topologies = {topology.name: topology for topology in self.topologies}
        settings = {setting.name: setting for setting in self.settings}

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            return self._measure(setup, topologies[point["topology"]], settings[point["setting"]], repeat)

        yield measure

    def _measure(self, setup: StudySetup, topology: Topology, setting: Setting, repeat: int) -> dict[str, Any]:
        url, request = setup.data.of(topology), setting.request(topology.request)
        spec = setting.spec(self.placement, url, hash_seed=repeat, log=setup.folder / "log" / "uwsgi-placement.log")
        with serve(spec) as server, responses_of(server):
            warm = self._send(server, request, clients=setting.processes * setting.threads, requests=1)
            if None in warm.replies:
                return {**warm.values(), **dict.fromkeys(TIMES)}
            with ServerMeter(server.metered_pids, url) as meter:
                sent = self._send(server, request, clients=CLIENTS, requests=self.requests)
            server.check()
        if None in sent.replies:
            return {**sent.values(), **dict.fromkeys(TIMES)}
        times = zip(TIMES, (sent.elapsed_s, median(sent.latency_s), meter.read().cpu_s), strict=True)
        return {**sent.values(), **dict(times)}

    def _send(self, server: RunningServer, request: str, *, clients: int, requests: int) -> "_Sent":
        """Let so many clients send so many requests each; one that was not answered in time sends no more."""
        sent = _Sent()

        def use() -> None:
            for _ in range(requests):
                began = time.perf_counter()
                try:
                    reply = get(server.url, request, timeout_s=self.timeout_s)
                except TimeoutError:
                    sent.replies.append(None)
                    return
                if reply.status != HTTPStatus.OK:
                    raise LoadError(f"{request} returned {reply.status}, expected 200")
                sent.latency_s.append(time.perf_counter() - began)
                sent.replies.append(reply)

        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            for each in [pool.submit(use) for _ in range(clients)]:
                each.result()
        sent.elapsed_s = time.perf_counter() - began
        return sent
