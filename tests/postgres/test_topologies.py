"""The topologies that come with placebench: each can be seeded, and every algorithm answers its request alike."""

import pytest
from sqlalchemy import create_engine
from werkzeug.test import Client

from placebench.experiment.answers import canonical
from placebench.experiment.requesting import HEADERS
from placebench.reference.app import make_app
from placebench.seeding import seed, topology_named


@pytest.mark.parametrize(
    ("name", "trees", "providers", "candidates"),
    [
        ("nested-perfload", 2, 14, 4),
        ("flat-perfload", 2, 2, 2),
        ("shared-storage", 42, 42, 18),
        ("deep", 2, 22, 4),
        ("mixed", 20, 46, 26),  # 12 plain, 5 * 2 numa, 2 gpu, and 2 plain ones in pod0 and pod1 with the disk of nfs
    ],
)
def test_a_topology_is_answered_alike(
    database_url: str, name: str, trees: int, providers: int, candidates: int
) -> None:
    """Seeded small: so many providers, and so many candidates from naive and from shapes."""
    topology = topology_named(name, trees=trees)
    receipt = seed(topology, database_url)
    engine = create_engine(database_url)

    answers = [
        Client(make_app(engine, variant)).get(topology.request, headers=HEADERS).json for variant in ("naive", "shapes")
    ]
    engine.dispose()

    assert (providers, [candidates] * 2) == (receipt.providers, [len(each["allocation_requests"]) for each in answers])
    assert canonical(answers[0]) == canonical(answers[1])


def test_wide_hosts_are_answered_up_to_the_limit(database_url: str) -> None:
    """Four hosts of 8, 16, 32 and 64 devices have 5320 pairs, of which a thousand are asked for."""
    topology = topology_named("wide", trees=4)
    receipt = seed(topology, database_url)
    engine = create_engine(database_url)

    answer = Client(make_app(engine, "shapes")).get(topology.request, headers=HEADERS).json
    engine.dispose()

    assert (124, 1000) == (receipt.providers, len(answer["allocation_requests"]))
