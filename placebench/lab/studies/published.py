"""Placement's published figures measured again: 10 requests by 1 client and 400 by 40 against nested providers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from placebench.compare.load.load_run import JobResult, locust_job, warm_up
from placebench.compare.measure.same_responses import SameResponses
from placebench.compare.what.variants import Variant, find_variant, require_servers
from placebench.errors import MissingExtraError
from placebench.lab.inventory.topology import Topology
from placebench.lab.reference.variants import ALGORITHMS, cumulative
from placebench.lab.studies.study import Measure, Point, StudySetup, StudySpec
from placebench.lab.variants import PLACEMENT
from placebench.meters.meters import ServerMeter
from placebench.runtime.application_servers import serve

_SOURCE = (
    'Chris Dent, "Placement Performance Analysis", 2019: https://anticdent.org/placement-performance-analysis.html'
)
_MACHINE = "a virtual machine with 16 processors and 16 GB, PostgreSQL, uWSGI --http, 4 processes of 10 threads, ab"
_TREES = 1000


@dataclass(frozen=True)
class _Published:
    """Responses per second, before and after."""

    before_per_s: float
    after_per_s: float


_PUBLISHED: Mapping[tuple[str, int], _Published] = {
    ("nested-perfload", 1): _Published(0.40, 0.70),
    ("nested-perfload", 40): _Published(1.46, 2.90),
    # Published as 1.2 s and 0.53 s for one request of the flat query.
    ("flat-perfload", 1): _Published(1 / 1.2, 1 / 0.53),
}
"""By the topology's name and the number of clients."""


_PROCESSES, _THREADS = 4, 10
_REQUESTS: Mapping[int, int] = {1: 10, 40: 400}
"""How many, by the number of clients."""


@dataclass(frozen=True)
class PublishedStudy:
    """Services under the load of the published figures."""

    variants: Mapping[str, Variant | str]
    """By service: a variant, or why there is none."""
    topologies: Sequence[Topology]
    """The first is the run's."""

    def spec(self, *, repeats: int) -> StudySpec:
        """Return what is measured: every service by every topology and number of clients."""
        here = [name for name, each in self.variants.items() if isinstance(each, Variant)]
        missing = {name: each for name, each in self.variants.items() if isinstance(each, str)}
        topologies = [topology.name for topology in self.topologies]
        return StudySpec(
            "published",
            tuple(_points(here, topologies)),
            repeats,
            self._prepare,
            self.topologies[0].request,
            settings={
                "processes": _PROCESSES,
                "threads": _THREADS,
                "published": [
                    {"topology": topology, "clients": clients, **asdict(each)}
                    for (topology, clients), each in _PUBLISHED.items()
                ],
                "published_trees": _TREES,
                "published_source": _SOURCE,
                "published_machine": _MACHINE,
            },
            variants=tuple(here),
            impossible=tuple((point, missing[point["service"]]) for point in _points(list(missing), topologies)),
        )

    @contextmanager
    def _prepare(self, setup: StudySetup) -> Iterator[Measure]:
        topologies = {topology.name: topology for topology in self.topologies}
        same = {name: setup.same_responses() for name in topologies}

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            variant, name = self.variants[point["service"]], point["topology"]
            assert isinstance(variant, Variant)
            return _measure(setup, variant, topologies[name], same[name], int(point["clients"]), repeat)

        yield measure


def services(*, quick: bool) -> tuple[str, ...]:
    """Return the cumulative series with the further algorithms and the real Placement; quick: its two ends only."""
    series = cumulative()
    return (*((series[0], series[-1]) if quick else series), *ALGORITHMS, PLACEMENT)


def find_services(names: Sequence[str], *, placement_python: Path | None = None) -> dict[str, Variant | str]:
    """Return the variant of each name, or in one line why it is not there; raises VariantError for an unknown name."""
    return {name: _find(name, placement_python) for name in names}


def _find(name: str, placement_python: Path | None) -> Variant | str:
    variant, missing = find_variant(name, placement_python=placement_python)
    if variant is None:
        return missing
    try:
        require_servers([variant])
    except MissingExtraError as error:
        return str(error)
    return variant


def _points(names: Sequence[str], topologies: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"service": name, "topology": topology, "clients": clients}
        for topology in topologies
        for clients in _REQUESTS
        for name in names
    ]


def _measure(
    setup: StudySetup, variant: Variant, topology: Topology, same: SameResponses, clients: int, repeat: int
) -> dict[str, Any]:
    """One service under one load; raises GateFailedError when it responds differently from the others."""
    url = setup.data.of(topology, variant.revisions)
    log = setup.folder / "log" / f"uwsgi-{variant.name}.log"
    spec = replace(variant.spec(url, hash_seed=repeat, log=log), processes=_PROCESSES, threads=_THREADS)
    with serve(spec) as server:
        same.request(variant.name, topology.request, server.url)
        warm_up(server, topology.request, _PROCESSES)
        done = locust_job(
            server,
            topology.request,
            requests=_REQUESTS[clients],
            users=clients,
            meter=ServerMeter(server.metered_pids, url),
            folder=setup.folder,
        )
        server.check()
    return _values(done, _REQUESTS[clients])


def _values(done: JobResult, requests: int) -> dict[str, Any]:
    return {
        "elapsed_s": done.duration_s,
        "rate_per_s": requests / done.duration_s,
        "latency_s_median": median(done.latency_s),
        "cpu_s": done.cpu_s,
        "body_bytes": done.body_bytes / requests,
    }
