"""An inventory data set of repeated provider trees, fully determined by its file, seed and number of trees.

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

from placebench.lab.inventory.topology.tree import Inventory, Node, Takes, TreeType, draw_consumer_count, fill_tree

OWNER = "placebench"
"""The name of the project and of the user that own all consumers."""
CONSUMER_TYPE = "INSTANCE"


class ResourceProvider(NamedTuple):
    """One resource provider with its inventories, traits and aggregates."""

    uuid: str
    name: str
    parent_uuid: str | None
    root_uuid: str
    inventories: tuple[Inventory, ...]
    traits: tuple[str, ...]
    aggregate_uuids: tuple[str, ...]


class Consumer(NamedTuple):
    """One consumer, and everything that it takes from its tree."""

    uuid: str
    takes: Takes


@dataclass(frozen=True)
class Topology:
    """An inventory data set of `trees` trees of one or more types; `request` is the request that it is measured with.

    With a `utilization`, the number of consumers of each tree is drawn at random, and the claims of the types are
    ignored. With `aggregates_every`, each block of that many trees has its own aggregates, so that the number of shared
    aggregates grows linearly with the data set, not quadratically.
    """

    name: str
    trees: int
    seed: int
    request: str
    tree_types: tuple[TreeType, ...]
    utilization: float | None = None
    aggregates_every: int | None = None

    def type_index(self, number: int) -> int:
        """Return the index in `tree_types` of the type of tree *number*; types alternate by their weights."""
        return self._rotation.type_index(number)

    @property
    def providers(self) -> int:
        """Number of providers in the data set."""
        return self._rotation.sum(self.trees, [len(each.nodes) for each in self.tree_types])

    @property
    def inventories(self) -> int:
        """Number of inventories in the data set."""
        counts = [sum(len(node.inventories) for node in each.nodes) for each in self.tree_types]
        return self._rotation.sum(self.trees, counts)

    @property
    def title(self) -> str:
        """Name of the data set, with its utilization if one is set."""
        return self.name if self.utilization is None else f"{self.name}, utilization {self.utilization:g}"

    @property
    def is_used(self) -> bool:
        """Whether the data set may have consumers."""
        if self.utilization is not None:
            return bool(self.utilization)
        return any(each.claims for each in self.tree_types)

    @cached_property
    def resource_classes(self) -> tuple[str, ...]:
        """The resource classes that occur in the trees, sorted."""
        return tuple(sorted({inventory.resource_class for node in self._nodes for inventory in node.inventories}))

    @cached_property
    def traits(self) -> tuple[str, ...]:
        """The traits that occur in the trees, sorted."""
        names = {trait for node in self._nodes for trait in node.traits}
        return tuple(sorted(names.union(*(node.some_traits.names for node in self._nodes if node.some_traits))))

    @property
    def aggregate_uuids(self) -> dict[str, str]:
        """The ids of all aggregates by name, sorted by name."""
        return self._membership.uuids

    def tree(self, number: int) -> Iterator[ResourceProvider]:
        """Yield the providers of tree *number* (from 0), each after its parent."""
        uuids = self.uuids(number)
        for node, uuid in zip(self.tree_types[self.type_index(number)].nodes, uuids, strict=True):
            yield ResourceProvider(
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
        """Return the ids of the providers of tree *number*, in the order of its type's nodes."""
        make, tree = self._identity.uuid, str(number)
        return [make(tree + path) for path in self._paths[self._rotation.type_index(number)]]

    def consumers(self, number: int) -> list[Consumer]:
        """Return the consumers of tree *number*; a consumer takes from one tree only."""
        make = self._identity.uuid
        return [Consumer(make(f"{number}/consumers/{place}"), takes) for place, takes in enumerate(self._takes(number))]

    def chosen_traits(self, number: int, node: Node) -> list[str]:
        """Return the traits of this provider of tree *number* in addition to those that it always has."""
        if node.some_traits is None:
            return []
        return node.some_traits.choose(self._identity.number(f"{number}/{node.path}/traits"))

    def common_aggregates(self, node: Node) -> tuple[str, ...]:
        """Return the names of the aggregates that this provider belongs to in every tree."""
        return self._membership.common(node)

    def chosen_aggregates(self, number: int, node: Node) -> list[str]:
        """Return the names of the aggregates that this provider of tree *number* has beside the common ones."""
        return self._membership.chosen(number, node)

    def varies(self, node: Node) -> bool:
        """Return whether the traits or aggregates of this provider may differ between trees."""
        return node.some_traits is not None or self._membership.varies(node)

    def _takes(self, number: int) -> list[Takes]:
        index = self.type_index(number)
        if self.utilization is not None:
            full = self._full[index]
            random_number = self._identity.number(f"{number}/fill")
            return full[: draw_consumer_count(random_number, self.utilization, len(full))]
        turn = self._rotation.ordinal(number)
        claims = self.tree_types[index].claims
        return [claim.takes for claim in claims for _ in range(claim.counts[turn % len(claim.counts)])]

    @property
    def _nodes(self) -> list[Node]:
        return [node for each in self.tree_types for node in each.nodes]

    @cached_property
    def _full(self) -> list[list[Takes]]:
        """The consumers of a full tree, for each tree type."""
        return [fill_tree(each.nodes, self.request) for each in self.tree_types]

    @cached_property
    def _paths(self) -> list[list[str]]:
        """The part of each provider's path after the tree's number, for each type and provider."""
        return [[f"/{node.path}" for node in each.nodes] for each in self.tree_types]

    @cached_property
    def _membership(self) -> "_Membership":
        return _Membership(self._nodes, self.trees, self.aggregates_every, self._identity)

    @cached_property
    def _rotation(self) -> "_Rotation":
        return _Rotation([each.weight for each in self.tree_types])

    @cached_property
    def _identity(self) -> "Identity":
        return Identity(self.seed, self.name)


