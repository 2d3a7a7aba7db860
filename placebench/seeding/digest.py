"""What a database holds, as counts and one digest over its sorted rows, by uuid and name, and what it should hold."""

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    String,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
)
from sqlalchemy.sql.elements import SQLCoreOperations

from placebench import tables
from placebench.seeding.connection import connected
from placebench.topology import CONSUMER_TYPE, OWNER, Consumer, Inventory, Kind, Node, Topology


def _provider_lines() -> Select[str]:
    provider = tables.resource_providers
    parent, root = provider.alias("parent"), provider.alias("root")
    return (
        select(_line(provider.c.uuid, provider.c.name, parent.c.uuid, root.c.uuid))
        .outerjoin_from(provider, parent, parent.c.id == provider.c.parent_provider_id)
        .outerjoin(root, root.c.id == provider.c.root_provider_id)
    )


def _inventory_lines() -> Select[str]:
    provider, inventory, resource_class = tables.resource_providers, tables.inventories, tables.resource_classes
    amounts = [inventory.c[name] for name in ("total", "reserved", "min_unit", "max_unit", "step_size")]
    millionths = cast(func.round(inventory.c.allocation_ratio * 1_000_000), BigInteger)
    return (
        select(_line(provider.c.uuid, resource_class.c.name, *amounts, millionths))
        .join_from(inventory, provider, provider.c.id == inventory.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == inventory.c.resource_class_id)
    )


def _trait_lines() -> Select[str]:
    provider, trait, link = tables.resource_providers, tables.traits, tables.resource_provider_traits
    return (
        select(_line(provider.c.uuid, trait.c.name))
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(trait, trait.c.id == link.c.trait_id)
    )


def _aggregate_lines() -> Select[str]:
    provider, aggregate = tables.resource_providers, tables.placement_aggregates
    link = tables.resource_provider_aggregates
    return (
        select(_line(provider.c.uuid, aggregate.c.uuid))
        .join_from(link, provider, provider.c.id == link.c.resource_provider_id)
        .join(aggregate, aggregate.c.id == link.c.aggregate_id)
    )


def _consumer_lines() -> Select[str]:
    consumer, project, user, kind = tables.consumers, tables.projects, tables.users, tables.consumer_types
    return (
        select(_line(consumer.c.uuid, project.c.external_id, user.c.external_id, kind.c.name))
        .outerjoin_from(consumer, project, project.c.id == consumer.c.project_id)
        .outerjoin(user, user.c.id == consumer.c.user_id)
        .outerjoin(kind, kind.c.id == consumer.c.consumer_type_id)
    )


def _allocation_lines() -> Select[str]:
    provider, allocation, resource_class = tables.resource_providers, tables.allocations, tables.resource_classes
    return (
        select(_line(provider.c.uuid, allocation.c.consumer_id, resource_class.c.name, allocation.c.used))
        .join_from(allocation, provider, provider.c.id == allocation.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == allocation.c.resource_class_id)
    )


def _line(*columns: SQLCoreOperations[Any]) -> ColumnElement[str]:
    """The columns as text with bars between them; NULL is empty."""
    line: ColumnElement[str] = literal("")
    for place, column in enumerate(columns):
        field = func.coalesce(cast(column, String), literal(""))
        line = line + literal("|") + field if place else field
    return line.label("line")


LINES = {
    "providers": _provider_lines(),
    "inventories": _inventory_lines(),
    "provider_traits": _trait_lines(),
    "provider_aggregates": _aggregate_lines(),
    "consumers": _consumer_lines(),
    "allocations": _allocation_lines(),
}


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
