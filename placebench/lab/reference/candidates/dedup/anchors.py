"""The anchors of candidates (roots of trees): the providers that can solve each group there, and their combinations.

The main classes are `Anchor` and `AnchorCombinations`. A position is the place of a provider in the anchor's tree;
positions after those are sharing providers that the tree can use.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate, chain
from operator import or_
from typing import NamedTuple

from placebench.lab.reference.candidates.combinations import Combinations, InventoryKey, Placed, large_first
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


def _solvers(anchor: Anchor, number: int) -> list[int]:
    """Return the providers that can give all that a group with a suffix requests."""
    own, bit = len(anchor.relevances), 1 << number
    inside = anchor.groups & bit
    found = [place for place, each in enumerate(anchor.relevances) if each.solves & inside]
    return found + [own + n for n, each in enumerate(anchor.sharing) if each.relevance.solves & each.groups & bit]


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


Combination = tuple[tuple[int, ...], ...]  # per group, the position of the one provider, or of that of each class


class AnchorCombinations(Combinations[int]):
    """The allowed combinations of providers at one anchor, one provider per group with a suffix.

    Each class of the spreading group is a group of its own in the search, so its combinations are not made in advance.
    """

    def __init__(self, anchor: Anchor, assessor: Assessor) -> None:
        """assessor: has the request, and says what is relevant about a provider."""
        request, contended = assessor.request, {name: number for number, name in enumerate(assessor.contended)}
        order = large_first(request.groups, contended)
        parts = [
            replace(group, resources=resources)
            for group in map(request.groups.__getitem__, order)
            for resources in ([(each,) for each in group.resources] if group.spreads else [group.resources])
        ]
        super().__init__(replace(request, groups=tuple(parts)), contended, assessor.step_limit)
        self._anchor = anchor
        self._request = request
        self._order = order
        spreading = [number for number, part in enumerate(parts) if part.spreads]
        self._first, self._end = (spreading[0], spreading[-1] + 1) if spreading else (0, 0)
        self._traits = (1 << len(parts[self._first].required)) - 1 if spreading else 0
        self._traits_to_come: list[int] = []

    def __iter__(self) -> Iterator[Combination]:
        options, first, end = list[list[int]](), self._first, self._end
        for number in self._order:
            group = self._request.groups[number]
            if group.spreads:
                options += [_givers(self._anchor, number, group, nth) for nth in range(len(group.resources))]
            else:
                options.append(_solvers(self._anchor, number))
        for place in range(first, end if self._traits else first):
            # Traits that no other class's provider can have.
            own = self._traits & ~self._traits_of(chain(*options[first:place], *options[place + 1 : end]))
            options[place] = [each for each in options[place] if own & ~self._traits_of([each]) == 0]
        meets = (self._traits_of(positions) for positions in reversed(options[first:end]))
        self._traits_to_come = [*accumulate(meets, or_, initial=0)][::-1]
        places = sorted(range(len(self._order)), key=self._order.__getitem__)
        for found in self.combine(options):
            spread = [found[first:end]] if end else []
            by_group = [*((each,) for each in found[:first]), *spread, *((each,) for each in found[end:])]
            yield tuple([by_group[place] for place in places])

    def _is_unrestricted(self) -> bool:
        return not self._traits and super()._is_unrestricted()

    def _keep_together(self, placed: Sequence[int], checked: int = 0) -> bool:
        """Return whether each same_subtree is met, and the spreading group can have all required traits."""
        count = len(placed)
        if self._traits and self._first < count <= self._end:
            met = self._traits_of(placed[self._first :]) | self._traits_to_come[count - self._first]
            if met != self._traits:
                return False
        return super()._keep_together(placed, checked)

    def _state(self, placed: Placed[int]) -> Hashable:
        traits = self._traits and self._traits_of(placed.solutions[self._first : self._end])
        return super()._state(placed), traits

    def _traits_of(self, positions: Iterable[int]) -> int:
        """Return the required sets of the spreading group, as bits, of which one of these providers has a trait."""
        return reduce(or_, (self._anchor.relevance(position).meets for position in positions), 0)

    def _providers(self, solution: int) -> tuple[int, ...]:
        return (solution,)

    def _amounts(self, group: int, solution: int) -> Iterable[tuple[InventoryKey, int]]:
        return (((solution, number), amount) for number, amount in self._demands[group].items())

    def _read_free(self, key: InventoryKey) -> int:
        position, number = key
        free = self._anchor.relevance(position).free
        return free[number] if free else 0

    def _lineage(self, provider: int) -> tuple[Hashable, ...]:
        return tuple(self._anchor.lineage(provider))
