"""The section of the bench about candidates: what a request costs beside the real Placement.

The key piece is `bench_candidates`. Every program runs in its own process and environment under
--http-socket with one worker, each on a database of its own, in rounds of ABC CBA.
"""

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, text

from placebench.compare import hodges_lehmann
from placebench.errors import TooFewReplicatesError
from placebench.experiment.arms import Arm, read_arms
from placebench.experiment.meters import backend_pids, cpu_by_pid, spent
from placebench.experiment.plan import plan_replicates
from placebench.experiment.requesting import get
from placebench.experiment.server import RunningServer, serve
from placebench.postgres import Server, open_server
from placebench.seeding import seed, topology_named

BLOCK = 3  # requests

# One VCPU is taken of 900 providers, and 500 inventories of memory differ from the others.
ALLOCATIONS = """
    INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used)
    SELECT resource_provider_id, resource_class_id, 'bench', 1 FROM inventories
    WHERE resource_class_id = 0 ORDER BY id LIMIT 900"""
CHANGED_INVENTORIES = """
    UPDATE inventories SET total = total + step_size
    WHERE id IN (SELECT id FROM inventories WHERE resource_class_id = 1 ORDER BY id DESC LIMIT 500)"""


@dataclass(frozen=True)
class Data:
    """What the programs are asked about."""

    name: str
    topology: str
    changes: tuple[str, ...] = ()


DATA = (
    Data("nested, uniform", "nested-perfload"),
    Data("nested, used and changed", "nested-perfload", (ALLOCATIONS, CHANGED_INVENTORIES)),
    Data("flat", "flat-perfload"),
)


@dataclass
class Costs:
    """Of one arm, a value a replicate: milliseconds a request."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)


def bench_candidates(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """CPU (worker and backends) and wall of a request, with and without limit, and the CPU over the last arm's."""
    python = arguments.placement_python
    names = ["tuned", "naive", *(["placement"] if python else [])]
    arms = read_arms(names, placement_python=Path(python) if python else None)
    with open_server() as server:
        for number, data in enumerate(DATA):
            topology = topology_named(data.topology, trees=arguments.trees, seed=1)
            _seeded(server, f"bench_data_{number}", data, arguments.trees)
            for limit in ("", "&limit=10"):
                title = f"{data.name}{limit.replace('&', ', ')}"
                say(title, "CPU, ms a request", "wall, ms", f"CPU over {names[-1]}", "interval 95 %")
                costs = _costs(arguments, server, arms, f"bench_data_{number}", topology.request + limit)
                for arm in arms:
                    times = () if arm is arms[-1] else ratio(costs[arm.name].cpu_ms, costs[names[-1]].cpu_ms)
                    say(arm.name, spread(costs[arm.name].cpu_ms), spread(costs[arm.name].wall_ms), *times)
    if not python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _seeded(server: Server, name: str, data: Data, trees: int) -> None:
    url = server.create_database(name)
    seed(topology_named(data.topology, trees=trees, seed=1), url)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (*data.changes, "VACUUM ANALYZE"):
            connection.execute(text(statement))
    engine.dispose()


def ratio(values: list[float], baseline: list[float]) -> tuple[str, str]:
    """Of two arms, a value a replicate each: the median ratio and its 95 % interval."""
    pairs = zip(values, baseline, strict=True)
    try:
        interval = hodges_lehmann([math.log(one / other) for one, other in pairs])
    except TooFewReplicatesError as error:
        return str(error), ""
    bounds = f"{math.exp(interval.low):.3g} to {math.exp(interval.high):.3g}"
    return f"{math.exp(interval.estimate):.3g}", bounds


def _costs(
    arguments: argparse.Namespace, server: Server, arms: tuple[Arm, ...], template: str, request: str
) -> dict[str, Costs]:
    """Of each arm by its name."""
    names = [arm.name for arm in arms]
    urls = {name: server.create_database(f"bench_{name}", template=template) for name in names}
    costs = {name: Costs() for name in names}
    for plan in plan_replicates(names, replicates=arguments.repeats, rounds=1, seed=1):
        seen = {name: Costs() for name in names}
        with ExitStack() as stack:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            served = {}
            for name in plan.start_order:
                spec = arms[names.index(name)].spec(urls[name], hash_seed=plan.hash_seed, log=log / name)
                served[name] = stack.enter_context(serve(spec))
            for name in plan.warmup_order:
                _block(served[name], urls[name], request, Costs())
            for name in plan.rounds[0]:
                _block(served[name], urls[name], request, seen[name])
        for name in names:
            costs[name].cpu_ms.append(statistics.fmean(seen[name].cpu_ms))
            costs[name].wall_ms.append(statistics.fmean(seen[name].wall_ms))
    for name in names:
        server.drop_database(f"bench_{name}")
    return costs


def _block(served: RunningServer, url: str, request: str, costs: Costs) -> None:
    """Some requests one after the other."""

    def taken() -> dict[int, float]:
        return cpu_by_pid([*served.worker_pids(), *(backend_pids(url) or [])])

    before, began = taken(), time.perf_counter()
    for _ in range(BLOCK):
        reply = get(served.url, request)
        assert reply.status == 200, reply.body[:300]
    costs.wall_ms.append((time.perf_counter() - began) / BLOCK * 1e3)
    costs.cpu_ms.append(spent(before, taken()) / BLOCK * 1e3)
