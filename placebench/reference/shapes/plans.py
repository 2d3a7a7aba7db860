"""Which candidates each tree has: the key pieces are `Plan` and `pools`, the trees by their plans."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placebench.reference.shapes.anchors import Anchor, groups_at, guests_of, visiting
from placebench.reference.shapes.demands import Demands, Matter
from placebench.reference.shapes.growing import Growth
from placebench.reference.shapes.parts import Part, part_of
from placebench.reference.shapes.picture import Kind, Picture, Shape, Tree

NOWHERE = -1  # as the id of a root: of the trees that no in_tree names


class Plan:
    """The candidates of equal anchors, searched as far as anybody has asked."""

    def __init__(self, anchor: Anchor, demands: Demands) -> None:
        found = Growth(anchor, demands).combinations() if anchor.ruling.allowed else iter(())
        self._to_come = (part_of(anchor, demands.request, combination) for combination in found)
        self._parts: list[Part] = []

    def __iter__(self) -> Iterator[Part]:
        """Each part; those found before are not searched again."""
        number = 0
        while number < len(self._parts) or self._find():
            yield self._parts[number]
            number += 1

    def parts(self) -> tuple[Part, ...]:
        """All of them."""
        return tuple(self)

    def is_barren(self) -> bool:
        """Whether there is none."""
        return not (self._parts or self._find())

    def _find(self) -> bool:
        part = next(self._to_come, None)
        if part is None:
            return False
        self._parts.append(part)
        return True


class Pool(NamedTuple):
    """Trees of one shape with one plan."""

    plan: Plan
    shape: Shape
    trees: Sequence[Tree]


def pools(picture: Picture, demands: Demands) -> Iterator[Pool]:
    """All trees of the picture, in pools; one search for each distinct anchor."""
    return _Planning(picture, demands).pools()


class _Planning:
    def __init__(self, picture: Picture, demands: Demands) -> None:
        self._picture = picture
        self._demands = demands
        self._matters = _Matters(demands)
        self._plans: dict[Anchor, Plan] = {}
        self._guests = guests_of(picture, demands)
        self._elsewhere = groups_at(picture, demands, NOWHERE)
        self._special = {*picture.named.values(), *(guest.root_id for guest in self._guests)}

    def pools(self) -> Iterator[Pool]:
        for shape in self._picture.shapes.values():
            ordinary = list(shape.trees.values())
            if self._special and not self._special.isdisjoint(shape.trees):
                ordinary = [tree for root_id, tree in shape.trees.items() if root_id not in self._special]
                for root_id in self._special & shape.trees.keys():
                    yield Pool(self._plan(shape, root_id), shape, [shape.trees[root_id]])
            if ordinary:
                yield Pool(self._plan(shape, NOWHERE), shape, ordinary)

    def _plan(self, shape: Shape, root_id: int) -> Plan:
        anchor = self._anchor(shape, root_id)
        plan = self._plans.get(anchor)
        if plan is None:
            plan = self._plans[anchor] = Plan(anchor, self._demands)
        return plan

    def _anchor(self, shape: Shape, root_id: int) -> Anchor:
        """root_id: of the one tree that is asked about, or NOWHERE for all that are not special."""
        guests = visiting(self._guests, shape, root_id) if self._guests else ()
        groups = self._elsewhere if root_id == NOWHERE else groups_at(self._picture, self._demands, root_id)
        parents = shape.parents if self._demands.request.same_subtrees else ()
        matters = tuple([self._matters[kind] for kind in shape.kinds])
        return Anchor(self._demands.ruling(shape.kinds[0]), matters, parents, guests, groups)


class _Matters(dict[Kind, Matter]):
    """What each kind matters, asked once."""

    def __init__(self, demands: Demands) -> None:
        self._demands = demands

    def __missing__(self, kind: Kind) -> Matter:
        matter = self[kind] = self._demands.matter(kind)
        return matter
