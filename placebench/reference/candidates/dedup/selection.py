"""Which of the candidates are returned, all or a limited number, and the JSON document of them: `Selection`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeVar

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.equivalence import AnchorCandidates, EquivalenceClass
from placebench.reference.candidates.dedup.templates import CandidateTemplate, TemplateBatch, fill_pieces, join_pieces
from placebench.reference.candidates.dedup.tree_index import TreeClass, TreeIndex, TreeUuids
from placebench.reference.candidates.results import Body, hold, in_order, limited, search_bound
from placebench.reference.settings import DEPTH_FIRST, ServiceSettings

_TreeCandidate = tuple[CandidateTemplate, TreeClass, TreeUuids]


@dataclass(slots=True)
class Selected:
    """What is to be written: candidates with the trees to write them for, and the trees to summarise."""

    requests: dict[tuple[CandidateTemplate, ...], list[TreeUuids]] = field(default_factory=dict)
    summaries: dict[TreeClass, list[TreeUuids]] = field(default_factory=dict)
    sharing_roots: set[int] = field(default_factory=set)
    count: int = 0

    def add(self, batch: TemplateBatch, tree_class: TreeClass, trees: Collection[TreeUuids]) -> None:
        """Add each of the batch's candidates for each of the trees, which are of this class."""
        if not batch.templates:
            return
        self.requests.setdefault(batch.templates, []).extend(trees)
        self.count += len(batch.templates) * len(trees)
        if batch.gives:
            self.summaries.setdefault(tree_class, []).extend(trees)
        self.sharing_roots |= batch.sharing_roots


class Selection:
    """Selects candidates of equivalence classes, as many as the request and the settings want; none comes twice."""

    def __init__(self, request: CandidateRequest, settings: ServiceSettings) -> None:
        """Nothing is selected yet."""
        self._settings = settings
        self._limit = request.limit
        self._seen: set[object] = set()
        self.depth_first = settings.strategy == DEPTH_FIRST and not settings.randomize
        self.left = search_bound(request, settings)  # None: all are wanted

    def select(self, classes: Iterable[EquivalenceClass], selected: Selected | None = None) -> Selected:
        """Return the candidates that are wanted, with those selected before; stop when there are enough."""
        selected = selected or Selected()
        before = selected.count
        if self.left is None and not self._settings.randomize:
            self._select_all(selected, classes)
        elif self.left is not None and self.depth_first:
            self._select_first(selected, classes, before + self.left)
        else:
            self._select_some(selected, classes)
        if self.left is not None:
            self.left -= selected.count - before
        return selected

    def _select_all(self, selected: Selected, classes: Iterable[EquivalenceClass]) -> None:
        for candidates, tree_class, trees in classes:
            batch = candidates.batch()
            if not batch.shared:
                selected.add(batch, tree_class, trees)
                continue
            for tree in trees:
                selected.add(TemplateBatch.of(self._fresh(candidates, tree)), tree_class, [tree])

    def _select_first(self, selected: Selected, classes: Iterable[EquivalenceClass], enough: int) -> None:
        """One tree after the other."""
        for candidates, tree_class, trees in classes:
            for tree in () if candidates.is_empty() else trees:
                fresh = islice(self._fresh(candidates, tree), enough - selected.count)
                selected.add(TemplateBatch.of(fresh), tree_class, [tree])
                if selected.count == enough:
                    return

    def _select_some(self, selected: Selected, classes: Iterable[EquivalenceClass]) -> None:
        """Those that come first in the order of the strategy, and of them any, if the operator wants it so."""
        anchors = (self._of_tree(each, tree) for each in classes for tree in each.trees)
        found = list(islice(in_order(anchors, self._settings), self.left))
        by_tree: dict[str, list[_TreeCandidate]] = {}
        for candidate in limited(found, self._limit, self._settings):
            by_tree.setdefault(candidate[2][0], []).append(candidate)
        for candidates in by_tree.values():
            _, tree_class, tree = candidates[0]
            selected.add(TemplateBatch.of(template for template, _, _ in candidates), tree_class, [tree])

    def _of_tree(self, own: EquivalenceClass, tree: TreeUuids) -> Iterator[_TreeCandidate]:
        return ((template, own.tree_class, tree) for template in self._fresh(own.candidates, tree))

    def _fresh(self, candidates: AnchorCandidates, tree: TreeUuids) -> Iterator[CandidateTemplate]:
        """The candidates of the tree that no other anchor has had."""
        for template in candidates:
            if template.shared:
                identity = template.identity_in(tree)
                if identity in self._seen:
                    continue
                self._seen.add(identity)
            yield template


