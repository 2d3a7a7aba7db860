"""From a picture and a request to the answer: the key piece is `solve`, which reads nothing and changes nothing."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from placebench.reference.api.candidates_query import CandidateRequest, RequestGroup
from placebench.reference.api.problems import BadRequest
from placebench.reference.candidates.dedup import selection
from placebench.reference.candidates.dedup.plans import pools
from placebench.reference.candidates.dedup.relevance import Demands, Likeness, same_relevance
from placebench.reference.candidates.dedup.selection import Choice, Chosen
from placebench.reference.candidates.dedup.tree_index import Picture
from placebench.reference.candidates.results import Body, hold
from placebench.reference.settings import DEFAULTS, Settings

EMPTY: Final = b'{"allocation_requests":[],"provider_summaries":{}}'


def solve(
    picture: Picture,
    request: CandidateRequest,
    settings: Settings = DEFAULTS,
    likeness: Likeness = same_relevance,
) -> Body:
    """The JSON body, in parts if it is long; the picture must hold every tree, and stay as it is until the last part.

    Raises BadRequest for names that do not exist, unless the answer is empty before they matter.
    """
    if not check_names(picture, request):
        return EMPTY
    chosen = Choice(request, settings).choose(pools(picture, Demands(request, likeness)))
    return written(picture, chosen)


def written(picture: Picture, chosen: Chosen) -> Body:
    """The body that says what was chosen."""
    return document(selection.requests(chosen), selection.summaries(chosen, picture))


def document(requests: Iterator[list[str]], summaries: Iterator[list[str]]) -> Body:
    """The body that these make, in parts if it is long."""
    return hold("".join(pieces).encode() for pieces in _document(requests, summaries))


def _document(requests: Iterator[list[str]], summaries: Iterator[list[str]]) -> Iterator[list[str]]:
    yield [selection.BEGIN]
    yield from _without_first_comma(requests)
    yield [selection.BETWEEN]
    yield from _without_first_comma(summaries)
    yield [selection.END]


def knows_names(picture: Picture, request: CandidateRequest) -> bool:
    """Whether every trait and class that the request names exists."""
    root_traits = request.root_required | request.root_forbidden
    return picture.traits >= root_traits and all(_knows(picture, group) for group in request.groups)


def check_names(picture: Picture, request: CandidateRequest) -> bool:
    """Whether all names exist; BadRequest for the first group with one that does not, if all before have a solution.

    As in Placement: once no candidate can come any more, nothing is looked at.
    """
    if knows_names(picture, request):
        return True
    _check_traits(picture, request.root_required | request.root_forbidden)
    for number, group in enumerate(request.groups):
        if _knows(picture, group):
            continue
        before = (replace(request, groups=(each,), same_subtrees=(), limit=1) for each in request.groups[:number])
        if not all(_has_candidate(picture, each) for each in before) or not _has_anchor(picture, request):
            return False
        _check_classes(picture, group)
        if _has_members(picture, group):
            _check_traits(picture, group.forbidden.union(*group.required))
        return False
    return False


def _without_first_comma(texts: Iterator[list[str]]) -> Iterator[list[str]]:
    written = filter(None, texts)  # a part of the trees may have nothing to say
    for pieces in islice(written, 1):
        pieces[0] = pieces[0][1:]
        yield pieces
    yield from written


def _knows(picture: Picture, group: RequestGroup) -> bool:
    return picture.traits >= group.forbidden.union(*group.required) and all(
        name in picture.classes for name, _ in group.resources
    )


def _has_candidate(picture: Picture, request: CandidateRequest) -> bool:
    return any(not pool.plan.is_barren() for pool in pools(picture, Demands(request)))


def _has_anchor(picture: Picture, request: CandidateRequest) -> bool:
    if not (request.root_required or request.root_forbidden):
        return True
    demands = Demands(request)
    return any(demands.ruling(shape.kinds[0]).allowed for shape in picture.shapes.values())


def _has_members(picture: Picture, group: RequestGroup) -> bool:
    if not group.member_of:
        return True
    kinds = (kind for shape in picture.shapes.values() for kind in shape.kinds)
    return any(all(not uuids.isdisjoint(kind.aggregates) for uuids in group.member_of) for kind in kinds)


def _check_classes(picture: Picture, group: RequestGroup) -> None:
    for name, _ in group.resources:
        if name not in picture.classes:
            raise BadRequest(f"no such resource class: {name}")


def _check_traits(picture: Picture, names: frozenset[str]) -> None:
    if unknown := sorted(names - picture.traits):
        raise BadRequest(f"no such traits: {', '.join(unknown)}")
