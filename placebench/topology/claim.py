"""What Placement lets consumers take: the rules that the claims of a topology are held to.

The key pieces are `gives` and `overdrawn`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from placebench.topology.tree import Claim, Inventory, Node

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
