"""Replicas: `cached` reads candidates from the primary and the rest from a replica, `dedup` all from either."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from sqlalchemy import create_engine
from werkzeug.test import Client, TestResponse

from placebench.compare.what.http_request import HEADERS
from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.placement_api import CandidatesResponse, canonical_candidates
from placebench.lab.reference.candidates.dedup.statements import read_state
from placebench.lab.reference.deployment import make_application
from placebench.lab.reference.store.database import Database
from placebench.runtime.postgres.cluster import Cluster

TOPOLOGY = find_topology("nested-perfload", trees=5)
OWNER = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A primary with the data set, and a replica."""
    with Cluster(1) as made:
        seed(TOPOLOGY, made.url(made.primary))
        made.add_replicas()
        yield made


def client_of(variant: str, url: str, readers: str | None = None) -> Client:
    environment = {"PLACEBENCH_VARIANT": variant, "PLACEBENCH_DATABASE_URL": url}
    if readers:
        environment["PLACEBENCH_READER_URL"] = readers
    return Client(make_application(environment))


def get(client: Client, path: str) -> TestResponse:
    """The response; the first ones on connections to a primary that is gone are errors."""
    for _ in range(10):
        response = client.get(path, headers=HEADERS)
        if response.status_code != 500:
            break
    return response


def candidates(client: Client) -> CandidatesResponse:
    """Those of the reference request, whatever their order."""
    response = get(client, TOPOLOGY.request)
    assert response.status_code == 200, response.text
    return canonical_candidates(response.get_json())


def claim(client: Client, number: int) -> None:
    """Take the first candidate for a consumer of its own."""
    allocations = get(client, TOPOLOGY.request).get_json()["allocation_requests"][0]["allocations"]
    path = f"/allocations/00000000-0000-4000-8000-{number:012d}"
    claimed = client.put(path, headers=HEADERS, json={"allocations": allocations, **OWNER})
    assert claimed.status_code == 204, claimed.text


@pytest.mark.long
def test_what_is_no_candidate_is_read_from_the_replica(cluster: Cluster) -> None:
    """A trait made while the replica is behind is not there yet, where the client sends no position."""
    _, replica = cluster.nodes
    client = client_of("cached", cluster.writer_url, cluster.reader_url(1))
    with cluster.replay_paused(replica):
        assert client.put("/traits/CUSTOM_LATE", headers=HEADERS).status_code == 201
        assert get(client, "/traits/CUSTOM_LATE").status_code == 404


def test_a_replica_does_not_say_what_it_shows(cluster: Cluster) -> None:
    """Its snapshot lists no running transaction, so `dedup` relies on it only where it reads from a primary."""
    seen = []
    for node in cluster.nodes:
        engine = create_engine(cluster.url(node))
        with Database(engine).snapshot() as connection:
            seen.append(read_state(connection).seen)
        engine.dispose()

    assert seen[0]
    assert seen[1] is None


def test_candidates_are_never_behind_the_primary_and_follow_a_new_one(cluster: Cluster) -> None:
    """After each claim they are those of `dedup` on the primary: on a replica that is behind, and after a promotion."""
    first, replica = cluster.nodes
    cached = client_of("cached", cluster.writer_url, cluster.reader_url(1))
    claimed = 0
    for primary in (first, replica):
        if primary is replica:
            cluster.kill(first)
            cluster.promote()
        dedup = client_of("dedup", cluster.url(primary))
        for _ in range(3):
            found = candidates(cached)
            assert found == candidates(dedup)
            with cluster.replay_paused(replica) if primary is first else nullcontext():
                claimed += 1
                claim(cached, claimed)
                assert candidates(cached) == candidates(dedup) != found
