"""Which of the candidates are returned, all or a limited number, and the JSON document of them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeVar

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.plans import Plan, Pool
from placebench.reference.candidates.dedup.templates import Batch, Part, filled, joined
from placebench.reference.candidates.dedup.tree_index import Picture, Shape, Tree
from placebench.reference.candidates.results import in_order, limited, search_bound
from placebench.reference.settings import DEPTH_FIRST, Settings

Candidate = tuple[Part, Shape, Tree]


@dataclass(slots=True)
class Chosen:
    """The answer as it is to be written: parts with the trees to write them for, and the trees to summarise."""

    requests: dict[tuple[Part, ...], list[Tree]] = field(default_factory=dict)
    summaries: dict[Shape, list[Tree]] = field(default_factory=dict)
    guest_roots: set[int] = field(default_factory=set)
    count: int = 0

    def add(self, batch: Batch, shape: Shape, trees: Collection[Tree]) -> None:
        """Each of the batch's parts for each of the trees, which are of this shape."""
        if not batch.parts:
            return
        self.requests.setdefault(batch.parts, []).extend(trees)
        self.count += len(batch.parts) * len(trees)
        if batch.gives:
            self.summaries.setdefault(shape, []).extend(trees)
        self.guest_roots |= batch.guest_roots


class Choice:
    """What was chosen of the pools that were offered so far; no candidate comes twice."""

    def __init__(self, request: CandidateRequest, settings: Settings) -> None:
        self._settings = settings
        self._limit = request.limit
        self._seen: set[object] = set()
        self.depth_first = settings.strategy == DEPTH_FIRST and not settings.randomize
        self.left = search_bound(request, settings)  # None: all are wanted

    def choose(self, pools: Iterable[Pool], chosen: Chosen | None = None) -> Chosen:
        """Those of the pools' candidates that are wanted, with what was chosen before; ends when there are enough."""
        chosen = chosen or Chosen()
        before = chosen.count
        if self.left is None and not self._settings.randomize:
            self._all(chosen, pools)
        elif self.left is not None and self.depth_first:
            self._first(chosen, pools, before + self.left)
        else:
            self._some(chosen, pools)
        if self.left is not None:
            self.left -= chosen.count - before
        return chosen

    def _all(self, chosen: Chosen, pools: Iterable[Pool]) -> None:
        for plan, shape, trees in pools:
            batch = plan.batch()
            if not batch.shared:
                chosen.add(batch, shape, trees)
                continue
            for tree in trees:
                chosen.add(Batch.of(self._fresh(plan, tree)), shape, [tree])

    def _first(self, chosen: Chosen, pools: Iterable[Pool], enough: int) -> None:
        """One tree after the other."""
        for plan, shape, trees in pools:
            for tree in () if plan.is_barren() else trees:
                chosen.add(Batch.of(islice(self._fresh(plan, tree), enough - chosen.count)), shape, [tree])
                if chosen.count == enough:
                    return

    def _some(self, chosen: Chosen, pools: Iterable[Pool]) -> None:
        """Those that come first in the order of the strategy, and of them any, if the operator wants it so."""
        anchors = (self._candidates(pool, tree) for pool in pools for tree in pool.trees)
        found = list(islice(in_order(anchors, self._settings), self.left))
        of_tree: dict[str, list[Candidate]] = {}
        for candidate in limited(found, self._limit, self._settings):
            of_tree.setdefault(candidate[2][0], []).append(candidate)
        for candidates in of_tree.values():
            _, shape, tree = candidates[0]
            chosen.add(Batch.of(part for part, _, _ in candidates), shape, [tree])

    def _candidates(self, pool: Pool, tree: Tree) -> Iterator[Candidate]:
        return ((part, pool.shape, tree) for part in self._fresh(pool.plan, tree))

    def _fresh(self, plan: Plan, tree: Tree) -> Iterator[Part]:
        """The candidates of the tree that no other anchor has had."""
        for part in plan:
            if part.shared:
                identity = part.identity_in(tree)
                if identity in self._seen:
                    continue
                self._seen.add(identity)
            yield part


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
