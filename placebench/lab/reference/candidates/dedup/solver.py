"""Computes the response body from a tree index and a request, without reading the database: `solve`."""

from dataclasses import replace
from typing import Final

from placebench.lab.reference.candidates.dedup.equivalence import equivalence_classes
from placebench.lab.reference.candidates.dedup.relevance import SAME_RELEVANCE, Assessor, Equivalence, providers_of
from placebench.lab.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.lab.reference.candidates.dedup.tree_index import Names, TreeIndex
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.candidates_query import CandidateRequest, RequestGroup
from placebench.lab.reference.domain.problems import BadRequest
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings

_EMPTY: Final = b'{"allocation_requests":[],"provider_summaries":{}}'


def solve(
    index: TreeIndex,
    request: CandidateRequest,
    settings: ServiceSettings = DEFAULTS,
    equivalence: Equivalence = SAME_RELEVANCE,
) -> Body:
    """Return the JSON body, in parts if it is long.

    Args:
        index: The index of all trees, which must not change until the last part is taken.
        request: The request.
        settings: The operator's settings.
        equivalence: The rule that says which providers are equivalent, so that only one of them is searched.

    Raises:
        BadRequest: A name does not exist, unless the response is known to be empty before it is checked.
    """
    if not _check_names(index, request):
        return _EMPTY
    selected = Selection(request, settings).select(equivalence_classes(index, Assessor(request, equivalence)))
    return write_body(index, selected)


def write_body(index: TreeIndex, selected: Selected) -> Body:
    """Return the JSON body with the selected candidates, in parts if it is long."""
    return write_document(write_requests(selected), write_summaries(selected, index))


def has_all_names(names: Names, request: CandidateRequest) -> bool:
    """Return whether all traits and classes that the request names exist."""
    root_traits = request.root_required | request.root_forbidden
    return names.traits >= root_traits and all(_has_names(names, group) for group in request.groups)


def _check_names(index: TreeIndex, request: CandidateRequest) -> bool:
    """Return True if all names exist, else False if the response is empty before an unknown name is checked.

    Otherwise raises BadRequest for the first group with an unknown name. As in Placement, names are not checked once no
    candidate is possible: if a group before has no solution.
    """
    if has_all_names(index.names, request):
        return True
    _check_traits(index, request.root_required | request.root_forbidden)
    for number, group in enumerate(request.groups):
        if _has_names(index.names, group):
            continue
        for before in request.groups[:number]:
            alone = Assessor(replace(request, groups=(before,), same_subtrees=(), limit=1))
            if all(found.candidates.is_empty() for found in equivalence_classes(index, alone)):
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
