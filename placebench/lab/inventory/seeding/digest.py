"""The content of a database as row counts and a digest over rows without their ids, and the expected content."""

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

from placebench.lab.inventory import tables
from placebench.lab.inventory.seeding.connection import exclusive_connection
from placebench.lab.inventory.topology import CONSUMER_TYPE, OWNER, Node, Topology, TreeType

_AMOUNTS = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")


def _selects() -> dict[str, Select[Any]]:
    provider, inventory, resource_class = tables.resource_providers, tables.inventories, tables.resource_classes
    parent, root = provider.alias("parent"), provider.alias("root")
    trait, trait_link = tables.traits, tables.resource_provider_traits
    aggregate, aggregate_link = tables.placement_aggregates, tables.resource_provider_aggregates
    consumer, consumer_type, allocation = tables.consumers, tables.consumer_types, tables.allocations
    project, user = tables.projects, tables.users
    return {
        "providers": select(provider.c.uuid, provider.c.name, parent.c.uuid, root.c.uuid)
        .outerjoin_from(provider, parent, parent.c.id == provider.c.parent_provider_id)
        .outerjoin(root, root.c.id == provider.c.root_provider_id),
        "inventories": select(provider.c.uuid, resource_class.c.name, *(inventory.c[name] for name in _AMOUNTS))
        .join_from(inventory, provider, provider.c.id == inventory.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == inventory.c.resource_class_id),
        "provider_traits": select(provider.c.uuid, trait.c.name)
        .join_from(trait_link, provider, provider.c.id == trait_link.c.resource_provider_id)
        .join(trait, trait.c.id == trait_link.c.trait_id),
        "provider_aggregates": select(provider.c.uuid, aggregate.c.uuid)
        .join_from(aggregate_link, provider, provider.c.id == aggregate_link.c.resource_provider_id)
        .join(aggregate, aggregate.c.id == aggregate_link.c.aggregate_id),
        "consumers": select(consumer.c.uuid, project.c.external_id, user.c.external_id, consumer_type.c.name)
        .outerjoin_from(consumer, project, project.c.id == consumer.c.project_id)
        .outerjoin(user, user.c.id == consumer.c.user_id)
        .outerjoin(consumer_type, consumer_type.c.id == consumer.c.consumer_type_id),
        "allocations": select(provider.c.uuid, allocation.c.consumer_id, resource_class.c.name, allocation.c.used)
        .join_from(allocation, provider, provider.c.id == allocation.c.resource_provider_id)
        .join(resource_class, resource_class.c.id == allocation.c.resource_class_id),
    }


SELECTS = _selects()
"""A query for each table of a Placement's database that returns its rows with UUIDs and names in place of ids."""


def _line(query: Select[Any]) -> Select[Any]:
    """Return a query for the same rows as text, columns separated by bars; NULL is empty, ratios are in millionths."""
    line: ColumnElement[str] = literal("")
    for place, column in enumerate(query.selected_columns):
        whole = cast(func.round(column * 1_000_000), BigInteger) if column.name == "allocation_ratio" else column
        field = func.coalesce(cast(whole, String), literal(""))
        line = line + literal("|") + field if place else field
    return query.with_only_columns(line.label("line"), maintain_column_froms=True)


_MODULUS = 2**64
_USED = (tables.consumers, tables.allocations)
_md5 = hashlib.md5

# The settings of our servers are for measuring: one process, little memory. With more of both, a million providers are
# joined four times as fast; the end of the transaction resets them.
_WIDE = "SET LOCAL max_parallel_workers_per_gather = 2; SET LOCAL work_mem = '64MB'"


@dataclass(frozen=True)
class _LineSum:
    """The number of lines of one table, and the sum of their hashes."""

    count: int
    total: int


