"""The trees of a live cloud, each with its providers in an order that depends on nothing but their shape.

The key piece is `trees_of`. Trees of the same shape have equal `shape`s, and the providers in one place of both stand
for each other. Among siblings alike the more used come first, so that trees which differ in which that is are alike.
"""

from collections import Counter, defaultdict
from dataclasses import astuple, dataclass
from typing import Any

from placebench.export.live import Cloud, Provider

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
