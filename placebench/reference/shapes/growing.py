"""The combinations that can stand at one anchor, grown group by group: the key piece is `Growth`.

Each is dropped at the first group that cannot stand, so that eight groups on eight devices are no 16 million
combinations; and they are made one by one, so that a limit ends the search.
"""

from collections.abc import Iterator, Sequence

from placebench.reference.shapes.anchors import Anchor
from placebench.reference.shapes.demands import Demands
from placebench.reference.shapes.options import Option, options_at

Combination = tuple[Option, ...]  # an option a group


class Growth:
    """What may be asked of a combination of the first groups' options, and how it grows."""

    def __init__(self, anchor: Anchor, demands: Demands) -> None:
        request = demands.request
        self._anchor = anchor
        self._options = options_at(anchor, demands)
        self._isolate = request.isolate
        self._alone = [bool(group.suffix) for group in request.groups]
        suffixes = [group.suffix for group in request.groups]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in named) for named in request.same_subtrees]
        crowded = {name: number for number, name in enumerate(demands.crowded)}
        self._asked = [
            [(nth, crowded[name], amount) for nth, (name, amount) in enumerate(group.resources) if name in crowded]
            for group in request.groups
        ]
        self._barren: set[object] = set()  # prospects from which nothing grew

    def combinations(self) -> Iterator[Combination]:
        """All that can stand, as they are found."""
        if all(self._options) and self._could_suffice():
            yield from self._grown(())

    def _grown(self, placed: Combination) -> Iterator[Combination]:
        """Those that begin with these options."""
        if len(placed) == len(self._options):
            yield placed
            return
        if self._barren and self._prospects(placed) in self._barren:
            return
        fruitful = False
        for option in self._options[len(placed)]:
            longer = (*placed, option)
            if self._allows(longer):
                for combination in self._grown(longer):
                    fruitful = True
                    yield combination
        if not fruitful:
            self._barren.add(self._prospects(placed))

    def _could_suffice(self) -> bool:
        """Whether the providers are enough, counted all together: it spares the search of 12 groups on 11 devices."""
        apart = [options for options, alone in zip(self._options, self._alone, strict=True) if alone]
        if self._isolate and len({option for options in apart for option in options}) < len(apart):
            return False
        wanted: dict[int, int] = {}
        givers: dict[int, set[int]] = {}
        for options, asked in zip(self._options, self._asked, strict=True):
            for nth, crowded, amount in asked:
                wanted[crowded] = wanted.get(crowded, 0) + amount
                givers.setdefault(crowded, set()).update(option[_nth(option, nth)] for option in options)
        return all(sum(self._free(n, crowded) for n in givers[crowded]) >= wanted[crowded] for crowded in wanted)

    def _allows(self, placed: Combination) -> bool:
        return self._keep_apart(placed) and self._keep_together(placed) and self._fit(placed)

    def _keep_apart(self, placed: Combination) -> bool:
        """With group_policy=isolate no two groups with a suffix take the same provider."""
        if not (self._isolate and self._alone[len(placed) - 1]):
            return True
        return placed[-1] not in self._taken(placed[:-1])

    def _keep_together(self, placed: Combination) -> bool:
        """The providers of each same_subtree's groups, once the last of these is placed, lie below one of them."""
        return all(
            self._one_above_all({position for place in places for position in placed[place]})
            for places in self._subtrees
            if places[-1] == len(placed) - 1
        )

    def _one_above_all(self, positions: set[int]) -> bool:
        if len(positions) == 1:
            return True
        lineages = [list(self._anchor.lineage(position)) for position in positions]
        used = {lineage[0] for lineage in lineages}
        top = [above for above in lineages[0] if above in used][-1]
        return all(top in lineage for lineage in lineages)

    def _fit(self, placed: Combination) -> bool:
        """What several groups take from one stock together is not more than it can give."""
        if not self._asked[len(placed) - 1]:
            return True
        return all(
            amount <= self._free(position, crowded) for (position, crowded), amount in self._sums(placed).items()
        )

    def _free(self, position: int, crowded: int) -> int:
        free = self._anchor.matter(position).free
        return free[crowded] if free else 0

    def _sums(self, placed: Combination) -> dict[tuple[int, int], int]:
        """What is taken of each crowded class of each provider."""
        sums: dict[tuple[int, int], int] = {}
        for option, asked in zip(placed, self._asked, strict=False):
            for nth, crowded, amount in asked:
                key = option[_nth(option, nth)], crowded
                sums[key] = sums.get(key, 0) + amount
        return sums

    def _taken(self, placed: Combination) -> list[Option]:
        """The providers of the groups that isolate keeps apart."""
        return [option for option, alone in zip(placed, self._alone, strict=False) if alone]

    def _prospects(self, placed: Combination) -> object:
        """All that the groups to come must know of those placed: from equal prospects they grow alike."""
        taken = frozenset(self._taken(placed)) if self._isolate else None
        waiting = (places for places in self._subtrees if places[-1] >= len(placed))
        held = tuple(
            frozenset(key for place in places if place < len(placed) for key in placed[place]) for places in waiting
        )
        return len(placed), taken, held, frozenset(self._sums(placed).items())


def _nth(option: Sequence[int], nth: int) -> int:
    """Where the provider of the group's nth class stands in its option: one provider stands for all."""
    return nth if len(option) > 1 else 0
