"""The anchors of candidates (roots of trees): the providers that can solve each group there, and their combinations.

The main classes are `Anchor` and `AnchorCombinations`. A position is the place of a provider in the anchor's tree;
positions after those are sharing providers that the tree can use.
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
    """A sharing provider, with the facts that matter to trees that can use it."""

    root_id: int
    place: int  # its place in its own tree
    uuid: str
    relevance: Relevance
    aggregates: frozenset[str]
    lineage: tuple[int, ...]  # the places of the provider and its ancestors, from the bottom up
    groups: int  # the groups, as bits, whose in_tree allows the provider's tree


@dataclass(frozen=True, slots=True)
class Anchor:
    """All facts that decide which candidates a tree has; equal anchors have equal candidates, except for the uuids."""

    ruling: RootRuling
    relevances: tuple[Relevance, ...]  # the relevances of the tree's providers, the root first
    parents: tuple[int, ...]  # the places of parents; empty without same_subtree, which alone needs them
    sharing: tuple[SharingProvider, ...]
    groups: int  # the groups, as bits, whose in_tree allows this tree

    def relevance(self, position: int) -> Relevance:
        """Return the relevance of the provider at this position."""
        own = len(self.relevances)
        return self.relevances[position] if position < own else self.sharing[position - own].relevance

    def lineage(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the provider and its ancestors, from the bottom up, as (tree, place); -1 is the anchor's own tree."""
        own = len(self.relevances)
        if position >= own:
            provider = self.sharing[position - own]
            yield from ((provider.root_id, place) for place in provider.lineage)
            return
        while position != ROOT:
            yield ROOT, position
            position = self.parents[position]


def sharing_providers(index: TreeIndex, assessor: Assessor) -> list[SharingProvider]:
    """Return the sharing providers that can give resources for this request."""
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
    """Return the groups, as bits, whose in_tree allows this tree; a group without in_tree allows all trees.

    As in Placement, the in_tree of a group without resources allows any tree if it names an existing provider.
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


_Option = tuple[int, ...]  # the position of the one provider, or the positions of the providers of each class


def _single_options(anchor: Anchor, number: int) -> list[_Option]:
    """Return the options of a group with a suffix: each provider that can give all that the group requests."""
    own, bit = len(anchor.relevances), 1 << number
    inside = anchor.groups & bit
    found: list[_Option] = [(place,) for place, each in enumerate(anchor.relevances) if each.solves & inside]
    return found + [(own + n,) for n, each in enumerate(anchor.sharing) if each.relevance.solves & each.groups & bit]


def _spread_options(anchor: Anchor, number: int, group: RequestGroup) -> list[_Option]:
    """Return the options of the spreading group: a provider per class, which together have all required traits."""
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
    """Return the providers that can give the group's nth class; an aggregate of the root applies to its whole tree."""
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


Combination = tuple[_Option, ...]  # one option per group


class AnchorCombinations(Combinations[_Option]):
    """The allowed combinations of the groups' options at one anchor."""

    def __init__(self, anchor: Anchor, assessor: Assessor) -> None:
        """assessor: has the request, and says what is relevant about a provider."""
        contended = {name: number for number, name in enumerate(assessor.contended)}
        super().__init__(assessor.request, contended)
        self._anchor = anchor
        self._assessor = assessor
        self._contended = [
            [(nth, contended[name], amount) for nth, (name, amount) in enumerate(group.resources) if name in contended]
            for group in assessor.request.groups
        ]

    def __iter__(self) -> Iterator[Combination]:
        """Yield each allowed combination."""
        return self.combine(
            [
                _spread_options(self._anchor, number, group) if group.spreads else _single_options(self._anchor, number)
                for number, group in enumerate(self._assessor.request.groups)
            ]
        )

    def _providers(self, solution: _Option) -> _Option:
        return solution

    def _amounts(self, group: int, solution: _Option) -> Iterable[tuple[InventoryKey, int]]:
        """Return the amounts of contended classes that an option takes, from one provider or from one per class."""
        several = len(solution) > 1
        return [((solution[nth if several else 0], number), amount) for nth, number, amount in self._contended[group]]

    def _read_free(self, key: InventoryKey) -> int:
        position, number = key
        free = self._anchor.relevance(position).free
        return free[number] if free else 0

    def _lineage(self, provider: int) -> Iterable[Hashable]:
        return self._anchor.lineage(provider)
