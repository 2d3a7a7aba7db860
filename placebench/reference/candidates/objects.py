"""The algorithm of naive and tuned: an object a provider, as in Placement. The key piece is `answer_by_objects`."""

from collections import Counter

from sqlalchemy import Connection

from placebench.reference.candidates.document import Document, document_of, empty_document
from placebench.reference.candidates.groups import Solutions, solve
from placebench.reference.candidates.merging import Merge
from placebench.reference.candidates.search import NothingFitsError, Search, open_search
from placebench.reference.query import CandidateRequest, RequestGroup
from placebench.reference.steps import Ways


def answer_by_objects(connection: Connection, request: CandidateRequest, ways: Ways) -> bytes:
    """The JSON body; about 12 round trips for a request with three groups in the tuned ways, 20 in the plain ones."""
    try:
        document = _document(open_search(connection, request, ways))
    except NothingFitsError:
        document = empty_document()
    return ways.serialise(document)


def _document(search: Search) -> Document:
    crowded = _crowded(search)
    solved = [_solved(search, group, crowded) for group in search.request.groups]
    if search.request.same_subtrees:
        search.forest.know_providers({search.root_of[key] for solutions in solved for key in _named(solutions)})
    return document_of(search, search.ways.search(Merge(search, solved, crowded)))


def _crowded(search: Search) -> frozenset[int]:
    """The classes that more than one group asks for."""
    asked = Counter(name for group in search.request.groups for name, _ in group.resources)
    known = search.catalog.class_ids
    return frozenset(known[name] for name, groups in asked.items() if groups > 1 and name in known)


def _solved(search: Search, group: RequestGroup, crowded: frozenset[int]) -> Solutions:
    """The group's solutions, and what the variant reads of their trees along with them."""
    solutions, demands = solve(search, group)
    root_ids = list(dict.fromkeys(search.root_of[provider_id] for provider_id in _named(solutions)))
    rooms = {demand.class_id: demand.room for demand in demands if demand.class_id in crowded}
    search.stocks.update(search.ways.usages(search.forest, root_ids, rooms))
    search.ways.summaries(search.forest, root_ids)
    return solutions


def _named(solutions: Solutions) -> set[int]:
    """Every provider that a solution maps to."""
    return {
        provider_id
        for at_anchor in solutions.values()
        for solution in at_anchor
        for providers in solution.mappings.values()
        for provider_id in providers
    }
