"""The herd: schedulers that ask Placement at the same time get the same hosts, and lose claims to each other.

The main class is `HerdStudy`, the study of `placebench lab study herd`. Each scheduler does what nova's does where all
hosts weigh the same: it fetches candidates and claims them in the order of the response, until a claim succeeds. Every
claim is a real `PUT /allocations/{consumer}`. What is counted are requests, so a busy machine changes little.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from placebench.compare.load.load_run import responses_of, warm_up
from placebench.compare.what.http_request import HEADERS, fetch, send
from placebench.compare.what.variants import Variant
from placebench.errors import LoadError
from placebench.lab.inventory.topology import Topology
from placebench.lab.studies.study import Measure, Point, Restartable, StudySetup, StudySpec
from placebench.lab.variants import PLACEMENT
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import open_connection
from placebench.runtime.running_server import RunningServer

PROCESSES, THREADS = 4, 10
REFUSALS = ("conflicts", "updates")
"""Kinds of 409 in a measurement: the host is full; others have changed it, after Placement's own attempts."""
_HASH_SEED = 1
_RANDOMIZED = "OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES"
_UPDATED_BY_OTHERS = "placement.concurrent_update"
_CLAIM: Mapping[str, Any] = {
    "project_id": "placebench",
    "user_id": "placebench",
    "consumer_type": "INSTANCE",
    "consumer_generation": None,
}
_OVERCOMMITTED = text("""
SELECT count(DISTINCT resource_provider_id)
FROM inventories
JOIN (
    SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations GROUP BY 1, 2
) AS usages USING (resource_provider_id, resource_class_id)
WHERE used > (total - reserved) * allocation_ratio
""")


@dataclass(frozen=True)
class HerdStudy:
    """How many schedulers claim on which inventories, and how much."""

    placement: Variant
    topologies: Sequence[Topology]
    """The first is the run's."""
    schedulers: Sequence[int]
    claims: int
    """How many succeed in each measurement."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured: every inventory and number of schedulers, without and with randomization.

        A measurement has `claims`, `requests` (for candidates), a count for each of REFUSALS, `exhausted` (responses of
        which no candidate could be claimed), `hosts` (different ones that were claimed) and `overcommitted` (those of
        them with more allocated than they have).
        """
        points = tuple(
            {"topology": topology.name, "schedulers": schedulers, "randomized": randomized}
            for topology in self.topologies
            for schedulers in self.schedulers
            for randomized in (False, True)
        )
        settings = {
            "claims": self.claims,
            "processes": PROCESSES,
            "threads": THREADS,
            "requests": {topology.name: topology.request for topology in self.topologies},
        }
        return StudySpec(
            "herd",
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
        with ExitStack() as stack:
            servers = {
                (name, randomized): stack.enter_context(
                    Restartable(partial(self._serve, setup, topology, randomized=randomized))
                )
                for name, topology in topologies.items()
                for randomized in (False, True)
            }

            def measure(point: Point, _repeat: int) -> dict[str, Any]:
                topology = topologies[point["topology"]]
                with servers[topology.name, point["randomized"]].in_use() as server:
                    return self._measure(server, topology, setup.data.of(topology), int(point["schedulers"]))

            yield measure

    @contextmanager
    def _serve(self, setup: StudySetup, topology: Topology, *, randomized: bool) -> Iterator[RunningServer]:
        """Placement with or without randomization, warmed up."""
        variables = {**self.placement.variables, _RANDOMIZED: str(randomized)}
        log = setup.folder / "log" / "uwsgi-placement.log"
        spec = replace(self.placement, variables=variables).spec(setup.data.of(topology), hash_seed=_HASH_SEED, log=log)
        with serve(replace(spec, processes=PROCESSES, threads=THREADS)) as server:
            warm_up(server, topology.request, PROCESSES)
            yield server

    def _measure(self, server: RunningServer, topology: Topology, url: str, schedulers: int) -> dict[str, Any]:
        herd = _Herd(server.url, topology.request, self.claims)
        with responses_of(server):
            try:
                herd.claim(schedulers)
                overcommitted = _count_overcommitted(url)
            finally:
                herd.release()
        server.check()
        return {**herd.values(), "overcommitted": overcommitted}


def _count_overcommitted(url: str) -> int:
    """How many providers have more allocated than they have."""
    with open_connection(url) as connection:
        return int(connection.execute(_OVERCOMMITTED).scalar_one())


@dataclass
class _Herd:
    """Schedulers that share a number of claims."""

    url: str
    request: str
    claims: int
    _counts: Counter[str] = field(default_factory=Counter)
    _claimed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The providers of each consumer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, schedulers: int) -> None:
        """Let so many schedulers claim at once; raises LoadError or OSError for a request that fails."""
        waiting, start = iter(range(self.claims)), threading.Barrier(schedulers)

        def schedule() -> None:
            start.wait()
            while True:
                with self._lock:
                    if next(waiting, None) is None:
                        return
                while not self._claim_first(self._candidates()):
                    self._count("exhausted")

        with ThreadPoolExecutor(schedulers) as pool:
            for each in [pool.submit(schedule) for _ in range(schedulers)]:
                each.result()

    def release(self) -> None:
        """Delete what was claimed, so that the next measurement begins with the same data."""
        for consumer in self._claimed:
            reply = send(self.url, "DELETE", f"/allocations/{consumer}", headers=HEADERS)
            if reply.status != HTTPStatus.NO_CONTENT:
                raise LoadError(f"DELETE /allocations/{consumer} returned {reply.status}, expected 204")

    def values(self) -> dict[str, Any]:
        """What was counted, by its name in the measurement."""
        counted = {name: self._counts[name] for name in ("requests", *REFUSALS, "exhausted")}
        return {"claims": len(self._claimed), **counted, "hosts": len(set(self._claimed.values()))}

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _candidates(self) -> list[dict[str, Any]]:
        """Those of one response; raises LoadError where there is none."""
        self._count("requests")
        candidates: list[dict[str, Any]] = json.loads(fetch(self.url, self.request).body)["allocation_requests"]
        if not candidates:
            raise LoadError(f"no candidate was left before {self.claims} claims: give the inventory more --trees")
        return candidates

    def _claim_first(self, candidates: Sequence[Mapping[str, Any]]) -> bool:
        """Claim the first candidate that can be; one that was only changed by others is tried again, as nova does."""
        return any(self._claim_one(each["allocations"]) for each in candidates)

    def _claim_one(self, allocations: Mapping[str, Any]) -> bool:
        consumer = str(uuid4())
        body = json.dumps({**_CLAIM, "allocations": allocations}).encode()
        headers = {**HEADERS, "Content-Type": "application/json"}
        while True:
            reply = send(self.url, "PUT", f"/allocations/{consumer}", headers=headers, body=body)
            if reply.status == HTTPStatus.NO_CONTENT:
                with self._lock:
                    self._claimed[consumer] = frozenset(allocations)
                return True
            if reply.status != HTTPStatus.CONFLICT:
                raise LoadError(f"PUT /allocations/{consumer} returned {reply.status}, expected 204 or 409")
            if _UPDATED_BY_OTHERS not in {error["code"] for error in json.loads(reply.body)["errors"]}:
                self._count("conflicts")
                return False
            self._count("updates")
