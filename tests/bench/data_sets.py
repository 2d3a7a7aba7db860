"""What the variants of the bench are asked about: the main part is `DATA`, each with the requests for it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, cycle, repeat

from sqlalchemy import create_engine, text

from placebench.lab.inventory.seeding import find_topology, seed
from placebench.lab.inventory.topology import Topology
from placebench.lab.inventory.topology.topology import CONSUMER_TYPE, OWNER, Consumer
from placebench.runtime.postgres import Server

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
DISK = re.compile(r"DISK_GB:(\d+)")


@dataclass(frozen=True)
class Call:
    """One request."""

    path: str
    method: str = "GET"
    body: bytes = b""


@dataclass(frozen=True)
class Data:
    """A database and the requests to it."""

    name: str
    """As --data takes it."""
    topology: str
    changes: tuple[str, ...] = ()
    times: int = 1
    """So many trees for each one that is asked for."""
    limit: str = ""
    again: bool = False
    """The same request each time; else each one asks for another amount of disk, which all trees have."""
    mix: bool = False
    """The mix of record instead of requests for candidates alone."""

    def seeded(self, trees: int) -> Topology:
        """The topology at its size."""
        return find_topology(self.topology, trees=trees * self.times, seed=1)

    @property
    def cycle(self) -> int:
        """A block has so many requests, or a multiple: it leaves the data as it was."""
        return 20 if self.mix else 1

    def requests(self, topology: Topology) -> Iterator[Call]:
        """One request after the other, without end."""
        request = topology.request + self.limit
        if self.again:
            return repeat(Call(request))
        candidates = (Call(DISK.sub(f"DISK_GB:{amount}", request)) for amount in count(int(DISK.findall(request)[0])))
        return _mix(topology, candidates) if self.mix else candidates


def _mix(topology: Topology, candidates: Iterator[Call]) -> Iterator[Call]:
    """The mix of record: of ten requests six for candidates, two of them with a limit, three reads and a write.

    The writes are by turns a release and the claim of what it released, each pair on another tree that is in use.
    """
    used = [number for number in range(topology.trees) if topology.consumers(number)]
    for number in cycle(used):
        consumer, uuids = topology.consumers(number)[0], topology.uuids(number)
        allocations = f"/allocations/{consumer.uuid}"
        release, claim = Call(allocations, "DELETE"), Call(allocations, "PUT", _claim(consumer, uuids))
        provider = f"/resource_providers/{uuids[0]}"
        reads = [Call(f"{provider}/inventories"), Call(f"{provider}/usages"), Call(allocations)]
        for write in (release, claim):
            six = [next(candidates) for _ in range(6)]
            six[2:5:2] = (Call(f"{each.path}&limit=10") for each in six[2:5:2])
            yield from chain.from_iterable(zip(six[::2], six[1::2], reads, strict=True))
            yield write


def _claim(consumer: Consumer, uuids: list[str]) -> bytes:
    """The body of a claim by a consumer that is new."""
    allocations: dict[str, dict[str, dict[str, int]]] = {}
    for place, resource_class, amount in consumer.takes:
        allocations.setdefault(uuids[place], {"resources": {}})["resources"][resource_class] = amount
    who = {"project_id": OWNER, "user_id": OWNER, "consumer_type": CONSUMER_TYPE, "consumer_generation": None}
    return json.dumps({"allocations": allocations, **who}).encode()


DATA = {
    data.name: data
    for data in (
        Data("mixed", "mixed-cloud", mix=True),
        Data("mixed-full", "mixed-cloud"),
        Data("uniform", "nested-perfload"),
        Data("used", "nested-perfload", (CLAIMS, CHANGED_DISKS)),
        Data("larger", "nested-perfload", times=3),
        Data("flat", "flat-perfload"),
        Data("limit", "nested-perfload", limit="&limit=10"),
        Data("again", "nested-perfload", (CLAIMS, CHANGED_DISKS), again=True),
    )
}


def make(server: Server, name: str, data: Data, topology: Topology) -> None:
    """The database of this name with the data in it."""
    url = server.create_database(name)
    seed(topology, url)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (*data.changes, "VACUUM ANALYZE"):
            connection.execute(text(statement))
    engine.dispose()
