"""Groups the trees of an index into classes with equal candidates, each searched once: `EquivalenceClasses`."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain, islice, starmap
from typing import Final, NamedTuple

from placebench.lab.reference.candidates.dedup.anchors import (
    Anchor,
    AnchorCombinations,
    groups_in_tree,
    sharing_providers,
)
from placebench.lab.reference.candidates.dedup.pieces import TreeTexts
from placebench.lab.reference.candidates.dedup.relevance import Assessor, Provider, Relevance, providers_of
from placebench.lab.reference.candidates.dedup.templates import CandidateTemplate, TemplateBatch, TemplateMaker
from placebench.lab.reference.candidates.dedup.tree_index import (
    MAX_KEPT_PROVIDERS,
    AlikeTrees,
    TreeClass,
    TreeIndex,
    TreeLayout,
)
from placebench.lab.reference.candidates.memo import Memo
from placebench.lab.reference.candidates.results import rotated

_UNNAMED: Final = -1  # stands for the root ids of all trees that no in_tree names
_FIRST_CLASSES: Final = 16  # the number of classes compared first: with a limit, few are needed
_GROWTH: Final = 8
_MAX_KEPT_GROUPINGS: Final = 8  # the number of groupings of a layout's trees that are kept

_Aggregates = tuple[frozenset[str], ...]  # the aggregates of each provider of a tree
_Special = dict[TreeClass, set[int]]  # roots of trees that are unlike all others, by class


class AnchorCandidates:
    """The candidates of equal anchors, which are searched only as far as they are needed."""

    def __init__(self, anchor: Anchor, assessor: Assessor, maker: TemplateMaker) -> None:
        """Prepare the search; the first use starts it."""
        found = iter(AnchorCombinations(anchor, assessor)) if anchor.ruling.allowed else iter(())
        self._to_come = (maker.make(anchor, combination) for combination in found)
        self._templates = templates = list[CandidateTemplate]()
        self._first: Memo[int, TemplateBatch] = Memo(lambda count: TemplateBatch.of(templates[:count]))
        self._batch: TemplateBatch | None = None
        own = len(anchor.relevances)
        self.sharing = [
            *(place for place, each in enumerate(anchor.relevances) if each.shares),
            *range(2 * own, 2 * own + len(anchor.sharing)),
        ]
        """The holes of all sharing providers, in the texts of a tree."""
        self._unshared = list[int]()  # the numbers of the candidates that no other anchor can have

    def __iter__(self) -> Iterator[CandidateTemplate]:
        """Yield each candidate; candidates that were found before are not searched again."""
        return (template for _, template in self.since(0))

    def since(self, number: int) -> Iterator[tuple[int, CandidateTemplate]]:
        """Yield each candidate from this number on, with its number."""
        while number < len(self._templates) or self._find():
            yield number, self._templates[number]
            number += 1

    def unshared(self, count: int) -> Iterator[CandidateTemplate]:
        """Yield those of the first candidates that no other anchor can have; they must have been found."""
        return map(self._templates.__getitem__, self._unshared[: bisect_left(self._unshared, count)])

    def batch(self) -> TemplateBatch:
        """Return all candidates as one batch."""
        if self._batch is None:
            self._batch = TemplateBatch.of(self)
        return self._batch

    def first(self, count: int) -> TemplateBatch:
        """Return the first candidates, *count* or fewer; the same batch for all trees that get as many."""
        while len(self._templates) < count and self._find():
            pass
        return self._first[min(count, len(self._templates))]

    def is_empty(self) -> bool:
        """Return whether there is no candidate."""
        return not (self._templates or self._find())

    def _find(self) -> bool:
        template = next(self._to_come, None)
        if template is None:
            return False
        if template.shared is None:
            self._unshared.append(len(self._templates))
        self._templates.append(template)
        return True


class EquivalenceClass(NamedTuple):
    """Trees of one layout that have equal candidates, except for the uuids."""

    candidates: AnchorCandidates
    layout: TreeLayout
    trees: Collection[TreeTexts]


class _Usable(NamedTuple):
    """The sharing providers that a tree can use."""

    numbers: tuple[int, ...]
    kinds: tuple[int, ...]  # equal for providers whose candidates are equal except for the uuids
    uuids: list[str]


_NOTHING_USABLE: Final = _Usable((), (), [])


class EquivalenceClasses:
    """The classes of trees for one request; each distinct anchor is searched once, whichever trees have it.

    The index may grow meanwhile, except by sharing providers and names.
    """

    def __init__(self, index: TreeIndex, assessor: Assessor) -> None:
        """Find the sharing providers, and what depends on them."""
        self._index = index
        self._assessor = assessor
        self._maker = TemplateMaker(assessor.request)
        self._equivalent: dict[Hashable, int] = {}
        self._relevances: list[Relevance] = []
        self._numbers = Memo(self._number)
        named = assessor.named_aggregates
        self._named_in: Memo[_Aggregates, _Aggregates] = Memo(lambda each: tuple(map(named.intersection, each)))
        self._usable = Memo(self._find_usable)
        self._usable_in = Memo(self._find_usable_in)
        self._candidates: dict[object, AnchorCandidates] = {}
        self._sharing = sharing_providers(index, assessor)
        kinds: dict[object, int] = {}  # all sharing providers of one kind are searched once
        self._kinds = [
            kinds.setdefault(number if assessor.request.same_subtrees else (each.relevance, each.groups), number)
            for number, each in enumerate(self._sharing)
        ]
        self._sharing_in: dict[str, list[int]] = {}  # the numbers of the sharing providers in each aggregate
        for number, each in enumerate(self._sharing):
            for uuid in each.aggregates:
                self._sharing_in.setdefault(uuid, []).append(number)
        self._with_sharing = frozenset(self._sharing_in)
        self._elsewhere = groups_in_tree(index, assessor, _UNNAMED)
        around = [(each.root_id, each.uuid, each.aggregates) for each in self._sharing]
        self._key = assessor.equivalence, named, *self._kinds, *around
        limit = assessor.request.limit
        self._needs_few = limit is not None and limit < len(index.class_of)
        self._keeps = index.provider_count <= MAX_KEPT_PROVIDERS and all(
            each.in_tree is None for each in assessor.request.groups
        )

    def all(self, start: float = 0) -> Iterator[EquivalenceClass]:
        """Yield all trees in classes.

        start: where to begin among the layouts, and among the trees of each layout, if the request has a limit; a share
            from 0 to less than 1.
        """
        special = self._special()
        for layout in rotated(self._index.layouts.values(), start):
            yield from starmap(self._class, self._alike(layout, start, special))

    def are_known_to_be_empty(self) -> bool:
        """Return whether groupings that earlier requests made show that no tree has a candidate."""
        return self._keeps and not any(
            alike is None or any(not self._class(*each).candidates.is_empty() for each in alike)
            for alike in (layout.alike.get(self._grouping(layout)) for layout in self._index.layouts.values())
        )

    def of_roots(self, root_ids: Collection[int]) -> Iterator[EquivalenceClass]:
        """Yield the trees with these roots in classes."""
        found_trees: defaultdict[TreeClass, dict[int, TreeTexts]] = defaultdict(dict)
        for root_id, own in zip(root_ids, map(self._index.class_of.__getitem__, root_ids), strict=True):
            found_trees[own][root_id] = own.trees[root_id]
        by_layout: defaultdict[TreeLayout, dict[TreeClass, dict[int, TreeTexts]]] = defaultdict(dict)
        for own, trees in found_trees.items():
            by_layout[own.layout][own] = trees
        special = self._special()
        for layout, found in by_layout.items():
            yield from starmap(self._class, self._of_layout(layout, found, special))

    def _grouping(self, layout: TreeLayout) -> Hashable:
        """Return a value that is equal for requests that group the layout's trees equally."""
        ranks = [
            (number, wanted)
            if isinstance(wanted, range)
            else (number, *[bisect_left(layout.amounts(number), amount) for amount in wanted])
            for number, wanted in self._wanted(layout)
        ]
        return self._key, *ranks

    def _alike(self, layout: TreeLayout, start: float, special: _Special) -> Iterator[AlikeTrees]:
        """Yield the layout's trees, grouped; the grouping of an earlier request with equal levels is reused.

        If few candidates are needed, some trees are grouped at a time; a grouping is kept if all trees were needed.
        """
        grouping = self._grouping(layout) if self._keeps else None
        if (kept := layout.alike.get(grouping)) is not None:
            yield from _circle(kept, start) if start else kept
            return
        count = _FIRST_CLASSES if self._needs_few else len(layout.classes)
        classes, alike = iter(rotated(layout.classes.values(), start)), list[AlikeTrees]()
        while some := list(islice(classes, count)):
            grouped = list(self._of_layout(layout, {each: each.trees for each in some}, special))
            alike += grouped
            yield from _circle(grouped, start) if start else grouped
            count *= _GROWTH
        if self._keeps:
            if len(layout.alike) == _MAX_KEPT_GROUPINGS:
                layout.alike.clear()
            layout.alike[grouping] = alike

    def _of_layout(
        self, layout: TreeLayout, found: dict[TreeClass, dict[int, TreeTexts]], special: _Special
    ) -> Iterator[AlikeTrees]:
        """Group trees with equal levels of amounts, and equal sharing providers and aggregates that matter.

        Only one tree of each group is searched.
        found: classes of this layout, each with some of its trees by root id.
        special: as `_special` returns it.
        """
        for each in special.keys() & found.keys():
            trees, apart = found[each], special[each]
            for root_id in apart & trees.keys():
                uuids = self._usable[each.aggregates, root_id].uuids
                yield AlikeTrees(each, [[*trees[root_id], *uuids]], root_id)
            found[each] = {root_id: tree for root_id, tree in trees.items() if root_id not in apart}
        alike: dict[Hashable, list[TreeClass]] = {}
        columns = [*self._columns(layout, found)] if len(found) > 1 else []
        keys = zip(*columns, strict=True) if columns else [()] * len(found)
        for each, key in zip(found, keys, strict=True):
            alike.setdefault(key, []).append(each)
        for classes in alike.values():
            yield AlikeTrees(classes[0], self._texts(found, classes), _UNNAMED)

    def _special(self) -> _Special:
        """Return, by class, the roots of trees that have a sharing provider or that the request names in in_tree."""
        named = self._index.names.roots_of_named
        in_trees = {named[group.in_tree] for group in self._assessor.request.groups if group.in_tree in named}
        special: _Special = {}
        for root_id in in_trees.union(each.root_id for each in self._sharing):
            if root_id in self._index.class_of:
                special.setdefault(self._index.class_of[root_id], set()).add(root_id)
        return special

    def _texts(
        self, found: Mapping[TreeClass, Mapping[int, TreeTexts]], classes: Sequence[TreeClass]
    ) -> Collection[TreeTexts]:
        """Return the texts of the classes' trees, each followed by the uuids of the sharing providers it can use."""
        if self._sharing and self._usable[classes[0].aggregates, _UNNAMED].kinds:
            uuids = [self._usable[each.aggregates, _UNNAMED].uuids for each in classes]
            return [[*tree, *own] for each, own in zip(classes, uuids, strict=True) for tree in found[each].values()]
        if len(classes) == 1:
            return found[classes[0]].values()
        return [tree for each in classes for tree in found[each].values()]

    def _columns(self, layout: TreeLayout, classes: Collection[TreeClass]) -> Iterator[list[Hashable]]:
        """Yield columns, with a value per class: levels of amounts, usable sharing providers, and named aggregates."""
        level = self._assessor.equivalence.level
        for number, amounts in self._wanted(layout):
            yield [level(amounts, each.most[number]) for each in classes]
        if self._sharing:
            yield [self._usable[each.aggregates, _UNNAMED].kinds for each in classes]
        if self._assessor.named_aggregates:
            yield [self._named_in[each.aggregates] for each in classes]

    def _class(self, tree_class: TreeClass, trees: Collection[TreeTexts], root_id: int) -> EquivalenceClass:
        usable = self._usable[tree_class.aggregates, root_id] if self._sharing else _NOTHING_USABLE
        groups = self._elsewhere if root_id == _UNNAMED else groups_in_tree(self._index, self._assessor, root_id)
        parents = tree_class.layout.parents if self._assessor.request.same_subtrees else ()
        providers = tree_class.providers
        if providers is None:
            providers = providers_of(tree_class)
            if self._index.provider_count <= MAX_KEPT_PROVIDERS:
                tree_class.providers = providers
        ruling, numbers = self._assessor.ruling(providers[0]), tuple(map(self._numbers.__getitem__, providers))
        key = ruling, numbers, parents, usable.kinds, groups
        candidates = self._candidates.get(key)
        if candidates is None:
            relevances = tuple(self._relevances[number] for number in numbers)
            anchor = Anchor(
                ruling, relevances, parents, tuple(self._sharing[number] for number in usable.numbers), groups
            )
            candidates = self._candidates[key] = AnchorCandidates(anchor, self._assessor, self._maker)
        return EquivalenceClass(candidates, tree_class.layout, trees)

    def _number(self, provider: Provider) -> int:
        """Return a number that equivalent providers share; it is faster to compare than their relevance."""
        relevance = self._assessor.relevance(provider)
        key = self._assessor.equivalence.key(provider, relevance)
        number = self._equivalent.setdefault(key, len(self._relevances))
        if number == len(self._relevances):
            self._relevances.append(relevance)
        return number

    def _wanted(self, layout: TreeLayout) -> list[tuple[int, Sequence[int]]]:
        """Return the numbers of the layout's inventories that the request can use, with the amounts to compare."""
        amounts = self._assessor.amounts
        return [
            (number, amounts[each.class_name])
            for number, (_, each) in enumerate(layout.inventories)
            if each.class_name in amounts
        ]

    def _find_usable(self, tree: tuple[_Aggregates, int]) -> _Usable:
        """Return the sharing providers for a tree's aggregates; only aggregates with a sharing provider matter."""
        aggregates, root_id = tree
        return self._usable_in[self._with_sharing.intersection(chain.from_iterable(aggregates)), root_id]

    def _find_usable_in(self, tree: tuple[frozenset[str], int]) -> _Usable:
        """Return the sharing providers in these aggregates, except those in the tree itself."""
        aggregates, root_id = tree
        found = {n for uuid in aggregates for n in self._sharing_in[uuid]}
        numbers = tuple([n for n in sorted(found) if self._sharing[n].root_id != root_id])
        kinds = tuple([self._kinds[number] for number in numbers])
        return _Usable(numbers, kinds, [self._sharing[number].uuid for number in numbers])


def _circle(alike: Sequence[AlikeTrees], start: float) -> Iterator[AlikeTrees]:
    """Yield the trees of all groups as a circle, from the share *start* of them on; a group may come in two parts."""
    first, before = int(start * sum(len(each.trees) for each in alike)), list[AlikeTrees]()
    for each in alike:
        trees, count = list(each.trees), max(0, first)
        before.append(each._replace(trees=trees[:count]))
        yield each._replace(trees=trees[count:])
        first -= len(trees)
    yield from before
