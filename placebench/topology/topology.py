"""An inventory data set: provider trees, repeated; pure, and the same for the same file, seed and size.

The main class is `Topology`. Every id is the uuid5 of (seed, topology, path). Tree types alternate by their weights.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple
from uuid import UUID

from placebench.topology.tree import Inventory, Kind, Node, Takes
from placebench.topology.utilization import all_that_fit, demand_of, drawn


class Turns:
    """The order of kinds with these shares, which are whole numbers from 1; it comes again after the least cycle."""

    def __init__(self, shares: Sequence[int]) -> None:
        divisor = gcd(*shares)
        self._shares = [share // divisor for share in shares]
        places = [
            ((2 * number + 1) / share, kind) for kind, share in enumerate(self._shares) for number in range(share)
        ]
        self._cycle = [kind for _, kind in sorted(places)]
        self._before = self._counted()

    def kind(self, number: int) -> int:
        """The place of the kind of tree *number* among the shares."""
        return self._cycle[number % len(self._cycle)]

    def ordinal(self, number: int) -> int:
        """How many trees of its kind came before tree *number*."""
        cycles, rest = divmod(number, len(self._cycle))
        return cycles * self._shares[self._cycle[rest]] + self._before[rest]

    def sum(self, trees: int, of_kinds: Sequence[int]) -> int:
        """The sum over so many trees of something that each kind has so often."""
        cycles, rest = divmod(trees, len(self._cycle))
        whole = sum(of_kinds[kind] for kind in self._cycle)
        return cycles * whole + sum(of_kinds[kind] for kind in self._cycle[:rest])

    def _counted(self) -> list[int]:
        seen: Counter[int] = Counter()
        before = []
        for kind in self._cycle:
            before.append(seen[kind])
            seen[kind] += 1
        return before


NAMESPACE = UUID("c6a3b1de-6d1f-5c0b-9a44-70d1aceb3ec4")

_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


class Identity:
    """Makes the ids of one topology under one seed."""

    __slots__ = ("_shared",)

    def __init__(self, seed: int, topology: str) -> None:
        self._shared = hashlib.sha1(NAMESPACE.bytes + f"{seed}/{topology}/".encode(), usedforsecurity=False)

    def uuid(self, path: str) -> str:
        """The uuid5 of the path, in Placement's form: lower case, with dashes. Source: RFC 9562, section 5.5."""
        digits = self._digits(path)
        variant = _VARIANT[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"

    def number(self, path: str) -> int:
        """A number below 2**160 that depends on nothing but seed, topology and path: chance that can be repeated."""
        return int(self._digits(path), 16)

    def _digits(self, path: str) -> str:
        hashed = self._shared.copy()
        hashed.update(path.encode())
        return hashed.hexdigest()


class Membership:
    """The aggregates of a cloud; with *every*, those of so many trees, and others of the next as many."""

    def __init__(self, nodes: Iterable[Node], trees: int, every: int | None, identity: Identity) -> None:
        self._every = every
        self._identity = identity
        names = {name for node in nodes for name in (*node.aggregates, *_some(node))}
        blocks = 1 if every is None else -(-trees // every)
        every_name = sorted(_numbered(name, block) for block in range(blocks) for name in names)
        self.uuids = {name: identity.uuid(f"aggregates/{name}") for name in every_name}
        """The ids of all, by name and sorted by it."""

    def common(self, node: Node) -> tuple[str, ...]:
        """The names of those that this provider is in in every tree."""
        return node.aggregates if self._every is None else ()

    def chosen(self, number: int, node: Node) -> list[str]:
        """The names of those that this provider of tree *number* is in beside the common ones."""
        some = node.some_aggregates
        chosen = some.chosen(self._identity.number(f"{number}/{node.path}/aggregates")) if some else []
        if self._every is None:
            return chosen
        return [_numbered(name, number // self._every) for name in (*node.aggregates, *chosen)]

    def varies(self, node: Node) -> bool:
        """Whether this provider may be in others in another tree."""
        return bool(node.some_aggregates) or (self._every is not None and bool(node.aggregates))


def _some(node: Node) -> tuple[str, ...]:
    return node.some_aggregates.names if node.some_aggregates else ()


def _numbered(name: str, block: int) -> str:
    """No name in a file has a slash."""
    return f"{name}/{block}" if block else name


OWNER = "placebench"
"""The project and the user of all consumers."""
CONSUMER_TYPE = "INSTANCE"


class Provider(NamedTuple):
    """One resource provider, with all that belongs to it."""

    uuid: str
    name: str
    parent_uuid: str | None
    root_uuid: str
    inventories: tuple[Inventory, ...]
    traits: tuple[str, ...]
    aggregate_uuids: tuple[str, ...]


class Consumer(NamedTuple):
    """One consumer, and all that it takes of its tree."""

    uuid: str
    takes: Takes


@dataclass(frozen=True)
class Topology:
    """`trees` trees of one kind or of several, in their shares; `request` is what the cloud is measured with.

    With a `fill`, each tree has as many consumers as it draws, and the claims of the kinds do not count. With
    `aggregates_every`, so many trees have aggregates in common and the next as many have others, so that what is shared
    grows with the cloud and not with its square.
    """

    name: str
    trees: int
    seed: int
    request: str
    kinds: tuple[Kind, ...]
    fill: float | None = None
    aggregates_every: int | None = None

    def kind(self, number: int) -> int:
        """The place in `kinds` of the kind of tree *number*; the kinds come by turns, in their shares."""
        return self._turns.kind(number)

    @property
    def providers(self) -> int:
        """How many providers the cloud has."""
        return self._turns.sum(self.trees, [len(kind.nodes) for kind in self.kinds])

    @property
    def inventories(self) -> int:
        """How many inventories the cloud has."""
        return self._turns.sum(self.trees, [sum(len(node.inventories) for node in kind.nodes) for kind in self.kinds])

    @property
    def title(self) -> str:
        """Its name, and how full it is."""
        return self.name if self.fill is None else f"{self.name}, filled to {self.fill:g}"

    @property
    def is_used(self) -> bool:
        """Whether the cloud may have consumers."""
        return bool(self.fill) if self.fill is not None else any(kind.claims for kind in self.kinds)

    @cached_property
    def resource_classes(self) -> tuple[str, ...]:
        """The resource classes that the trees name, sorted."""
        return tuple(sorted({inventory.resource_class for node in self._nodes for inventory in node.inventories}))

    @cached_property
    def traits(self) -> tuple[str, ...]:
        """The traits that the trees name, sorted."""
        names = {trait for node in self._nodes for trait in node.traits}
        return tuple(sorted(names.union(*(node.some_traits.names for node in self._nodes if node.some_traits))))

    @property
    def aggregate_uuids(self) -> dict[str, str]:
        """The aggregates that there are, sorted by name, with their ids."""
        return self._membership.uuids

    def tree(self, number: int) -> Iterator[Provider]:
        """The providers of tree *number* (from 0), each after its parent."""
        uuids = self.uuids(number)
        for node, uuid in zip(self.kinds[self.kind(number)].nodes, uuids, strict=True):
            yield Provider(
                uuid=uuid,
                name=f"{node.name}-{number}",
                parent_uuid=None if node.parent is None else uuids[node.parent],
                root_uuid=uuids[0],
                inventories=node.inventories,
                traits=(*node.traits, *self.chosen_traits(number, node)),
                aggregate_uuids=tuple(
                    self.aggregate_uuids[name]
                    for name in (*self.common_aggregates(node), *self.chosen_aggregates(number, node))
                ),
            )

    def uuids(self, number: int) -> list[str]:
        """The ids of the providers of tree *number*, in the order of its kind's nodes."""
        make, tree = self._identity.uuid, str(number)
        return [make(tree + path) for path in self._paths[self._turns.kind(number)]]

    def consumers(self, number: int) -> list[Consumer]:
        """The consumers of tree *number*; each takes of one tree only."""
        make = self._identity.uuid
        return [Consumer(make(f"{number}/consumers/{place}"), takes) for place, takes in enumerate(self._takes(number))]

    def chosen_traits(self, number: int, node: Node) -> list[str]:
        """The traits that this provider of tree *number* has beside those that it always has."""
        if node.some_traits is None:
            return []
        return node.some_traits.chosen(self._identity.number(f"{number}/{node.path}/traits"))

    def common_aggregates(self, node: Node) -> tuple[str, ...]:
        """The names of the aggregates that this provider is in in every tree."""
        return self._membership.common(node)

    def chosen_aggregates(self, number: int, node: Node) -> list[str]:
        """The names of the aggregates that this provider of tree *number* is in beside those of every tree."""
        return self._membership.chosen(number, node)

    def varies(self, node: Node) -> bool:
        """Whether the traits or aggregates of this provider may be others in another tree."""
        return node.some_traits is not None or self._membership.varies(node)

    def _takes(self, number: int) -> list[Takes]:
        kind = self.kind(number)
        if self.fill is not None:
            full = self._full[kind]
            return full[: drawn(self._identity.number(f"{number}/fill"), self.fill, len(full))]
        turn = self._turns.ordinal(number)
        claims = self.kinds[kind].claims
        return [claim.takes for claim in claims for _ in range(claim.counts[turn % len(claim.counts)])]

    @property
    def _nodes(self) -> list[Node]:
        return [node for kind in self.kinds for node in kind.nodes]

    @cached_property
    def _full(self) -> list[list[Takes]]:
        """Of each kind, the consumers of a tree that is full."""
        demand = demand_of(self.request)
        return [all_that_fit(kind.nodes, demand) for kind in self.kinds]

    @cached_property
    def _paths(self) -> list[list[str]]:
        """Of each kind, what stands behind a tree's number in the paths of its providers."""
        return [[f"/{node.path}" for node in kind.nodes] for kind in self.kinds]

    @cached_property
    def _membership(self) -> Membership:
        return Membership(self._nodes, self.trees, self.aggregates_every, self._identity)

    @cached_property
    def _turns(self) -> Turns:
        return Turns([kind.share for kind in self.kinds])

    @cached_property
    def _identity(self) -> Identity:
        return Identity(self.seed, self.name)
