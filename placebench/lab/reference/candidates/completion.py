"""Decides whether some groups' solutions can be completed to a combination, without trying combinations: `Completion`.

The question is answered by bipartite matchings between groups and providers (`Matching`), which augmenting paths keep
up to date while the search moves on, and by `Packing` if groups want different amounts. Sources: Hall, "On
Representatives of Subsets" (1935); Kuhn, "The Hungarian Method for the Assignment Problem" (1955).
docs/lab/algorithms.md says for which requests the answer is exact.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Final

from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.packing import Packing

MAX_ATTEMPTS: Final = 1000
"""The maximum number of choices of topmost providers, for all same_subtree together, that one question tries."""

_Allowed = Sequence[Sequence[int]]  # the providers that each group may use


class Matching:
    """An assignment of groups to providers with capacity for them, repaired when the allowed providers change."""

    def __init__(self, groups: Sequence[int], exclusive: Collection[int], capacity: Mapping[int, int]) -> None:
        """Start with no group assigned.

        Args:
            groups: The numbers of the groups to assign.
            exclusive: The groups of which a provider takes only one.
            capacity: The number of groups that each provider takes.
        """
        self._groups = groups
        self._exclusive = exclusive
        self._capacity = capacity
        self._provider_of: dict[int, int] = {}
        self._groups_at: dict[int, dict[int, None]] = defaultdict(dict)
        self._exclusive_at: dict[int, int] = {}

    def repair(self, allowed: _Allowed) -> bool:
        """Return whether all groups can have an allowed provider together; each group moves only if it must.

        A call costs an augmenting path for each group that loses its provider: O(groups × providers) each.
        """
        assigned = self._provider_of
        for group in self._groups:
            if group in assigned and assigned[group] not in allowed[group]:
                self._leave(group)
        return all(group in assigned or self._augment(group, allowed) for group in self._groups)

    def assigns(self, placed: _Allowed) -> bool:
        """Return whether each of the first groups is assigned to the one provider that it is placed at."""
        count, assigned = len(placed), self._provider_of
        return all(assigned[group] == placed[group][0] for group in self._groups if group < count)

    def _augment(self, start: int, allowed: _Allowed) -> bool:
        """Assign the group by moving others along a shortest augmenting path; return False if there is none."""
        displaced_by: dict[int, tuple[int, int]] = {}  # for a group: the group that takes its place, and the provider
        visited, visited_exclusive = set[int](), set[int]()
        queue = [start]
        for group in queue:
            for provider in allowed[group]:
                if group in self._exclusive:
                    if provider in visited_exclusive:
                        continue
                    visited_exclusive.add(provider)
                    other = self._exclusive_at.get(provider)
                    if other is not None:
                        if other not in displaced_by:
                            displaced_by[other] = group, provider
                            queue.append(other)
                        continue
                if provider in visited:
                    continue
                visited.add(provider)
                present = self._groups_at[provider]
                if len(present) < self._capacity[provider]:
                    self._move(group, provider, displaced_by)
                    return True
                for other in present:
                    if other not in displaced_by:
                        displaced_by[other] = group, provider
                        queue.append(other)
        return False

    def _move(self, group: int, provider: int, displaced_by: Mapping[int, tuple[int, int]]) -> None:
        """Give the provider to the group, and the group's own to the group that displaces it, and so on."""
        while True:
            is_last = group not in self._provider_of
            if not is_last:
                self._leave(group)
            self._provider_of[group] = provider
            self._groups_at[provider][group] = None
            if group in self._exclusive:
                self._exclusive_at[provider] = group
            if is_last:
                return
            group, provider = displaced_by[group]

    def _leave(self, group: int) -> None:
        provider = self._provider_of.pop(group)
        del self._groups_at[provider][group]
        if group in self._exclusive:
            del self._exclusive_at[provider]


