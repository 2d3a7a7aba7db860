"""The rules for combining solutions of the request groups, and a search that extends combinations group by group.

The main class is `Combinations`, which both algorithms use: a solution of one group is a `Candidate` object in
`objects`, and a tuple of positions in a tree in `dedup`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from math import prod
from typing import Final, Generic, NamedTuple, TypeVar

from placebench.lab.reference.candidates.completion import Completion, CompletionRules
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.problems import BadRequest

_Solution = TypeVar("_Solution")

InventoryKey = tuple[int, int]  # the numbers of a provider and of a resource class
MatchingRule = Callable[[CompletionRules], Completion | None]

PATIENCE: Final = 8
"""The number of dead ends after which a search only extends combinations that can be completed."""
MAX_STEPS: Final = 75_000
"""The number of steps in vain after which a request is refused: 50 ms, or 0.5 s with several same_subtree."""
FEW: Final = 1_000
NEVER_TOO_MANY: Final = 10_000
MAX_FOUND: Final = 500_000
"""The number of groups' solutions, in all combinations together, after which a request is refused: a second or two.

The first few combinations of each anchor are not counted, and fewer combinations than `NEVER_TOO_MANY` are allowed.
"""
MAX_CHECKED: Final = 2_000_000
"""The number of solutions checked for same_subtree after which a request is refused: a second or two.

