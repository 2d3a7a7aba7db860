"""The rules for combining solutions of the request groups, and a search that extends combinations group by group.

The main class is `Combinations`, which both algorithms use: a solution of one group is a `Candidate` object in
`objects`, and a tuple of positions in a tree in `dedup`.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.domain.candidates_query import CandidateRequest

_Solution = TypeVar("_Solution")

InventoryKey = tuple[int, int]  # the numbers of a provider and of a resource class


def capacity(total: int, reserved: int, allocation_ratio: float) -> int:
    """Return the capacity of an inventory, rounded down as in Placement."""
    return int((total - reserved) * allocation_ratio)


class Combinations(ABC, Generic[_Solution]):
    """The combinations of one solution per group that satisfy group_policy=isolate, same_subtree and capacity."""

    def __init__(self, request: CandidateRequest, contended: Mapping[str, int]) -> None:
        """Prepare the rules for a request.

        Args:
            request: The request, with its groups in the order in which they are combined.
            contended: The resource classes that more than one group requests, by name, with the numbers that they have
                in an `InventoryKey`.
        """
        suffixes = [group.suffix for group in request.groups]
        self._isolate = request.isolate
        self._suffixed = [number for number, suffix in enumerate(suffixes) if suffix]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in names) for names in request.same_subtrees]
        contending = (any(name in contended for name, _ in group.resources) for group in request.groups)
        self._contending = list(accumulate(contending, initial=0))  # [n]: how many of the first n groups contend
        self._free = Memo(self._read_free)
        self._wanted: dict[int, int] = defaultdict(int)
        for group in request.groups:
            for name, amount in group.resources:
                if name in contended:
                    self._wanted[contended[name]] += amount

    @abstractmethod
    def _providers(self, solution: _Solution) -> tuple[int, ...]:
        """Return the providers of a group's solution."""

    @abstractmethod
    def _amounts(self, group: int, solution: _Solution) -> Iterable[tuple[InventoryKey, int]]:
        """Return the amounts of contended classes that a solution of the group with this number takes."""

    @abstractmethod
    def _read_free(self, key: InventoryKey) -> int:
        """Return the largest amount that one allocation can take from the inventory: min(unused capacity, max_unit)."""

    @abstractmethod
    def _lineage(self, provider: int) -> Iterable[Hashable]:
        """Return the provider and its ancestors, from the bottom up."""

    def combine(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Yield the allowed combinations of one anchor.

        They are extended group by group, and dropped at the first group with which they are not allowed.

        Args:
            options: The solutions of each group at the anchor.
        """
        if all(options) and self._could_suffice(options):
            yield from self._grow(options)

    def _grow(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Search depth-first, and skip states that are known to lead to no combination, such as permutations of groups.

        The search does not recurse, since a query can have more groups than Python allows frames.
        """
        dead_ends: set[object] = set()
        placed: list[tuple[_Solution, ...]] = [()]  # for each depth, the solutions of the groups before it
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
        """Return whether the solutions of the first groups are allowed together.

        checked: the number of first groups whose solutions are known to be allowed together.
        """
        return self._keep_apart(placed) and self._keep_together(placed, checked) and self._fit(placed, checked)

    def _keep_apart(self, placed: Sequence[_Solution]) -> bool:
        """Return whether group_policy=isolate is met: no two groups with a suffix use the same provider."""
        if not self._isolate:
            return True
        taken = self._taken(placed)
        return len(set(taken)) == len(taken)

    def _keep_together(self, placed: Sequence[_Solution], checked: int) -> bool:
        """Return whether each same_subtree is met: one of its groups' providers is above all others.

        A same_subtree is checked once all of its groups are placed.
        """
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
        """Return whether the sums of the amounts that several groups take from an inventory fit the inventory."""
        contending = self._contending[len(placed)]
        if contending < 2 or contending == self._contending[checked]:
            return True  # the solution of each group fits by itself
        free = self._free
        return all(amount <= free[key] for key, amount in self._sums(placed).items())

    def _could_suffice(self, options: Sequence[Sequence[_Solution]]) -> bool:
        """Return whether there are enough providers, and enough capacity of contended classes, for all groups together.

        This avoids a search such as 12 groups for 11 devices, in which each combination fails only at its last group.
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
        """Return all that matters for later groups: equal states can be extended by the same solutions."""
        taken = frozenset(self._taken(placed)) if self._isolate else None
        unfinished = (groups for groups in self._subtrees if groups[-1] >= len(placed))
        below = tuple(
            frozenset(key for group in groups if group < len(placed) for key in self._providers(placed[group]))
            for groups in unfinished
        )
        return len(placed), taken, below, frozenset(self._sums(placed).items())

    def _taken(self, placed: Sequence[_Solution]) -> list[tuple[int, ...]]:
        """Return the providers of each placed group with a suffix."""
        return [self._providers(placed[group]) for group in self._suffixed if group < len(placed)]

    def _sums(self, placed: Sequence[_Solution]) -> dict[InventoryKey, int]:
        """Return the sum of the amounts taken from each inventory of a contended class."""
        sums: dict[InventoryKey, int] = {}
        for group, solution in enumerate(placed):
            for key, amount in self._amounts(group, solution):
                sums[key] = sums.get(key, 0) + amount
        return sums
