"""The rules for combining the solutions of the request groups, and the search that grows combinations by them.

The main class is `Combinations`. Both searches use it: a solution of one group is a `Candidate` object in `objects`,
and a tuple of positions in a tree in `dedup`.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.domain.candidates_query import CandidateRequest

_Solution = TypeVar("_Solution")

InventoryKey = tuple[int, int]  # a provider and a resource class


def capacity(total: int, reserved: int, allocation_ratio: float) -> int:
    """Return what an inventory can give in all, truncated as Placement truncates it."""
    return int((total - reserved) * allocation_ratio)


class Combinations(ABC, Generic[_Solution]):
    """What a combination, a solution of each group, must satisfy: group_policy=isolate, same_subtree and capacity."""

    def __init__(self, request: CandidateRequest, contended: Mapping[str, int]) -> None:
        """Take what the request demands.

        Args:
            request: Its groups are combined in their order.
            contended: The resource classes that more than one group requests, with the number of each in an
                `InventoryKey`.
        """
        suffixes = [group.suffix for group in request.groups]
        self._isolate = request.isolate
        self._suffixed = [number for number, suffix in enumerate(suffixes) if suffix]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in names) for names in request.same_subtrees]
        contending = (any(name in contended for name, _ in group.resources) for group in request.groups)
        self._contending = list(accumulate(contending, initial=0))  # how many of so many first groups
        self._free = Memo(self._read_free)
        self._wanted: dict[int, int] = defaultdict(int)
        for group in request.groups:
            for name, amount in group.resources:
                if name in contended:
                    self._wanted[contended[name]] += amount

    @abstractmethod
    def _providers(self, solution: _Solution) -> tuple[int, ...]:
        """The providers of a group's solution."""

    @abstractmethod
    def _amounts(self, group: int, solution: _Solution) -> Iterable[tuple[InventoryKey, int]]:
        """What the solution of the group of this number takes of contended classes."""

    @abstractmethod
    def _read_free(self, key: InventoryKey) -> int:
        """The most that can be taken of the inventory at once: by what is unused, and by max_unit."""

    @abstractmethod
    def _lineage(self, provider: int) -> Iterable[Hashable]:
        """The provider and its ancestors, from the bottom up."""

    def combine(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Yield the allowed combinations of one anchor, grown group by group, each dropped where it is not allowed.

        Args:
            options: The solutions of each group at the anchor.
        """
        if all(options) and self._could_suffice(options):
            yield from self._grow(options)

    def _grow(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Search depth-first; groups that differ in their order alone are not tried in every order.

        Not recursive: a query may have more groups than Python allows frames.
        """
        dead_ends: set[object] = set()
        placed: list[tuple[_Solution, ...]] = [()]  # of each depth, the solutions of the groups before
        untried, is_dead_end = [iter(options[0])], [True]
        while untried:
            count = len(untried) - 1
            for solution in untried[count]:
                longer = (*placed[count], solution)
                if not self.allows(longer, count):
                    continue
                if len(longer) == len(options):
                    is_dead_end[count] = False
                    yield longer
                elif not (dead_ends and self._state(longer) in dead_ends):
                    placed.append(longer)
                    untried.append(iter(options[len(longer)]))
                    is_dead_end.append(True)
                    break
            else:
                finished = placed.pop()
                untried.pop()
                if is_dead_end.pop():
                    dead_ends.add(self._state(finished))
                elif is_dead_end:
                    is_dead_end[-1] = False

    def allows(self, placed: Sequence[_Solution], checked: int = 0) -> bool:
        """Whether the solutions of the first groups are allowed together; the first *checked* are known to be."""
        return self._keep_apart(placed) and self._keep_together(placed, checked) and self._fit(placed, checked)

    def _keep_apart(self, placed: Sequence[_Solution]) -> bool:
        """With group_policy=isolate no two groups with a suffix take the same provider."""
        if not self._isolate:
            return True
        taken = self._taken(placed)
        return len(set(taken)) == len(taken)

    def _keep_together(self, placed: Sequence[_Solution], checked: int) -> bool:
        """The providers of each same_subtree's groups, once all of these are placed, are below one of them."""
        for groups in self._subtrees:
            if checked <= groups[-1] < len(placed):
                providers = {provider for group in groups for provider in self._providers(placed[group])}
                if not self._one_above_all(providers):
                    return False
        return True

    def _one_above_all(self, providers: set[int]) -> bool:
        if len(providers) == 1:
            return True
        lineages = [tuple(self._lineage(provider)) for provider in providers]
        own = {lineage[0] for lineage in lineages}
        top = [above for above in lineages[0] if above in own][-1]
        return all(top in lineage for lineage in lineages)

    def _fit(self, placed: Sequence[_Solution], checked: int) -> bool:
        """The sums of what several groups take from one inventory are within what it can give."""
        contending = self._contending[len(placed)]
        if contending < 2 or contending == self._contending[checked]:
            return True  # the solution of one group fits by itself
        free = self._free
        return all(amount <= free[key] for key, amount in self._sums(placed).items())

    def _could_suffice(self, options: Sequence[Sequence[_Solution]]) -> bool:
        """Whether the providers are enough, counted all together.

        It spares the search among 12 groups for 11 devices, whose every combination fails at its last group.
        """
        if self._isolate:
            suffixed = [options[group] for group in self._suffixed]
            if len({self._providers(solution) for solutions in suffixed for solution in solutions}) < len(suffixed):
                return False
        if not self._wanted:
            return True
        keys = {
            key
            for group, solutions in enumerate(options)
            for solution in solutions
            for key, _ in self._amounts(group, solution)
        }
        free: dict[int, int] = defaultdict(int)
        for key in keys:
            free[key[1]] += self._free[key]
        return all(free[class_number] >= amount for class_number, amount in self._wanted.items())

    def _state(self, placed: Sequence[_Solution]) -> object:
        """All that the groups to come must know of those placed: from equal states they grow alike."""
        taken = frozenset(self._taken(placed)) if self._isolate else None
        unfinished = (groups for groups in self._subtrees if groups[-1] >= len(placed))
        below = tuple(
            frozenset(key for group in groups if group < len(placed) for key in self._providers(placed[group]))
            for groups in unfinished
        )
        return len(placed), taken, below, frozenset(self._sums(placed).items())

    def _taken(self, placed: Sequence[_Solution]) -> list[tuple[int, ...]]:
        """The providers of the groups that isolate keeps apart."""
        return [self._providers(placed[group]) for group in self._suffixed if group < len(placed)]

    def _sums(self, placed: Sequence[_Solution]) -> dict[InventoryKey, int]:
        """What is taken of each inventory of a contended class."""
        sums: dict[InventoryKey, int] = {}
        for group, solution in enumerate(placed):
            for key, amount in self._amounts(group, solution):
                sums[key] = sums.get(key, 0) + amount
        return sums
