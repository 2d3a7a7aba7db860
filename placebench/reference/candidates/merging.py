"""The groups' solutions at one anchor put together, and what a combination must keep to: the key piece is `Merge`."""

import copy
from collections.abc import Collection, Iterable, Iterator, Sequence

from placebench.reference.candidates.groups import Solutions
from placebench.reference.candidates.search import Search
from placebench.reference.steps.model import Candidate, Resource


class Merge:
    """Every group's solutions by anchor; what a step of the search may ask about them."""

    def __init__(self, search: Search, solved: Sequence[Solutions], crowded: Collection[int]) -> None:
        """crowded: the ids of the classes that more than one group asks for."""
        self._solved = solved
        self._crowded = crowded
        self._stocks = search.stocks
        self._lineage = search.forest.lineage
        self._candidate = search.ways.model.candidate
        self._isolate = search.request.isolate
        self._shared = bool(search.sharing)
        suffixes = [group.suffix for group in search.request.groups]
        self._subtrees = [[suffixes.index(suffix) for suffix in named] for named in search.request.same_subtrees]
        self._alone = [place for place, suffix in enumerate(suffixes) if suffix]
        self.limit = search.request.limit
        self.anchors = _common(search, solved)

    def options(self, anchor_id: int) -> list[list[Candidate]]:
        """The solutions of each group at the anchor, in the groups' order."""
        return [solutions[anchor_id] for solutions in self._solved]

    def allows(self, placed: Sequence[Candidate]) -> bool:
        """Whether the solutions of the first groups can stand together; of all groups: whether they are a candidate."""
        return self._keep_apart(placed) and self._keep_together(placed) and self._fit(placed)

    def joined(self, combinations: Iterable[Sequence[Candidate]]) -> Iterator[Candidate]:
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
        taken = [_providers(placed[place]) for place in self._alone if place < len(placed)]
        return len(set(taken)) == len(taken)

    def _keep_together(self, placed: Sequence[Candidate]) -> bool:
        """The providers of each same_subtree's groups, once all of these are placed, lie below one of them."""
        return all(
            self._one_above_all([placed[place] for place in places])
            for places in self._subtrees
            if max(places) < len(placed)
        )

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
        sums: dict[tuple[int, int], int] = {}
        for solution in placed:
            for resource in solution.resources:
                if resource.class_id in self._crowded:
                    key = resource.provider_id, resource.class_id
                    sums[key] = sums.get(key, 0) + resource.amount
        stocks = self._stocks
        return all(
            stocks[key].used + amount <= stocks[key].capacity and amount <= stocks[key].max_unit
            for key, amount in sums.items()
        )

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
