"""The candidates read from PostgreSQL, all that they come from for every request: `answer_by_dedup`.

Rows that a process has decoded before it does not decode again (`KeptTrees`). What is kept is used as far as it was
decoded from equal rows, so it cannot be stale, whoever writes to the database and however.

Which trees are read is decided here: all at once where all may have a candidate; a few at a time, ever more, where the
search ends at a limit; and in a response too long to be held part by part, twice, since summaries follow requests.
"""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Final

from sqlalchemy import Connection

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.dedup.decode import DecodedTrees
from placebench.reference.candidates.dedup.equivalence import equivalence_classes
from placebench.reference.candidates.dedup.fetch import fetch, fetch_names, names_in, read_rows
from placebench.reference.candidates.dedup.relevance import Assessor, Equivalence
from placebench.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.reference.candidates.dedup.solver import has_all_names, solve, write_body
from placebench.reference.candidates.dedup.statements import TreeRows, Trees, read_largest_id, read_sharing_roots
from placebench.reference.candidates.dedup.tree_index import MAX_KEPT_PROVIDERS, Names, TreeIndex
from placebench.reference.candidates.per_pool import PerPool
from placebench.reference.candidates.results import Body
from placebench.reference.optimizations.queries import read_trigger_totals
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
        self._summed = implementations.totals is read_trigger_totals

    def read_all(self, settings: ServiceSettings) -> Body:
        """From all trees at once."""
        rows = read_rows(self._connection, aggregates=self._aggregates, summed=self._summed)
        names = names_in(rows)
        fetch_names(self._connection, names, self._request)
        kept = _KEPT_TREES.of(self._connection.engine, KeptTrees)
        return kept.solve(rows, names, self._request, settings, self._equivalence)

    def read_few(self, selection: Selection, settings: ServiceSettings) -> Body:
        """From as few trees as have enough candidates, and those with a sharing provider."""
        index, selected, assessor = TreeIndex(), Selected(), Assessor(self._request, self._equivalence)
        sharing = set(read_sharing_roots(self._connection))
        last, count = 0, max(_FIRST_TREES, min(selection.left or 0, MAX_HELD_IDS))
        while selection.left:
            trees = Trees.after(last, count, sharing)
            roots = fetch(self._connection, index, trees, aggregates=self._aggregates, summed=self._summed)
            if not last:
                fetch_names(self._connection, index.names, self._request)
                if not has_all_names(index.names, self._request):
                    return self.read_all(settings)
            selection.select(equivalence_classes(index, assessor, roots), selected)
            following = [root_id for root_id in roots if root_id not in sharing]
            if not following:
                break
            last, count = following[-1], count * _GROWTH
        return write_body(index, selected)

    def read_in_parts(self, last: int) -> Body:
        """From some trees after the other, none held; all at once with sharing providers or unknown names."""
        names = Names()
        fetch_names(self._connection, names, self._request)
        if read_sharing_roots(self._connection) or not has_all_names(names, self._request):
            return self.read_all(DEFAULTS)

        def parts(write: Callable[[Selected, TreeIndex], Iterator[list[str]]]) -> Iterator[list[str]]:
            for first in range(0, last + 1, MAX_HELD_IDS):
                part, assessor = TreeIndex(), Assessor(self._request, self._equivalence)
                trees = Trees.between(first, first + MAX_HELD_IDS - 1)
                fetch(self._connection, part, trees, aggregates=self._aggregates, summed=self._summed)
                part.names = names
                selected = Selection(self._request, DEFAULTS).select(equivalence_classes(part, assessor))
                yield from write(selected, part)

        return write_document(parts(lambda selected, _: write_requests(selected)), parts(write_summaries))


class KeptTrees:
    """One index for all threads of a process. A request holds the lock while it computes, not while it reads."""

    def __init__(self) -> None:
        """Nothing is kept yet."""
        self._lock = Lock()
        self._decoded: DecodedTrees | None = None

    def solve(
        self,
        rows: TreeRows,
        names: Names,
        request: CandidateRequest,
        settings: ServiceSettings,
        equivalence: Equivalence,
    ) -> Body:
        """Return the JSON body from these rows, with the names that exist; see `solver.solve`."""
        with self._lock:
            kept, self._decoded = self._decoded, None
            decoded = _decode(kept, rows)
            decoded.index.names = names
            if decoded.index.provider_count <= MAX_KEPT_PROVIDERS:
                self._decoded = decoded
            body = solve(decoded.index, request, settings, equivalence)
            if not isinstance(body, bytes):
                self._decoded = None  # the body reads from it while it is sent
            return body


def _decode(kept: DecodedTrees | None, rows: TreeRows) -> DecodedTrees:
    """The trees of these rows: those that are kept, changed as far as is needed, or new ones."""
    if kept is None or not rows.differ_in_usages_only(kept.rows):
        return DecodedTrees(rows, TreeIndex())
    if rows.usages != kept.rows.usages:
        kept.use(rows)
    return kept


_KEPT_TREES: Final = PerPool[KeptTrees]()
