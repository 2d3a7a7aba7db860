"""Which candidates each tree has: the key pieces are `Plan` and `pools`, the trees by their plans."""

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import NamedTuple, TypeVar

from placebench.reference.candidates.dedup.backtracking import (
    Anchor,
    AnchorCombinations,
    groups_at,
    guests_of,
    visiting,
)
from placebench.reference.candidates.dedup.relevance import Demands, Matter
from placebench.reference.candidates.dedup.templates import Batch, Part, part_of
from placebench.reference.candidates.dedup.tree_index import Kind, Picture, Shape, Tree

_T = TypeVar("_T")

NOWHERE = -1  # as the id of a root: of the trees that no in_tree names


class Plan:
    """The candidates of equal anchors, searched as far as anybody has asked."""

    def __init__(self, anchor: Anchor, demands: Demands) -> None:
        found = iter(AnchorCombinations(anchor, demands)) if anchor.ruling.allowed else iter(())
        self._to_come = (part_of(anchor, demands.request, combination) for combination in found)
        self._parts: list[Part] = []
        self._batch: Batch | None = None

    def __iter__(self) -> Iterator[Part]:
        """Each part; those found before are not searched again."""
        number = 0
        while number < len(self._parts) or self._find():
            yield self._parts[number]
            number += 1

    def batch(self) -> Batch:
        """All of them."""
        if self._batch is None:
            self._batch = Batch.of(self)
        return self._batch

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
    trees: Collection[Tree]


def pools(picture: Picture, demands: Demands, roots: Collection[int] | None = None) -> Iterator[Pool]:
    """The trees of these roots in pools, of all without roots; one search for each distinct anchor."""
    planning = _Planning(picture, demands)
    return planning.pools() if roots is None else planning.pools_of(roots)


class _Planning:
    def __init__(self, picture: Picture, demands: Demands) -> None:
        self._picture = picture
        self._demands = demands
        self._alike: dict[Hashable, int] = {}
        self._matters: list[Matter] = []
        self._numbers = _Memo(self._number_of)
        self._rulings = _Memo(demands.ruling)
        self._plans: dict[object, Plan] = {}
        self._guests = guests_of(picture, demands)
        self._elsewhere = groups_at(picture, demands, NOWHERE)
        self._special = {*picture.named.values(), *(guest.root_id for guest in self._guests)}

    def pools(self) -> Iterator[Pool]:
        for shape in self._picture.shapes.values():
            ordinary: Collection[Tree] = shape.trees.values()  # no copy: under a limit few are looked at
            if not shape.trees.keys().isdisjoint(self._special):
                ordinary = [tree for root_id, tree in shape.trees.items() if root_id not in self._special]
                for root_id in self._special & shape.trees.keys():
                    yield Pool(self._plan(shape, root_id), shape, [shape.trees[root_id]])
            if ordinary:
                yield Pool(self._plan(shape, NOWHERE), shape, ordinary)

    def pools_of(self, roots: Collection[int]) -> Iterator[Pool]:
        shape_of = self._picture.shape_of
        shapes: dict[Shape, list[int]] = {}
        for root_id in roots:
            shapes.setdefault(shape_of[root_id], []).append(root_id)
        for shape, root_ids in shapes.items():
            trees = [shape.trees[root_id] for root_id in root_ids if root_id not in self._special]
            yield Pool(self._plan(shape, NOWHERE), shape, trees)
            for root_id in self._special.intersection(root_ids):
                yield Pool(self._plan(shape, root_id), shape, [shape.trees[root_id]])

    def _plan(self, shape: Shape, root_id: int) -> Plan:
        """root_id: of the one tree that is asked about, or NOWHERE for all that are not special."""
        guests = visiting(self._guests, shape, root_id) if self._guests else ()
        groups = self._elsewhere if root_id == NOWHERE else groups_at(self._picture, self._demands, root_id)
        parents = shape.parents if self._demands.request.same_subtrees else ()
        ruling, numbers = self._rulings[shape.kinds[0]], tuple([self._numbers[kind] for kind in shape.kinds])
        key = ruling, numbers, parents, guests, groups
        plan = self._plans.get(key)
        if plan is None:
            matters = tuple(self._matters[number] for number in numbers)
            anchor = Anchor(ruling, matters, parents, guests, groups)
            plan = self._plans[key] = Plan(anchor, self._demands)
        return plan

    def _number_of(self, kind: Kind) -> int:
        """Kinds that are alike have one number: it is hashed and compared faster than what it stands for."""
        matter = self._demands.matter(kind)
        number = self._alike.setdefault(self._demands.likeness(kind, matter), len(self._matters))
        if number == len(self._matters):
            self._matters.append(matter)
        return number


class _Memo(dict[Kind, _T]):
    """What a function says of each kind, asked once."""

    def __init__(self, ask: Callable[[Kind], _T]) -> None:
        self._ask = ask

    def __missing__(self, kind: Kind) -> _T:
        answer = self[kind] = self._ask(kind)
        return answer