_FEW_TREES: Final = 4
_PIECE_SIZE: Final = 4_000  # candidates or providers that are written at once: about 2 MB

_T = TypeVar("_T")


def write_requests(selected: Selected) -> Iterator[list[str]]:
    """Yield the allocation requests in pieces, each with a comma before it; some thousands at a time."""
    for templates, trees in selected.requests.items():
        for some in _slices(templates, _PIECE_SIZE):
            pieces = join_pieces(chain.from_iterable(each.pieces for each in some))
            for few in _slices(trees, max(1, _PIECE_SIZE // len(some))):
                yield fill_pieces(pieces, few)


def write_summaries(selected: Selected, index: TreeIndex) -> Iterator[list[str]]:
    """Yield the provider summaries in pieces, of the trees that give something, each with a comma before it."""
    columns = _SummaryColumns()
    for tree_class, trees in _trees_to_summarise(selected, index).items():
        for some in _slices(trees, _PIECE_SIZE) if len(trees) > _PIECE_SIZE else (trees,):
            columns.add(tree_class, some)
            if len(columns.uuids) >= _PIECE_SIZE:
                yield columns.pieces()
                columns = _SummaryColumns()
    yield columns.pieces()


def write_document(requests: Iterator[list[str]], summaries: Iterator[list[str]]) -> Body:
    """Return the body that these make, in parts if it is long."""
    return hold("".join(pieces).encode() for pieces in _document(requests, summaries))


def _document(requests: Iterator[list[str]], summaries: Iterator[list[str]]) -> Iterator[list[str]]:
    yield ['{"allocation_requests":[']
    yield from _without_first_comma(requests)
    yield ['],"provider_summaries":{']
    yield from _without_first_comma(summaries)
    yield ["}}"]


def _without_first_comma(texts: Iterator[list[str]]) -> Iterator[list[str]]:
    nonempty = filter(None, texts)  # a part of the trees may have nothing to write
    for pieces in islice(nonempty, 1):
        pieces[0] = pieces[0][1:]
        yield pieces
    yield from nonempty


class _SummaryColumns:
    """Summaries of providers, each column as one list: filled without a loop, whatever the classes of the trees."""

    def __init__(self) -> None:
        self.uuids: list[str] = []
        self._texts: list[str] = []
        self._parents: list[str] = []
        self._roots: list[str] = []

    def add(self, tree_class: TreeClass, trees: Sequence[TreeUuids]) -> None:
        """Tree by tree if they are few, place by place if they are many."""
        if len(trees) < _FEW_TREES:
            self._add_few(tree_class, trees)
            return
        count = len(trees)
        columns = [*zip(*trees, strict=True), ["null"] * count]  # the last one, at ROOT, is that of a root's parent
        for column, provider, parent in zip(columns, tree_class.providers, tree_class.parents, strict=False):
            self.uuids.extend(column)
            self._texts.extend([provider.text] * count)
            self._parents.extend(columns[parent])
            self._roots.extend(columns[0])

    def _add_few(self, tree_class: TreeClass, trees: Sequence[TreeUuids]) -> None:
        texts = [each.text for each in tree_class.providers]
        for tree in trees:
            uuids = [*tree, "null"]  # the last one, at ROOT, is that of a root's parent
            self.uuids += tree
            self._texts += texts
            self._parents += [uuids[parent] for parent in tree_class.parents]
            self._roots += [tree[0]] * len(texts)

    def pieces(self) -> list[str]:
        """`,"...":{...,"root_provider_uuid":"..."}` for each provider."""
        pieces = [",", "", "", "", ',"root_provider_uuid":', "", "}"] * len(self.uuids)
        pieces[1::7], pieces[2::7], pieces[3::7], pieces[5::7] = self.uuids, self._texts, self._parents, self._roots
        return pieces


def _trees_to_summarise(selected: Selected, index: TreeIndex) -> Mapping[TreeClass, Sequence[TreeUuids]]:
    """The trees, each once: that of a sharing provider may be an anchor that gives something too."""
    if not selected.sharing_roots:
        return selected.summaries
    listed = {tree[0] for trees in selected.summaries.values() for tree in trees}
    found: dict[TreeClass, list[TreeUuids]] = {key: [*trees] for key, trees in selected.summaries.items()}
    for root_id in selected.sharing_roots:
        tree_class = index.class_of[root_id]
        tree = tree_class.trees[root_id]
        if tree[0] not in listed:
            found.setdefault(tree_class, []).append(tree)
    return found


def _slices(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
