"""The algorithm `dedup`: reads provider trees from PostgreSQL and solves identical trees once.

The main function is `find_candidates_by_dedup`.

A process keeps the rows that it has read until a transaction that wrote anything ends, and keeps decoded trees until it
reads other rows (`KeptTrees`). PostgreSQL's snapshot says whether such a transaction has ended, so rows are never
stale, no matter who writes to the database.

This module decides which trees are read. All trees are read at once if any may have a candidate; a growing number at a
time if the search ends at a limit; and part by part if there are too many to hold, twice, since the document has
summaries after the allocation requests.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Lock
from time import monotonic
from typing import Final, NamedTuple

from sqlalchemy import Connection

from placebench.lab.reference.candidates.dedup.decode import DecodedTrees
from placebench.lab.reference.candidates.dedup.equivalence import equivalence_classes
from placebench.lab.reference.candidates.dedup.fetch import fetch, fetch_names, names_in, read_rows
from placebench.lab.reference.candidates.dedup.relevance import Assessor
from placebench.lab.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.lab.reference.candidates.dedup.solver import (
    has_all_names,
    solve,
    solve_some,
    some_at_a_time,
)
from placebench.lab.reference.candidates.dedup.statements import (
    ProvidersState,
    TreeRows,
    Trees,
    read_sharing_roots,
    read_state,
)
from placebench.lab.reference.candidates.dedup.tree_index import Names, TreeIndex
from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.memo import PerPool
from placebench.lab.reference.candidates.results import Body, first_tree
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.queries import read_trigger_totals

MAX_HELD_IDS: Final = 200_000  # the largest provider id up to which all trees are read at once, not part by part
_GROWTH: Final = 8  # each time that trees are read, there are this many times more than before
MAX_INDEXED_PROVIDERS: Final = 150_000  # up to this number, rows and index are kept between requests
_PROVIDERS_OF_A_FEW_READ: Final = 1_000  # reading all rows of this many providers costs as much as reading a few trees


def find_candidates_by_dedup(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    """Return the JSON body; 5 to 10 round trips, and 5 more for each further part of the trees.

    If nothing was written since a request that read all trees, there is 1 round trip, and up to 3 more for names that
    no provider has.

    Raises BadRequest for unknown names, unless the response is known to be empty before they are checked.
    """
    reader = _Reader(connection, request, implementations, settings)
    selection = Selection(request, settings)
    if implementations.reach(selection):
        return reader.read_few(selection)
    if reader.state.largest_id > MAX_HELD_IDS and selection.left is None and not settings.randomize:
        return reader.read_in_parts()
    return reader.read_all()


class _Reader:
    def __init__(
        self,
        connection: Connection,
        request: CandidateRequest,
        implementations: Implementations,
        settings: ServiceSettings,
    ) -> None:
        self.state = read_state(connection)
        self._connection = connection
        self._kept = _KEPT_TREES.of(connection.engine, KeptTrees)
        self._request = request
        self._settings = settings
        self._equivalence = implementations.equivalence
        self._aggregates = implementations.memberships(request)
        self._summed = implementations.totals is read_trigger_totals

    def read_all(self) -> Body:
        """Return the body from all trees, read at once."""
        rows = self._kept_rows() or self._read_rows()
        return self._kept.respond(
            rows, self._names(rows), lambda trees: solve(trees.index, self._request, self._settings, self._equivalence)
        )

    def read_few(self, selection: Selection) -> Body:
        """Return the body from the first trees that have enough candidates, and all trees with a sharing provider."""
        count = min(selection.first_count, MAX_HELD_IDS)
        start = int(first_tree(self._request, self._settings) * self.state.largest_id)
        assessor = Assessor(self._request, self._equivalence)
        rows = self._kept_rows()
        if rows is None and self._kept.is_worth_all(self.state):
            rows = self._read_rows()
        if rows is not None:
            names = self._names(rows)
            if not has_all_names(names, self._request):
                return self.read_all()
            return self._kept.respond(
                rows,
                names,
                lambda trees: solve_some(
                    trees.index, selection, assessor, some_at_a_time(trees.index, start, count, _GROWTH)
                ),
            )
        index = TreeIndex()
        read = self._read_some_at_a_time(index, start, count)
        first = next(read)
        fetch_names(self._connection, index.names, self._request)
        if not has_all_names(index.names, self._request):
            return self.read_all()
        return solve_some(index, selection, assessor, chain([first], read))

    def _kept_rows(self) -> TreeRows | None:
        return self._kept.rows_of(self._connection, self.state, aggregates=self._aggregates)

    def _read_rows(self) -> TreeRows:
        aggregates = self._aggregates or self._kept.has_aggregates  # a request with aggregates is followed by others
        read_at_s = monotonic()
        rows = read_rows(self._connection, aggregates=aggregates, summed=self._summed)
        self._kept.keep(rows, self.state, aggregates=aggregates, read_at_s=read_at_s)
        return rows

    def _names(self, rows: TreeRows) -> Names:
        names = names_in(rows)
        fetch_names(self._connection, names, self._request)
        return names

    def _read_some_at_a_time(self, index: TreeIndex, start: int, count: int) -> Iterator[Sequence[int]]:
        """Read trees into the index, more each time, and yield the ids of their roots, as `some_at_a_time` does.

        All sharing trees are read with the first.
        """
        sharing = set(read_sharing_roots(self._connection))
        last: int | None = None
        while True:
            trees = Trees.after(start, last, count, sharing)
            roots = fetch(self._connection, index, trees, aggregates=self._aggregates, summed=self._summed)
            read = [root_id for root_id in roots if root_id not in sharing]
            read.sort(key=lambda root_id: (root_id <= start, root_id))
            yield [*read, *(root_id for root_id in roots if root_id in sharing)]
            if not read:
                return
            last = read[-1]
            count *= _GROWTH

    def read_in_parts(self) -> Body:
        """Return a body from trees that are read part by part, and not kept.

        If there are sharing providers or unknown names, all trees are read at once.
        """
        names, last = Names(), self.state.largest_id
        fetch_names(self._connection, names, self._request)
        if read_sharing_roots(self._connection) or not has_all_names(names, self._request):
            return self.read_all()

        def parts(write: Callable[[Selected, TreeIndex], Iterator[list[str]]]) -> Iterator[list[str]]:
            for first in range(0, last + 1, MAX_HELD_IDS):
                part, assessor = TreeIndex(), Assessor(self._request, self._equivalence)
                trees = Trees.between(first, first + MAX_HELD_IDS - 1)
                fetch(self._connection, part, trees, aggregates=self._aggregates, summed=self._summed)
                part.names = names
                selected = Selection(self._request, DEFAULTS).select(equivalence_classes(part, assessor))
                yield from write(selected, part)

        return write_document(parts(lambda selected, _: write_requests(selected)), parts(write_summaries))


class _KeptRows(NamedTuple):
    """Rows of all trees, and the state of the database in which they were read."""

    rows: TreeRows
    seen: str  # `ProvidersState.seen`
    aggregates: bool  # whether aggregates were read
    read_at_s: float


class KeptTrees:
    """Rows and decoded trees that all threads of a process share; a request holds the lock only while it computes."""

    def __init__(self) -> None:
        """Start without rows and trees."""
        self._lock = Lock()
        self._decoded: DecodedTrees | None = None
        self._kept: _KeptRows | None = None
        self._few_reads: tuple[str | None, int] = None, 0  # a state, and how many reads of a few trees it has had

    @property
    def has_aggregates(self) -> bool:
        """Whether rows with aggregates are kept."""
        return self._kept is not None and self._kept.aggregates

    def rows_of(self, connection: Connection, state: ProvidersState, *, aggregates: bool) -> TreeRows | None:
        """Return the kept rows if the connection would read equal ones, else None.

        The result is also None if *aggregates* are needed but not kept, and for a connection that is newer than the
        rows: PostgreSQL may have crashed in between, and with synchronous_commit=off, transactions that were visible
        may then be lost, and their ids used again.
        """
        connected_at_s = connection.info.setdefault(_CONNECTED_AT, monotonic())
        kept = self._kept
        if kept is None or kept.seen != state.seen or kept.aggregates < aggregates or kept.read_at_s < connected_at_s:
            return None
        return kept.rows

    def is_worth_all(self, state: ProvidersState) -> bool:
        """Count a request with a limit; return whether those in this state have cost as much as reading all rows."""
        seen, count = self._few_reads
        count = count + 1 if seen == state.seen else 1
        self._few_reads = state.seen, count
        is_kept = state.seen is not None and state.largest_id <= MAX_INDEXED_PROVIDERS
        return is_kept and count > 1 + state.largest_id // _PROVIDERS_OF_A_FEW_READ

    def keep(self, rows: TreeRows, state: ProvidersState, *, aggregates: bool, read_at_s: float) -> None:
        """Keep rows that were read in this state, unless there are more than `MAX_INDEXED_PROVIDERS` providers."""
        self._kept = None
        if state.seen is not None and rows.provider_count <= MAX_INDEXED_PROVIDERS:
            self._kept = _KeptRows(rows, state.seen, aggregates, read_at_s)

    def respond(self, rows: TreeRows, names: Names, write: Callable[[DecodedTrees], Body]) -> Body:
        """Return the JSON body that *write* makes from the trees of these rows; decode only rows that are new."""
        with self._lock:
            before, self._decoded = self._decoded, None
            if before is None or not rows.differ_in_usages_only(before.rows):
                decoded = DecodedTrees(rows, TreeIndex())
            else:
                decoded = before
                if rows.usages != before.rows.usages:
                    before.use(rows)
            decoded.index.names = names
            if decoded.index.provider_count <= MAX_INDEXED_PROVIDERS:
                self._decoded = decoded
            body = write(decoded)
            if not isinstance(body, bytes):
                self._decoded = None  # the body reads from the decoded trees while it is sent
            return body


_KEPT_TREES: Final = PerPool[KeptTrees]()
_CONNECTED_AT: Final = "placebench: used since"  # a key of `Connection.info`, which lasts as long as the connection