Those of the first few combinations of each anchor are not counted.
"""


def capacity(total: int, reserved: int, allocation_ratio: float) -> int:
    """Return the capacity of an inventory, rounded down as in Placement."""
    return int((total - reserved) * allocation_ratio)


def large_first(groups: Sequence[RequestGroup], contended: Container[str]) -> list[int]:
    """Return the numbers of the groups in the order in which to combine them, by their largest contended amount.

    With large amounts first, as in bin packing, most searches that could be long are short. Equal ones stay in order.

    contended: the resource classes that more than one group requests.
    """
    largest = [max((amount for name, amount in group.resources if name in contended), default=0) for group in groups]
    return sorted(range(len(groups)), key=largest.__getitem__, reverse=True)


class StepLimit:
    """Counts the steps that the searches of one request take in vain, at all anchors together.

    They are those that led to no candidate although a matching allowed them, or that a packing undoes. A step is one
    group's share of trying a solution or of repairing the matchings.
    """

    def __init__(self, steps: int | None = None) -> None:
        """steps: the maximum; `MAX_STEPS` if None."""
        self._maximum = self._left = MAX_STEPS if steps is None else steps
        self._combinations = self._found = self._checked = 0

    def spend(self, steps: int) -> None:
        """Count the steps; raise BadRequest if there are more than the maximum."""
        self._left -= steps
        if self._left < 0:
            raise BadRequest(
                f"the search for candidates was given up after {self._maximum} steps without a result, so it is not "
                "known whether there are others: request fewer groups, or equal amounts of a class in all of them"
            )

    def count_found(self, solutions: int, checked: int = 0) -> None:
        """Count a combination of that many solutions; raise BadRequest if there are more than the maximum.

        checked: the number of solutions that were checked for same_subtree since the last one.
        """
        self._combinations += 1
        self._found += solutions
        self._checked += checked
        remedy = "request fewer candidates with limit, or fewer groups"
        if self._combinations > NEVER_TOO_MANY and self._found > MAX_FOUND:
            raise BadRequest(
                f"candidates in a few trees have more than {MAX_FOUND} mappings of groups together: {remedy}"
            )
        if self._checked > MAX_CHECKED:
            raise BadRequest(
                f"the search in a few trees was given up after {MAX_CHECKED} checks of same_subtree: {remedy}"
            )


class Placed(NamedTuple, Generic[_Solution]):
    """Solutions of the first groups that are allowed together."""

    solutions: tuple[_Solution, ...]
    providers: tuple[tuple[int, ...], ...]  # the providers of each solution
    sums: dict[InventoryKey, int]  # the amount taken from each inventory of a contended class
    taken: frozenset[tuple[int, ...]]  # the providers of each group with a suffix, for group_policy=isolate


class Combinations(ABC, Generic[_Solution]):
    """The combinations of one solution per group that satisfy group_policy=isolate, same_subtree and capacity."""

    def __init__(
        self,
        request: CandidateRequest,
        contended: Mapping[str, int],
        step_limit: StepLimit | None = None,
        matching: MatchingRule = Completion,
    ) -> None:
        """Prepare the rules for a request.

        Args:
            request: The request, with its groups in the order in which they are combined.
            contended: The resource classes that more than one group requests, by name, with the numbers that they have
                in an `InventoryKey`.
            step_limit: The limit that this search shares with others of the request; None: its own.
            matching: The function that says which combinations can be completed.
        """
        self._step_limit = step_limit or StepLimit()
        self._matching = matching
        self._checked = 0  # solutions checked for same_subtree since the last combination
        suffixes = [group.suffix for group in request.groups]
        self._isolate = request.isolate
        self._suffixed = [number for number, suffix in enumerate(suffixes) if suffix]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in names) for names in request.same_subtrees]
        self._free = Memo(self._read_free)
        self._bits: dict[Hashable, int] = {}
        self._above = Memo(self._own_and_above)
        self._demands = [
            {contended[name]: amount for name, amount in group.resources if name in contended}
            for group in request.groups
        ]
        self._wanted: dict[int, int] = defaultdict(int)
        for demand in self._demands:
            for class_number, amount in demand.items():
                self._wanted[class_number] += amount

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
    def _lineage(self, provider: int) -> tuple[Hashable, ...]:
        """Return the provider and its ancestors, from the bottom up."""

    def combine(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Return the allowed combinations of one anchor.

        They are extended group by group, and dropped at the first group with which they are not allowed.

        Args:
            options: The solutions of each group at the anchor.

        Raises:
            BadRequest: The search takes more steps than its limit, or finds more combinations.
        """
        if self._is_unrestricted():
            found: Iterator[tuple[_Solution, ...]] = product(*options)
            return found if prod(map(len, options)) <= FEW else self._counted(found)
        if all(options) and self._could_suffice(options):
            return self._counted(self._grow(options))
        return iter(())

    def _counted(self, found: Iterator[tuple[_Solution, ...]]) -> Iterator[tuple[_Solution, ...]]:
        yield from islice(found, FEW)
        self._checked = 0
        for combination in found:
            self._step_limit.count_found(len(combination), self._checked)
            self._checked = 0
            yield combination

    def may_exist(self, options: Sequence[Sequence[_Solution]]) -> bool:
        """Return False if the matchings say that no combination of these options is allowed."""
        completion = None if self._is_unrestricted() else self._completion(options)
        return completion is None or completion.exists([])

    def _is_unrestricted(self) -> bool:
        """Return whether each combination of the groups' solutions is allowed."""
        return not (self._wanted or self._subtrees or (self._isolate and len(self._suffixed) > 1))

    def _grow(self, options: Sequence[Sequence[_Solution]]) -> Iterator[tuple[_Solution, ...]]:
        """Search depth-first, and skip states that are known to lead to no combination, such as permutations of groups.

        After some dead ends each state is entered only if `Completion` finds no reason against it; most searches are
        finished before. The search does not recurse, since a query can have more groups than Python allows frames.
        """
        dead_ends: set[Hashable] = set()
        completion: Completion | None = None
        is_patient = True
        counted = 0  # the questions to the completion before the last combination or dead end
        placed: list[Placed[_Solution]] = [Placed((), (), {}, frozenset())]  # for each depth, the groups before it
        untried, is_dead_end = [iter(options[0])], [True]
        while untried:
            count = len(untried) - 1
            for solution in untried[count]:
                longer = self._extended(placed[count], solution)
                if longer is None:
                    continue
                if len(longer.solutions) == len(options):
                    is_dead_end[count] = False
                    counted = completion.questions if completion else 0
                    yield longer.solutions
                elif not (dead_ends and self._state(longer) in dead_ends):
                    if completion and not completion.exists(longer.providers):
                        dead_ends.add(self._state(longer))
                        continue
                    placed.append(longer)
                    untried.append(iter(options[len(longer.solutions)]))
                    is_dead_end.append(True)
                    break
            else:
                finished = placed.pop()
                untried.pop()
                if is_dead_end.pop():
                    dead_ends.add(self._state(finished))
                    if completion:
                        self._step_limit.spend(len(options) * (len(options[count]) + completion.questions - counted))
                        counted = completion.questions
                elif is_dead_end:
                    is_dead_end[-1] = False
            if is_patient and len(dead_ends) >= PATIENCE:
                is_patient = False
                completion = self._completion(options)
                for depth, each in enumerate(placed):
                    if completion and not completion.exists(each.providers):
                        del placed[depth:], untried[depth:], is_dead_end[depth:]
                        break

    def _extended(self, placed: Placed[_Solution], solution: _Solution) -> Placed[_Solution] | None:
        """Return the placed solutions with one more, of the next group, or None if it is not allowed with them."""
        group, sums, taken = len(placed.solutions), placed.sums, placed.taken
        providers = self._providers(solution)
        if self._isolate and group in self._suffixed:
            if providers in taken:
                return None
            taken |= {providers}
        if self._demands[group]:
            sums = sums.copy()
            for key, amount in self._amounts(group, solution):
                sums[key] = total = sums.get(key, 0) + amount
                if total > self._free[key]:
                    return None
        solutions = (*placed.solutions, solution)
        if not self._keep_together(solutions, group):
            return None
        return Placed(solutions, (*placed.providers, providers), sums, taken)

    def _completion(self, options: Sequence[Sequence[_Solution]]) -> Completion | None:
        """Return what decides whether combinations of these options can be completed; None: nothing does."""
        providers = [[self._providers(solution) for solution in solutions] for solutions in options]
        return self._matching(
            CompletionRules(
                options=[
                    [provider for (provider,) in solutions] if all(len(each) == 1 for each in solutions) else []
                    for solutions in providers
                ],
                demands=self._demands,
                exclusive=frozenset(self._suffixed if self._isolate else ()),
                subtrees=self._subtrees,
                free=self._free,
                lineage=self._lineage,
                spend=self._step_limit.spend,
            )
        )

    def allows(self, combination: Sequence[_Solution]) -> bool:
        """Return whether one solution per group may be combined."""
        if self._isolate:
            taken = [self._providers(combination[group]) for group in self._suffixed]
            if len(set(taken)) < len(taken):
                return False
        if not self._keep_together(combination):
            return False
        sums: dict[InventoryKey, int] = defaultdict(int)
        for group, solution in enumerate(combination if self._wanted else ()):
            for key, amount in self._amounts(group, solution):
                sums[key] += amount
        free = self._free
        return all(amount <= free[key] for key, amount in sums.items())

    def _keep_together(self, placed: Sequence[_Solution], checked: int = 0) -> bool:
        """Return whether each same_subtree is met: one of its groups' providers is above all others.

        A same_subtree is checked once all of its groups are placed.
        checked: how many of the first groups are already known to be allowed together.
        """
        for groups in self._subtrees:
            if checked <= groups[-1] < len(placed):
                self._checked += len(groups)
                own, above_all = 0, -1
                for group in groups:
                    for provider in self._providers(placed[group]):
                        bit, above = self._above[provider]
                        own |= bit
                        above_all &= above
                if not own & above_all:
                    return False
        return True

    def _own_and_above(self, provider: int) -> tuple[int, int]:
        """Return the bit of the provider, and those of it and its ancestors."""
        bits = [self._bits.setdefault(each, 1 << len(self._bits)) for each in self._lineage(provider)]
        return bits[0], sum(bits)

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

    def _state(self, placed: Placed[_Solution]) -> Hashable:
        """Return all that matters for later groups: equal states can be extended in the same ways."""
        count = len(placed.solutions)
        unfinished = (groups[: bisect_left(groups, count)] for groups in self._subtrees if groups[-1] >= count)
        below = tuple(frozenset(chain.from_iterable(map(placed.providers.__getitem__, some))) for some in unfinished)
        return count, placed.taken, below, frozenset(placed.sums.items())
