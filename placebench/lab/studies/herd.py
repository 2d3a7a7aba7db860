"""The herd study: schedulers that request candidates at the same time get the same hosts, and compete for them.

The main class is `HerdStudy`, the study of `placebench lab study herd`. Each scheduler behaves like nova's if all hosts
have equal weight: it fetches candidates and claims them in the order of the response, until a claim succeeds. Every
claim is a real `PUT /allocations/{consumer}`. Requests are counted, not timed, so a busy machine changes little.
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
from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import uuid4

from placebench import units
from placebench.compare.keep.documents import StudySettings
from placebench.compare.keep.records import Measurement
from placebench.compare.what.http_request import HEADERS, fetch, send
from placebench.decoding import AtLeastOne, Count
from placebench.errors import LoadError, PlacebenchError
from placebench.lab.studies.commands import HERD_CLAIMS, HERD_SCHEDULERS, ByPreset, HerdOptions
from placebench.lab.studies.study import StudySetup, StudySpec, run_study
from placebench.report.study_report import StudyResults, interval_columns, interval_figures, measured, valid_points
from placebench.results import Run
from placebench.stats import median_interval
from placebench.study.session import Measure, Point, Restartable, study_kind

if TYPE_CHECKING:
    from placebench.compare.what.variants import Variant
    from placebench.lab.inventory.topology import Topology
    from placebench.runtime.running_server import RunningServer


class _HerdPoint(TypedDict):
    topology: str
    schedulers: AtLeastOne
    randomized: bool


class _HerdSettings(StudySettings[_HerdPoint]):
    claims: AtLeastOne
    processes: Count
    threads: Count


class _HerdValues(TypedDict):
    claims: AtLeastOne
    requests: Count
    conflicts: Count
    updates: Count
    exhausted: Count
    hosts: AtLeastOne
    overcommitted: Count


# --- the command


_TOPOLOGIES = ("bare-metal", "flat-hosts")
_TREES = ByPreset(200, 50)


def run(given: HerdOptions) -> int:
    """Measure every number of schedulers on both inventories."""
    from placebench.compare.what.variants import read_variant, require_servers
    from placebench.lab.inventory.seeding import find_topology
    from placebench.lab.variants import PLACEMENT

    placement = read_variant(PLACEMENT, python=given.placement_python)
    require_servers([placement])
    trees = given.trees or given.default(_TREES)
    topologies = [find_topology(name, trees=trees, seed=given.seed) for name in _TOPOLOGIES]
    claims = given.claims or given.default(HERD_CLAIMS)
    if claims > trees:
        raise PlacebenchError(f"{claims} claims on {trees} hosts for one instance each: give --trees {claims} or more")
    schedulers = given.schedulers or given.default(HERD_SCHEDULERS)
    study = HerdStudy(placement, topologies, schedulers, claims)
    return run_study(given, topologies[0], study.spec(repeats=given.repeats))


# --- the measurement


PROCESSES, THREADS = 4, 10
REFUSALS = ("conflicts", "updates")
"""Kinds of 409 in a measurement: the host is full, or others changed it and Placement's own retries failed."""
_HASH_SEED = 1
_RANDOMIZED = "OS_PLACEMENT__RANDOMIZE_ALLOCATION_CANDIDATES"
_UPDATED_BY_OTHERS = "placement.concurrent_update"
_CLAIM: Mapping[str, Any] = {
    "project_id": "placebench",
    "user_id": "placebench",
    "consumer_type": "INSTANCE",
    "consumer_generation": None,
}
_OVERCOMMITTED = """
SELECT count(DISTINCT resource_provider_id)
FROM inventories
JOIN (
    SELECT resource_provider_id, resource_class_id, sum(used) AS used FROM allocations GROUP BY 1, 2
) AS usages USING (resource_provider_id, resource_class_id)
WHERE used > (total - reserved) * allocation_ratio
"""


