"""The section of the bench about claims: PUT /allocations/{consumer} of ours, both ways, beside the real Placement.

The main part is `bench_claims`. All are served alike (4 processes of 10 threads, --http-socket), each on a database of
its own on one server, in rounds of ABC CBA, a fresh set of servers a replicate. Then both of our ways are let loose
on one database together, where nothing may be given twice.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from claimants import Outcome, contend, provide, wrong_in_the_tables
from closed_load import Driven, run_apart
from raw_file import measured_here, write_raw
from server_cpu import server_cpu
from serving import ratio
from sqlalchemy import create_engine, text

from placebench.compare.measure.replicate_plan import plan_replicate
from placebench.compare.what.variants import Variant, read_variants
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.runtime.application_servers import serve
from placebench.runtime.postgres import Server, open_server
from placebench.runtime.running_server import RunningServer

PROCESSES, THREADS = 4, 10
_CONSUMERS_A_BLOCK = 1_000_000


@dataclass(frozen=True)
class Case:
    """Who claims what: DISK_GB, VCPU and MEMORY_MB of two providers of one tree, by turns."""

    name: str
    clients: int
    trees: int
    capacity: int
    status: str  # what the answer should be


def cases(trees: int) -> tuple[Case, ...]:
    """Of so many trees: the claims go to all of them, or to ten."""
    return (
        Case(f"apart: 10 clients, {trees} trees", 10, trees, 10**9, "204"),
        Case("contended: 40 clients, 10 trees", 40, 10, 10**9, "204"),
        Case("refused: 40 clients, 10 full trees", 40, 10, 0, "409"),
    )


@dataclass
class Costs:
    """Of one variant in one case, a value a replicate."""

    rate: list[float] = field(default_factory=list)  # answers as they should be, a second
    cpu_ms: list[float] = field(default_factory=list)  # of workers and backends, a request
    client_share: list[float] = field(default_factory=list)  # of one core
    others: int = 0  # answers with another status


def bench_claims(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """Claims a second and their CPU, and the ratios; then both ways on one database, where a wrong row ends it."""
    variants = _variants(arguments.placement_python)
    with open_server() as server:
        costs = _costs(arguments, server, variants)
        last = list(variants)[-1]
        for case in cases(arguments.trees):
            say(
                f"{case.name}, n = {arguments.repeats}",
                "answers a second",
                "CPU, ms a claim",
                f"over {last}'s rate",
                "95 %",
            )
            for name in variants:
                one, base = costs[case.name, name], costs[case.name, last]
                times = ("", "") if name == last else ratio(one.rate, base.rate)
                client = f"{statistics.median(one.client_share):.0%}"
                say(name, spread(one.rate), spread(one.cpu_ms), *times, client, one.others)
        document = {**measured_here(server.url), "n": arguments.repeats}
        by_case = {
            case.name: {name: asdict(costs[case.name, name]) for name in variants} for case in cases(arguments.trees)
        }
        write_raw(arguments.out / "claims.json", {**document, "seconds": arguments.claims_s, "cases": by_case})
        ours = {name: variant for name, variant in variants.items() if variant.ours}
        _together(server, ours, arguments.together_s, say)
    if not arguments.placement_python:
        say("placement", "not measured", "--placement-python", "names no environment")


def _variants(placement_python: str | None) -> dict[str, Variant]:
    python = Path(placement_python) if placement_python else None
    ours = read_variants(["tuned", "placement" if python else "tuned"], python=python)
    ways = {way: {**ours[0].variables, "PLACEBENCH_CLAIMS": way} for way in ("at_once", "step_by_step")}
    variants = {way: replace(ours[0], name=way, variables=variables) for way, variables in ways.items()}
    return variants | ({"placement": ours[1]} if python else {})


@contextmanager
def _served(
    variants: dict[str, Variant], urls: dict[str, str], order: tuple[str, ...]
) -> Iterator[dict[str, RunningServer]]:
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        specs = {name: variants[name].spec(urls[name], hash_seed=1, log=logs / name) for name in order}
        yield {
            name: stack.enter_context(serve(replace(spec, processes=PROCESSES, threads=THREADS)))
            for name, spec in specs.items()
        }


def _costs(arguments: argparse.Namespace, server: Server, variants: dict[str, Variant]) -> dict[tuple[str, str], Costs]:
    """By case and variant."""
    all_cases = cases(arguments.trees)
    seed(find_topology("nested-perfload", trees=arguments.trees, seed=1), server.create_database("bench_claims"))
    urls = {name: server.create_database(f"bench_claims_{name}", template="bench_claims") for name in variants}
    costs = {(case.name, name): Costs() for case in all_cases for name in variants}
    numbers = iter(range(0, 10**12, _CONSUMERS_A_BLOCK))
    for plan in (
        plan_replicate(list(variants), number, rounds=len(all_cases), seed=1) for number in range(arguments.repeats)
    ):
        (start,) = plan.starts
        with _served(variants, urls, start.start_order) as served:
            for case, order in zip(all_cases, start.rounds, strict=True):
                for name in start.warmup_order:
                    _block(case, served[name], urls[name], next(numbers), arguments.claims_s / 2)
                seen = {
                    name: [_block(case, served[name], urls[name], next(numbers), arguments.claims_s)]
                    for name in order[: len(variants)]
                }
                for name in order[len(variants) :]:
                    seen[name].append(_block(case, served[name], urls[name], next(numbers), arguments.claims_s))
                for name, blocks in seen.items():
                    _note(costs[case.name, name], case, blocks)
    return costs


def _note(costs: Costs, case: Case, blocks: list[tuple[Driven, float | None]]) -> None:
    requests = sum(len(driven.latency_s) for driven, _ in blocks)
    elapsed_s = sum(driven.elapsed_s for driven, _ in blocks)
    as_it_should = sum(driven.statuses[case.status] for driven, _ in blocks)
    costs.rate.append(as_it_should / elapsed_s)
    cpu_s = [taken_s for _, taken_s in blocks if taken_s is not None]
    if len(cpu_s) == len(blocks):
        costs.cpu_ms.append(sum(cpu_s) / requests * 1e3)
    costs.client_share.append(sum(driven.cpu_s for driven, _ in blocks) / elapsed_s)
    costs.others += requests - as_it_should


def _block(case: Case, served: RunningServer, url: str, first: int, seconds: float) -> tuple[Driven, float | None]:
    """One load, with the CPU seconds of workers and backends; the tables are empty of claims before."""
    asked = {"allocations": _emptied(url, case), "first": first}
    cpu_s = server_cpu(served, url)
    driven = run_apart(served.url, maker="claims", arguments=asked, clients=case.clients, seconds=seconds)
    return driven, cpu_s()


def _emptied(url: str, case: Case) -> list[dict[str, Any]]:
    """What is claimed, of trees that nobody has anything of."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for table in ("allocations", "consumers"):
            connection.execute(text(f"DELETE FROM {table}"))
        connection.execute(text("UPDATE inventories SET total = :total, reserved = 0"), {"total": case.capacity})
        for table in ("allocations", "consumers", "inventories", "resource_providers"):
            connection.execute(text(f"VACUUM ANALYZE {table}"))
        uuids = dict(map(tuple, connection.execute(text("SELECT name, uuid FROM resource_providers"))))
    engine.dispose()
    disk, cores = {"DISK_GB": 1}, {"VCPU": 1, "MEMORY_MB": 256}
    return [
        {uuids[f"cn1-{tree}"]: {"resources": disk}, uuids[f"n1-{tree}"]: {"resources": cores}}
        for tree in range(case.trees)
    ]


def _together(server: Server, variants: dict[str, Variant], seconds: float, say: Callable[..., None]) -> None:
    """Clients of each claim the last units of the same three providers; what is wrong ends the bench.

    Placement is left out: by itself it gave 11 of 10 units in 25 s of this.
    """
    url = server.create_database("bench_claims_together")
    provide(url)
    outcome = Outcome()
    with (
        _served(variants, dict.fromkeys(variants, url), tuple(variants)) as served,
        ThreadPoolExecutor(len(variants)) as pool,
    ):
        ways = enumerate(each.url for each in served.values())
        for seen in pool.map(lambda one: contend(one[1], clients=4, seconds=seconds, seed=one[0]), ways):
            outcome.add(seen)
    engine = create_engine(url)
    wrong = wrong_in_the_tables(engine, outcome)
    engine.dispose()
    say(f"together on one database, {seconds:g} s", "count")
    for status, count in sorted(outcome.statuses.items()):
        say(status, count)
    say("slowest request, ms", round(outcome.slowest_s * 1e3))
    say("wrong in the tables", "; ".join(wrong) or "nothing")
    if wrong or any(status.split()[1].startswith("5") for status in outcome.statuses):
        raise SystemExit("claims: see above")
