"""The sections of the bench about scale-out: what nginx and replication cost, and what faults do to clients.

`bench_scale_out` measures CPU per request behind nginx and without, CPU and time per write without a replica, with one
and with a synchronous one, with a host in a network namespace, and how far a replica is behind: scaleout-cost.json, as
root. `bench_faults` inflicts every fault, with asynchronous and with synchronous replication, and checks a long history
without one: parts of scaleout.json.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
from raw_file import measured_here, write_raw
from sqlalchemy import text

from placebench.compare.what.http_request import HEADERS, Reply, fetch, send
from placebench.errors import TooFewReplicatesError
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.reference.api.pipeline import POSITION_HEADER
from placebench.lab.scaleout.check import FAULTS, check_scale_out
from placebench.lab.scaleout.cluster import ScaleOut
from placebench.meters.processes import read_tree_cpu_s
from placebench.runtime.postgres import open_connection
from placebench.runtime.running_server import ServerSpec
from placebench.stats import hodges_lehmann

TOPOLOGY = find_topology("nested-perfload", trees=100, seed=1)
SPEC = ServerSpec(database_url="", variant="dedup")
STANDS: dict[str, dict[str, Any]] = {
    "no replica": {"replicas": 0},
    "asynchronous": {"replicas": 1},
    "synchronous": {"replicas": 1, "synchronous": True},
    "no replica, a host with `--namespaces`": {"replicas": 0, "namespaces": True},
}
WARM_UP = 20
CLIENTS = 4
Case = tuple[str, str, bool]
"""Fault, replication, and whether reads carry the position of the last write."""
CASES: list[Case] = [
    *((fault, mode, True) for mode in ("asynchronous", "synchronous") for fault in ("none", *FAULTS)),
    *((fault, "asynchronous", False) for fault in ("none", "slow-replica")),
]


def bench_scale_out(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Of one host: nginx, writes and lag, block by block in turns."""
    with ExitStack() as stack:
        stands: dict[str, ScaleOut] = {}
        started_s = {}
        for name, how in STANDS.items():
            began = time.perf_counter()
            stands[name] = stack.enter_context(_stand_up(hosts=1, **how))
            started_s[name] = time.perf_counter() - began
        document = _head(stands["asynchronous"]) | {"started_s": started_s}
        document["nginx"] = {
            name: _behind_nginx(stands["no replica"], request, arguments)
            for name, request in (("one provider", _one_provider()), ("candidates", TOPOLOGY.request))
        }
        document["writes"] = _writes(stands, arguments)
        document["lag_s"] = _lag(stands["asynchronous"], arguments.block_requests * 4)
    write_raw(arguments.out / "scaleout-cost.json", document)
    for name, values in document["nginx"].items():
        say(f"nginx, {name}, n = {arguments.pairs}", "CPU, ms per request more", *_interval(values["more_s"]))
    for name, values in document["writes"].items():
        say(f"a write, {name}, n = {arguments.pairs}", f"{statistics.median(values['elapsed_s']) * 1e3:.3g} ms")
        for part, seconds in values["cpu_s"].items():
            say(f"  CPU of {part}", f"{statistics.median(seconds) * 1e3:.3g} ms")
        if "more_s" in values:
            say("  more than without replica, ms", *_interval(values["more_s"]))
    lags = statistics.quantiles(document["lag_s"], n=20, method="inclusive")
    say(f"lag, n = {len(document['lag_s'])}", f"median {lags[9] * 1e3:.3g} ms", f"p95 {lags[18] * 1e3:.3g} ms")


def _stand_up(**how: Any) -> ScaleOut:
    def fill(url: str) -> None:
        seed(TOPOLOGY, url)

    return ScaleOut(SPEC, fill, **how)


def _head(scaled: ScaleOut) -> dict[str, Any]:
    return measured_here(scaled.cluster.url(scaled.cluster.primary))


def _one_provider() -> str:
    return f"/resource_providers/{TOPOLOGY.uuids(0)[0]}"


def _interval(seconds: Sequence[float]) -> tuple[str, str]:
    """The pseudo-median in ms and its 95 % interval."""
    try:
        found = hodges_lehmann([each * 1e3 for each in seconds])
    except TooFewReplicatesError as error:
        return str(error), ""
    return f"{found.estimate:.3g}", f"{found.low:.3g} to {found.high:.3g}"