@dataclass(frozen=True)
class HerdStudy:
    """The numbers of schedulers, the inventories on which they claim, and the number of claims."""

    placement: "Variant"
    topologies: "Sequence[Topology]"
    """The topologies to claim on; the first is the run's."""
    schedulers: Sequence[int]
    claims: int
    """Number of successful claims in each measurement."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return the spec of the study: every inventory and number of schedulers, without and with randomization.

        A measurement has `claims`, `requests` (for candidates), a count for each of REFUSALS, `exhausted` (responses
        without a claimable candidate), `hosts` (distinct hosts that were claimed) and `overcommitted` (those of them
        with more allocated than their capacity).
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
            variants=(self.placement.name,),
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
    def _serve(self, setup: StudySetup, topology: "Topology", *, randomized: bool) -> "Iterator[RunningServer]":
        """Serve Placement with or without randomization, warmed up."""
        from placebench.compare.load.load_run import warm_up
        from placebench.runtime.application_servers import serve

        variables = {**self.placement.variables, _RANDOMIZED: str(randomized)}
        log = setup.folder / "log" / "uwsgi-placement.log"
        spec = replace(self.placement, variables=variables).spec(setup.data.of(topology), hash_seed=_HASH_SEED, log=log)
        with serve(replace(spec, processes=PROCESSES, threads=THREADS)) as server:
            warm_up(server, topology.request, PROCESSES)
            yield server

    def _measure(self, server: "RunningServer", topology: "Topology", url: str, schedulers: int) -> dict[str, Any]:
        from sqlalchemy import text

        from placebench.compare.load.load_run import responses_of
        from placebench.runtime.postgres import open_connection

        herd = _Herd(server.url, topology.request, self.claims)
        with responses_of(server):
            try:
                herd.claim(schedulers)
                with open_connection(url) as connection:
                    overcommitted = int(connection.execute(text(_OVERCOMMITTED)).scalar_one())
            finally:
                herd.release()
        server.check()
        return {**herd.values(), "overcommitted": overcommitted}


@dataclass
class _Herd:
    """Schedulers that together make a number of claims."""

    url: str
    request: str
    claims: int
    _counts: Counter[str] = field(default_factory=Counter)
    _claimed: dict[str, frozenset[str]] = field(default_factory=dict)
    """The claimed providers, by consumer."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, schedulers: int) -> None:
        """Let *schedulers* threads claim at the same time; raise LoadError or OSError if a request fails."""
        waiting, start = iter(range(self.claims)), threading.Barrier(schedulers)

        def schedule() -> None:
            start.wait()
            while True:
                with self._lock:
                    if next(waiting, None) is None:
                        return
                while True:
                    self._count("requests")
                    candidates = json.loads(fetch(self.url, self.request).body)["allocation_requests"]
                    if not candidates:
                        raise LoadError(
                            f"no candidate was left before {self.claims} claims: choose a larger number of --trees"
                        )
                    if any(self._claim_one(each["allocations"]) for each in candidates):
                        break
                    self._count("exhausted")

        with ThreadPoolExecutor(schedulers) as pool:
            for each in [pool.submit(schedule) for _ in range(schedulers)]:
                each.result()

    def release(self) -> None:
        """Delete all claims, so that the next measurement begins with the same data."""
        for consumer in self._claimed:
            reply = send(self.url, "DELETE", f"/allocations/{consumer}", headers=HEADERS)
            if reply.status != HTTPStatus.NO_CONTENT:
                raise LoadError(f"DELETE /allocations/{consumer} returned {reply.status}, expected 204")

    def values(self) -> dict[str, Any]:
        counted = {name: self._counts[name] for name in ("requests", *REFUSALS, "exhausted")}
        return {"claims": len(self._claimed), **counted, "hosts": len(set(self._claimed.values()))}

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _claim_one(self, allocations: Mapping[str, Any]) -> bool:
        """Claim a candidate; return False if the host is full. A claim that met concurrent updates is repeated."""
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


# --- the report


def _number(value: float) -> str:
    return f"{value:.2f}"


_COLUMNS = (
    measured("topology", "inventory"),
    measured("schedulers", "schedulers", units.count),
    measured("randomized", "randomized", lambda value: "yes" if value else "no"),
    measured("n", "n", units.count),
    measured("conflicts_per_claim", "409 per claim", _number),
    measured("conflicts_low", "from", _number),
    measured("conflicts_high", "to", _number),
    measured("full_per_claim", "409: host full", _number),
    measured("updates_per_claim", "409: changed by others", _number),
    measured("requests_per_claim", "GET per claim", _number),
    measured("hosts", "hosts claimed", _number),
    *interval_columns("overcommitted", "", "hosts over capacity", _number),
)


def results(run: Run) -> StudyResults:
    """Return one row per inventory, number of schedulers and order of candidates."""
    rows = [_row(point, made) for point, made in valid_points(run)]
    settings = run.head.settings
    return StudyResults(
        headline=_headline(rows),
        rows=rows,
        columns=_COLUMNS,
        notes=(
            f"Each measurement is {settings['claims']} claims that succeed, shared by the schedulers.",
            f"Placement has {settings['processes']} processes of {settings['threads']} threads.",
            "A scheduler claims the candidates in the order of the response until one succeeds.",
            "409: host full sends a scheduler to the next candidate; changed by others is tried again, as nova does.",
            "Hosts over capacity have more allocated than they have, by claims that Placement accepted.",
            "From and to: interval of the median over the repeats, 93.75 % with five.",
        ),
        limits=(
            "Schedulers that weigh hosts by more than their order: equal weights are assumed.",
            "A Placement of several machines: their processes have hash seeds, and so orders, of their own.",
            "Schedulers that do other work between candidates and claim: more of it means more conflicts.",
        ),
    )


def _row(point: Mapping[str, Any], made: Sequence[Measurement]) -> dict[str, Any]:
    def per_claim(*names: str) -> list[float]:
        return [sum(each.values[name] for name in names) / each.values["claims"] for each in made]

    refused = median_interval(per_claim(*REFUSALS))
    overcommitted = median_interval([each.values["overcommitted"] for each in made])
    return {
        **point,
        "n": refused.n,
        "conflicts_per_claim": refused.median,
        "conflicts_low": refused.low,
        "conflicts_high": refused.high,
        "confidence": refused.confidence,
        "full_per_claim": median(per_claim("conflicts")),
        "updates_per_claim": median(per_claim("updates")),
        "requests_per_claim": median(per_claim("requests")),
        "hosts": median([each.values["hosts"] for each in made]),
        **interval_figures("overcommitted", "", overcommitted),
    }


def _headline(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the refusals for the most schedulers on the first inventory, without and with randomization."""
    if not rows:
        return "The herd: nothing was measured."
    topology, most = rows[0]["topology"], max(row["schedulers"] for row in rows)
    found = {
        row["randomized"]: row["conflicts_per_claim"]
        for row in rows
        if (row["topology"], row["schedulers"]) == (topology, most)
    }
    said = ", ".join(
        f"{_number(found[randomized])} {how} randomize_allocation_candidates"
        for randomized, how in ((False, "without"), (True, "with"))
        if randomized in found
    )
    return f"Claims refused per claim with {most} schedulers on {topology}: {said or 'not measured'}."


KIND = study_kind(__name__, _HerdSettings, _HerdPoint, _HerdValues)
