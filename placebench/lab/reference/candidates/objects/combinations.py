"""Combines the groups' solutions at each anchor into candidates: `CandidateCombinations`."""

import copy
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from placebench.lab.reference.candidates.combinations import Combinations, InventoryKey, MatchingRule, large_first
from placebench.lab.reference.candidates.objects.groups import Placement, Solutions
from placebench.lab.reference.candidates.objects.model import Candidate, Resource
from placebench.lab.reference.candidates.objects.search import Document, Search
from placebench.lab.reference.candidates.results import first_tree, in_order, limited, rotated, search_bound


class CandidateCombinations(Combinations[Any]):
    """The solutions of all groups by anchor, which are `Candidate` objects, and methods that combine them."""

    def __init__(self, search: Search, solved: Sequence[Solutions], matching: MatchingRule) -> None:
        """solved: the solutions of each group. matching: says which combinations can be completed."""
        order = large_first(search.request.groups, search.contended)
        self._groups = tuple(map(search.request.groups.__getitem__, order))
        self._solved = [solved[number] for number in order]
        super().__init__(replace(search.request, groups=self._groups), search.contended, matching=matching)
        self._inventories = search.inventories
        self._amounts_of: dict[Any, list[tuple[InventoryKey, int]]] = {}
        self._forest = search.forest
        self._candidate = search.model.candidate
        self._class_names = search.catalog.class_names
        self._root_of = search.root_of
        self._shared = bool(search.sharing)
        self._limit = search.request.limit
        self._settings = search.settings
        self.maximum = search.settings.maximum
        self.bound = search_bound(search.request, search.settings)
        first, *others = solved
        self.anchors = list(first)
        for solutions in others:
            self.anchors = list(filter(search.collection(solutions).__contains__, self.anchors))
        if self.bound is not None:
            self.anchors = rotated(self.anchors, first_tree(search.request, search.settings))

    def options(self, anchor_id: int) -> list[list[Any]]:
        """Return the solutions of each group at the anchor, in the order in which the groups are combined."""
        return [solutions[anchor_id] for solutions in self._solved]

    def candidates(self, at_anchors: Iterable[Iterator[Sequence[Any]]], bound: int | None) -> list[Any]:
        """Return candidates of combinations, in the order of the strategy, cut to the limit.

        Args:
            at_anchors: The allowed combinations of each anchor.
            bound: The number of candidates at which the search stops; None: no maximum.
        """
        found = list(islice(self._distinct(in_order(at_anchors, self._limit, self._settings)), bound))
        return limited(found, self._limit, self._settings)

    def named_roots(self, candidates: Sequence[Any]) -> set[int]:
        """Return the roots of the trees of all anchors and providers of the candidates."""
        roots = {each.anchor_id for each in candidates}
        for each in candidates:
            for providers in each.mappings.values():
                roots.update(map(self._root_of.__getitem__, providers))
        return roots

    def giving_roots(self, candidates: Sequence[Any]) -> set[int]:
        """Return the roots of the trees from which the candidates take resources."""
        return {self._root_of[resource.provider_id] for each in candidates for resource in each.resources}

    def allocation_requests(self, candidates: Sequence[Any]) -> list[Document]:
        """Return the documents of the candidates."""
        providers, class_names, found = self._forest.providers, self._class_names, list[Document]()
        for candidate in candidates:
            allocations: dict[str, Document] = {}
            for each in candidate.resources:
                taken = allocations.setdefault(providers[each.provider_id].uuid, {"resources": {}})
                taken["resources"][class_names[each.class_id]] = each.amount
            mappings = {suffix: [providers[key].uuid for key in keys] for suffix, keys in candidate.mappings.items()}
            found.append({"allocations": allocations, "mappings": mappings})
        return found

    def _providers(self, solution: Any) -> tuple[int, ...]:
        return object_providers(solution)

    def _amounts(self, group: int, solution: Any) -> Iterable[tuple[InventoryKey, int]]:  # noqa: ARG002
        amounts = self._amounts_of.get(solution)
        if amounts is None:
            amounts = self._amounts_of[solution] = [
                ((each.provider_id, each.class_id), each.amount)
                for each in solution.resources
                if each.class_id in self._wanted
            ]
        return amounts

    def _read_free(self, key: InventoryKey) -> int:
        inventory = self._inventories[key]
        return min(inventory.capacity - inventory.used, inventory.max_unit)

    def _lineage(self, provider: int) -> tuple[int, ...]:
        return tuple(self._forest.lineage(provider))

    def _distinct(self, combinations: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield a candidate for each combination, but only one of those with equal allocations and mappings.

        Only combinations that consist of sharing providers can be equal, at different anchors.
        """
        candidates = map(self._joined, combinations)
        if not self._shared:
            yield from candidates
            return
        seen = set[Hashable]()
        for candidate in candidates:
            identity = self._identity(candidate)
            if identity not in seen:
                seen.add(identity)
                yield candidate

    def _identity(self, candidate: Any) -> Hashable:
        """Return a value that is equal for candidates with equal allocations and mappings."""
        allocations = frozenset((each.provider_id, each.class_id, each.amount) for each in candidate.resources)
        return allocations, tuple(frozenset(providers) for providers in candidate.mappings.values())

    def _joined(self, combination: Sequence[Any]) -> Any:
        """Return the combination as one candidate; amounts are summed in copies of the groups' objects."""
        resources: dict[InventoryKey, Resource] = {}
        mappings: dict[str, tuple[int, ...]] = {}
        for group, solution in zip(self._groups, combination, strict=True):
            (mappings[group.suffix],) = solution.mappings.values()
            for resource in solution.resources:
                key = resource.provider_id, resource.class_id
                if resource.class_id not in self._wanted:
                    resources[key] = resource
                elif key in resources:
                    resources[key].amount += resource.amount
                else:
                    resources[key] = copy.copy(resource)
        return self._candidate(combination[0].anchor_id, list(resources.values()), mappings)


class TupleCombinations(CandidateCombinations):
    """The solutions of all groups by anchor, as tuples; a candidate is the tuple of one solution per group."""

    def __init__(self, search: Search, solved: Sequence[Solutions], matching: MatchingRule) -> None:
        """solved: the solutions of each group. matching: says which combinations can be completed."""
        super().__init__(search, solved, matching)
        class_ids = search.catalog.class_ids
        self._takes = [[(class_ids[name], amount) for name, amount in group.resources] for group in self._groups]

    def named_roots(self, candidates: Sequence[tuple[Placement, ...]]) -> set[int]:
        """Return the roots of the trees of all anchors and providers of the candidates."""
        roots = {combination[0][0] for combination in candidates}
        if self._shared:
            placed = chain.from_iterable(providers for each in candidates for _, providers in each)
            roots.update(map(self._root_of.__getitem__, placed))
        return roots

    def giving_roots(self, candidates: Sequence[tuple[Placement, ...]]) -> set[int]:
        """Return the roots of the trees from which the candidates take resources."""
        if not self._shared:
            return self.named_roots(candidates)
        taking = [number for number, takes in enumerate(self._takes) if takes]
        return {self._root_of[key] for each in candidates for number in taking for key in each[number][1]}

    def allocation_requests(self, candidates: Sequence[tuple[Placement, ...]]) -> list[Document]:
        """Return the documents of the candidates; what a group takes of one provider is one object for all of them."""
        providers, found = self._forest.providers, list[Document]()
        groups = [(each.suffix, each.resources, {"resources": dict(each.resources)}) for each in self._groups]
        for combination in candidates:
            allocations, mappings = dict[str, Document](), dict[str, list[str]]()
            for (suffix, resources, whole), (_, keys) in zip(groups, combination, strict=True):
                if keys.count(keys[0]) == len(keys):
                    uuid = providers[keys[0]].uuid
                    mappings[suffix] = [uuid]
                    if resources:
                        allocations[uuid] = _together(allocations[uuid], whole) if uuid in allocations else whole
                    continue
                uuids = [providers[key].uuid for key in keys]
                mappings[suffix] = list(dict.fromkeys(uuids))
                for uuid, (name, amount) in zip(uuids, resources, strict=True):
                    taken = {"resources": {name: amount}}
                    allocations[uuid] = _together(allocations[uuid], taken) if uuid in allocations else taken
            found.append({"allocations": allocations, "mappings": mappings})
        return found

    def _providers(self, solution: Placement) -> tuple[int, ...]:
        return tuple_providers(solution)

    def _amounts(self, group: int, solution: Placement) -> Iterable[tuple[InventoryKey, int]]:
        return [(key, amount) for key, amount in self._taken(group, solution) if key[1] in self._wanted]

    def _taken(self, group: int, solution: Placement) -> list[tuple[InventoryKey, int]]:
        takes, providers = self._takes[group], solution[1]
        if len(providers) == 1:
            return [((providers[0], class_id), amount) for class_id, amount in takes]
        return [((key, class_id), amount) for key, (class_id, amount) in zip(providers, takes, strict=True)]

    def _joined(self, combination: Sequence[Placement]) -> Sequence[Placement]:
        return combination

    def _identity(self, candidate: Sequence[Placement]) -> Hashable:
        sums: dict[InventoryKey, int] = {}
        for group, solution in enumerate(candidate):
            for key, amount in self._taken(group, solution):
                sums[key] = sums.get(key, 0) + amount
        return frozenset(sums.items()), tuple(frozenset(providers) for _, providers in candidate)


def _together(one: Document, other: Document) -> Document:
    """Return the sum of two allocations of a provider, without changing them."""
    resources = dict(one["resources"])
    for name, amount in other["resources"].items():
        resources[name] = resources.get(name, 0) + amount
    return {"resources": resources}


def object_providers(solution: Candidate) -> tuple[int, ...]:
    """Return the providers of a solution that is an object."""
    (providers,) = solution.mappings.values()
    return providers


def tuple_providers(solution: Placement) -> tuple[int, ...]:
    """Return the providers of a solution that is a tuple, each once."""
    providers = solution[1]
    return providers if len(providers) == 1 else tuple(dict.fromkeys(providers))