def _cpu_s(scaled: ScaleOut) -> dict[str, float]:
    """CPU seconds so far of each part and its children."""
    found = {}
    for name, pid in scaled.pids().items():
        processes = (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
        found[name] = read_tree_cpu_s(each.pid for each in processes)
    return found


def _behind_nginx(scaled: ScaleOut, request: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds per request, directly at the host and through nginx, in pairs; by part too."""
    urls = {"direct": scaled.hosts[0].url, "nginx": scaled.url}
    parts: dict[str, defaultdict[str, list[float]]] = {name: defaultdict(list) for name in urls}
    for url in (*urls.values(), *urls.values()):
        fetch(url, request)
    for pair in range(arguments.pairs):
        for name in sorted(urls, reverse=bool(pair % 2)):
            before = _cpu_s(scaled)
            for _ in range(arguments.block_requests):
                fetch(urls[name], request)
            for part, seconds in _cpu_s(scaled).items():
                parts[name][part].append((seconds - before[part]) / arguments.block_requests)
    found = {name: [sum(block) for block in zip(*each.values(), strict=True)] for name, each in parts.items()}
    more = [after - before for before, after in zip(found["direct"], found["nginx"], strict=True)]
    return {f"{name}_s": values for name, values in found.items()} | {"more_s": more, "parts_s": parts}


def _writes(stands: dict[str, ScaleOut], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Seconds per write, of one client, and CPU seconds by part, for each kind of replication, in turns."""
    elapsed: dict[str, list[float]] = {name: [] for name in stands}
    cpu: dict[str, defaultdict[str, list[float]]] = {name: defaultdict(list) for name in stands}
    writers = {name: _writer(scaled.url) for name, scaled in stands.items()}
    for writer in writers.values():
        for _ in range(WARM_UP):
            next(writer)
    for pair in range(arguments.pairs):
        for name in sorted(stands, reverse=bool(pair % 2)):
            before, began = _cpu_s(stands[name]), time.perf_counter()
            for _ in range(arguments.block_requests):
                next(writers[name])
            elapsed[name].append((time.perf_counter() - began) / arguments.block_requests)
            for part, seconds in _cpu_s(stands[name]).items():
                cpu[name][part].append((seconds - before[part]) / arguments.block_requests)
    found: dict[str, dict[str, Any]] = {name: {"elapsed_s": elapsed[name], "cpu_s": cpu[name]} for name in stands}
    for name in list(stands)[1:]:
        pairs = zip(elapsed["no replica"], elapsed[name], strict=True)
        found[name]["more_s"] = [after - before for before, after in pairs]
    return found


def _writer(url: str) -> Iterator[Reply]:
    """Claim a candidate for a new consumer, then release it, and so on: a write whenever the next one is taken."""
    offered = json.loads(fetch(url, TOPOLOGY.request).body)["allocation_requests"]
    who = {"project_id": "bench", "user_id": "bench", "consumer_type": "INSTANCE", "consumer_generation": None}
    for candidate in cycle(offered):
        path = f"/allocations/{uuid4()}"
        body = json.dumps({"allocations": candidate["allocations"], **who}).encode()
        for method, content in (("PUT", body), ("DELETE", b"")):
            more = {"Content-Type": "application/json"} if content else {}
            reply = send(url, method, path, headers={**HEADERS, **more}, body=content)
            assert reply.status == 204, reply.body[:300]
            yield reply


def _lag(scaled: ScaleOut, count: int) -> list[float]:
    """Seconds from the response to a write until the replica shows it: looked at without a pause, some 0.1 ms apart."""
    writer = _writer(scaled.url)
    applied = text("SELECT pg_last_wal_replay_lsn() >= CAST(CAST(:position AS text) AS pg_lsn)")
    found = []
    with open_connection(scaled.cluster.url(scaled.cluster.replicas[0])) as replica:
        replica.execute(applied, {"position": "0/0"})
        for _ in range(count):
            position = dict(next(writer).headers)[POSITION_HEADER]
            began = time.perf_counter()
            while not replica.scalar(applied, {"position": position}):
                pass
            found.append(time.perf_counter() - began)
    return found


def bench_faults(arguments: argparse.Namespace, say: Callable[..., None], _: Callable[..., str]) -> None:
    """Add to the file a long history without a fault, and repeats of all cases in an order of chance."""
    path = arguments.out / "scaleout.json"
    parts = json.loads(path.read_text())["parts"] if path.exists() else []
    planned = [([("none", "asynchronous", True)], arguments.history_claims)] if arguments.history_claims else []
    # Each fault once is enough to see that it works: on one cluster, with synchronous replication.
    inflicted = [case for case in CASES if not arguments.smoke or case[1] == "synchronous"]
    for repeat in range(len(parts), len(parts) + arguments.fault_repeats):
        planned.append((random.Random(repeat).sample(inflicted, len(inflicted)), arguments.fault_claims))
    for cases, claims in planned:
        parts.append(_checks(cases, claims))
        write_raw(path, {"hosts": 2, "replicas": 1, "clients": CLIENTS, "parts": parts})
        for run in parts[-1]["runs"]:
            say(f"{run['fault']}, {run['replication']}", f"passed: {run['passed']}")


def _checks(cases: Sequence[Case], claims: int) -> dict[str, Any]:
    """What a check of each case found, one after the other; two hosts and one replica for each kind of them."""
    head: dict[str, Any] = {}
    runs = []
    for kind in sorted({each[1:] for each in cases}):
        replication, with_position = kind
        synchronous = replication == "synchronous"
        with _stand_up(hosts=2, replicas=1, synchronous=synchronous, cuttable=len(cases) > 1) as scaled:
            head = head or _head(scaled)
            for fault in (each[0] for each in cases if each[1:] == kind):
                how = {"replication": replication, "fault": fault, "claims": claims, "with_position": with_position}
                runs.append(how | _check(scaled, fault, claims, with_position=with_position))
    return {**head, "runs": runs}


def _check(scaled: ScaleOut, fault: str, claims: int, *, with_position: bool) -> dict[str, Any]:
    disturb = None if fault == "none" else partial(FAULTS[fault].inflict, scaled)
    with tempfile.TemporaryDirectory() as folder:
        made = check_scale_out(
            scaled.url,
            scaled.cluster.writer_url,
            TOPOLOGY.request,
            Path(folder) / "history.jsonl",
            claims=claims,
            sessions=CLIENTS,
            with_position=with_position,
            disturb=disturb,
        )
    return asdict(made) | {"passed": made.history.passed}
