"""The section of the bench about candidates: what a request costs beside the real Placement.

The main part is `bench_candidates`. Every program runs in its own process and environment under
--http-socket with one worker, each on a database of its own, in rounds of ABC CBA.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path

from data_sets import DATA, Call, Data, make
from floors import floors
from raw_file import measured_here, write_raw
from server_cpu import server_cpu

from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.http_request import HEADERS, fetch, send
from placebench.compare.what.variants import Variant, read_variants
from placebench.errors import TooFewReplicatesError
from placebench.lab.inventory.topology import Topology
from placebench.lab.placement_api import canonical_candidates
from placebench.lab.reference.variants import ALGORITHMS
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server, open_server
from placebench.runtime.running_server import RunningServer
from placebench.stats import hodges_lehmann

FEWEST = 3  # requests of a block


@dataclass
class Costs:
    """Of one variant, a value a replicate: milliseconds a request."""

    cpu_ms: list[float] = field(default_factory=list)
    wall_ms: list[float] = field(default_factory=list)


def bench_candidates(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """CPU (worker and backends) and wall of a request, and how many times less CPU that is than the first variant's.

    The values go to candidates.json too, those of ordinary requests to ordinary.json; other data in them stays. Without
    --data there are no ordinary requests.
    """
    python = arguments.placement_python
    names = arguments.variants or [*(["placement"] if python else []), "naive", "tuned", *ALGORITHMS]
    variants = read_variants(names, python=Path(python) if python else None)
    with open_server() as server:
        for data in [DATA[name] for name in arguments.data or ()] or [
            each for each in DATA.values() if not each.ordinary
        ]:
            topology = data.seeded(arguments.trees)
            make(server, f"bench_{data.name}", data, topology)
            costs = costs_of(server, variants, data, topology, repeats=arguments.repeats, block_s=arguments.block_s)
            title = f"{data.name}, {topology.providers} providers"
            say(title, "CPU, ms a request", "wall, ms", f"times less CPU than {names[0]}", "interval 95 %")
            for name in names:
                times = () if name == names[0] else ratio(costs[names[0]].cpu_ms, costs[name].cpu_ms)
                say(f"{name}, n = {arguments.repeats}", spread(costs[name].cpu_ms), spread(costs[name].wall_ms), *times)
            file = "ordinary.json" if data.ordinary else "candidates.json"
            beside = {}
            if data.ordinary:
                beside = {"floors": floors(server, data, topology, repeats=arguments.repeats, seed=1)}
                for name, values in beside["floors"].items():
                    say(f"no less than: {name}", spread(values))
            _keep(arguments.out / file, data, topology, costs, server, beside)
    if not python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _keep(
    path: Path, data: Data, topology: Topology, costs: dict[str, Costs], server: Server, beside: Mapping[str, object]
) -> None:
    kept = json.loads(path.read_text())["data"] if path.exists() else {}
    kept[data.name] = {
        **measured_here(server.url),
        "n": len(next(iter(costs.values())).cpu_ms),
        "providers": topology.providers,
        "variants": {name: asdict(each) for name, each in costs.items()},
        **beside,
    }
    write_raw(path, {"data": kept})


def ratio(values: list[float], baseline: list[float]) -> tuple[str, str]:
    """Of two variants, a value a replicate each: the median ratio and its 95 % interval."""
    pairs = zip(values, baseline, strict=True)
    try:
        interval = hodges_lehmann([math.log(one / other) for one, other in pairs])
    except TooFewReplicatesError as error:
        return str(error), ""
    bounds = f"{math.exp(interval.low):.3g} to {math.exp(interval.high):.3g}"
    return f"{math.exp(interval.estimate):.3g}", bounds


def costs_of(
    server: Server,
    variants: tuple[Variant, ...],
    data: Data,
    topology: Topology,
    *,
    repeats: int,
    block_s: float,
    rounds: int = 1,
    seed: int = 1,
) -> dict[str, Costs]:
    """Of each variant by its name: a value for each of the *repeats*, with fresh servers of all."""
    names = [variant.name for variant in variants]
    urls = {name: server.create_database(f"of_{name}", template=f"bench_{data.name}") for name in names}
    costs = {name: Costs() for name in names}
    requests: dict[str, Iterator[Call]] = {}
    for plan in (plan_replicate(names, number, rounds=rounds, seed=seed) for number in range(repeats)):
        (start,) = plan.starts
        seen = {name: Costs() for name in names}
        if not (requests and data.ordinary):  # what ordinary requests write stays in the database
            requests = {name: data.requests(topology, seed) for name in names}
        seconds = 0 if data.ordinary else block_s  # ordinary requests are of many kinds: all get the same ones
        with ExitStack() as stack:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            specs = [
                variants[names.index(name)].spec(urls[name], hash_seed=start.hash_seed, log=log / name)
                for name in start.start_order
            ]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                started = pool.map(lambda spec: stack.enter_context(serve(spec)), specs)
                served = dict(zip(start.start_order, started, strict=True))
            _check_same_responses(served, topology.request)
            for name in start.warmup_order:
                _block(served[name], urls[name], requests[name], data.cycle, seconds, None)
            for name in chain.from_iterable(start.rounds):
                _block(served[name], urls[name], requests[name], data.cycle, seconds, seen[name])
        for name in names:
            costs[name].cpu_ms.append(statistics.fmean(seen[name].cpu_ms))
            costs[name].wall_ms.append(statistics.fmean(seen[name].wall_ms))
    for name in names:
        server.drop_database(f"of_{name}")
    return costs


def _check_same_responses(served: Mapping[str, RunningServer], request: str) -> None:
    found = {name: canonical_candidates(json.loads(fetch(each.url, request).body)) for name, each in served.items()}
    (first, *others) = found
    different = [name for name in others if found[name] != found[first]]
    assert not different, f"{different} respond to {request} with something else than {first}"


def _block(
    served: RunningServer, url: str, requests: Iterator[Call], cycle: int, seconds: float, costs: Costs | None
) -> None:
    """Some requests one after the other: three, or more of those that are fast, in whole cycles; None: a warm-up."""
    cpu_s, began, count = server_cpu(served, url), time.perf_counter(), 0
    while count < FEWEST or count % cycle or time.perf_counter() - began < seconds:
        call = next(requests)
        headers = {**HEADERS, "Content-Type": "application/json"}
        reply = send(served.url, call.method, call.path, headers=headers, body=call.body)
        assert reply.status in {200, 204}, (call, reply.body[:300])
        count += 1
    wall_s, taken_s = time.perf_counter() - began, cpu_s()
    if costs is None:
        return
    assert taken_s is not None, "a connection of the worker was closed meanwhile"
    costs.wall_ms.append(wall_s / count * 1e3)
    costs.cpu_ms.append(taken_s / count * 1e3)
