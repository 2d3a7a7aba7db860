"""Selects the candidates to return, all or a limited number (`Selection`), and writes their JSON document."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from placebench.lab.reference.candidates.dedup.equivalence import AnchorCandidates, EquivalenceClass
from placebench.lab.reference.candidates.dedup.pieces import TreeTexts, fill_pieces, join_pieces
from placebench.lab.reference.candidates.dedup.templates import CandidateTemplate, TemplateBatch
from placebench.lab.reference.candidates.dedup.tree_index import MAX_KEPT_PROVIDERS, TreeIndex, TreeLayout
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.results import Body, hold, in_order, limited, search_bound, share_per_tree
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.settings import DEPTH_FIRST, ServiceSettings

_FIRST_TREES: Final = 8

_TreeCandidate = tuple[CandidateTemplate, TreeLayout, TreeTexts]


@dataclass(slots=True)
class Selected:
    """The content of the document: candidates with the trees for which they are written, and the trees to summarise."""

    requests: dict[tuple[CandidateTemplate, ...], list[TreeTexts]] = field(default_factory=dict)
    summaries: dict[TreeLayout, list[TreeTexts]] = field(default_factory=dict)
    count: int = 0

    def add(self, batch: TemplateBatch, layout: TreeLayout, trees: Collection[TreeTexts]) -> None:
        """Add each candidate of the batch for each of the trees, all of which have this layout."""
        if not batch.templates:
            return
        self.requests.setdefault(batch.templates, []).extend(trees)
        self.count += len(batch.templates) * len(trees)
        if batch.gives:
            self.summaries.setdefault(layout, []).extend(trees)


class _Taken(NamedTuple):
    """Trees of a class that get the same candidates."""

    batch: TemplateBatch
    own: EquivalenceClass
    trees: list[TreeTexts]
    further: Iterator[CandidateTemplate] | None
    """The other candidates of the only tree; None: those after as many of the class as there are in the batch."""


class Selection:
    """Selects candidates of equivalence classes, each once, up to the request's limit and the operator's maximum."""

    def __init__(self, request: CandidateRequest, settings: ServiceSettings) -> None:
        self._settings = settings
        self._limit = request.limit
        self._seen: set[object] = set()
        # How many first candidates were compared with those seen, for trees with these uuids of sharing providers.
        self._compared: Memo[tuple[AnchorCandidates, TreeTexts], list[int]] = Memo(lambda _: [0])
        self.depth_first = settings.strategy == DEPTH_FIRST and not settings.randomize
        self.left = search_bound(request, settings)  # the number of candidates still to select; None: all

    @property
    def first_count(self) -> int:
        """The number of trees to search first: at least 8, and as many as the candidates still to select."""
        return max(_FIRST_TREES, self.left or 0)

    def drop_limit(self, classes: Iterable[EquivalenceClass]) -> None:
        """Select without a limit if the classes have no more candidates, none of which another anchor may have."""
        left = self.left if self.depth_first else None
        if left is None:
            return
        for candidates, _, trees in classes:
            if trees:  # in_tree may have taken the only one into a class of its own
                left -= len(trees) * len(candidates.first(left // len(trees) + 1).templates)
            if left < 0:
                return
        self.left = None

    def select(
        self, classes: Iterable[EquivalenceClass], selected: Selected | None = None, searched: Container[str] = ()
    ) -> Selected:
        """Add candidates of the classes to *selected*, until there are enough, and return it.

        searched: the first texts of trees that are left out, if candidates are limited and in depth-first order.
        """
        selected = selected or Selected()
        before = selected.count
        if self.left is None and not self._settings.randomize:
            self._select_all(selected, classes)
        elif self.left is not None and self.depth_first:
            self._select_first(selected, classes, before + self.left, searched)
        else:
            self._select_some(selected, classes)
        if self.left is not None:
            self.left -= selected.count - before
        return selected

    def _select_all(self, selected: Selected, classes: Iterable[EquivalenceClass]) -> None:
        for candidates, layout, trees in classes:
            batch = candidates.batch()
            if not batch.shared:
                selected.add(batch, layout, trees)
                continue
            for tree in trees:
                selected.add(TemplateBatch.of(self._fresh(candidates, tree)), layout, [tree])

    def _select_first(
        self, selected: Selected, classes: Iterable[EquivalenceClass], enough: int, searched: Container[str]
    ) -> None:
        """Select candidates tree by tree, up to *enough* in total, except those of trees that were searched before.

        A tree gives more than its share only if all trees together do not suffice otherwise.
        """
        left = enough - selected.count
        share = share_per_tree(left, self._settings)
        found: list[_Taken] = []
        for own in classes:
            for taken in () if own.candidates.is_empty() else self._take(own, share, left, searched):
                found.append(taken)
                left -= len(taken.batch.templates) * len(taken.trees)
            if not left:
                break
        for batch, own, trees, further in found:
            count = len(batch.templates)
            # Usually the batch has all candidates of its trees.
            if not left or (further is None and len(own.candidates.first(count + 1).templates) == count):
                selected.add(batch, own.layout, trees)
                continue
            for tree in trees:
                fresh = further or islice(self._fresh(own.candidates, tree), count, None)
                more = list(islice(fresh, left))
                left -= len(more)
                selected.add(TemplateBatch.of([*batch.templates, *more]) if more else batch, own.layout, [tree])

    def _take(self, own: EquivalenceClass, share: int, left: int, searched: Container[str]) -> Iterator["_Taken"]:
        """Yield up to *share* candidates of each tree of the class, until there are *left* of them in total.

        Trees get the same batch if no other anchor may have its candidates.
        """
        candidates = own.candidates
        trees = (tree for tree in own.trees if tree[0] not in searched) if searched else iter(own.trees)
        while left and (tree := next(trees, None)) is not None:
            batch = candidates.first(min(share, left))
            if batch.shared:
                fresh = self._fresh(candidates, tree)
                batch = TemplateBatch.of(islice(fresh, min(share, left)))
                yield _Taken(batch, own, [tree], fresh)
                left -= len(batch.templates)
                continue
            count = len(batch.templates)
            equal = [tree, *islice(trees, left // count - 1)]
            yield _Taken(batch, own, equal, None)
            left -= count * len(equal)

    def _select_some(self, selected: Selected, classes: Iterable[EquivalenceClass]) -> None:
        """Select the first candidates in the order of the strategy, or random ones if `settings.randomize` is set."""
        anchors = (self._of_tree(each, tree) for each in classes for tree in each.trees)
        found = list(islice(in_order(anchors, self._limit, self._settings), self.left))
        by_tree: dict[str, list[_TreeCandidate]] = {}
        for candidate in limited(found, self._limit, self._settings):
            by_tree.setdefault(candidate[2][0], []).append(candidate)
        for candidates in by_tree.values():
            _, layout, tree = candidates[0]
            selected.add(TemplateBatch.of(template for template, _, _ in candidates), layout, [tree])

    def _of_tree(self, own: EquivalenceClass, tree: TreeTexts) -> Iterator[_TreeCandidate]:
        return ((template, own.layout, tree) for template in self._fresh(own.candidates, tree))

    def _fresh(self, candidates: AnchorCandidates, tree: TreeTexts) -> Iterator[CandidateTemplate]:
        """Yield the tree's candidates, except those that were already selected at another anchor.

        Trees that can use the same sharing providers compare each shared candidate only once, all of them together.
        """
        compared = self._compared[candidates, tuple([tree[hole] for hole in candidates.sharing])]
        first = compared[0]
        yield from candidates.unshared(first)
        for number, template in candidates.since(first):
            if template.shared is not None:
                if number < compared[0]:
                    continue
                compared[0] = number + 1
                identity = tuple([tree[hole] for hole in template.shared])
                if identity in self._seen:
                    continue
                self._seen.add(identity)
            yield template


_PIECE_SIZE: Final = 4_000  # the number of candidates or providers that are written at once: about 2 MB
_MAX_JOINED: Final = 100_000  # the number of texts after which they are joined

_T = TypeVar("_T")


def write_requests(selected: Selected) -> Iterator[list[str]]:
    """Yield the JSON of the allocation requests in pieces, some thousand requests at a time, each after a comma."""
    for templates, trees in selected.requests.items():
        for some in _slices(templates, _PIECE_SIZE):
            pieces = join_pieces(chain.from_iterable(each.pieces for each in some))
            for few in _slices(trees, max(1, _PIECE_SIZE // len(some))):
                yield fill_pieces(pieces, few)


def write_summaries(selected: Selected, index: TreeIndex) -> Iterator[list[str]]:
    """Yield the JSON of the summaries of all trees that a candidate uses, in pieces, each summary after a comma."""
    for layout, trees in _trees_to_summarise(selected, index).items():
        if index.provider_count <= MAX_KEPT_PROVIDERS:
            # The summaries of a tree are written once and kept until the tree changes.
            uuids = [tree[0] for tree in trees]
            try:
                yield list(map(layout.written.__getitem__, uuids))
            except KeyError:
                new = [tree for tree in trees if tree[0] not in layout.written]
                texts = "".join(fill_pieces((*layout.summaries, "\n"), new)).split("\n")
                # The last text, after the last line break, is empty.
                layout.written.update(zip([tree[0] for tree in new], texts, strict=False))
                yield list(map(layout.written.__getitem__, uuids))
            continue
        for some in _slices(trees, max(1, _PIECE_SIZE // len(layout.providers))):
            yield fill_pieces(layout.summaries, some)


def write_document(requests: Iterator[list[str]], summaries: Iterator[list[str]]) -> Body:
    """Return the body with these requests and summaries, in parts if it is long."""
    document = chain(
        (['{"allocation_requests":['],),
        _without_first_comma(requests),
        (['],"provider_summaries":{'],),
        _without_first_comma(summaries),
        (["}}"],),
    )
    return hold(_encoded(document))


def _encoded(parts: Iterable[list[str]]) -> Iterator[bytes]:
    """Yield the JSON as bytes, about 10 MB at a time: most bodies are one such part, which `hold` does not copy."""
    some: list[str] = []
    for pieces in parts:
        some += pieces
        if len(some) > _MAX_JOINED:
            yield "".join(some).encode()
            some = []
    yield "".join(some).encode()


def _without_first_comma(texts: Iterator[list[str]]) -> Iterator[list[str]]:
    nonempty = filter(None, texts)  # a part of the trees may have nothing to write
    for pieces in islice(nonempty, 1):
        pieces[0] = pieces[0][1:]
        yield pieces
    yield from nonempty


def _trees_to_summarise(selected: Selected, index: TreeIndex) -> Mapping[TreeLayout, Sequence[TreeTexts]]:
    """Return the trees that candidates use, by layout; a tree that is an anchor and shares is listed only once."""
    giving = {
        tree[hole]
        for templates, trees in selected.requests.items()
        for hole in TemplateBatch.of(templates).sharing
        for tree in trees
    }
    listed = {tree[0] for trees in selected.summaries.values() for tree in trees} if giving else ()
    for root_id, tree_class in index.sharing.items() if giving else ():
        tree = tree_class.trees[root_id]
        if tree[0] not in listed and not giving.isdisjoint(tree):
            selected.summaries.setdefault(tree_class.layout, []).append(tree)
    return selected.summaries


def _slices(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
