"""A live Placement as data: its providers, provider trees, and what each consumer uses of them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from placebench.topology import Inventory, Node, Take, Takes, capacity, gives, stocks_of


@dataclass(frozen=True)
class Provider:
    """One resource provider, with the UUIDs of its parent and its aggregates."""

    uuid: str
    parent_uuid: str | None
    inventories: tuple[Inventory, ...]
    traits: frozenset[str]
    aggregates: frozenset[str]


class Allocation(NamedTuple):
    """So much of one class of one provider."""

    provider_uuid: str
    resource_class: str
    amount: int


@dataclass(frozen=True)
class Cloud:
    """All providers, and the allocations of each consumer by its UUID."""

    providers: tuple[Provider, ...]
    consumers: Mapping[str, tuple[Allocation, ...]]


Shape = tuple[Any, ...]


@dataclass(frozen=True)
class Tree:
    """A tree: its shape, and its providers, each after its parent and siblings together; with their parents' places."""

    shape: Shape
    providers: tuple[Provider, ...]
    parents: tuple[int | None, ...]


@dataclass(frozen=True)
class _Branch:
    """A provider with what is below it; branches of the same shape have the same place in any order of shapes."""

    provider: Provider
    shape: Shape
    used: int
    below: tuple["_Branch", ...]


def trees_of(cloud: Cloud) -> list[Tree]:
    """All trees, in the order of their roots' UUIDs."""
    children: defaultdict[str | None, list[Provider]] = defaultdict(list)
    for provider in sorted(cloud.providers, key=lambda each: each.uuid):
        children[provider.parent_uuid].append(provider)
    used = Counter(allocation.provider_uuid for each in cloud.consumers.values() for allocation in each)
    return [_tree(_branch(root, children, used)) for root in children[None]]


def _branch(provider: Provider, children: dict[str | None, list[Provider]], used: Counter[str]) -> _Branch:
    below = [_branch(child, children, used) for child in children.get(provider.uuid, [])]
    below.sort(key=lambda branch: (branch.shape, -branch.used))
    return _Branch(
        provider,
        (*_own(provider), tuple(branch.shape for branch in below)),
        used[provider.uuid] + sum(branch.used for branch in below),
        tuple(below),
    )


def _own(provider: Provider) -> Shape:
    inventories = tuple(sorted(astuple(inventory) for inventory in provider.inventories))
    return inventories, tuple(sorted(provider.traits)), tuple(sorted(provider.aggregates))


def _tree(root: _Branch) -> Tree:
    branches: list[_Branch] = [root]
    parents: list[int | None] = [None]
    for place, branch in enumerate(branches):  # which grows meanwhile
        branches += branch.below
        parents += [place] * len(branch.below)
    return Tree(root.shape, tuple(branch.provider for branch in branches), tuple(parents))


Used = Counter[Takes]
"""How many consumers of a tree take the same."""


class Use:
    """The allocations of a cloud by its trees."""

    def __init__(self, cloud: Cloud, trees: Sequence[Tree]) -> None:
        self.split = 0
        """Consumers of several trees."""
        self.left_out = 0
        """Consumers that are left out of a tree."""
        self._homes = {
            provider.uuid: (number, place)
            for number, tree in enumerate(trees)
            for place, provider in enumerate(tree.providers)
        }
        self._takes: defaultdict[int, list[Takes]] = defaultdict(list)
        for allocations in cloud.consumers.values():
            parts = list(self._parts(allocations))
            self.split += len(parts) > 1
            for number, takes in parts:
                self._takes[number].append(takes)

    def of(self, number: int, nodes: Sequence[Node]) -> Used:
        """What is taken of the tree with this number, which has these nodes."""
        stocks = stocks_of(nodes)
        taken: Counter[tuple[int, str]] = Counter()
        used: Used = Counter()
        for takes in sorted(self._takes[number]):
            if all(
                (key := (place, name)) in stocks
                and gives(stocks[key], amount)
                and taken[key] + amount <= capacity(stocks[key])
                for place, name, amount in takes
            ):
                used[takes] += 1
                taken.update({(place, name): amount for place, name, amount in takes})
            else:
                self.left_out += 1
        return used

    def _parts(self, allocations: Sequence[Allocation]) -> Iterator[tuple[int, Takes]]:
        """What is taken of each tree."""
        parts: defaultdict[int, list[Take]] = defaultdict(list)
        for uuid, name, amount in allocations:
            number, place = self._homes[uuid]
            parts[number].append(Take(place, name, amount))
        return ((number, tuple(sorted(takes))) for number, takes in parts.items())
