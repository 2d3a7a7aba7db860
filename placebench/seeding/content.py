"""What a database holds, as counts and one digest, and what it should hold: the same figures made from the topology.

Each provider, inventory, provider's trait, provider's aggregate, consumer and allocation is a line of text
(placebench.seeding.lines); a line counts as the first eight bytes of its MD5; these numbers are added up, so that the
order of rows does not matter. MD5 is not for safety here: it is what Python and PostgreSQL of every version compute
alike, and so a loader's work is checked against the topology itself and not only against the work of another loader
(hashtextextended, which only PostgreSQL computes, would save half a second a million lines).

The key pieces are `content` and `expected_content`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import BigInteger, Connection, Select, func, literal_column, select

from placebench.seeding.database import connected
from placebench.seeding.lines import LINES
from placebench.topology import Provider, Topology

_MODULUS = 2**64


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


def content(connection: Connection) -> Content:
    """What the database holds: six queries; PostgreSQL adds the lines up itself, from others they are fetched."""
    add_up = _in_postgresql if connection.dialect.name == "postgresql" else _here
    return Content(tuple((kind, add_up(connection, query)) for kind, query in LINES.items()))


def expected_content(topology: Topology) -> Content:
    """What a database holds when exactly this topology was loaded; about 2 µs of CPU a line."""
    sums = {kind: _Sum() for kind in LINES}
    for tree in range(topology.trees):
        for provider in topology.tree(tree):
            for kind, line in _lines(provider):
                sums[kind].add(line)
    return Content(tuple((kind, found.lines) for kind, found in sums.items()))


def _lines(provider: Provider) -> Iterator[tuple[str, str]]:
    """Kind and line of everything that a provider is and has, as `LINES` asks it of a database."""
    uuid = provider.uuid
    yield "providers", f"{uuid}|{provider.name}|{provider.parent_uuid or ''}|{provider.root_uuid}"
    for each in provider.inventories:
        amounts = f"{each.total}|{each.reserved}|{each.min_unit}|{each.max_unit}|{each.step_size}"
        yield "inventories", f"{uuid}|{each.resource_class}|{amounts}|{round(each.allocation_ratio * 1_000_000)}"
    for trait in provider.traits:
        yield "provider_traits", f"{uuid}|{trait}"
    for aggregate in provider.aggregate_uuids:
        yield "provider_aggregates", f"{uuid}|{aggregate}"


class _Sum:
    """Adds lines up."""

    def __init__(self) -> None:
        self._count = 0
        self._total = 0

    def add(self, line: str) -> None:
        self._count += 1
        self._total += int.from_bytes(hashlib.md5(line.encode(), usedforsecurity=False).digest()[:8], signed=True)

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
    for line in connection.scalars(query, execution_options={"yield_per": 1000}):
        total.add(line)
    return total.lines
