"""What a database holds, as counts and one digest, and what it should hold: the same figures made from the topology.

Each provider, inventory, provider's trait, provider's aggregate, consumer and allocation is a line of text
(placebench.seeding.lines); a line counts as the first eight bytes of its MD5; these numbers are added up, so that the
order of rows does not matter. MD5 is not for safety here: it is what Python and PostgreSQL of every version compute
alike, and so a loader's work is checked against the topology itself and not only against the work of another loader
(hashtextextended, which only PostgreSQL computes, would save half a second a million lines).

The key pieces are `content` and `expected_content`.
"""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, Select, func, literal_column, select, text

from placebench import tables
from placebench.seeding.database import connected
from placebench.seeding.lines import LINES
from placebench.topology import CONSUMER_TYPE, OWNER, Consumer, Inventory, Kind, Node, Topology

_MODULUS = 2**64
_USED = (tables.consumers, tables.allocations)
_md5 = hashlib.md5

# The settings of a server of ours are for measuring: one process, little memory. A million providers are joined four
# times as fast with more; the transaction's end takes it back.
_WIDE = "SET LOCAL max_parallel_workers_per_gather = 2; SET LOCAL work_mem = '64MB'"


@dataclass(frozen=True)
class Lines:
    """How many lines there are of one kind, and their sum."""

    count: int
    total: int


@dataclass(frozen=True)
class Content:
    """What a database holds, kind by kind."""

    kinds: tuple[tuple[str, Lines], ...]

    def count(self, kind: str) -> int:
        """How many lines there are of *kind*: "providers", "inventories", "provider_traits" ..."""
        return dict(self.kinds)[kind].count

    @property
    def digest(self) -> str:
        """32 hexadecimal digits; equal for equal data, whoever wrote it and in whatever order."""
        text = "\n".join(f"{kind} {lines.count} {lines.total % _MODULUS}" for kind, lines in self.kinds)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def data_digest(database: str | Connection) -> str:
    """The digest of what is seeded in the database: six queries, each reads a table once."""
    if isinstance(database, Connection):
        return content(database).digest
    with connected(database) as connection:
        return content(connection).digest


def consumers_and_allocations(url: str) -> tuple[int, int]:
    """How many consumers the database holds, and how many allocations they have."""
    with connected(url) as connection:
        counts = [connection.scalar(select(func.count()).select_from(table)) or 0 for table in _USED]
    return counts[0], counts[1]


def content(connection: Connection) -> Content:
    """What the database holds: six queries; PostgreSQL adds the lines up itself, from others they are fetched."""
    add_up = _in_postgresql if connection.dialect.name == "postgresql" else _here
    if connection.dialect.name == "postgresql" and connection.in_transaction():
        connection.execute(text(_WIDE))
    return Content(tuple((kind, add_up(connection, query)) for kind, query in LINES.items()))


def expected_content(topology: Topology) -> Content:
    """What a database holds when exactly this topology was loaded; about 1 µs of CPU a line.

    What the providers of one node have in common is written once, so that a line is one addition of two strings.
    """
    sums = {kind: _Sum() for kind in LINES}
    aggregate_uuids = topology.aggregate_uuids
    common = [_Common(topology, kind) for kind in topology.kinds]
    for tree in range(topology.trees):
        uuids, kind = topology.uuids(tree), common[topology.kind(tree)]
        sums["providers"].add(_providers(kind.nodes, tree, uuids))
        sums["inventories"].add([uuids[place] + ending for place, ending in kind.inventories])
        sums["provider_traits"].add([uuids[place] + ending for place, ending in kind.traits])
        sums["provider_aggregates"].add([uuids[place] + ending for place, ending in kind.aggregates])
        for place, node in kind.some:
            chosen = topology.chosen_traits(tree, node), topology.chosen_aggregates(tree, node)
            sums["provider_traits"].add([f"{uuids[place]}|{name}" for name in chosen[0]])
            sums["provider_aggregates"].add([f"{uuids[place]}|{aggregate_uuids[name]}" for name in chosen[1]])
        if topology.is_used:
            consumers = topology.consumers(tree)
            sums["consumers"].add([f"{uuid}|{OWNER}|{OWNER}|{CONSUMER_TYPE}" for uuid, _ in consumers])
            sums["allocations"].add(_allocations(uuids, consumers))
    return Content(tuple((kind, found.lines) for kind, found in sums.items()))


class _Common:
    """What the trees of one kind have in common: by the place of a node, what stands behind its provider's uuid."""

    def __init__(self, topology: Topology, kind: Kind) -> None:
        uuids = topology.aggregate_uuids
        self.nodes = kind.nodes
        self.inventories = self._endings(lambda node: [_inventory(each) for each in node.inventories])
        self.traits = self._endings(lambda node: [f"|{trait}" for trait in node.traits])
        self.aggregates = self._endings(lambda node: [f"|{uuids[name]}" for name in topology.common_aggregates(node)])
        self.some = [(place, node) for place, node in enumerate(kind.nodes) if topology.varies(node)]

    def _endings(self, of_node: Callable[[Node], list[str]]) -> list[tuple[int, str]]:
        return [(place, ending) for place, node in enumerate(self.nodes) for ending in of_node(node)]


def _providers(nodes: Sequence[Node], tree: int, uuids: list[str]) -> list[str]:
    root = uuids[0]
    return [
        f"{uuid}|{node.name}-{tree}|{'' if node.parent is None else uuids[node.parent]}|{root}"
        for uuid, node in zip(uuids, nodes, strict=True)
    ]


def _allocations(uuids: list[str], consumers: Sequence[Consumer]) -> list[str]:
    return [f"{uuids[place]}|{uuid}|{name}|{amount}" for uuid, takes in consumers for place, name, amount in takes]


def _inventory(each: Inventory) -> str:
    amounts = f"{each.total}|{each.reserved}|{each.min_unit}|{each.max_unit}|{each.step_size}"
    return f"|{each.resource_class}|{amounts}|{round(each.allocation_ratio * 1_000_000)}"


class _Sum:
    """Adds lines up."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0

    def add(self, lines: Sequence[str]) -> None:
        """Each line as the first eight bytes of its MD5, signed; all numbers are unpacked at once."""
        firsts = [_md5(line.encode(), usedforsecurity=False).digest()[:8] for line in lines]
        self._count += len(lines)
        self._total += sum(struct.unpack(f">{len(lines)}q", b"".join(firsts)))

    @property
    def lines(self) -> Lines:
        return Lines(self._count, self._total)


def _in_postgresql(connection: Connection, query: Select[str]) -> Lines:
    """SELECT count(*), sum(('x' || md5(line))::bit(64)::bigint) FROM (…) AS lines"""
    lines = query.subquery("lines")
    number = literal_column("('x' || md5(line))::bit(64)::bigint", BigInteger)
    count, total = connection.execute(select(func.count(), func.coalesce(func.sum(number), 0)).select_from(lines)).one()
    return Lines(count, int(total))


def _here(connection: Connection, query: Select[str]) -> Lines:
    total = _Sum()
    for part in connection.scalars(query, execution_options={"yield_per": 1000}).partitions():
        total.add(part)
    return total.lines