class _Rotation:
    """The order in which tree types alternate by their integer weights; it repeats after the shortest cycle."""

    def __init__(self, weights: Sequence[int]) -> None:
        divisor = gcd(*weights)
        self._weights = [weight // divisor for weight in weights]
        places = [
            ((2 * number + 1) / weight, index) for index, weight in enumerate(self._weights) for number in range(weight)
        ]
        self._cycle = [index for _, index in sorted(places)]
        seen: Counter[int] = Counter()
        self._before = []  # for each position in the cycle, how many earlier trees of its type the cycle has
        for index in self._cycle:
            self._before.append(seen[index])
            seen[index] += 1

    def type_index(self, number: int) -> int:
        """Return the index, among the weights, of the type of tree *number*."""
        return self._cycle[number % len(self._cycle)]

    def ordinal(self, number: int) -> int:
        """Return how many trees of the same type come before tree *number*."""
        cycles, rest = divmod(number, len(self._cycle))
        return cycles * self._weights[self._cycle[rest]] + self._before[rest]

    def sum(self, trees: int, by_type: Sequence[int]) -> int:
        """Return the sum of a count over the first *trees* trees; *by_type* has the count for one tree of each type."""
        cycles, rest = divmod(trees, len(self._cycle))
        whole = sum(by_type[index] for index in self._cycle)
        return cycles * whole + sum(by_type[index] for index in self._cycle[:rest])


NAMESPACE = UUID("c6a3b1de-6d1f-5c0b-9a44-70d1aceb3ec4")

_VARIANT_DIGIT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


class Identity:
    """Makes the ids and random numbers of one topology with one seed."""

    __slots__ = ("_shared",)

    def __init__(self, seed: int, topology: str) -> None:
        self._shared = hashlib.sha1(NAMESPACE.bytes + f"{seed}/{topology}/".encode(), usedforsecurity=False)

    def uuid(self, path: str) -> str:
        """Return the uuid5 of *path* in Placement's form: lower case, with dashes. Source: RFC 9562, section 5.5."""
        digits = self._digits(path)
        variant = _VARIANT_DIGIT[digits[16]]
        return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"

    def number(self, path: str) -> int:
        """Return a reproducible random number below 2**160 that depends on seed, topology and path only."""
        return int(self._digits(path), 16)

    def _digits(self, path: str) -> str:
        hashed = self._shared.copy()
        hashed.update(path.encode())
        return hashed.hexdigest()


class _Membership:
    """The aggregates of a data set; with *every*, each block of that many trees has its own aggregates."""

    def __init__(self, nodes: Iterable[Node], trees: int, every: int | None, identity: Identity) -> None:
        self._every = every
        self._identity = identity
        names = set[str]()
        for node in nodes:
            names.update(node.aggregates, node.some_aggregates.names if node.some_aggregates else ())
        blocks = 1 if every is None else -(-trees // every)
        every_name = sorted(_number_name(name, block) for block in range(blocks) for name in names)
        self.uuids = {name: identity.uuid(f"aggregates/{name}") for name in every_name}
        """The ids of all aggregates by name, sorted by name."""

    def common(self, node: Node) -> tuple[str, ...]:
        """Return the names of the aggregates that this provider belongs to in every tree."""
        return node.aggregates if self._every is None else ()

    def chosen(self, number: int, node: Node) -> list[str]:
        """Return the names of the aggregates that this provider of tree *number* has beside the common ones."""
        some = node.some_aggregates
        chosen = some.choose(self._identity.number(f"{number}/{node.path}/aggregates")) if some else []
        if self._every is None:
            return chosen
        return [_number_name(name, number // self._every) for name in (*node.aggregates, *chosen)]

    def varies(self, node: Node) -> bool:
        """Return whether the aggregates of this provider may differ between trees."""
        return bool(node.some_aggregates) or (self._every is not None and bool(node.aggregates))


def _number_name(name: str, block: int) -> str:
    """Return the name of an aggregate in a block; it cannot collide, because names in a file have no slash."""
    return f"{name}/{block}" if block else name
