"""The anchors of candidates: which providers can solve each group there, and their combinations.

The main classes are `Anchor` and `AnchorCombinations`. A position is a provider's place in the anchor's tree, or beyond
the tree's end one of the sharing providers that it can use.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from placebench.lab.reference.candidates.combinations import Combinations, InventoryKey
from placebench.lab.reference.candidates.dedup.relevance import Assessor, Relevance, RootRuling, providers_of
from placebench.lab.reference.candidates.dedup.tree_index import ROOT, TreeIndex, TreeLayout
from placebench.lab.reference.domain.candidates_query import RequestGroup


class SharingProvider(NamedTuple):
    """A sharing provider, as the trees that can use it see it."""

    root_id: int
    place: int  # in its own tree
    uuid: str
    relevance: Relevance
    aggregates: frozenset[str]
    lineage: tuple[int, ...]  # the places of it and its ancestors, from the bottom up
    groups: int  # bits: those that name no other tree by in_tree


@dataclass(frozen=True, slots=True)
class Anchor:
    """All that decides which candidates a tree has; equal anchors have equal candidates, but for the uuids."""

    ruling: RootRuling
    relevances: tuple[Relevance, ...]  # of the tree's providers, the root first
    parents: tuple[int, ...]  # empty where no same_subtree needs them
    sharing: tuple[SharingProvider, ...]
    groups: int  # bits: those that name this tree by in_tree, or none

    def relevance(self, position: int) -> Relevance:
        """Return the relevance of the provider at this position."""
        own = len(self.relevances)
        return self.relevances[position] if position < own else self.sharing[position - own].relevance

    def lineage(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the provider and its ancestors, from the bottom up, as tree and place; the anchor's own tree is -1."""
        own = len(self.relevances)
        if position >= own:
            provider = self.sharing[position - own]
            yield from ((provider.root_id, place) for place in provider.lineage)
            return
        while position != ROOT:
            yield ROOT, position
            position = self.parents[position]


def sharing_providers(index: TreeIndex, assessor: Assessor) -> list[SharingProvider]:
    """Return the sharing providers that can give something to this request."""
    found = []
    for root_id, tree_class in index.sharing.items():
        for place, each in enumerate(providers_of(tree_class)):
            relevance = assessor.relevance(each)
            if relevance.shares and each.aggregates:
                uuid, lineage = tree_class.trees[root_id][place], _lineage(tree_class.layout, place)
                groups = groups_in_tree(index, assessor, root_id)
                found.append(SharingProvider(root_id, place, uuid, relevance, each.aggregates, lineage, groups))
    return found


def groups_in_tree(index: TreeIndex, assessor: Assessor, root_id: int) -> int:
    """Return the groups, as bits, that may use providers of this tree, as far as in_tree goes.

    As in Placement, a group without resources may use any tree if in_tree names an existing provider, and else none.
    """
    named = index.names.roots_of_named
    flags = [
        group.in_tree is None
        or (named.get(group.in_tree) == root_id if group.resources else named.get(group.in_tree) is not None)
        for group in assessor.request.groups
    ]
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def _lineage(layout: TreeLayout, place: int) -> tuple[int, ...]:
    places = []
    while place != ROOT:
        places.append(place)
        place = layout.parents[place]
    return tuple(places)


_Option = tuple[int, ...]  # positions: of the one provider, or of the provider of each class


def _single_options(anchor: Anchor, number: int) -> list[_Option]:
    """One provider for everything."""
    own, bit = len(anchor.relevances), 1 << number
    inside = anchor.groups & bit
    found: list[_Option] = [(place,) for place, each in enumerate(anchor.relevances) if each.solves & inside]
    return found + [(own + n,) for n, each in enumerate(anchor.sharing) if each.relevance.solves & each.groups & bit]


def _spread_options(anchor: Anchor, number: int, group: RequestGroup) -> list[_Option]:
    """A provider for each class, together holding every required trait."""
    choices = [_givers(anchor, number, group, nth) for nth in range(len(group.resources))]
    wanted = (1 << len(group.required)) - 1
    if not wanted:
        return list(product(*choices))
    found = []
    for option in product(*choices):
        met = 0
        for position in option:
            met |= anchor.relevance(position).meets
        if met == wanted:
            found.append(option)
    return found


def _givers(anchor: Anchor, number: int, group: RequestGroup, nth: int) -> list[int]:
    """The providers that can give the group's nth class: an aggregate on the root counts for all of its tree."""
    own, bit = len(anchor.relevances), 1 << nth
    if anchor.ruling.excluded:
        return []
    found = []
    if anchor.groups >> number & 1:
        everyone = anchor.ruling.member
        found = [n for n, each in enumerate(anchor.relevances) if each.gives & bit and (everyone or each.member)]
    if group.in_tree is None:
        shared = enumerate((each.relevance for each in anchor.sharing), own)
        found += [n for n, each in shared if each.gives & bit and each.member]
    return found


Combination = tuple[_Option, ...]  # an option of each group


class AnchorCombinations(Combinations[_Option]):
    """The combinations of one anchor's options."""

    def __init__(self, anchor: Anchor, assessor: Assessor) -> None:
        """assessor: the request, and what of a provider is relevant to it."""
        contended = {name: number for number, name in enumerate(assessor.contended)}
        super().__init__(assessor.request, contended)
        self._anchor = anchor
        self._assessor = assessor
        self._contended = [
            [(nth, contended[name], amount) for nth, (name, amount) in enumerate(group.resources) if name in contended]
            for group in assessor.request.groups
        ]

    def __iter__(self) -> Iterator[Combination]:
        """Yield each."""
        return self.combine(
            [
                _spread_options(self._anchor, number, group) if group.spreads else _single_options(self._anchor, number)
                for number, group in enumerate(self._assessor.request.groups)
            ]
        )

    def _providers(self, solution: _Option) -> _Option:
        return solution

    def _amounts(self, group: int, solution: _Option) -> Iterable[tuple[InventoryKey, int]]:
        """One provider gives all classes, or one each."""
        several = len(solution) > 1
        return [((solution[nth if several else 0], number), amount) for nth, number, amount in self._contended[group]]

    def _read_free(self, key: InventoryKey) -> int:
        position, number = key
        free = self._anchor.relevance(position).free
        return free[number] if free else 0

    def _lineage(self, provider: int) -> Iterable[Hashable]:
        return self._anchor.lineage(provider)
