"""The candidate search of `naive` and `tuned`, one object per provider, and the JSON document of its result."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest, RequestGroup
from placebench.reference.api.responses import Body, held
from placebench.reference.candidates.objects.combinations import Merge
from placebench.reference.candidates.objects.groups import Solved, solve
from placebench.reference.candidates.objects.search import BrokenTreeError, NothingFitsError, Search, open_search
from placebench.reference.optimizations import Ways
from placebench.reference.optimizations.model import Candidate, Provider, Summary
from placebench.reference.optimizations.queries import WALKED
from placebench.reference.settings import Settings

Document = dict[str, Any]
_T = TypeVar("_T")

# Candidates or trees a part: about 1 MB.
PART: Final = 2_000
FEW: Final = 10_000  # candidates that are not worth parting


def empty_document() -> Document:
    """The answer when nothing fits."""
    return {"allocation_requests": [], "provider_summaries": {}}


def body_of(search: Search, candidates: Sequence[Candidate]) -> Body:
    """The candidates, and the summaries of the trees that give something to one; up to 4 round trips.

    In one piece up to 50 MB; beyond, the parts that are written already and, as they are taken, those to come.
    Raises BrokenTreeError, never while the parts are taken.
    """
    if len(candidates) <= FEW:
        _know_trees(search, candidates)
        return search.ways.serialise(_document(search, candidates))
    for _, some in _slices(candidates):
        _know_trees(search, some)
    return held(_parts(search, candidates))


def _document(search: Search, candidates: Sequence[Candidate]) -> Document:
    return {
        "allocation_requests": _allocation_requests(search, candidates),
        "provider_summaries": _provider_summaries(search, search.forest.summaries_of(_giving(search, candidates))),
    }


def _parts(search: Search, candidates: Sequence[Candidate]) -> Iterator[bytes]:
    """The same document; up to 4 round trips a part. What was read for a part of the summaries is then forgotten."""
    serialise, forest = search.ways.serialise, search.forest
    yield b'{"allocation_requests": ['
    for comma, some in _slices(candidates):
        yield comma + serialise(_allocation_requests(search, some))[1:-1]
    yield b'], "provider_summaries": {'
    for comma, root_ids in _slices(list(_giving(search, candidates))):
        yield comma + serialise(_provider_summaries(search, forest.summaries_of(root_ids)))[1:-1]
        forest.forget(root_ids)
    yield b"}}"


def _know_trees(search: Search, candidates: Iterable[Candidate]) -> None:
    """Read the providers of all trees that have to do with the candidates, where they are not known yet."""
    root_of, named = search.root_of, set[int]()
    for each in candidates:
        named.add(each.anchor_id)
        named.update(root_of[key] for providers in each.mappings.values() for key in providers)
    search.forest.know_providers(named)


def _slices(items: Sequence[_T]) -> Iterator[tuple[bytes, Sequence[_T]]]:
    """So many items a part, with the comma that parts it from the one before."""
    for start in range(0, len(items), PART):
        yield b"," if start else b"", items[start : start + PART]


def _giving(search: Search, candidates: Iterable[Candidate]) -> Collection[int]:
    """The roots of the trees that give something."""
    root_of = search.root_of
    return {root_of[resource.provider_id] for each in candidates for resource in each.resources}


def _allocation_requests(search: Search, candidates: Sequence[Candidate]) -> list[Document]:
    providers, class_names = search.forest.providers, search.catalog.class_names
    return [
        {
            "allocations": _allocations(each, providers, class_names),
            "mappings": {suffix: [providers[key].uuid for key in keys] for suffix, keys in each.mappings.items()},
        }
        for each in candidates
    ]


def _allocations(
    candidate: Candidate, providers: Mapping[int, Provider], class_names: Mapping[int, str]
) -> dict[str, Document]:
    allocations: dict[str, Document] = {}
    for resource in candidate.resources:
        allocation = allocations.setdefault(providers[resource.provider_id].uuid, {"resources": {}})
        allocation["resources"][class_names[resource.class_id]] = resource.amount
    return allocations


def _provider_summaries(search: Search, summaries: Iterable[Summary]) -> dict[str, Document]:
    providers, class_names = search.forest.providers, search.catalog.class_names
    return {
        summary.provider.uuid: {
            "resources": {
                class_names[stock.class_id]: {"capacity": stock.capacity, "used": stock.used}
                for stock in summary.stocks
            },
            "traits": summary.traits,
            "parent_provider_uuid": _uuid(providers, summary.provider.parent_id),
            "root_provider_uuid": _uuid(providers, summary.provider.root_id),
        }
        for summary in summaries
    }


def _uuid(providers: Mapping[int, Provider], provider_id: int | None) -> str | None:
    return None if provider_id is None else providers[provider_id].uuid


def answer_by_objects(connection: Connection, request: CandidateRequest, ways: Ways, settings: Settings) -> Body:
    """The JSON body.

    The headline request costs 12 round trips and 29 399 rows in the tuned ways at 1000 trees, 18 and 69 399 in the
    plain ones; Placement's costs are 18 and 40 400. Where a tree turns out to be broken, all is read once more, from
    the roots down.
    """
    try:
        return _answer(connection, request, ways, settings)
    except BrokenTreeError:
        return _answer(connection, request, replace(ways, roots=WALKED), settings)


def _answer(connection: Connection, request: CandidateRequest, ways: Ways, settings: Settings) -> Body:
    try:
        search = open_search(connection, request, ways, settings)
        candidates = _candidates(search)
    except NothingFitsError:
        return ways.serialise(empty_document())
    return body_of(search, candidates)


def _candidates(search: Search) -> list[Candidate]:
    crowded = _crowded(search)
    solved = [_solved(search, group, crowded) for group in search.request.groups]
    if search.request.same_subtrees:
        search.forest.know_providers({root_id for each in solved for root_id in each.root_ids()})
    return search.ways.search(Merge(search, [each.solutions for each in solved], crowded))


def _crowded(search: Search) -> dict[int, int]:
    """The classes that more than one group asks for, with what all groups together ask."""
    asked: dict[str, list[int]] = defaultdict(list)
    for group in search.request.groups:
        for name, amount in group.resources:
            asked[name].append(amount)
    known = search.catalog.class_ids
    return {known[name]: sum(amounts) for name, amounts in asked.items() if len(amounts) > 1 and name in known}


def _solved(search: Search, group: RequestGroup, crowded: Mapping[int, int]) -> Solved:
    """The group, solved, and what the variant reads of its trees right afterwards."""
    solved = solve(search, group)
    search.stocks.update(search.ways.usages(search.forest, solved, crowded))
    search.ways.summaries(search.forest, solved)
    return solved
