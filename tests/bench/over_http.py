"""The section of the bench about requests a second: variants and the real Placement, 4 processes of 10 threads each.

The main part is `bench_http`. All read one database, under --http-socket, in rounds of ABC CBA for each number of
clients, with fresh servers a replicate. `transport` sends a body of the same length that was made before: what no
variant can be faster than. The client is one thread in a process of its own; its share of a core is in the table.
Replicates of one commit on one machine add up in http.json, so that they can be made a few at a time.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from closed_load import run_apart
from raw_file import measured_here, write_raw
from server_cpu import server_cpu
from serving import ratio

from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.variants import Variant, read_variants
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.reference.variants import ALGORITHMS
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import open_server
from placebench.runtime.running_server import RunningServer

PROCESSES, THREADS = 4, 10
CLIENTS = (1, 10, 40)
FAKES = Path(__file__).parents[1] / "fakes"


@dataclass
class Sums:
    """Of one variant with so many clients in one replicate, both of its blocks."""

    requests: int = 0
    elapsed_s: float = 0.0
    cpu_s: float | None = 0.0  # of workers and backends; None: not measured
    client_cpu_s: float = 0.0
    body_bytes: int = 0


@dataclass
class Seen:
    """Of one variant with so many clients, a value a replicate."""

    rate: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    client_share: list[float] = field(default_factory=list)  # of one core
    body_mb: list[float] = field(default_factory=list)

    def note(self, sums: Sums) -> None:
        """One replicate."""
        self.rate.append(sums.requests / sums.elapsed_s)
        if sums.cpu_s is not None:
            self.cpu_ms.append(sums.cpu_s / sums.requests * 1e3)
        self.client_share.append(sums.client_cpu_s / sums.elapsed_s)
        self.body_mb.append(sums.body_bytes / sums.requests / 1e6)


def bench_http(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """Requests a second, their ratio to the first variant's (Placement, if named), CPU, the client."""
    variants = _variants(arguments)
    kept = arguments.out / "http.json"
    seen = _seen_before(kept, variants, measured_here())
    begun = len(next(iter(seen.values())).rate)  # replicates
    topology = find_topology("nested-perfload", trees=arguments.trees, seed=1)
    with open_server() as server:
        url = server.create_database("bench_http")
        seed(topology, url)
        for plan in (
            plan_replicate(list(variants), number, rounds=len(CLIENTS), seed=begun)
            for number in range(arguments.repeats)
        ):
            (start,) = plan.starts
            with _served(variants, url, start.start_order) as served:
                for name in start.warmup_order:
                    _block(served[name], url, topology.request, PROCESSES, 0.1, Sums())
                for clients, order in zip(CLIENTS, start.rounds, strict=True):
                    sums = {name: Sums() for name in variants}
                    for name in order:
                        _block(served[name], url, topology.request, clients, arguments.load_s, sums[name])
                    for name in variants:
                        seen[clients, name].note(sums[name])
            _keep(kept, seen, url)
    for clients in CLIENTS:
        _table(clients, {name: seen[clients, name] for name in variants}, say, spread)
    if not arguments.placement_python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _seen_before(path: Path, variants: dict[str, Variant], here: dict[str, Any]) -> dict[tuple[int, str], Seen]:
    """What the file has of the same variants, commit and processor; nothing of others."""
    kept = json.loads(path.read_text()) if path.exists() else {"clients": {}}
    is_other = kept.get("commit") != here["commit"] or (kept["machine"]["processor"] != here["machine"]["processor"])
    if is_other or any(set(kept["clients"].get(str(clients), ())) != set(variants) for clients in CLIENTS):
        return {(clients, name): Seen() for clients in CLIENTS for name in variants}
    return {(clients, name): Seen(**kept["clients"][str(clients)][name]) for clients in CLIENTS for name in variants}


def _keep(path: Path, seen: dict[tuple[int, str], Seen], url: str) -> None:
    names = dict.fromkeys(name for _, name in seen)
    by_clients = {str(clients): {name: asdict(seen[clients, name]) for name in names} for clients in CLIENTS}
    write_raw(path, {**measured_here(url), "n": len(next(iter(seen.values())).rate), "clients": by_clients})


def _table(clients: int, seen: dict[str, Seen], say: Callable[..., None], spread: Callable[..., str]) -> None:
    first = next(iter(seen))
    title = f"c = {clients}, n = {len(seen[first].rate)}"
    say(title, "requests a second", f"over {first}'s", "95 %", "CPU, ms a request", "body, MB", "client, of a core")
    for name, one in seen.items():
        times = ("", "") if name == first else ratio(one.rate, seen[first].rate)
        body, client = statistics.median(one.body_mb), statistics.median(one.client_share)
        say(name, spread(one.rate), *times, spread(one.cpu_ms), f"{body:.2f}", f"{client:.0%}")


def _variants(arguments: argparse.Namespace) -> dict[str, Variant]:
    python = Path(arguments.placement_python) if arguments.placement_python else None
    names = arguments.variants or [*(["placement"] if python else []), *ALGORITHMS]
    path = os.pathsep.join([str(FAKES), os.environ.get("PYTHONPATH", "")])
    transport = Variant("transport", module="constant_body:application", variables={"PYTHONPATH": path}, ours=False)
    return {variant.name: variant for variant in (*read_variants(names, python=python), transport)}


@contextmanager
def _served(variants: dict[str, Variant], url: str, order: tuple[str, ...]) -> Iterator[dict[str, RunningServer]]:
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        specs = {name: variants[name].spec(url, hash_seed=1, log=logs / name) for name in order}
        alike = {name: replace(spec, processes=PROCESSES, threads=THREADS) for name, spec in specs.items()}
        yield {name: stack.enter_context(serve(spec)) for name, spec in alike.items()}


def _block(served: RunningServer, url: str, request: str, clients: int, seconds: float, sums: Sums) -> None:
    """One load on one variant while the others are idle; no request is sent later, those under way are waited for."""
    cpu_s = server_cpu(served, url)
    driven = run_apart(served.url, maker="gets", arguments={"request": request}, clients=clients, seconds=seconds)
    assert driven.statuses.keys() == {"200"}, driven.statuses
    taken_s = cpu_s()
    sums.cpu_s = None if sums.cpu_s is None or taken_s is None else sums.cpu_s + taken_s
    sums.requests += len(driven.latency_s)
    sums.elapsed_s += driven.elapsed_s
    sums.client_cpu_s += driven.cpu_s
    sums.body_bytes += driven.body_bytes
