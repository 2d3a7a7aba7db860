"""The groups' solutions at one anchor put together, and what a combination must keep to: the key piece is `Merge`."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from random import sample
from sys import maxsize

from placebench.reference.candidates.objects.groups import Solutions
from placebench.reference.candidates.objects.search import Search
from placebench.reference.candidates.round_robin import by_turns
from placebench.reference.optimizations.model import Candidate, Resource
from placebench.reference.settings import DEPTH_FIRST


class Merge:
    """Every group's solutions by anchor; what a step of the search may ask about them."""

    def __init__(self, search: Search, solved: Sequence[Solutions], crowded: Mapping[int, int]) -> None:
        """crowded: the ids of the classes that more than one group asks for, with what all of them ask."""
        self._solved = solved
        self._crowded = crowded
        self._stocks = search.stocks
        self._lineage = search.forest.lineage
        self._candidate = search.ways.model.candidate
        self._isolate = search.request.isolate
        self._shared = bool(search.sharing)
        suffixes = [group.suffix for group in search.request.groups]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in named) for named in search.request.same_subtrees]
        self._alone = [place for place, suffix in enumerate(suffixes) if suffix]
        self._limit = search.request.limit
        self._settings = search.settings
        self.anchors = _common(search, solved)

    def options(self, anchor_id: int) -> list[list[Candidate]]:
        """The solutions of each group at the anchor, in the groups' order."""
        return [solutions[anchor_id] for solutions in self._solved]

    def allows(self, placed: Sequence[Candidate]) -> bool:
        """Whether the solutions of the first groups can stand together; of all groups: whether they are a candidate."""
        return self._keep_apart(placed) and self._keep_together(placed) and self._fit(placed)

    def could_suffice(self, options: Sequence[Sequence[Candidate]]) -> bool:
        """Whether the providers at an anchor are enough, counted all together: if not, no combination can stand.

        It spares the search among 12 groups for 11 devices, whose every combination fails at its last group.
        """
        apart = [options[place] for place in self._alone]
        if self._isolate and len({_providers(solution) for group in apart for solution in group}) < len(apart):
            return False
        return all(self._free(options, class_id) >= amount for class_id, amount in self._crowded.items())

    def _free(self, options: Sequence[Sequence[Candidate]], class_id: int) -> int:
        offered = (resource for group in options for solution in group for resource in solution.resources)
        keys = {(each.provider_id, class_id) for each in offered if each.class_id == class_id}
        return sum(self._stocks[key].capacity - self._stocks[key].used for key in keys)

    def prospects(self, placed: Sequence[Candidate]) -> object:
        """All that the groups to come must know of those placed: from equal prospects they grow alike."""
        taken = frozenset(self._taken(placed)) if self._isolate else None
        waiting = (places for places in self._subtrees if places[-1] >= len(placed))
        held = tuple(
            frozenset(key for place in places if place < len(placed) for key in _providers(placed[place]))
            for places in waiting
        )
        return len(placed), taken, held, frozenset(self._sums(placed).items())

    @property
    def enough(self) -> int | None:
        """How many candidates need to be found for those that are wanted; None: all."""
        return None if self._settings.randomize or self._limit is None else min(self._limit, maxsize)

    def found(self, at_anchors: Iterable[Iterator[Sequence[Candidate]]]) -> Iterator[Candidate]:
        """A candidate for each allowed combination, in the order of the strategy, up to the maximum."""
        in_order = chain.from_iterable if self._settings.strategy == DEPTH_FIRST else by_turns
        return islice(self._distinct(in_order(at_anchors)), self._settings.maximum)

    def wanted(self, candidates: list[Candidate]) -> list[Candidate]:
        """So many of the candidates as the limit lets through: the first ones, or any."""
        if not self._settings.randomize:
            return candidates[: self._limit]
        return sample(candidates, min(len(candidates), self._limit or len(candidates)))

    def _distinct(self, combinations: Iterable[Sequence[Candidate]]) -> Iterator[Candidate]:
        """A candidate for each combination, but no two with the same allocations and mappings.

        Only a combination wholly of sharing providers can come twice, from two anchors.
        """
        seen = set()
        for combination in combinations:
            candidate = self._joined(combination)
            if self._shared:
                identity = _identity(candidate)
                if identity in seen:
                    continue
                seen.add(identity)
            yield candidate

    def _keep_apart(self, placed: Sequence[Candidate]) -> bool:
        """With group_policy=isolate no two groups with a suffix take the same provider."""
        if not self._isolate:
            return True
        taken = self._taken(placed)
        return len(set(taken)) == len(taken)

    def _keep_together(self, placed: Sequence[Candidate]) -> bool:
        """The providers of each same_subtree's groups, once all of these are placed, lie below one of them."""
        for places in self._subtrees:
            if places[-1] < len(placed) and not self._one_above_all([placed[place] for place in places]):
                return False
        return True

    def _one_above_all(self, solutions: Iterable[Candidate]) -> bool:
        providers = {provider_id for solution in solutions for provider_id in _providers(solution)}
        if len(providers) == 1:
            return True
        top = [above for above in self._lineage(min(providers)) if above in providers][-1]
        return all(top in self._lineage(provider_id) for provider_id in providers)

    def _fit(self, placed: Sequence[Candidate]) -> bool:
        """The sums of what several groups take from one stock stay within its capacity and max_unit."""
        if not self._crowded:
            return True
        stocks = self._stocks
        return all(
            stocks[key].used + amount <= stocks[key].capacity and amount <= stocks[key].max_unit
            for key, amount in self._sums(placed).items()
        )

    def _sums(self, placed: Sequence[Candidate]) -> dict[tuple[int, int], int]:
        """What is taken of each stock of a crowded class."""
        sums: dict[tuple[int, int], int] = {}
        for solution in placed:
            for resource in solution.resources:
                if resource.class_id in self._crowded:
                    key = resource.provider_id, resource.class_id
                    sums[key] = sums.get(key, 0) + resource.amount
        return sums

    def _taken(self, placed: Sequence[Candidate]) -> list[tuple[int, ...]]:
        """The providers of the groups that isolate keeps apart."""
        return [_providers(placed[place]) for place in self._alone if place < len(placed)]

    def _joined(self, combination: Sequence[Candidate]) -> Candidate:
        """The combination as one candidate; amounts are summed in copies, never in the groups' own objects."""
        resources: dict[tuple[int, int], Resource] = {}
        mappings: dict[str, tuple[int, ...]] = {}
        for solution in combination:
            mappings.update(solution.mappings)
            for resource in solution.resources:
                key = resource.provider_id, resource.class_id
                if resource.class_id not in self._crowded:
                    resources[key] = resource
                elif key in resources:
                    resources[key].amount += resource.amount
                else:
                    resources[key] = copy.copy(resource)
        return self._candidate(combination[0].anchor_id, list(resources.values()), mappings)


def _common(search: Search, solved: Sequence[Solutions]) -> list[int]:
    """The anchors at which every group has a solution."""
    first, *others = solved
    having = [search.ways.collection(solutions) for solutions in others]
    return [anchor_id for anchor_id in first if all(anchor_id in anchors for anchors in having)]


def _providers(solution: Candidate) -> tuple[int, ...]:
    (providers,) = solution.mappings.values()
    return providers


def _identity(candidate: Candidate) -> object:
    allocations = frozenset((each.provider_id, each.class_id, each.amount) for each in candidate.resources)
    return allocations, tuple(frozenset(providers) for providers in candidate.mappings.values())
