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
from placebench.reference.variants import ALGORITHMS
from placebench.seeding import seed, topology_named
from placebench.topology import Topology

FEWEST, SHORTEST_S = 3, 0.2  # requests and seconds of a block

# 900 of the candidates for the headline request are claimed, as they are offered, and 500 disks are like no other.
CLAIMS = """
    WITH chosen AS (
        SELECT device.id AS device, node.id AS node, node.root_provider_id AS root, md5(device.uuid) AS consumer
        FROM resource_providers device
        JOIN resource_providers node ON node.id = device.parent_provider_id
        JOIN inventories i ON i.resource_provider_id = device.id
        JOIN resource_classes c ON c.id = i.resource_class_id AND c.name = 'FPGA'
        JOIN resource_provider_traits h ON h.resource_provider_id = node.id
        JOIN traits t ON t.id = h.trait_id AND t.name = 'CUSTOM_FOO'
        ORDER BY md5(device.uuid) LIMIT 900)
    INSERT INTO allocations (resource_provider_id, resource_class_id, consumer_id, used)
    SELECT taken.provider, c.id, consumer, taken.amount
    FROM chosen,
         LATERAL (VALUES (device, 'FPGA', 1), (node, 'VCPU', 1), (node, 'MEMORY_MB', 256), (root, 'DISK_GB', 10))
                 AS taken (provider, class, amount)
    JOIN resource_classes c ON c.name = taken.class"""
CHANGED_DISKS = """
    UPDATE inventories SET total = total - changed.number
    FROM (SELECT i.id, row_number() OVER (ORDER BY md5(i.id::text)) AS number
          FROM inventories i JOIN resource_classes c ON c.id = i.resource_class_id AND c.name = 'DISK_GB') AS changed
    WHERE changed.id = inventories.id AND changed.number <= 500"""


@dataclass(frozen=True)
class Data:
    """What the programs are asked about."""

    name: str
    topology: str
    changes: tuple[str, ...] = ()
    times: int = 1  # as many trees as are asked for
    limit: str = ""


DATA = (
    Data("nested, uniform", "nested-perfload"),
    Data("nested, used and changed", "nested-perfload", (CLAIMS, CHANGED_DISKS)),
    Data("nested, three times as many", "nested-perfload", times=3),
    Data("flat", "flat-perfload"),
    Data("nested, limit=10", "nested-perfload", limit="&limit=10"),
)


@dataclass
class Costs:
    """Of one arm, a value a replicate: milliseconds a request."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)


def bench_candidates(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """CPU (worker and backends) and wall of a request, and how many times less CPU that is than the first arm's."""
    python = arguments.placement_python
    names = [*(["placement"] if python else []), "naive", "tuned", *ALGORITHMS]
    arms = read_arms(names, placement_python=Path(python) if python else None)
    with open_server() as server:
        for number, data in enumerate(DATA):
            topology = topology_named(data.topology, trees=arguments.trees * data.times, seed=1)
            _seeded(server, f"bench_data_{number}", data, topology)
            costs = _costs(arguments, server, arms, f"bench_data_{number}", topology.request + data.limit)
            title = f"{data.name}, {topology.trees} trees"
            say(title, "CPU, ms a request", "wall, ms", f"times less CPU than {names[0]}", "interval 95 %")
            for name in names:
                times = () if name == names[0] else ratio(costs[names[0]].cpu_ms, costs[name].cpu_ms)
                say(f"{name}, n = {arguments.repeats}", spread(costs[name].cpu_ms), spread(costs[name].wall_ms), *times)
    if not python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _seeded(server: Server, name: str, data: Data, topology: Topology) -> None:
    url = server.create_database(name)
    seed(topology, url)
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
    """Some requests one after the other: three, or more of those that are fast."""

    def taken() -> dict[int, float]:
        return cpu_by_pid([*served.worker_pids(), *(backend_pids(url) or [])])

    before, began, count = taken(), time.perf_counter(), 0
    while count < FEWEST or time.perf_counter() - began < SHORTEST_S:
        reply = get(served.url, request)
        assert reply.status == 200, reply.body[:300]
        count += 1
    costs.wall_ms.append((time.perf_counter() - began) / count * 1e3)
    costs.cpu_ms.append(spent(before, taken()) / count * 1e3)
