"""The parts of a provider tree as a topology file describes them, and the rules that its claims must obey."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MAXIMUM = 2**31 - 1


@dataclass(frozen=True)
class Inventory:
    """So much of one resource class, with Placement's own defaults."""

    resource_class: str
    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAXIMUM
    step_size: int = 1
    allocation_ratio: float = 1.0


@dataclass(frozen=True)
class Some:
    """A choice that each provider makes for itself: between `at_least` and `at_most` of the names."""

    names: tuple[str, ...]
    at_least: int
    at_most: int

    def chosen(self, number: int) -> list[str]:
        """The names that the random *number* chooses: first how many, then which, each as likely as any other."""
        number, extra = divmod(number, self.at_most - self.at_least + 1)
        left = list(self.names)
        return [left.pop(place) for place in _places(number, len(left), self.at_least + extra)]


def _places(number: int, among: int, count: int) -> Iterator[int]:
    """So many places in a list that is one shorter after each; *number* is read as digits of falling base."""
    for size in range(among, among - count, -1):
        number, place = divmod(number, size)
        yield place


@dataclass(frozen=True)
class Node:
    """One provider of the tree: `path` is "cn1/n0" for n0 under cn1, `parent` the position of cn1 in the tree."""

    name: str
    path: str
    parent: int | None = None
    inventories: tuple[Inventory, ...] = ()
    traits: tuple[str, ...] = ()
    some_traits: Some | None = None
    aggregates: tuple[str, ...] = ()
    some_aggregates: Some | None = None


class Take(NamedTuple):
    """So much of one class, from the provider at this place of the tree."""

    place: int
    resource_class: str
    amount: int


Takes = tuple[Take, ...]
"""All that one consumer takes."""


@dataclass(frozen=True)
class Claim:
    """Consumers that take the same: so many in the first tree of their kind, in the second, …, then by turns again."""

    takes: Takes
    counts: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class Kind:
    """One kind of tree: its providers, each after its parent; `share` says how many trees of a cloud are of this kind.

    Shares are whole numbers that count together: of kinds with 9 and 1, nine trees in ten are of the first. The claims
    are those of its trees' consumers; they have all the same number of counts.
    """

    nodes: tuple[Node, ...]
    share: int = 1
    claims: tuple[Claim, ...] = ()


Stocks = Mapping[tuple[int, str], Inventory]
"""The inventories of a tree by the place of their provider and their class."""


def stocks_of(nodes: Sequence[Node]) -> Stocks:
    """The inventories of the tree."""
    return {(place, each.resource_class): each for place, node in enumerate(nodes) for each in node.inventories}


def capacity(inventory: Inventory) -> float:
    """What all consumers together may take; not rounded, as Placement compares."""
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


def gives(inventory: Inventory, amount: int) -> bool:
    """Whether one consumer may take this amount, if nobody else took any."""
    within = inventory.min_unit <= amount <= inventory.max_unit
    return within and amount % inventory.step_size == 0 and amount <= capacity(inventory)


def overdrawn(stocks: Stocks, claims: Iterable[Claim]) -> tuple[int, str] | None:
    """The first inventory, by place and class, of which some tree's consumers take more than there is; or None."""
    used: dict[tuple[int, str], Counter[int]] = {}
    for claim in claims:
        for place, resource_class, amount in claim.takes:
            taken = used.setdefault((place, resource_class), Counter())
            for turn, count in enumerate(claim.counts):
                taken[turn] += amount * count
    return next((key for key, taken in used.items() if max(taken.values()) > capacity(stocks[key])), None)
