"""All combinations of one anchor's options, group by group, cut off where no completion is possible."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from placebench.reference.api.candidates_query import RequestGroup
from placebench.reference.candidates.combinations import Combinations, InventoryKey
from placebench.reference.candidates.dedup.relevance import Demands, Matter, Ruling
from placebench.reference.candidates.dedup.tree_index import ROOT, Picture, Shape


class Guest(NamedTuple):
    """A sharing provider, as the trees see it that it can give to."""

    root_id: int
    place: int  # in its own tree
    uuid: str
    matter: Matter
    aggregates: frozenset[str]
    lineage: tuple[int, ...]  # the places of it and its ancestors, from the bottom up
    groups: int  # bits: those that name no other tree by in_tree


@dataclass(frozen=True, slots=True)
class Anchor:
    """All that decides which candidates there are here; equal anchors have equal candidates, but for the uuids."""

    ruling: Ruling
    matters: tuple[Matter, ...]  # the root's first
    parents: tuple[int, ...]  # empty where no same_subtree asks for them
    guests: tuple[Guest, ...]
    groups: int  # bits: those that name this tree by in_tree, or none

    def matter(self, position: int) -> Matter:
        """Of the provider there."""
        own = len(self.matters)
        return self.matters[position] if position < own else self.guests[position - own].matter

    def lineage(self, position: int) -> Iterator[tuple[int, int]]:
        """The provider and its ancestors, from the bottom up, each as tree and place; the anchor's own tree is -1."""
        own = len(self.matters)
        if position >= own:
            guest = self.guests[position - own]
            yield from ((guest.root_id, place) for place in guest.lineage)
            return
        while position != ROOT:
            yield ROOT, position
            position = self.parents[position]


def guests_of(picture: Picture, demands: Demands) -> list[Guest]:
    """The sharing providers that may give something to this request."""
    found = []
    for root_id, shape in picture.sharing.items():
        for place, kind in enumerate(shape.kinds):
            matter = demands.matter(kind)
            if kind.shares and kind.aggregates and (matter.able or matter.gives):
                uuid = shape.trees[root_id][place]
                groups = groups_at(picture, demands, root_id)
                found.append(Guest(root_id, place, uuid, matter, kind.aggregates, _lineage(shape, place), groups))
    return found


def groups_at(picture: Picture, demands: Demands, root_id: int) -> int:
    """Bits: the groups that may use providers of this tree, as far as in_tree goes."""
    named = picture.named
    flags = [
        group.in_tree is None or not group.resources or named.get(group.in_tree) == root_id
        for group in demands.request.groups
    ]
    return sum(1 << number for number, flag in enumerate(flags) if flag)


def visiting(guests: Sequence[Guest], shape: Shape, root_id: int | None) -> tuple[Guest, ...]:
    """Those that can give to trees of this shape, but are not of this tree."""
    return tuple(
        guest for guest in guests if guest.root_id != root_id and not guest.aggregates.isdisjoint(shape.aggregates)
    )


def _lineage(shape: Shape, place: int) -> tuple[int, ...]:
    places = []
    while place != ROOT:
        places.append(place)
        place = shape.parents[place]
    return tuple(places)


Option = tuple[int, ...]  # positions: of the one provider, or of the provider of each class


def options_at(anchor: Anchor, demands: Demands) -> list[list[Option]]:
    """The options of each group, in the groups' order."""
    return [
        _spread(anchor, number, group) if group.spreads else _alone(anchor, number)
        for number, group in enumerate(demands.request.groups)
    ]


def _alone(anchor: Anchor, number: int) -> list[Option]:
    """One provider for everything."""
    own, bit = len(anchor.matters), 1 << number
    found: list[Option] = [(place,) for place, matter in enumerate(anchor.matters) if matter.able & anchor.groups & bit]
    return found + [(own + n,) for n, guest in enumerate(anchor.guests) if guest.matter.able & guest.groups & bit]


def _spread(anchor: Anchor, number: int, group: RequestGroup) -> list[Option]:
    """A provider for each class, together holding every required trait."""
    choices = [_choices(anchor, number, group, demand) for demand in range(len(group.resources))]
    wanted = (1 << len(group.required)) - 1
    if not wanted:
        return list(product(*choices))
    return [option for option in product(*choices) if _met(anchor, option) == wanted]


def _choices(anchor: Anchor, number: int, group: RequestGroup, demand: int) -> list[int]:
    """The providers that can give the class: an aggregate on the root counts for all of its tree."""
    own, bit = len(anchor.matters), 1 << demand
    if anchor.ruling.outcast:
        return []
    found = []
    if anchor.groups >> number & 1:
        everyone = anchor.ruling.member
        found = [n for n, matter in enumerate(anchor.matters) if matter.gives & bit and (everyone or matter.member)]
    if group.in_tree is None:
        found += [own + n for n, guest in enumerate(anchor.guests) if guest.matter.gives & bit and guest.matter.member]
    return found


def _met(anchor: Anchor, option: Option) -> int:
    met = 0
    for position in option:
        met |= anchor.matter(position).meets
    return met


Combination = tuple[Option, ...]  # an option a group


class AnchorCombinations(Combinations[Option]):
    """The combinations of one anchor's options."""

    def __init__(self, anchor: Anchor, demands: Demands) -> None:
        """demands: the request, and what of a provider it asks about."""
        contended = {name: number for number, name in enumerate(demands.crowded)}
        super().__init__(demands.request, contended)
        self._anchor = anchor
        self._demands = demands
        self._contended = [
            [(nth, contended[name], amount) for nth, (name, amount) in enumerate(group.resources) if name in contended]
            for group in demands.request.groups
        ]

    def __iter__(self) -> Iterator[Combination]:
        return self.combine(options_at(self._anchor, self._demands))

    def _providers(self, solution: Option) -> Option:
        return solution

    def _amounts(self, group: int, solution: Option) -> Iterable[tuple[InventoryKey, int]]:
        """One provider stands for all classes, or each has its own."""
        several = len(solution) > 1
        return [((solution[nth if several else 0], number), amount) for nth, number, amount in self._contended[group]]

    def _free(self, key: InventoryKey) -> int:
        position, number = key
        free = self._anchor.matter(position).free
        return free[number] if free else 0

    def _lineage(self, provider: int) -> Iterable[Hashable]:
        return self._anchor.lineage(provider)
