"""The section of the bench about size: what a request costs from 100 to 1 000 000 providers, as JSON and as charts.

The main part is `bench_scale`. Server CPU (worker and backends) and memory of each request, with limit=10 and in full,
in rounds of ABC CBA; no two requests of a variant are equal, so that none is answered with a body that was kept. A
variant goes no further up where a request would take more than `MOST_S`. A size may have a sitting of its own:
scale.json keeps the others.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from picture_file import picture_file
from raw_file import measured_here, write_raw
from server_cpu import server_cpu

from placebench import units
from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.http_request import get
from placebench.compare.what.variants import Variant, read_variant
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.inventory.topology import Topology
from placebench.lab.reference.variants import ALGORITHMS
from placebench.meters.processes import read_memory
from placebench.page.axis_charts import Line, lines
from placebench.page.svg import Role
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server, open_server
from placebench.runtime.running_server import RunningServer

# Trees of 7 providers, and rounds: each has two requests a variant and answer.
SIZES = {14: 5, 143: 5, 1000: 3, 14_286: 2, 142_858: 2}
ANSWERS = {"limit=10": "&limit=10", "all candidates": ""}
MOST_S = 30.0
_DISK = "DISK_GB:10"


@dataclass
class Point:
    """One variant at one size: a value a request."""

    variant: str
    answer: str
    providers: int
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    grown_bytes: list[int] = field(default_factory=list)  # the worker's peak RSS over what it had before the request


@dataclass
class Worker:
    """What one worker holds by itself (USS): when it began to serve, and after all requests."""

    variant: str
    providers: int
    start_bytes: int
    end_bytes: int


Sized = TypeVar("Sized", Point, Worker)


@dataclass
class Results:
    """Everything measured so far."""

    points: list[Point]
    workers: list[Worker]
    sizes: dict[str, dict[str, Any]]
    """When and with what each number of providers was measured."""


def bench_scale(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """A row for each variant, answer and size; scale.json and two charts after each size."""
    python = Path(arguments.placement_python) if arguments.placement_python else None
    names = arguments.variants or ["naive", "tuned", *ALGORITHMS, *(["placement"] if python else [])]
    variants = tuple(read_variant(each, python=python) for each in names)
    results = _kept(arguments.out)
    with open_server() as server:
        for trees in map(int, arguments.sizes.split(",")):
            seen = _at(server, variants, trees, results.points)
            results = Results(
                _replaced(results.points, seen.points),
                _replaced(results.workers, seen.workers),
                {**results.sizes, **seen.sizes},
            )
            _keep(arguments.out, results)
            _tell(seen, say, spread)
    for point in results.points:
        if (below := _last(results.points, point)) and point.providers > 1000:
            say(
                f"{point.variant}, {point.answer}, {units.count(point.providers)}",
                f"grows with n^{_power(below, point)}",
            )


def _tell(seen: Results, say: Callable[..., None], spread: Callable[..., str]) -> None:
    for point in seen.points:
        cpu, wall = ([seconds * 1e3 for seconds in each] for each in (point.cpu_s, point.wall_s))
        title = f"{point.variant}, {point.answer}, {units.count(point.providers)}"
        grown = f"peak + {units.size(max(point.grown_bytes))}"
        say(title, f"CPU {spread(cpu)} ms", f"wall {spread(wall)} ms", grown, f"n = {len(cpu)}")
    for worker in seen.workers:
        held = units.size(worker.end_bytes - worker.start_bytes)
        say(f"{worker.variant}, {units.count(worker.providers)}", f"holds {units.size(worker.start_bytes)} + {held}")


def _at(server: Server, variants: tuple[Variant, ...], trees: int, before: list[Point]) -> Results:
    """The points of one size."""
    topology = find_topology("nested-perfload", trees=trees, seed=1)
    wanted = {
        variant.name: [answer for answer in ANSWERS if _affordable(variant, answer, topology, before)]
        for variant in variants
    }
    points = [Point(name, answer, topology.providers) for name, answers in wanted.items() for answer in answers]
    url = server.create_database(f"bench_scale_{trees}")
    seed(topology, url)
    with _served([variant for variant in variants if wanted[variant.name]], url) as served:
        start = {name: _held(each) for name, each in served.items()}
        asked = {name: _requests(topology) for name in served}
        rounds = SIZES.get(trees, max(SIZES.values()))
        plan = plan_replicate([str(number) for number in range(len(points))], 0, rounds=rounds, seed=trees)
        for point in points:
            _ask(served[point.variant], url, next(asked[point.variant]), point, keep=False)
        for point in (points[int(each)] for turn in plan.rounds for each in turn):
            _ask(served[point.variant], url, next(asked[point.variant]), point, keep=True)
        workers = [Worker(name, topology.providers, start[name], _held(each)) for name, each in served.items()]
        sizes = {str(topology.providers): measured_here(url)}
    server.drop_database(f"bench_scale_{trees}")
    return Results(points, workers, sizes)


@contextmanager
def _served(variants: Iterable[Variant], url: str) -> Iterator[dict[str, RunningServer]]:
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {
            variant.name: stack.enter_context(serve(variant.spec(url, hash_seed=1, log=log / variant.name)))
            for variant in variants
        }


def _requests(topology: Topology) -> Iterator[str]:
    """The topology's request for another amount of disk each time, of which every tree has enough."""
    assert _DISK in topology.request
    return (topology.request.replace(_DISK, f"DISK_GB:{amount}") for amount in count(11))


