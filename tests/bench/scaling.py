"""The section of the bench about size: what a request costs from 100 to 1 000 000 providers, as JSON and as charts.

The key piece is `bench_scale`. Server CPU (worker and backends) of each request, with limit=10 and in full, in rounds
of ABC CBA; an arm goes no further up where ten times its last cost is over `MOST_S`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from placebench import units
from placebench.experiment.arms import Arm, read_arms
from placebench.experiment.meters import backend_pids, cpu_by_pid, spent
from placebench.experiment.plan import plan_replicate
from placebench.experiment.requesting import get
from placebench.experiment.server import RunningServer, serve
from placebench.page.charts.lines import Line, lines
from placebench.page.picture_file import picture_file
from placebench.postgres import Server, open_server
from placebench.reference.variants import ALGORITHMS
from placebench.seeding import seed, topology_named

TREES = (14, 143, 1429, 14_286, 142_858)
ANSWERS = {"limit=10": "&limit=10", "all candidates": ""}
ROUNDS = 3
MOST_S = 30.0
FOLDER = Path("docs") / "results"


@dataclass
class Point:
    """One arm at one size: a value a request, seconds."""

    arm: str
    answer: str
    providers: int
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)


def bench_scale(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """A row for each arm, answer and size; scale.json and two charts in docs/results when all sizes are done."""
    python = Path(arguments.placement_python) if arguments.placement_python else None
    arms = read_arms(["naive", "tuned", *ALGORITHMS, *(["placement"] if python else [])], placement_python=python)
    points: list[Point] = []
    with open_server() as server:
        for trees in TREES:
            seen = _at(server, arms, trees, points)
            for point in seen:
                cpu, wall = ([seconds * 1e3 for seconds in each] for each in (point.cpu_s, point.wall_s))
                title = f"{point.arm}, {point.answer}, {units.count(point.providers)}"
                say(title, f"CPU {spread(cpu)} ms", f"wall {spread(wall)} ms", f"n = {len(cpu)}")
            points += seen
            _keep(points)


def _at(server: Server, arms: tuple[Arm, ...], trees: int, before: list[Point]) -> list[Point]:
    """The points of one size."""
    topology = topology_named("nested-perfload", trees=trees, seed=1)
    url = server.create_database(f"bench_scale_{trees}")
    seed(topology, url)
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = {arm.name: stack.enter_context(serve(arm.spec(url, hash_seed=1, log=log / arm.name))) for arm in arms}
        points = [
            Point(name, answer, topology.providers)
            for answer in ANSWERS
            for name in served
            if _affordable(name, answer, before)
        ]
        order = plan_replicate([str(number) for number in range(len(points))], 0, rounds=ROUNDS, seed=trees).rounds
        for point in points:
            _ask(served[point.arm], url, topology.request, point, keep=False)
        for number in (int(each) for turn in order for each in turn):
            _ask(served[points[number].arm], url, topology.request, points[number], keep=True)
    server.drop_database(f"bench_scale_{trees}")
    return points


def _affordable(name: str, answer: str, before: list[Point]) -> bool:
    last = [point for point in before if (point.arm, point.answer) == (name, answer)]
    if not last:
        return not before
    return last[-1].providers == before[-1].providers and 10 * statistics.median(last[-1].cpu_s) < MOST_S


def _ask(served: RunningServer, url: str, request: str, point: Point, *, keep: bool) -> None:
    def taken() -> dict[int, float]:
        return cpu_by_pid([*served.worker_pids(), *(backend_pids(url) or [])])

    before, began = taken(), os.times().elapsed
    reply = get(served.url, request + ANSWERS[point.answer])
    assert reply.status == 200, reply.body[:300]
    if keep:
        point.wall_s.append(os.times().elapsed - began)
        point.cpu_s.append(spent(before, taken()))


def _keep(points: list[Point]) -> None:
    """scale.json, and scale-limit-10.svg and scale-all.svg beside it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    document = {"format_version": 1, **machine, "points": [asdict(point) for point in points]}
    (FOLDER / "scale.json").write_text(json.dumps(document, indent=1) + "\n")
    for answer, name in zip(ANSWERS, ("limit-10", "all"), strict=True):
        (FOLDER / f"scale-{name}.svg").write_text(_picture(answer, points))


def _picture(answer: str, points: list[Point]) -> str:
    series = []
    for name in dict.fromkeys(point.arm for point in points):
        mine = [point for point in points if (point.arm, point.answer) == (name, answer)]
        role = "baseline" if name == "placement" else "variant" if name in ALGORITHMS else "between"
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