@dataclass(frozen=True)
class Content:
    """The content of a database: for each table the number of lines and the sum of their hashes."""

    tables: tuple[tuple[str, _LineSum], ...]

    def count(self, table: str) -> int:
        """Return the number of lines of *table*, such as "providers", "inventories" or "provider_traits"."""
        return dict(self.tables)[table].count

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that are equal for equal data, regardless of the order in which rows were written."""
        text = "\n".join(f"{table} {lines.count} {lines.total % _MODULUS}" for table, lines in self.tables)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def data_digest(database: str | Connection) -> str:
    """Return the digest of the seeded data, from six queries that each read a table once."""
    if isinstance(database, Connection):
        return read_content(database).digest
    with exclusive_connection(database) as connection:
        return read_content(connection).digest


def count_consumers_and_allocations(url: str) -> tuple[int, int]:
    """Return the number of consumers in the database, and the number of their allocations."""
    with exclusive_connection(url) as connection:
        counts = [connection.scalar(select(func.count()).select_from(table)) or 0 for table in _USED]
    return counts[0], counts[1]


def read_content(connection: Connection) -> Content:
    """Return the content of the database from six queries; PostgreSQL adds the lines up itself, others send them."""
    is_postgresql = connection.dialect.name == "postgresql"
    if is_postgresql and connection.in_transaction():
        connection.execute(text(_WIDE))
    sums: list[tuple[str, _LineSum]] = []
    for table, query in SELECTS.items():
        if is_postgresql:  # SELECT count(*), sum(('x' || md5(line))::bit(64)::bigint) FROM (…) AS lines
            number = func.sum(literal_column("('x' || md5(line))::bit(64)::bigint", BigInteger))
            counted = select(func.count(), func.coalesce(number, 0)).select_from(_line(query).subquery("lines"))
            count, total = connection.execute(counted).one()
            sums.append((table, _LineSum(count, int(total))))
        else:
            added = _Sum()
            for part in connection.scalars(_line(query), execution_options={"yield_per": 1000}).partitions():
                added.add(part)
            sums.append((table, added.lines))
    return Content(tuple(sums))


def expected_content(topology: Topology) -> Content:
    """Return the content of a database into which exactly this topology was loaded; takes about 1 µs of CPU per line.

    The text that all providers of one node share is built once, so that a line is the concatenation of two strings.
    """
    sums = {table: _Sum() for table in SELECTS}
    aggregate_uuids = topology.aggregate_uuids
    common = [_Common(topology, each) for each in topology.tree_types]
    for tree in range(topology.trees):
        uuids, shared = topology.uuids(tree), common[topology.type_index(tree)]
        sums["providers"].add(
            [
                f"{uuid}|{node.name}-{tree}|{'' if node.parent is None else uuids[node.parent]}|{uuids[0]}"
                for uuid, node in zip(uuids, shared.nodes, strict=True)
            ]
        )
        sums["inventories"].add([uuids[place] + ending for place, ending in shared.inventories])
        sums["provider_traits"].add([uuids[place] + ending for place, ending in shared.traits])
        sums["provider_aggregates"].add([uuids[place] + ending for place, ending in shared.aggregates])
        for place, node in shared.varying:
            chosen = topology.chosen_traits(tree, node), topology.chosen_aggregates(tree, node)
            sums["provider_traits"].add([f"{uuids[place]}|{name}" for name in chosen[0]])
            sums["provider_aggregates"].add([f"{uuids[place]}|{aggregate_uuids[name]}" for name in chosen[1]])
        if topology.is_used:
            consumers = topology.consumers(tree)
            sums["consumers"].add([f"{uuid}|{OWNER}|{OWNER}|{CONSUMER_TYPE}" for uuid, _ in consumers])
            sums["allocations"].add(
                [f"{uuids[place]}|{uuid}|{name}|{amount}" for uuid, takes in consumers for place, name, amount in takes]
            )
    return Content(tuple((table, each.lines) for table, each in sums.items()))


class _Common:
    """The shared ends of lines for trees of one type, by position of the node; lines begin with the provider's UUID."""

    def __init__(self, topology: Topology, tree_type: TreeType) -> None:
        uuids = topology.aggregate_uuids
        self.nodes = tree_type.nodes
        self.inventories = self._endings(
            lambda node: [
                f"|{each.resource_class}|{each.total}|{each.reserved}|{each.min_unit}|{each.max_unit}|{each.step_size}"
                f"|{round(each.allocation_ratio * 1_000_000)}"
                for each in node.inventories
            ]
        )
        self.traits = self._endings(lambda node: [f"|{trait}" for trait in node.traits])
        self.aggregates = self._endings(lambda node: [f"|{uuids[name]}" for name in topology.common_aggregates(node)])
        self.varying = [(place, node) for place, node in enumerate(tree_type.nodes) if topology.varies(node)]

    def _endings(self, of_node: Callable[[Node], list[str]]) -> list[tuple[int, str]]:
        return [(place, ending) for place, node in enumerate(self.nodes) for ending in of_node(node)]


class _Sum:
    """Counts lines and adds up their hashes."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0

    def add(self, lines: Sequence[str]) -> None:
        """Add the first eight bytes of each line's MD5 as a signed integer; all integers are unpacked in one call."""
        firsts = [_md5(line.encode(), usedforsecurity=False).digest()[:8] for line in lines]
        self._count += len(lines)
        self._total += sum(struct.unpack(f">{len(lines)}q", b"".join(firsts)))

    @property
    def lines(self) -> _LineSum:
        return _LineSum(self._count, self._total)