@dataclass(frozen=True, slots=True)
class CompletionRules:
    """The rules for the groups of a request at one anchor."""

    options: _Allowed
    """The providers that each group can use by itself; none if its solutions are not single providers."""
    demands: Sequence[Mapping[int, int]]
    """The amount that each group requests of each contended class, by the number of the class."""
    exclusive: frozenset[int]
    """The groups that may not share a provider with each other."""
    subtrees: Sequence[Sequence[int]]
    """The groups of each same_subtree."""
    free: Mapping[tuple[int, int], int]
    """The largest amount that a provider can give of a contended class, by their numbers."""
    lineage: Callable[[int], Iterable[Hashable]]
    """A function that returns the provider and its ancestors, from the bottom up."""
    spend: Callable[[int], None]
    """A function that counts steps in vain, and raises BadRequest if there are too many."""


class Completion:
    """Answers whether the solutions of the first groups can be completed at one anchor.

    "No" is always right. "Yes" may be wrong if the group without a suffix wants a class that others want too, or if
    there are several same_subtree.
    """

    def __init__(self, rules: CompletionRules) -> None:
        """Make a matching for each set of groups that compete for the same providers, and a packing for all others."""
        self._options = rules.options
        self._subtrees = rules.subtrees
        self._spend = rules.spend
        single = [group for group, options in enumerate(rules.options) if options]
        # Groups are packed if others want different amounts of a class; if each has its own provider, none competes.
        different: dict[int, set[frozenset[tuple[int, int]]]] = defaultdict(set)
        for group in single:
            for class_number in rules.demands[group]:
                different[class_number].add(frozenset(rules.demands[group].items()))
        packed = {
            group: rules.demands[group]
            for group in single
            if not rules.exclusive and any(len(different[number]) > 1 for number in rules.demands[group])
        }
        self._packing = Packing(packed, rules.options, rules.free, rules.spend) if packed else None
        competing: dict[tuple[int, ...], None] = {}
        matched = [group for group in single if group not in packed]
        for class_number, amount in sorted({item for group in matched for item in rules.demands[group].items()}):
            groups = tuple(group for group in matched if rules.demands[group].get(class_number, 0) >= amount)
            competing[groups] = None
        self._matchings = [Matching(groups, rules.exclusive, _capacity(groups, rules)) for groups in competing]
        if alone := [group for group in single if group in rules.exclusive]:
            capacity = {provider: 1 for group in alone for provider in rules.options[group]}
            self._matchings.append(Matching(alone, rules.exclusive, capacity))
        used = {provider for groups in rules.subtrees for group in groups for provider in rules.options[group]}
        self._lineages = {provider: tuple(rules.lineage(provider)) for provider in used}
        self._below = below = Memo(self._find_below)
        self._options_below: Memo[tuple[int, int], list[int]] = Memo(
            lambda key: [provider for provider in rules.options[key[0]] if provider in below[key[1]]]
        )
        self._tops = [self._find_tops(groups) for groups in rules.subtrees]
        contended = {group for groups in competing for group in groups}.union(alone, packed)
        self._uncontended = sorted(
            {group for groups in rules.subtrees for group in groups if rules.options[group]} - contended
        )
        self._placement: Mapping[int, int] = {}  # where the packing has its groups
        self._witness: _Allowed | None = None  # if the last question had a "yes": the providers that it allowed
        self.questions = 0
        """The number of restrictions for which the matchings were repaired until now."""

    def exists(self, placed: Sequence[Sequence[int]]) -> bool:
        """Return False if the solutions of the first groups cannot be completed.

        placed: the one provider of each of the first groups; empty for groups without single providers.
        """
        if self._witness and self._agrees(self._witness, placed):
            return True
        self._witness = None
        if not all(map(self._may_meet, self._subtrees, self._tops, repeat(placed))):
            return False
        attempts = 0
        stack: list[Iterator[_Allowed]] = [iter([[*placed, *self._options[len(placed) :]]])]
        while stack:
            allowed = next(stack[-1], None)
            if allowed is None:
                stack.pop()
                continue
            attempts += 1
            self.questions += 1
            if attempts > MAX_ATTEMPTS:
                return True
            if attempts > len(self._subtrees) + 1 > 2:
                self._spend(len(self._options))
            # Below the only same_subtree's topmost provider the matchings are repaired anyway.
            is_repaired_below = len(self._subtrees) == len(stack) == 1 and placed
            if not is_repaired_below and not all(matching.repair(allowed) for matching in self._matchings):
                continue
            if len(stack) > len(self._subtrees):
                if self._packing:
                    placement = self._packing.place(allowed)
                    if placement is None:
                        continue
                    self._placement = placement
                self._witness = allowed
                return True
            number = len(stack) - 1
            stack.append(self._below_one(allowed, self._subtrees[number], self._tops[number]))
        return False

    def _may_meet(self, groups: Sequence[int], tops: Sequence[int], placed: _Allowed) -> bool:
        """Return whether a provider can be above those of a same_subtree's placed groups; needs no matching."""
        count = len(placed)
        decided = {placed[group][0] for group in groups if group < count and placed[group]}
        return any(decided <= self._below[top] for top in tops)

    def _agrees(self, witness: _Allowed, placed: _Allowed) -> bool:
        """Return whether the placed groups are where the matchings have them, or at a provider that the witness allows.

        The second is about groups that compete with no other; they have a same_subtree.
        """
        count = len(placed)
        return (
            all(matching.assigns(placed) for matching in self._matchings)
            and all(placed[group][0] == provider for group, provider in self._placement.items() if group < count)
            and all(placed[group][0] in witness[group] for group in self._uncontended if group < count)
        )

    def _find_tops(self, groups: Sequence[int]) -> Sequence[int]:
        """Return the providers that one of the groups can use and below which each of the groups can be."""
        by_count = sorted(groups, key=lambda group: len(self._options[group]))
        options = dict.fromkeys(provider for group in groups for provider in self._options[group])
        return [top for top in options if all(self._options_below[group, top] for group in by_count)]

    def _below_one(self, allowed: _Allowed, groups: Sequence[int], tops: Sequence[int]) -> Iterator[_Allowed]:
        """Yield restrictions with which the groups meet their same_subtree: one uses the topmost provider of all."""
        decided = {allowed[group][0] for group in groups if len(allowed[group]) == 1}
        for top in tops:
            below = self._below[top]
            if not decided <= below:
                continue
            restricted = list(allowed)
            for group in groups:
                if allowed[group] is self._options[group]:
                    restricted[group] = self._options_below[group, top]
                elif len(allowed[group]) > 1:
                    restricted[group] = [each for each in allowed[group] if each in below]
                if not restricted[group]:
                    break
            else:
                at_top = [group for group in groups if top in restricted[group]]
                # If one of the groups can be nowhere else, it does not matter which other groups are there too.
                for group in [each for each in at_top if len(restricted[each]) == 1][:1] or at_top:
                    yield [*restricted[:group], (top,), *restricted[group + 1 :]]

    def _find_below(self, top: int) -> frozenset[int]:
        lineages = self._lineages
        return frozenset(provider for provider in lineages if lineages[top][0] in lineages[provider])


def _capacity(groups: Sequence[int], rules: CompletionRules) -> dict[int, int]:
    """Return how many of the groups each provider can take at most: the number of smallest amounts that fit."""
    candidates: dict[int, list[int]] = defaultdict(list)
    for group in groups:
        for provider in rules.options[group]:
            candidates[provider].append(group)
    capacity = {}
    for provider, able in candidates.items():
        capacity[provider] = len(able)
        for class_number in {number for group in able for number in rules.demands[group]}:
            sums = accumulate(sorted(rules.demands[group].get(class_number, 0) for group in able))
            fitting = sum(total <= rules.free[provider, class_number] for total in sums)
            capacity[provider] = min(capacity[provider], fitting)
    return capacity
