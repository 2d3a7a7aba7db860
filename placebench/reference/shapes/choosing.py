"""Which of the candidates are the answer: all, or so many of them. The key piece is `Choice`."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from random import sample
from sys import maxsize

from placebench.reference.query import CandidateRequest
from placebench.reference.settings import DEPTH_FIRST, Settings
from placebench.reference.shapes.parts import Batch, Part
from placebench.reference.shapes.picture import Shape, Tree
from placebench.reference.shapes.plans import Plan, Pool
from placebench.reference.turns import by_turns

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
        limit = None if request.limit is None else min(request.limit, maxsize)
        bounds = (settings.maximum, None if settings.randomize else limit)
        self.depth_first = settings.strategy == DEPTH_FIRST and not settings.randomize
        self.left = min((bound for bound in bounds if bound is not None), default=None)  # None: all are wanted

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
        in_order = chain.from_iterable(anchors) if self._settings.strategy == DEPTH_FIRST else by_turns(anchors)
        found = list(islice(in_order, self.left))
        if self._settings.randomize:
            found = sample(found, min(len(found), self._limit or len(found)))
        of_tree: dict[str, list[Candidate]] = {}
        for candidate in found:
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
