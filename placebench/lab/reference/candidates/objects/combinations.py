"""Combines the groups' solutions at each anchor into candidates: `CandidateCombinations`."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from placebench.lab.reference.candidates.combinations import Combinations, InventoryKey, MatchingRule
from placebench.lab.reference.candidates.objects.groups import Placement, Solutions
from placebench.lab.reference.candidates.objects.model import Candidate, Resource
from placebench.lab.reference.candidates.objects.search import Search
from placebench.lab.reference.candidates.results import first_tree, in_order, limited, rotated, search_bound


class CandidateCombinations(Combinations[Any]):
    """The solutions of all groups by anchor, which are `Candidate` objects, and methods that combine them."""

    def __init__(self, search: Search, solved: Sequence[Solutions], matching: MatchingRule) -> None:
        """solved: the solutions of each group. matching: says which combinations can be completed."""
        super().__init__(search.request, search.contended, matching=matching)
        self._suffixes = [group.suffix for group in search.request.groups]
        self._solved = solved
        self._inventories = search.inventories
        self._amounts_of: dict[Any, list[tuple[InventoryKey, int]]] = {}
        self._forest = search.forest
        self._candidate = search.model.candidate
        self._amounts_taken = search.solution_form.amounts
        self._shared = bool(search.sharing)
        self._limit = search.request.limit
        self._settings = search.settings
        self.maximum = search.settings.maximum
        self.bound = search_bound(search.request, search.settings)
        first, *others = solved
        having = [search.collection(solutions) for solutions in others]
        self.anchors = [anchor_id for anchor_id in first if all(anchor_id in anchors for anchors in having)]
        if self.bound is not None:
            self.anchors = rotated(self.anchors, first_tree(search.request, search.settings))

    def options(self, anchor_id: int) -> list[list[Any]]:
        """Return the solutions of each group at the anchor, in the order of the groups."""
        return [solutions[anchor_id] for solutions in self._solved]

    def candidates(self, at_anchors: Iterable[Iterator[Sequence[Any]]], bound: int | None) -> list[Any]:
        """Return candidates of combinations, in the order of the strategy, cut to the limit.

        Args:
            at_anchors: The allowed combinations of each anchor.
            bound: The number of candidates at which the search stops; None: no maximum.
        """
        found = list(islice(self._distinct(in_order(at_anchors, self._limit, self._settings)), bound))
        return limited(found, self._limit, self._settings)

    def _providers(self, solution: Any) -> tuple[int, ...]:
        return object_providers(solution)

    def _amounts(self, group: int, solution: Any) -> Iterable[tuple[InventoryKey, int]]:  # noqa: ARG002
        amounts = self._amounts_of.get(solution)
        if amounts is None:
            amounts = self._amounts_of[solution] = [
                (key, amount) for key, amount in object_amounts(solution) if key[1] in self._wanted
            ]
        return amounts

    def _read_free(self, key: InventoryKey) -> int:
        inventory = self._inventories[key]
        return min(inventory.capacity - inventory.used, inventory.max_unit)

    def _lineage(self, provider: int) -> Iterable[int]:
        return self._forest.lineage(provider)

    def _distinct(self, combinations: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield a candidate for each combination, but only one of those with equal allocations and mappings.

        Only combinations that consist of sharing providers can be equal, at different anchors.
        """
        seen = set()
        for combination in combinations:
            candidate = self._joined(combination)
            if self._shared:
                allocations = frozenset(self._amounts_taken(candidate))
                identity = allocations, tuple(frozenset(providers) for providers in candidate.mappings.values())
                if identity in seen:
                    continue
                seen.add(identity)
            yield candidate

    def _joined(self, combination: Sequence[Any]) -> Any:
        """Return the combination as one candidate; amounts are summed in copies of the groups' objects."""
        resources: dict[InventoryKey, Resource] = {}
        mappings: dict[str, tuple[int, ...]] = {}
        for suffix, solution in zip(self._suffixes, combination, strict=True):
            (mappings[suffix],) = solution.mappings.values()
            for resource in solution.resources:
                key = resource.provider_id, resource.class_id
                if resource.class_id not in self._wanted:
                    resources[key] = resource
                elif key in resources:
                    resources[key].amount += resource.amount
                else:
                    resources[key] = copy.copy(resource)
        return self._candidate(combination[0].anchor_id, list(resources.values()), mappings)


class TupleCandidate(NamedTuple):
    """What all groups take at an anchor, without an object for each resource."""

    anchor_id: int
    amounts: dict[InventoryKey, int]
    mappings: dict[str, tuple[int, ...]]  # the providers of each group, by suffix


class TupleCombinations(CandidateCombinations):
    """The solutions of all groups by anchor, as tuples, of which candidates are made without objects."""

    def __init__(self, search: Search, solved: Sequence[Solutions], matching: MatchingRule) -> None:
        """solved: the solutions of each group. matching: says which combinations can be completed."""
        super().__init__(search, solved, matching)
        class_ids = search.catalog.class_ids
        self._takes = [
            [(class_ids[name], amount) for name, amount in group.resources] for group in search.request.groups
        ]

    def _providers(self, solution: Placement) -> tuple[int, ...]:
        return tuple_providers(solution)

    def _amounts(self, group: int, solution: Placement) -> Iterable[tuple[InventoryKey, int]]:
        return [(key, amount) for key, amount in self._taken(group, solution) if key[1] in self._wanted]

    def _taken(self, group: int, solution: Placement) -> list[tuple[InventoryKey, int]]:
        takes, providers = self._takes[group], solution[1]
        if len(providers) == 1:
            return [((providers[0], class_id), amount) for class_id, amount in takes]
        return [((key, class_id), amount) for key, (class_id, amount) in zip(providers, takes, strict=True)]

    def _joined(self, combination: Sequence[Placement]) -> TupleCandidate:
        """Return the combination as one candidate, with the amounts of all groups summed."""
        sums: dict[InventoryKey, int] = {}
        for group, solution in enumerate(combination):
            for key, amount in self._taken(group, solution):
                sums[key] = sums.get(key, 0) + amount
        mappings = dict(zip(self._suffixes, map(tuple_providers, combination), strict=True))
        return TupleCandidate(combination[0][0], sums, mappings)


def object_providers(solution: Candidate) -> tuple[int, ...]:
    """Return the providers of a solution that is an object."""
    (providers,) = solution.mappings.values()
    return providers


def object_amounts(candidate: Candidate) -> list[tuple[InventoryKey, int]]:
    """Return the amount that a candidate or solution that is an object takes from each inventory."""
    return [((each.provider_id, each.class_id), each.amount) for each in candidate.resources]


def tuple_amounts(candidate: TupleCandidate) -> Iterable[tuple[InventoryKey, int]]:
    """Return the amount that a candidate that is a tuple takes from each inventory."""
    return candidate.amounts.items()


def tuple_providers(solution: Placement) -> tuple[int, ...]:
    """Return the providers of a solution that is a tuple, each once."""
    providers = solution[1]
    return providers if len(providers) == 1 else tuple(dict.fromkeys(providers))
