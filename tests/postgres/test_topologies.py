"""The topologies that come with placebench: each can be seeded, and every algorithm answers its request alike."""

from typing import Any

import pytest
from sqlalchemy import create_engine
from werkzeug.test import Client

from placebench.compare.what.http_request import HEADERS
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.inventory.topology import Topology
from placebench.lab.placement_api import canonical_candidates
from placebench.lab.reference.api.pipeline import make_app


def answers_of(url: str, topology: Topology, *variants: str) -> list[Any]:
    """What the variants answer to the topology's request."""
    engine = create_engine(url)
    found = [Client(make_app(engine, name)).get(topology.request, headers=HEADERS).json for name in variants]
    engine.dispose()
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "trees", "utilization", "providers", "candidates"),
    [
        ("nested-perfload", 2, None, 14, 4),
        ("nested-perfload", 9, 0.5, 63, 10),  # 8 consumers of 18 that fit, each with one of the FPGAs
        ("flat-perfload", 2, None, 2, 2),
        ("shared-storage", 42, None, 42, 18),
        ("shared-storage", 42, 0.9, 42, 17),
        ("deep", 2, None, 22, 4),
        ("deep", 5, 1.0, 55, 0),
        ("mixed", 20, None, 46, 26),  # 12 plain, 5 * 2 numa, 2 gpu; 2 of the plain ones with the disk of nfs, too
        ("mixed-cloud", 50, None, 100, 90),
        ("partly-used", 20, None, 60, 24),
    ],
)
def test_a_topology_is_answered_alike(
    database_url: str, name: str, trees: int, utilization: float | None, providers: int, candidates: int
) -> None:
    """Seeded small: so many providers, and so many candidates from each algorithm."""
    topology = find_topology(name, trees=trees, utilization=utilization)
    receipt = seed(topology, database_url)

    answers = answers_of(database_url, topology, "naive", "tuned", "dedup", "cached")

    assert (providers, [candidates] * 4) == (receipt.providers, [len(each["allocation_requests"]) for each in answers])
    assert all(canonical_candidates(answers[0]) == canonical_candidates(answer) for answer in answers)


def test_wide_hosts_are_answered_up_to_the_limit(database_url: str) -> None:
    """Four hosts of 8, 16, 32 and 64 devices have 5320 pairs, of which a thousand are asked for."""
    topology = find_topology("wide", trees=4)
    receipt = seed(topology, database_url)

    (answer,) = answers_of(database_url, topology, "dedup")

    assert (124, 1000) == (receipt.providers, len(answer["allocation_requests"]))
