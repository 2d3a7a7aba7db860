"""The trees of an index in classes of equal candidates, each searched once: `equivalence_classes`."""

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Final, NamedTuple, TypeVar

from placebench.reference.candidates.dedup.anchors import (
    Anchor,
    AnchorCombinations,
    SharingProvider,
    groups_in_tree,
    sharing_providers,
)
from placebench.reference.candidates.dedup.relevance import Assessor, Relevance
from placebench.reference.candidates.dedup.templates import CandidateTemplate, TemplateBatch, make_template
from placebench.reference.candidates.dedup.tree_index import ProviderClass, TreeClass, TreeIndex, TreeUuids

_K = TypeVar("_K")
_T = TypeVar("_T")

_UNNAMED: Final = -1  # as the id of a root: of the trees that no in_tree names


class AnchorCandidates:
    """The candidates of equal anchors, searched as far as they have been needed."""

    def __init__(self, anchor: Anchor, assessor: Assessor) -> None:
        """Nothing is searched yet."""
        found = iter(AnchorCombinations(anchor, assessor)) if anchor.ruling.allowed else iter(())
        self._to_come = (make_template(anchor, assessor.request, combination) for combination in found)
        self._templates: list[CandidateTemplate] = []
        self._batch: TemplateBatch | None = None

    def __iter__(self) -> Iterator[CandidateTemplate]:
        """Yield each candidate; those found before are not searched again."""
        number = 0
        while number < len(self._templates) or self._find():
            yield self._templates[number]
            number += 1

    def batch(self) -> TemplateBatch:
        """Return all of them."""
        if self._batch is None:
            self._batch = TemplateBatch.of(self)
        return self._batch

    def is_empty(self) -> bool:
        """Whether there is none."""
        return not (self._templates or self._find())

    def _find(self) -> bool:
        template = next(self._to_come, None)
        if template is None:
            return False
        self._templates.append(template)
        return True


class EquivalenceClass(NamedTuple):
    """Trees of one class that have the same candidates."""

    candidates: AnchorCandidates
    tree_class: TreeClass
    trees: Collection[TreeUuids]


def equivalence_classes(
    index: TreeIndex, assessor: Assessor, root_ids: Collection[int] | None = None
) -> Iterator[EquivalenceClass]:
    """Yield the trees of these roots, or all trees, in classes; one search for each distinct anchor."""
    grouping = _Grouping(index, assessor)
    return grouping.all() if root_ids is None else grouping.of_roots(root_ids)


class _Grouping:
    def __init__(self, index: TreeIndex, assessor: Assessor) -> None:
        self._index = index
        self._assessor = assessor
        self._equivalent: dict[Hashable, int] = {}
        self._relevances: list[Relevance] = []
        self._numbers = _Memo(self._number)
        self._rulings = _Memo(assessor.ruling)
        self._usable = _Memo(self._find_usable)
        self._usable_numbers: dict[tuple[SharingProvider, ...], int] = {}
        self._candidates: dict[object, AnchorCandidates] = {}
        self._sharing = sharing_providers(index, assessor)
        self._elsewhere = groups_in_tree(index, assessor, _UNNAMED)
        self._special = {*index.roots_of_named.values(), *(each.root_id for each in self._sharing)}

    def all(self) -> Iterator[EquivalenceClass]:
        for tree_class in self._index.tree_classes.values():
            ordinary: Collection[TreeUuids] = tree_class.trees.values()  # no copy: under a limit few are needed
            if not tree_class.trees.keys().isdisjoint(self._special):
                ordinary = [tree for root_id, tree in tree_class.trees.items() if root_id not in self._special]
                for root_id in self._special & tree_class.trees.keys():
                    yield self._class(tree_class, [tree_class.trees[root_id]], root_id)
            if ordinary:
                yield self._class(tree_class, ordinary)

    def of_roots(self, root_ids: Collection[int]) -> Iterator[EquivalenceClass]:
        by_class: dict[TreeClass, list[int]] = {}
        for root_id in root_ids:
            by_class.setdefault(self._index.class_of[root_id], []).append(root_id)
        for tree_class, own in by_class.items():
            yield self._class(tree_class, [tree_class.trees[key] for key in own if key not in self._special])
            for root_id in self._special.intersection(own):
                yield self._class(tree_class, [tree_class.trees[root_id]], root_id)

    def _class(self, tree_class: TreeClass, trees: Collection[TreeUuids], root_id: int = _UNNAMED) -> EquivalenceClass:
        """root_id: of the one tree, if it is named by in_tree or has sharing providers."""
        sharing_number, sharing = self._usable[tree_class.aggregates, root_id]
        groups = self._elsewhere if root_id == _UNNAMED else groups_in_tree(self._index, self._assessor, root_id)
        parents = tree_class.parents if self._assessor.request.same_subtrees else ()
        ruling, numbers = (
            self._rulings[tree_class.providers[0]],
            tuple([self._numbers[p] for p in tree_class.providers]),
        )
        key = ruling, numbers, parents, sharing_number, groups
        candidates = self._candidates.get(key)
        if candidates is None:
            relevances = tuple(self._relevances[number] for number in numbers)
            anchor = Anchor(ruling, relevances, parents, sharing, groups)
            candidates = self._candidates[key] = AnchorCandidates(anchor, self._assessor)
        return EquivalenceClass(candidates, tree_class, trees)

    def _number(self, provider: ProviderClass) -> int:
        """Equivalent providers have one number: it is hashed and compared faster than their relevance."""
        relevance = self._assessor.relevance(provider)
        number = self._equivalent.setdefault(self._assessor.equivalence(provider, relevance), len(self._relevances))
        if number == len(self._relevances):
            self._relevances.append(relevance)
        return number

    def _find_usable(self, tree: tuple[frozenset[str], int]) -> tuple[int, tuple[SharingProvider, ...]]:
        """The sharing providers that a tree in these aggregates can use, but its own, and their number as a tuple."""
        aggregates, root_id = tree
        found = tuple(
            each for each in self._sharing if each.root_id != root_id and not each.aggregates.isdisjoint(aggregates)
        )
        return self._usable_numbers.setdefault(found, len(self._usable_numbers)), found


class _Memo(dict[_K, _T]):
    """What a function returns for each key, called once."""

    def __init__(self, call: Callable[[_K], _T]) -> None:
        self._call = call

    def __missing__(self, key: _K) -> _T:
        value = self[key] = self._call(key)
        return value
