"""One anchor as the search sees it, providers by position: its own tree's, then its guests. The key piece is `Anchor`.

A guest is a sharing provider of another tree that has an aggregate in common with this one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from placebench.reference.shapes.demands import Demands, Matter, Ruling
from placebench.reference.shapes.picture import ROOT, Picture, Shape


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
