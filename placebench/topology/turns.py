"""Which kind comes when: kinds of trees by turns, each as often as its share says and as evenly spread as that allows.

The key piece is `Turns`.
"""

from collections import Counter
from collections.abc import Sequence
from math import gcd


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
