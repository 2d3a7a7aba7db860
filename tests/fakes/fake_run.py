"""Run folders for tests: real records, written by their own classes, with made-up but lifelike samples.

The main part is `write_run`. Nothing in them was measured.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from flame_graphs import session_of

from placebench.compare.keep.documents import SameResponsesDocument
from placebench.compare.keep.records import (
    Block,
    CountedPass,
    LoadPass,
    LoadResult,
    ProfiledPass,
    RunHead,
    StatementCount,
    WirePass,
)
from placebench.meters.readings import Meters
from placebench.profiler.model.session import FlameSession

REQUEST = (
    "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH"
    "&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO&resources_FPGA=FPGA:1"
    "&group_policy=none&same_subtree=_COMPUTE,_FPGA"
)
RUNGS = {
    "naive": ("", "Every plain way, as the original is written.", ""),
    "naive+rows": ("rows", "Rows are used as they come from the driver instead of being copied into dicts.", "oslo.db"),
    "naive+rows+slots": (
        "slots",
        "Objects with __slots__ are made faster and take a third of the memory.",
        "Python docs",
    ),
    "naive+rows+slots+summaries_once": (
        "summaries_once",
        "A provider's summary is built once a request, not once for each group that asks for it.",
        "placement bug 2070257",
    ),
    "naive+rows+slots+summaries_once+sets": ("sets", "Membership is asked of sets, not of lists.", ""),
    "naive+rows+slots+summaries_once+sets+expanding": (
        "expanding",
        "One expanding parameter, so that the compiled statement is found again.",
        "SQLAlchemy 1.4",
    ),
    "tuned": ("freeze", "The collector leaves alone what was there before the first request.", "gc.freeze"),
}
COST_S = (0.52, 0.47, 0.41, 0.33, 0.31, 0.28, 0.165)


@dataclass(frozen=True)
class FakeRun:
    """How the run that `write_run` makes should look."""

    variants: Sequence[str] = tuple(RUNGS)
    status: str = "complete"
    note: str = ""
    replicates: int = 6
    requests: int = 400
    equal: bool | None = True
    difference: str | None = None
    passes_of: int | None = None
    """How many variants came to be measured; None for all."""
    failures: int = 0
    failure_messages: Sequence[str] = ()
    backend_cpu: bool = True
    request: str = REQUEST
    started_at: str = "2026-11-20T14:03:11+00:00"
    seed: int = 1


def write_run(folder: Path, run: FakeRun | None = None) -> Path:
    """Write the records of *run* to *folder* and return it."""
    run = run or FakeRun()
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(run.seed)
    _head(folder, run).save(folder / "run.json")
    measured = run.variants[: run.passes_of]
    for variant in measured:
        _passes(folder, variant, run, rng)
    if len(measured) == len(run.variants) > 1:
        _comparison(folder, run, rng)
    return folder


def write_inside(folder: Path, variants: tuple[str, str] = ("naive", "tuned")) -> Path:
    """Add what a comparison sees from inside to the run in *folder*: statements, collections, a flame of the first two.

    One SELECT is asked three times and then once, one is gone, `copy_row` takes 30 ms and then nothing.
    """
    flames = {
        variants[0]: {("app", "copy_row"): 0.03, ("app",): 0.01, ("app", "SELECT 1"): 0.02},
        variants[1]: {("app",): 0.015, ("app", "SELECT 1"): 0.005},
    }
    asked = {
        variants[0]: [
            ("SELECT a FROM things WHERE id IN ($1, $2)", 3.0, 60.0, 0.006),
            ("SELECT b FROM traits", 1, 9, 0.001),
        ],
        variants[1]: [("SELECT a FROM things WHERE id IN ($1)", 1.0, 20.0, 0.002)],
    }
    for variant in variants:
        ProfiledPass(variant, requests=12).save(folder / f"profiled-{variant}.json")
        session = _session(flames[variant])
        (folder / f"profile-{variant}.pyisession").write_text(json.dumps(session.to_json()))
        statements = [StatementCount(*each) for each in asked[variant]]
        calls, rows = (sum(getattr(each, name) for each in statements) for name in ("calls", "rows"))
        counted = [calls] * 6, [rows] * 6, [calls + 2] * 6, [900.0] * 6, [40_000.0] * 6, [2_583_049.0] * 6
        WirePass(variant, *counted, by_statement=statements).save(folder / f"wire-{variant}.json")
        made = CountedPass.load(folder / f"counted-{variant}.json")
        replace(made, gc_s_each=[0.12, 0.13, 0.14] if variant == variants[0] else [0.013]).save(
            folder / f"counted-{variant}.json"
        )
    return folder


def _session(stacks: dict[tuple[str, ...], float]) -> FlameSession:
    """Frames of /srv/shop/shop.py, a statement where the name begins with SELECT."""
    frames = {name: f"{name}\x00{'sql' if name.startswith('SELECT') else '/srv/shop/shop.py'}\x001" for name in NAMES}
    records = [([frames[name] for name in stack], seconds) for stack, seconds in stacks.items()]
    return session_of(records, sys_path=["", "/srv", "/srv/shop"])


NAMES = ("app", "copy_row", "SELECT 1")


def cost_s(variant: str, variants: Sequence[str]) -> float:
    """The server CPU that a request of *variant* takes in the made-up world."""
    known = dict(zip(RUNGS, COST_S, strict=True))
    return known.get(variant, COST_S[-1 if variant == variants[-1] else 0])


def _head(folder: Path, run: FakeRun) -> RunHead:
    answered: SameResponsesDocument = {
        "checked": list(run.variants[: run.passes_of]),
        "equal": bool(run.equal),
        "allocation_requests": 2000,
        "provider_summaries": 7000,
        "digest": "5d1c0e8f2b7a4c96",
        "difference": run.difference,
    }
    rungs = {name: dict(zip(("adds", "why", "source"), said, strict=True)) for name, said in RUNGS.items()}
    return RunHead(
        name=folder.name,
        started_at=run.started_at,
        status=run.status,
        request=run.request,
        topology="nested-perfload",
        trees=1000,
        seed=run.seed,
        variants=list(run.variants),
        receipt={
            "providers": 7000,
            "inventories": 10000,
            "provider_traits": 9000,
            "digest": "a41f3f0c9be27d58",
        },
        manifest=MANIFEST,
        settings={
            "processes": 2,
            "threads": 2,
            "users": 4,
            "closed_s": 12.0,
            "open_s": 20.0,
            "counted_requests": 3,
            "profiled_requests": 12,
            "replicates": run.replicates,
            "rounds": 2,
            "block_s": 0.5,
            "steps": rungs,
        },
        same_responses={} if run.equal is None else answered,
        elapsed_s=312.4,
        note=run.note,
    )


def _passes(folder: Path, variant: str, run: FakeRun, rng: random.Random) -> None:
    for kind in ("closed", "open") if variant in (run.variants[0], run.variants[-1]) else ("closed",):
        _load_pass(variant, kind, run, rng).save(folder / f"locust-{variant}-{kind}.json")
        if kind == "open":
            (folder / f"profile-{variant}.html").write_text("<!doctype html><title>flame</title>a flame")
            (folder / f"profile-{variant}.speedscope.json").write_text("{}")
    cost = cost_s(variant, run.variants)
    CountedPass(
        variant=variant,
        requests=3,
        statements=3 * (29 if cost > 0.3 else 11),
        rows=3 * (61_000 if cost > 0.3 else 24_000),
        body_bytes=3 * 2_583_049,
        elapsed_s=3 * cost,
        sql_s=3 * cost * 0.21,
        gc_s=3 * cost * (0.32 if variant != run.variants[-1] else 0.02),
        gc_collections=120,
    ).save(folder / f"counted-{variant}.json")


def _load_pass(variant: str, kind: str, run: FakeRun, rng: random.Random) -> LoadPass:
    cost = cost_s(variant, run.variants)
    service = [cost * rng.lognormvariate(0.1, 0.16) * (2.1 if kind == "closed" else 1.05) for _ in range(run.requests)]
    waited = [each + max(0.0, rng.gauss(0, cost / 2)) if kind == "open" else each for each in service]
    result = LoadResult(
        kind=kind,
        users=4 if kind == "closed" else 0,
        rate_per_s=1.9 if kind == "open" else None,
        seed=run.seed,
        elapsed_s=sum(service) / 4,
        started_s=[number * 0.1 for number in range(run.requests)],
        latency_s=waited,
        service_s=service,
        body_bytes=[2_583_049] * run.requests,
        statuses={"200": run.requests - run.failures, **({"500": run.failures} if run.failures else {})},
        failures=run.failures,
        failure_messages=list(run.failure_messages),
        in_flight=3 if kind == "closed" else 0,
        missed=0,
        client_cpu_s=1.2,
    )
    backend = 0.2 * cost * run.requests if run.backend_cpu else None
    meters = Meters(0.8 * cost * run.requests, backend, int(180e6 + cost * 3e8))
    return LoadPass(variant=variant, result=result, meters=meters)


def _comparison(folder: Path, run: FakeRun, rng: random.Random) -> None:
    variants = (run.variants[0], run.variants[-1])
    with (folder / "blocks.jsonl").open("a") as file:
        for replicate in range(run.replicates):
            lean = {variant: rng.gauss(0, 0.01) for variant in variants}
            for round_ in range(2):
                order = [*variants, *reversed(variants)] if rng.random() < 0.5 else [*reversed(variants), *variants]
                for position, variant in enumerate(order):
                    block = _block(variant, run, rng, lean[variant], (replicate, round_, position))
                    file.write(json.dumps(asdict(block)) + "\n")


def _block(variant: str, run: FakeRun, rng: random.Random, lean: float, place: tuple[int, int, int]) -> Block:
    cost = cost_s(variant, run.variants) * (1 + lean)
    walls = [cost * rng.lognormvariate(0.05, 0.06) for _ in range(3)]
    replicate, round_, position = place
    return Block(
        replicate=replicate,
        round=round_,
        position=position,
        variant=variant,
        requests=3,
        wall_s=walls,
        cpu_s=3 * cost * rng.gauss(1, 0.004) if run.backend_cpu else None,
    )


MANIFEST = {
    "placebench": "0.1.0",
    "commit": "0b918402d2c1",
    "argv": ["placebench", "perfload"],
    "machine": {
        "processor": "AMD EPYC 7763 64-Core Processor",
        "architecture": "x86_64",
        "cores": 2,
        "cores_allowed": 2,
        "memory_bytes": 8_340_000_000,
        "kernel": "6.1.0-18-amd64",
        "system": "Debian GNU/Linux 12 (bookworm)",
        "cpu_limit": "200000 100000",
        "memory_limit": None,
        "load_average_1min": 1.24,
    },
    "python": {"version": "3.11.2", "implementation": "CPython", "compiler": "GCC 12.2.0"},
    "packages": {"sqlalchemy": "2.1.9", "psycopg2-binary": "2.9.11", "locust": "2.47.0", "pyuwsgi": "2.0.31"},
    "postgresql": {
        "version": "PostgreSQL 18.6 on x86_64-pc-linux-gnu, compiled by gcc 12.2.0, 64-bit",
        "host": "127.0.0.1",
        "settings": {"fsync": "off", "jit": "off", "max_parallel_workers_per_gather": "0", "shared_buffers": "256MB"},
    },
}