def _affordable(variant: Variant, answer: str, topology: Topology, before: list[Point]) -> bool:
    """By the largest size below: a cost that grows with the providers, and a variant that was left out stays out."""
    smaller = [point for point in before if point.providers < topology.providers]
    if not smaller:
        return True
    largest = max(point.providers for point in smaller)
    costs = [
        statistics.median(point.cpu_s) * topology.providers / largest
        for point in smaller
        if (point.variant, point.answer, point.providers) == (variant.name, answer, largest)
    ]
    return bool(costs) and costs[0] < MOST_S


def _ask(served: RunningServer, url: str, request: str, point: Point, *, keep: bool) -> None:
    [worker] = served.worker_pids()
    Path(f"/proc/{worker}/clear_refs").write_text("5")  # the peak of RSS begins anew
    rss, cpu_s, began = read_memory(worker).rss_bytes, server_cpu(served, url), time.perf_counter()
    reply = get(served.url, request + ANSWERS[point.answer])
    wall_s, taken_s = time.perf_counter() - began, cpu_s()
    assert reply.status == 200, reply.body[:300]
    if keep:
        assert taken_s is not None, "a connection of the worker was closed meanwhile"
        point.wall_s.append(wall_s)
        point.cpu_s.append(taken_s)
        point.grown_bytes.append(max(0, _peak_rss(worker) - rss))


def _held(served: RunningServer) -> int:
    [worker] = served.worker_pids()
    return read_memory(worker).uss_bytes


def _peak_rss(pid: int) -> int:
    """VmHWM of /proc/PID/status."""
    _, _, line = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
    return int(line.split()[0]) * 1024


def _last(points: list[Point], point: Point) -> Point | None:
    """The same at the largest size below."""
    below = [each for each in points if (each.variant, each.answer) == (point.variant, point.answer)]
    below = [each for each in below if each.providers < point.providers]
    return max(below, key=lambda each: each.providers, default=None)


def _power(below: Point, point: Point) -> str:
    """1 is a cost that grows as the number of providers does, 0 one that does not grow."""
    costs = math.log(statistics.median(point.cpu_s) / statistics.median(below.cpu_s))
    return f"{costs / math.log(point.providers / below.providers):.2f}"


def _kept(folder: Path) -> Results:
    """What scale.json holds; nothing without it."""
    path = folder / "scale.json"
    if not path.exists():
        return Results([], [], {})
    document = json.loads(path.read_text())
    points, workers = [Point(**each) for each in document["points"]], [Worker(**each) for each in document["workers"]]
    return Results(points, workers, document["sizes"])


def _replaced(before: list[Sized], seen: list[Sized]) -> list[Sized]:
    """With what was seen now in the place of what stood there for these sizes, the smallest first."""
    sizes = {each.providers for each in seen}
    return sorted([each for each in before if each.providers not in sizes] + seen, key=lambda each: each.providers)


def _keep(folder: Path, results: Results) -> None:
    """scale.json, and scale-limit-10.svg and scale-all.svg beside it."""
    write_raw(folder / "scale.json", asdict(results))
    for answer, name in zip(ANSWERS, ("limit-10", "all"), strict=True):
        (folder / f"scale-{name}.svg").write_text(_picture(answer, results.points))


def _picture(answer: str, points: list[Point]) -> str:
    series = []
    for name in dict.fromkeys(point.variant for point in points):
        mine = [point for point in points if (point.variant, point.answer) == (name, answer)]
        role: Role = "baseline" if name == "placement" else "variant" if name in ALGORITHMS else "between"
        series.append(Line(name, [(point.providers, statistics.median(point.cpu_s)) for point in mine], role))
    drawn = lines(
        series,
        title=f"Server CPU of a request against the number of providers, {answer}",
        description="Both axes are logarithmic: a straight line upwards is a cost that grows with the cloud.",
        show=units.duration,
        show_where=units.count,
        logarithmic=True,
    )
    return picture_file(drawn)
