"""The algorithm `objects` of `naive` and `tuned`, with one object per provider: `find_candidates_by_objects`."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.objects.combinations import CandidateCombinations
from placebench.lab.reference.candidates.objects.search import BrokenTreeError, Forest, NothingFitsError, Search
from placebench.lab.reference.candidates.results import Body, hold
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.settings import ServiceSettings
from placebench.lab.reference.store.candidate_queries import (
    SHARING_TRAIT,
    Reader,
    read_all_roots,
    read_catalog,
    read_sharing_anchors,
    read_trait_holders,
)
from placebench.lab.reference.store.queries import RECURSIVE_ROOTS

_Serialise = Callable[[Any], bytes]
_T = TypeVar("_T")

# The number of candidates or trees per part of a body: about 1 MB.
_PART_SIZE: Final = 2_000
_FEW_CANDIDATES: Final = 10_000  # up to this many candidates, the body is made in one piece


def find_candidates_by_objects(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    """Return the JSON body of the candidates.

    With 1000 trees the reference request takes 12 round trips and 29 399 rows in `tuned`, 18 and 69 399 in `naive`, and
    18 and 40 400 in Placement. If a tree is broken (`BrokenTreeError`), everything is read again with recursive roots.
    """
    try:
        return _respond(connection, request, implementations, settings)
    except BrokenTreeError:
        return _respond(connection, request, replace(implementations, roots=RECURSIVE_ROOTS), settings)


def _respond(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    try:
        search = _open_search(connection, request, implementations, settings)
        combinations = _combine_groups(search, implementations)
        candidates = implementations.search(combinations)
    except NothingFitsError:
        return implementations.serialise({"allocation_requests": [], "provider_summaries": {}})
    return _body(search.forest, combinations, candidates, implementations.serialise)


def _open_search(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Search:
    """Return a `Search` with all names, the sharing providers and the allowed roots; up to 6 round trips.

    Raises BadRequest for unknown traits in root_required, NothingFitsError if no root meets root_required.
    """
    use, model = implementations, implementations.model
    reader = Reader(connection, use.rows, use.binding, use.roots, use.totals, use.divides)
    catalog = read_catalog(reader)
    sharing: Mapping[int, list[int]] = {}
    if (trait_id := catalog.trait_ids.get(SHARING_TRAIT)) is not None:
        sharing = read_sharing_anchors(reader, read_trait_holders(reader, [trait_id])[trait_id])
    requested = Counter(name for group in request.groups for name, _ in group.resources)
    known = catalog.class_ids
    search = Search(
        request=request,
        settings=settings,
        model=model,
        resource=use.copying(model.resource),
        collection=use.collection,
        reader=reader,
        catalog=catalog,
        forest=Forest(reader, catalog, model, use.trees),
        solution_form=use.solutions,
        contended={name: known[name] for name, count in requested.items() if count > 1 and name in known},
        sharing=sharing,
    )
    if request.root_required or request.root_forbidden:
        search.allowed_roots = _find_allowed_roots(search)
    return search


def _find_allowed_roots(search: Search) -> Collection[int]:
    required = search.trait_ids(search.request.root_required)
    forbidden = search.trait_ids(search.request.root_forbidden)
    holders = read_trait_holders(search.reader, [*required, *forbidden])
    collection = search.collection
    wanted = [collection(holders[trait_id]) for trait_id in required]
    unwanted = collection(holder for trait_id in forbidden for holder in holders[trait_id])
    roots = [
        root_id
        for root_id in read_all_roots(search.reader)
        if root_id not in unwanted and all(root_id in holding for holding in wanted)
    ]
    if not roots:
        raise NothingFitsError
    return collection(roots)


def _combine_groups(search: Search, implementations: Implementations) -> CandidateCombinations:
    """Solve each group, and return what combines the solutions."""
    class_ids = frozenset(search.contended.values())
    solved = []
    for group in search.request.groups:
        found = implementations.groups(search, group)
        # Some variants read usages and summaries of the group's trees at this point.
        search.inventories.update(implementations.usages(search.forest, found, class_ids))
        implementations.summaries(search.forest, found)
        solved.append(found)
    if search.request.same_subtrees:
        search.forest.ensure_providers({root_id for each in solved for root_id in each.root_ids()})
    solutions = [each.solutions for each in solved]
    made: CandidateCombinations = implementations.solutions.combinations(search, solutions, implementations.completion)
    return made


def _body(
    forest: Forest, combinations: CandidateCombinations, candidates: Sequence[Any], serialise: _Serialise
) -> Body:
    """Return the JSON body of the candidates, with the summaries of the trees that they use; up to 4 round trips.

    A body over 50 MB is returned as an iterator of parts. BrokenTreeError is raised before the first part.
    """
    if len(candidates) <= _FEW_CANDIDATES:
        forest.ensure_providers(combinations.named_roots(candidates))
        document = {
            "allocation_requests": combinations.allocation_requests(candidates),
            "provider_summaries": forest.documents(combinations.giving_roots(candidates)),
        }
        return serialise(document)
    for _, some in _slices(candidates):
        forest.ensure_providers(combinations.named_roots(some))
    return hold(_parts(forest, combinations, candidates, serialise))


def _parts(
    forest: Forest, combinations: CandidateCombinations, candidates: Sequence[Any], serialise: _Serialise
) -> Iterator[bytes]:
    """Yield the document in parts, up to 4 round trips each; summaries and inventories are dropped after use."""
    yield b'{"allocation_requests": ['
    for comma, some in _slices(candidates):
        yield comma + serialise(combinations.allocation_requests(some))[1:-1]
    yield b'], "provider_summaries": {'
    for comma, root_ids in _slices(list(combinations.giving_roots(candidates))):
        yield comma + serialise(forest.documents(root_ids))[1:-1]
        forest.forget(root_ids)
    yield b"}}"


def _slices(items: Sequence[_T]) -> Iterator[tuple[bytes, Sequence[_T]]]:
    """Yield slices of `_PART_SIZE` items, each with the comma that separates it from the one before."""
    for start in range(0, len(items), _PART_SIZE):
        yield b"," if start else b"", items[start : start + _PART_SIZE]
