"""What the variants of the bench are asked about: the main part is `DATA`, each with the requests for it."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, cycle, repeat
from random import Random
from uuid import UUID

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
    ordinary: bool = False
    """Requests for candidates at random, each another one, a claim after ten and now and then another inventory."""
    utilization: float | None = None

    def seeded(self, trees: int) -> Topology:
        """The topology at its size."""
        return find_topology(self.topology, trees=trees * self.times, seed=1, utilization=self.utilization)

    @property
    def cycle(self) -> int:
        """A block has a multiple of this number of requests; one that is not ordinary leaves the data as it was."""
        return 20 if self.mix else 22 if self.ordinary else 1

    def requests(self, topology: Topology, seed: int) -> Iterator[Call]:
        """One request after the other, without end; the seed matters where they are at random."""
        if self.ordinary:
            return _ordinary(topology, Random(seed))
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


def _ordinary(topology: Topology, chance: Random) -> Iterator[Call]:
    """Of eleven requests ten for candidates and a claim of some disk; one in a hundred changes an inventory first."""
    make = _nested_query if "FPGA" in topology.resource_classes else _flat_query
    generations = Counter[str]()
    while True:
        for _ in range(10):
            root = topology.uuids(chance.randrange(topology.trees))[0]
            if chance.random() < 0.01:
                inventory = {"total": 20_000 + chance.randrange(400), "min_unit": 5, "max_unit": 8192}
                stock = {"resource_provider_generation": generations[root], **inventory}
                path = f"/resource_providers/{root}/inventories/DISK_GB"
                yield Call(path, "PUT", json.dumps(stock).encode())
                generations[root] += 1
            limit = chance.choice(("", "", "&limit=10", "&limit=100", "&limit=1000"))
            in_tree = f"&in_tree={root}" if chance.random() < 0.1 else ""
            yield Call(f"/allocation_candidates?{make(topology, chance)}{in_tree}{limit}")
        consumer, root = (
            UUID(int=chance.getrandbits(128), version=4),
            topology.uuids(chance.randrange(topology.trees))[0],
        )
        takes = {root: {"resources": {"DISK_GB": chance.randrange(5, 9)}}}
        who = {"project_id": OWNER, "user_id": OWNER, "consumer_type": CONSUMER_TYPE, "consumer_generation": None}
        yield Call(f"/allocations/{consumer}", "PUT", json.dumps({"allocations": takes, **who}).encode())
        generations[root] += 1


def _nested_query(_: Topology, chance: Random) -> str:
    """Disk, most often with processors and a device below one NUMA node, some of these with traits."""
    query = f"resources=DISK_GB:{chance.randrange(10, 90)}"
    query += "&required=COMPUTE_VOLUME_MULTI_ATTACH" if chance.random() < 0.3 else ""
    if chance.random() < 0.3:
        return query
    query += f"&resources_C=VCPU:{chance.randrange(1, 4)},MEMORY_MB:{chance.choice((256, 512))}&resources_D=FPGA:1"
    query += "&required_C=CUSTOM_FOO" if chance.random() < 0.5 else ""
    return query + "&group_policy=none" + ("&same_subtree=_C,_D" if chance.random() < 0.6 else "")


def _flat_query(topology: Topology, chance: Random) -> str:
    """Three classes, some with a trait that is wanted or not, some in an aggregate or outside of it."""
    memory = chance.choice((128, 256, 512, 1024))
    query = f"resources=DISK_GB:{chance.randrange(10, 70)},VCPU:{chance.randrange(1, 5)},MEMORY_MB:{memory}"
    query += f"&required={chance.choice(('', '!'))}{chance.choice(topology.traits)}" if chance.random() < 0.4 else ""
    aggregates = list(topology.aggregate_uuids.values())
    return query + (
        f"&member_of={chance.choice(('', '!'))}{chance.choice(aggregates)}" if chance.random() < 0.2 else ""
    )


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
        Data("ordinary-nested", "nested-perfload", (CLAIMS, CHANGED_DISKS), ordinary=True),
        Data("ordinary-flat", "flat-perfload", ordinary=True),
        Data("ordinary-flat-5000", "flat-perfload", times=5, ordinary=True, utilization=0.4),
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
