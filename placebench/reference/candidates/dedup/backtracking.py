"""All combinations of one anchor's options, group by group, cut off where no completion is possible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from placebench.reference.api.candidates_query import RequestGroup
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


class Growth:
    """What may be asked of a combination of the first groups' options, and how it grows."""

    def __init__(self, anchor: Anchor, demands: Demands) -> None:
        request = demands.request
        self._anchor = anchor
        self._options = options_at(anchor, demands)
        self._isolate = request.isolate
        self._alone = [bool(group.suffix) for group in request.groups]
        suffixes = [group.suffix for group in request.groups]
        self._subtrees = [sorted(suffixes.index(suffix) for suffix in named) for named in request.same_subtrees]
        crowded = {name: number for number, name in enumerate(demands.crowded)}
        self._asked = [
            [(nth, crowded[name], amount) for nth, (name, amount) in enumerate(group.resources) if name in crowded]
            for group in request.groups
        ]
        self._barren: set[object] = set()  # prospects from which nothing grew

    def combinations(self) -> Iterator[Combination]:
        """All that can stand, as they are found."""
        if all(self._options) and self._could_suffice():
            yield from self._grown(())

    def _grown(self, placed: Combination) -> Iterator[Combination]:
        """Those that begin with these options."""
        if len(placed) == len(self._options):
            yield placed
            return
        if self._barren and self._prospects(placed) in self._barren:
            return
        fruitful = False
        for option in self._options[len(placed)]:
            longer = (*placed, option)
            if self._allows(longer):
                for combination in self._grown(longer):
                    fruitful = True
                    yield combination
        if not fruitful:
            self._barren.add(self._prospects(placed))

    def _could_suffice(self) -> bool:
        """Whether the providers are enough, counted all together: it spares the search of 12 groups on 11 devices."""
        apart = [options for options, alone in zip(self._options, self._alone, strict=True) if alone]
        if self._isolate and len({option for options in apart for option in options}) < len(apart):
            return False
        wanted: dict[int, int] = {}
        givers: dict[int, set[int]] = {}
        for options, asked in zip(self._options, self._asked, strict=True):
            for nth, crowded, amount in asked:
                wanted[crowded] = wanted.get(crowded, 0) + amount
                givers.setdefault(crowded, set()).update(option[_nth(option, nth)] for option in options)
        return all(sum(self._free(n, crowded) for n in givers[crowded]) >= wanted[crowded] for crowded in wanted)

    def _allows(self, placed: Combination) -> bool:
        return self._keep_apart(placed) and self._keep_together(placed) and self._fit(placed)

    def _keep_apart(self, placed: Combination) -> bool:
        """With group_policy=isolate no two groups with a suffix take the same provider."""
        if not (self._isolate and self._alone[len(placed) - 1]):
            return True
        return placed[-1] not in self._taken(placed[:-1])

    def _keep_together(self, placed: Combination) -> bool:
        """The providers of each same_subtree's groups, once the last of these is placed, lie below one of them."""
        return all(
            self._one_above_all({position for place in places for position in placed[place]})
            for places in self._subtrees
            if places[-1] == len(placed) - 1
        )

    def _one_above_all(self, positions: set[int]) -> bool:
        if len(positions) == 1:
            return True
        lineages = [list(self._anchor.lineage(position)) for position in positions]
        used = {lineage[0] for lineage in lineages}
        top = [above for above in lineages[0] if above in used][-1]
        return all(top in lineage for lineage in lineages)

    def _fit(self, placed: Combination) -> bool:
        """What several groups take from one stock together is not more than it can give."""
        if not self._asked[len(placed) - 1]:
            return True
        return all(
            amount <= self._free(position, crowded) for (position, crowded), amount in self._sums(placed).items()
        )

    def _free(self, position: int, crowded: int) -> int:
        free = self._anchor.matter(position).free
        return free[crowded] if free else 0

    def _sums(self, placed: Combination) -> dict[tuple[int, int], int]:
        """What is taken of each crowded class of each provider."""
        sums: dict[tuple[int, int], int] = {}
        for option, asked in zip(placed, self._asked, strict=False):
            for nth, crowded, amount in asked:
                key = option[_nth(option, nth)], crowded
                sums[key] = sums.get(key, 0) + amount
        return sums

    def _taken(self, placed: Combination) -> list[Option]:
        """The providers of the groups that isolate keeps apart."""
        return [option for option, alone in zip(placed, self._alone, strict=False) if alone]

    def _prospects(self, placed: Combination) -> object:
        """All that the groups to come must know of those placed: from equal prospects they grow alike."""
        taken = frozenset(self._taken(placed)) if self._isolate else None
        waiting = (places for places in self._subtrees if places[-1] >= len(placed))
        held = tuple(
            frozenset(key for place in places if place < len(placed) for key in placed[place]) for places in waiting
        )
        return len(placed), taken, held, frozenset(self._sums(placed).items())


def _nth(option: Sequence[int], nth: int) -> int:
    """Where the provider of the group's nth class stands in its option: one provider stands for all."""
    return nth if len(option) > 1 else 0
