"""What the variants of the bench are asked about: the key piece is `DATA`, each with the requests for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat

from sqlalchemy import create_engine, text

from placebench.runtime.postgres import Server
from placebench.seeding import find_topology, seed
from placebench.topology import Topology

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
DISK = "DISK_GB:10"


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

    def seeded(self, trees: int) -> Topology:
        """The topology at its size."""
        return find_topology(self.topology, trees=trees * self.times, seed=1)

    def requests(self, topology: Topology) -> Iterator[str]:
        """Path and query of one request after the other, without end."""
        request = topology.request + self.limit
        if self.again:
            return repeat(request)
        return (request.replace(DISK, f"DISK_GB:{amount}") for amount in count(10))


DATA = {
    data.name: data
    for data in (
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
