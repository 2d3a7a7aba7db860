"""The candidates read from PostgreSQL, nothing cached between requests: `answer_by_dedup`.

Which trees are read is decided here: all at once where all may have a candidate; a few at a time, ever more, where the
search ends at a limit; and in a response too long to be held part by part, twice, since summaries follow requests.
"""

from collections.abc import Callable, Iterator
from typing import Final

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.equivalence import equivalence_classes
from placebench.reference.candidates.dedup.fetch import ALL_TREES, fetch, fetch_names
from placebench.reference.candidates.dedup.relevance import Assessor
from placebench.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.reference.candidates.dedup.solver import has_all_names, solve, write_body
from placebench.reference.candidates.dedup.statements import Trees, read_largest_id, read_sharing_roots
from placebench.reference.candidates.dedup.tree_index import TreeIndex
from placebench.reference.candidates.results import Body
from placebench.reference.settings import DEFAULTS, ServiceSettings
from placebench.reference.variants import Implementations

MAX_HELD_IDS: Final = 200_000  # ids of providers; more are read part by part
_FIRST_TREES: Final = 8  # trees that are read at once
_GROWTH: Final = 8


def answer_by_dedup(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    """Return the JSON body; 5 to 9 round trips, 5 more for each further part of the trees.

    Raises BadRequest for names that do not exist, unless the response is empty before that matters.
    """
    reader = _Reader(connection, request, implementations)
    selection = Selection(request, settings)
    if implementations.reach(selection):
        return reader.read_few(selection, settings)
    last = read_largest_id(connection)
    if last > MAX_HELD_IDS and selection.left is None and not settings.randomize:
        return reader.read_in_parts(last)
    return reader.read_all(settings)


class _Reader:
    def __init__(self, connection: Connection, request: CandidateRequest, implementations: Implementations) -> None:
        self._connection = connection
        self._request = request
        self._equivalence = implementations.equivalence
        self._aggregates = implementations.memberships(request)

    def read_all(self, settings: ServiceSettings) -> Body:
        """From all trees at once."""
        index = self._index(ALL_TREES)
        fetch_names(self._connection, index, self._request)
        return solve(index, self._request, settings, self._equivalence)

    def read_few(self, selection: Selection, settings: ServiceSettings) -> Body:
        """From as few trees as have enough candidates, and those with a sharing provider."""
        index, selected, assessor = self._sharing(), Selected(), self._assessor()
        last, count = 0, max(_FIRST_TREES, min(selection.left or 0, MAX_HELD_IDS))
        while selection.left:
            roots = fetch(self._connection, index, Trees.after(last, count), aggregates=self._aggregates)
            if not last:
                fetch_names(self._connection, index, self._request)
                if not has_all_names(index, self._request):
                    return self.read_all(settings)
            if not roots:
                break
            selection.select(equivalence_classes(index, assessor, roots), selected)
            last, count = roots[-1], count * _GROWTH
        return write_body(index, selected)

    def read_in_parts(self, last: int) -> Body:
        """From some trees after the other, none held; all at once with sharing providers or unknown names."""
        index = self._sharing()
        fetch_names(self._connection, index, self._request)
        if index.sharing or not has_all_names(index, self._request):
            return self.read_all(DEFAULTS)
        named = index.roots_of_named

        def parts(write: Callable[[Selected, TreeIndex], Iterator[list[str]]]) -> Iterator[list[str]]:
            for first in range(0, last + 1, MAX_HELD_IDS):
                part = self._index(Trees.between(first, first + MAX_HELD_IDS - 1))
                part.roots_of_named = named
                selected = Selection(self._request, DEFAULTS).select(equivalence_classes(part, self._assessor()))
                yield from write(selected, part)

        return write_document(parts(lambda selected, _: write_requests(selected)), parts(write_summaries))

    def _sharing(self) -> TreeIndex:
        """The trees that have a sharing provider; 1 round trip, 5 more if there are any."""
        roots = read_sharing_roots(self._connection)
        return self._index(Trees.of(roots)) if roots else TreeIndex()

    def _assessor(self) -> Assessor:
        return Assessor(self._request, self._equivalence)

    def _index(self, trees: Trees) -> TreeIndex:
        index = TreeIndex()
        fetch(self._connection, index, trees, aggregates=self._aggregates)
        return index
