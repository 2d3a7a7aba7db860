"""The verdict of each route of a mix, from blocks with whole cycles of requests."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from fake_run import FakeRun, write_run

from placebench.compare.keep.records import Block, RunHead, append_lines
from placebench.report import build_report
from placebench.stats.verdict import EQUIVALENT, SLOWER

ROUTES = ["GET /orders", "GET /orders/{id}", "GET /search"]
CYCLE = [0, 1, 1, 2]
"""Of four requests, two are for one order."""
SLOW = 2


def write_mix(folder: Path, *, replicates: int, slower: float = 1.3, left_out: str = "") -> Path:
    """A run of two variants, of which the second takes *slower* times as long to search."""
    write_run(folder, FakeRun(variants=("base", "changed"), replicates=0))
    head = RunHead.load(folder / "run.json")
    requests = [{"request": each, "weight": 1, "expected": "200", "route": each} for each in ROUTES]
    settings = {**head.settings, "workload": {"requests": requests, "cycle": CYCLE}, "users": 1}
    same = {**head.same_responses, "left_out": {left_out: "status 500"} if left_out else {}}
    replace(head, command="compare", settings=settings, same_responses=same).save(folder / "run.json")
    order = [route for route in CYCLE if ROUTES[route] != left_out]
    rng = random.Random(1)
    blocks = []
    for replicate in range(replicates):
        for position, variant in enumerate(("base", "changed", "changed", "base")):
            times = [
                (route + 1) / 1000 * rng.gauss(1, 0.005) * (slower if variant == "changed" and route == SLOW else 1)
                for route in order * 5
            ]
            made = Block(replicate, 0, position, variant, len(times), times, sum(times), cycle=len(order))
            blocks.append(made)
    (folder / "blocks.jsonl").unlink(missing_ok=True)
    append_lines(folder / "blocks.jsonl", blocks)
    return folder


def test_each_route_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    """One of three routes is slower by 30 %; the verdicts of the others are not touched by it."""
    made = build_report(write_mix(tmp_path / "run", replicates=12))

    routes = {each["route"]: each for each in made.document["routes"]}
    assert {"GET /search": SLOWER, "GET /orders/{id}": EQUIVALENT, "GET /orders": EQUIVALENT} == {
        name: each["verdict"] for name, each in routes.items()
    }
    assert {"GET /search": 0.25, "GET /orders/{id}": 0.5, "GET /orders": 0.25} == {
        name: each["share"] for name, each in routes.items()
    }
    assert pytest.approx(1.3, rel=0.01) == routes["GET /search"]["ratio"]
    assert next(iter(routes)) == "GET /search", "what is slower comes first"
    (sentence,) = [each for each in made.summary if each.startswith("Of 3 routes")]
    assert "1 slower (GET /search +30" in sentence
    assert "2 without a change that matters" in sentence


def test_too_few_replicates_for_all_routes_say_how_many_decide(tmp_path: Path) -> None:
    """Three routes share the error rate, so that six replicates, which decide one metric, do not decide a route."""
    routes = build_report(write_mix(tmp_path / "run", replicates=6)).document["routes"]

    assert {"inconclusive: 6 replicates, 7 needed"} == {each["reason"] for each in routes}


def test_a_route_that_was_left_out_is_named_and_has_no_place(tmp_path: Path) -> None:
    """The times of the others are those of their places in the shorter cycle."""
    made = build_report(write_mix(tmp_path / "run", replicates=12, left_out="GET /orders"))

    assert {"GET /search", "GET /orders/{id}"} == {each["route"] for each in made.document["routes"]}
    assert {"GET /orders": "status 500"} == made.document["responses"]["left_out"]
    assert "1 route left out: GET /orders: status 500." in made.summary
    values = {each["route"]: each["baseline_value"] for each in made.document["routes"]}
    assert pytest.approx({"GET /search": 0.003, "GET /orders/{id}": 0.002}, rel=0.01) == values
