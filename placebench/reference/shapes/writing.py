"""The JSON document of what was chosen, as text: the key pieces are `requests` and `summaries`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar

from placebench.reference.shapes.choosing import Chosen
from placebench.reference.shapes.parts import filled, joined
from placebench.reference.shapes.picture import Picture, Shape, Tree

FEW: Final = 4
PART: Final = 4_000  # candidates or providers that are written at once: about 2 MB

BEGIN: Final = '{"allocation_requests":['
BETWEEN: Final = '],"provider_summaries":{'
END: Final = "}}"

_T = TypeVar("_T")


def requests(chosen: Chosen) -> Iterator[list[str]]:
    """The allocation requests in pieces, each request with a comma before it; some thousands at a time."""
    for parts, trees in chosen.requests.items():
        for some in _slices(parts, PART):
            template = joined(chain.from_iterable(part.pieces for part in some))
            for few in _slices(trees, max(1, PART // len(some))):
                yield filled(template, few)


def summaries(chosen: Chosen, picture: Picture) -> Iterator[list[str]]:
    """The provider summaries in pieces, of the trees that give something, each summary with a comma before it."""
    columns = Columns()
    for shape, trees in _summarised(chosen, picture).items():
        for some in _slices(trees, PART) if len(trees) > PART else (trees,):
            columns.add(shape, some)
            if len(columns.uuids) >= PART:
                yield columns.pieces()
                columns = Columns()
    yield columns.pieces()


class Columns:
    """Summaries of providers, each column as one list: filled without a loop, whatever the shapes of the trees."""

    def __init__(self) -> None:
        self.uuids: list[str] = []
        self._texts: list[str] = []
        self._parents: list[str] = []
        self._roots: list[str] = []

    def add(self, shape: Shape, trees: Sequence[Tree]) -> None:
        """Tree by tree if they are few, place by place if they are many."""
        if len(trees) < FEW:
            self._add_few(shape, trees)
            return
        count = len(trees)
        columns = [*zip(*trees, strict=True), ["null"] * count]  # the last one, at ROOT, is that of a root's parent
        for column, kind, parent in zip(columns, shape.kinds, shape.parents, strict=False):
            self.uuids.extend(column)
            self._texts.extend([kind.text] * count)
            self._parents.extend(columns[parent])
            self._roots.extend(columns[0])

    def _add_few(self, shape: Shape, trees: Sequence[Tree]) -> None:
        texts = [kind.text for kind in shape.kinds]
        for tree in trees:
            uuids = [*tree, "null"]  # the last one, at ROOT, is that of a root's parent
            self.uuids += tree
            self._texts += texts
            self._parents += [uuids[parent] for parent in shape.parents]
            self._roots += [tree[0]] * len(texts)

    def pieces(self) -> list[str]:
        """`,"...":{...,"root_provider_uuid":"..."}` for each provider."""
        pieces = [",", "", "", "", ',"root_provider_uuid":', "", "}"] * len(self.uuids)
        pieces[1::7], pieces[2::7], pieces[3::7], pieces[5::7] = self.uuids, self._texts, self._parents, self._roots
        return pieces


def _summarised(chosen: Chosen, picture: Picture) -> Mapping[Shape, Sequence[Tree]]:
    """The trees, each once: a guest's tree may be an anchor that gives something too."""
    if not chosen.guest_roots:
        return chosen.summaries
    listed = {tree[0] for trees in chosen.summaries.values() for tree in trees}
    found: dict[Shape, list[Tree]] = {shape: [*trees] for shape, trees in chosen.summaries.items()}
    for root_id in chosen.guest_roots:
        shape = picture.shape_of[root_id]
        tree = shape.trees[root_id]
        if tree[0] not in listed:
            found.setdefault(shape, []).append(tree)
    return found


def _slices(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
