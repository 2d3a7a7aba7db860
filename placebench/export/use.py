"""What the consumers of a live cloud have, tree by tree, as far as a topology can say it.

The key piece is `Use`. A consumer of several trees becomes one in each; what Placement would not give today (more than
there is, since an inventory was cut; an amount that is no step) is left out. Both are counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from placebench.export.live import Allocation, Cloud
from placebench.export.trees import Tree
from placebench.topology import Node, Take, Takes, capacity, gives, stocks_of

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
