"""Placement's published figures measured again: 10 requests by 1 client and 400 by 40 against nested providers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from placebench.errors import MissingExtraError, PlacebenchError
from placebench.experiment.http_job import Done, locust_job, warm_up
from placebench.experiment.same_responses import AnswerGate
from placebench.experiment.study import Ground, Measure, Point, Question
from placebench.experiment.variants import PLACEMENT, Variant, read_variant
from placebench.measure.meters import ServerMeter
from placebench.reference.variants import ALGORITHMS, cumulative
from placebench.runtime.wsgi_servers import serve, uwsgi_program
from placebench.topology import Topology

SOURCE = 'Chris Dent, "Placement Performance Analysis", 2019: https://anticdent.org/placement-performance-analysis.html'
MACHINE = "a virtual machine with 16 processors and 16 GB, PostgreSQL, uWSGI --http, 4 processes of 10 threads, ab"
TREES = 1000


@dataclass(frozen=True)
class Published:
    """Requests answered each second, before and after."""

    before_per_s: float
    after_per_s: float


PUBLISHED: Mapping[tuple[str, int], Published] = {
    ("nested-perfload", 1): Published(0.40, 0.70),
    ("nested-perfload", 40): Published(1.46, 2.90),
    # Published as 1.2 s and 0.53 s for one request of the flat query.
    ("flat-perfload", 1): Published(1 / 1.2, 1 / 0.53),
}
"""By the topology's name and the number of clients."""


PROCESSES, THREADS = 4, 10
REQUESTS: Mapping[int, int] = {1: 10, 40: 400}
"""How many, by the number of clients."""


@dataclass(frozen=True)
class Asked:
    """The variants by name, None for one that is not installed; and the clouds, the first of which is the run's."""

    variants: Mapping[str, Variant | str]
    """A variant, or why there is none."""
    topologies: Sequence[Topology]


def services(*, quick: bool) -> tuple[str, ...]:
    """The ladder with the algorithms beyond it and the real Placement; quick: without the rungs between."""
    rungs = cumulative()
    return (*((rungs[0], rungs[-1]) if quick else rungs), *ALGORITHMS, PLACEMENT)


def find_variants(names: Sequence[str], *, placement_python: Path | None = None) -> dict[str, Variant | str]:
    """The variant of each name, or in one line why it is not there; raises VariantError for an unknown name."""
    return {name: _find(name, placement_python) for name in names}


def headline(asked: Asked, *, repeats: int) -> Question:
    """The survey: every service by every topology and number of clients."""
    here = [name for name, each in asked.variants.items() if isinstance(each, Variant)]
    missing = {name: each for name, each in asked.variants.items() if isinstance(each, str)}
    clouds = {topology.name: topology for topology in asked.topologies}

    @contextmanager
    def prepare(ground: Ground) -> Iterator[Measure]:
        gates = {name: AnswerGate(cloud.request, save=ground.keep) for name, cloud in clouds.items()}

        def measure(point: Point, repeat: int) -> dict[str, Any]:
            variant = asked.variants[point["service"]]
            assert isinstance(variant, Variant)
            cloud = clouds[point["topology"]]
            return _measured(ground, variant, cloud, gates[cloud.name], int(point["clients"]), repeat)

        yield measure

    return Question(
        "published",
        tuple(_points(here, clouds)),
        repeats,
        prepare,
        asked.topologies[0].request,
        settings={
            "processes": PROCESSES,
            "threads": THREADS,
            "published": [
                {"topology": topology, "clients": clients, **asdict(each)}
                for (topology, clients), each in PUBLISHED.items()
            ],
            "published_trees": TREES,
            "published_source": SOURCE,
            "published_machine": MACHINE,
        },
        variants=tuple(here),
        impossible=tuple((point, missing[point["service"]]) for point in _points(list(missing), clouds)),
    )


def _find(name: str, placement_python: Path | None) -> Variant | str:
    try:
        variant = read_variant(name, placement_python=placement_python)
        uwsgi_program(Path(variant.python) if variant.python else None)
    except MissingExtraError as error:
        return str(error)
    except PlacebenchError as error:
        if name != PLACEMENT or placement_python is not None:
            raise
        return str(error).removeprefix("the variant placement ")
    return variant


def _points(names: Sequence[str], topologies: Mapping[str, Topology]) -> list[dict[str, Any]]:
    return [
        {"service": name, "topology": topology, "clients": clients}
        for topology in topologies
        for clients in REQUESTS
        for name in names
    ]


def _measured(
    ground: Ground, variant: Variant, topology: Topology, gate: AnswerGate, clients: int, repeat: int
) -> dict[str, Any]:
    """One service under one load; raises GateFailedError when it answers differently from the others."""
    url = ground.seeded_as(topology, variant.revisions)
    log = ground.folder / "log" / f"uwsgi-{variant.name}.log"
    spec = replace(variant.spec(url, hash_seed=repeat, log=log), processes=PROCESSES, threads=THREADS)
    with serve(spec) as server:
        gate.meet(variant.name, server.url)
        warm_up(server, topology.request, PROCESSES)
        done = locust_job(
            server,
            topology.request,
            requests=REQUESTS[clients],
            users=clients,
            meter=ServerMeter(server.worker_pids, url),
            folder=ground.folder,
        )
        server.check()
    return _values(done, REQUESTS[clients])


def _values(done: Done, requests: int) -> dict[str, Any]:
    return {
        "elapsed_s": done.duration_s,
        "rate_per_s": requests / done.duration_s,
        "latency_s_median": median(done.latency_s),
        "cpu_s": done.cpu_s,
        "body_bytes": done.body_bytes / requests,
    }
