"""Computes the response body from a tree index and a request, without reading the database: `solve`."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, filterfalse, islice, tee
from typing import Final

from placebench.lab.reference.candidates.dedup.equivalence import EquivalenceClasses
from placebench.lab.reference.candidates.dedup.relevance import SAME_RELEVANCE, Assessor, Equivalence, providers_of
from placebench.lab.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.lab.reference.candidates.dedup.tree_index import ROOT, Names, TreeIndex
from placebench.lab.reference.candidates.results import Body, first_tree
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings

_PARTS_BY_ROOT: Final = 3
_EMPTY: Final = b'{"allocation_requests":[],"provider_summaries":{}}'


def solve(
    index: TreeIndex,
    request: CandidateRequest,
    settings: ServiceSettings = DEFAULTS,
    equivalence: Equivalence = SAME_RELEVANCE,
    start: int | None = None,
) -> Body:
    """Return the JSON body, in parts if it is long.

    Args:
        index: The index of all trees, which must not change until the last part is taken.
        request: The request.
        settings: The operator's settings.
        equivalence: The rule that says which providers are equivalent, so that only one of them is searched.
        start: The root id after which a search with a limit begins; None: the request decides which of the roots.

    Raises:
        BadRequest: A name does not exist, unless the response is known to be empty before it is checked.
    """
    if not _check_names(index, request):
        return _EMPTY
    selection, classes = Selection(request, settings), EquivalenceClasses(index, Assessor(request, equivalence))
    if (named := _named_root(index, request)) is not None:
        return _write_body(index, selection.select(classes.of_roots(named)))
    everything = classes.all()
    if selection.left is not None and selection.left >= len(index.class_of) and not index.sharing:
        counted, everything = tee(everything)
        selection.drop_limit(counted)
    if selection.left is None:
        return _write_body(index, selection.select(everything))
    if classes.are_known_to_be_empty():
        return _EMPTY
    share, roots = first_tree(request, settings), index.roots
    if start is None:
        start = roots[int(share * len(roots))] - 1 if roots else 0
    count, parts = len(roots), None
    if selection.depth_first:
        # If the first trees do not suffice, it costs less to compare all trees by their classes than one by one.
        count = selection.first_count
        parts = min(_PARTS_BY_ROOT, len(roots) // (2 * count))
    selected, searched = Selected(), list[int]()
    for some in islice(_some_at_a_time(index, start, count), parts):
        selection.select(classes.of_roots(some), selected)
        searched += some
        if not selection.left:
            break
    if selection.left and len(searched) < len(roots):
        first_texts = {index.class_of[root_id].trees[root_id][0] for root_id in searched}
        selection.select(classes.all(share), selected, first_texts)
    return _write_body(index, selected)


def solve_some(index: TreeIndex, selection: Selection, assessor: Assessor, some_roots: Iterable[Sequence[int]]) -> Body:
    """Return the JSON body of the candidates in the trees of these roots, taken in turn until there are enough."""
    selected, classes = Selected(), EquivalenceClasses(index, assessor)
    for roots in some_roots:
        selection.select(classes.of_roots(roots), selected)
        if not selection.left:
            break
    return _write_body(index, selected)


def _some_at_a_time(index: TreeIndex, start: int, count: int) -> Iterator[Sequence[int]]:
    """Yield the ids of roots: *count* and those of all sharing trees, then *count* others each time.

    The order begins after the id *start*; after the largest id come those up to *start*.
    """
    sharing, roots = index.sharing, index.roots
    first, count = bisect_right(roots, start), min(count, len(roots))
    places = chain(range(first, len(roots)), range(first))
    others = filterfalse(sharing.__contains__, map(roots.__getitem__, places))
    some = [*islice(others, count), *sorted(sharing)]
    while some:
        yield some
        some = list(islice(others, count))


def _named_root(index: TreeIndex, request: CandidateRequest) -> Sequence[int] | None:
    """Return the root, or none, of the only tree that an in_tree with resources allows; None: others are allowed too.

    A tree with a sharing provider may serve others. The index must have all trees.
    """
    for group in request.groups:
        if group.in_tree is not None and group.resources:
            root_id = index.names.roots_of_named.get(group.in_tree, ROOT)
            if root_id not in index.sharing:
                return [root_id] if root_id in index.class_of else []
    return None


def _write_body(index: TreeIndex, selected: Selected) -> Body:
    return write_document(write_requests(selected), write_summaries(selected, index))


def has_all_names(names: Names, request: CandidateRequest) -> bool:
    """Return whether all traits and classes that the request names exist."""
    root_traits = request.root_required | request.root_forbidden
    return names.traits >= root_traits and all(_has_names(names, group) for group in request.groups)


def _check_names(index: TreeIndex, request: CandidateRequest) -> bool:
    """Return True if all names exist, else False if the response is empty before an unknown name is checked.

    Otherwise raises BadRequest for the first group with an unknown name. As in Placement, names are not checked once no
    candidate is possible: after a group without a solution.
    """
    if has_all_names(index.names, request):
        return True
    _check_traits(index, request.root_required | request.root_forbidden)
    for number, group in enumerate(request.groups):
        if _has_names(index.names, group):
            continue
        for before in request.groups[:number]:
            alone = Assessor(replace(request, groups=(before,), same_subtrees=(), limit=1))
            if all(found.candidates.is_empty() for found in EquivalenceClasses(index, alone).all()):
                return False
        assessor = Assessor(request)
        tree_classes = [each for layout in index.layouts.values() for each in layout.classes.values()]
        names_root = request.root_required or request.root_forbidden
        if names_root and not any(assessor.ruling(providers_of(each)[0]).allowed for each in tree_classes):
            return False
        for name, _ in group.resources:
            if name not in index.names.resource_classes:
                raise BadRequest(f"no such resource class: {name}")
        around = (aggregates for each in tree_classes for aggregates in each.aggregates)
        if not group.member_of or any(
            all(not uuids.isdisjoint(aggregates) for uuids in group.member_of) for aggregates in around
        ):
            _check_traits(index, group.forbidden.union(*group.required))
        return False
    return False


def _has_names(names: Names, group: RequestGroup) -> bool:
    return names.traits >= group.forbidden.union(*group.required) and all(
        name in names.resource_classes for name, _ in group.resources
    )


def _check_traits(index: TreeIndex, names: frozenset[str]) -> None:
    if unknown := sorted(names - index.names.traits):
        raise BadRequest(f"no such traits: {', '.join(unknown)}")
