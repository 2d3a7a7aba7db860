"""The algorithm `dedup`: reads provider trees from PostgreSQL and solves identical trees once.

The main function is `find_candidates_by_dedup`.

A process keeps the trees that it has read, and the index that they were decoded into (`KeptTrees`). PostgreSQL's
snapshot says whether a transaction that wrote anything has ended since. If so, the trees that changed are read again
(`TreeVersion`). So no response is stale, no matter who writes to the database.

This module decides which trees are read. All trees are read at once if any may have a candidate; a growing number at a
time if the search ends at a limit; and part by part if there are too many to hold, twice, since the document has
summaries after the allocation requests.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Lock
from time import monotonic
from typing import Final

from sqlalchemy import Connection

from placebench.lab.reference.candidates.dedup.decode import DecodedTrees
from placebench.lab.reference.candidates.dedup.equivalence import EquivalenceClasses
from placebench.lab.reference.candidates.dedup.fetch import fetch, fetch_names, names_in, read_rows
from placebench.lab.reference.candidates.dedup.relevance import Assessor
from placebench.lab.reference.candidates.dedup.selection import (
    Selected,
    Selection,
    write_document,
    write_requests,
    write_summaries,
)
from placebench.lab.reference.candidates.dedup.solver import has_all_names, solve, solve_some
from placebench.lab.reference.candidates.dedup.statements import (
    ProvidersState,
    TreeRows,
    Trees,
    read_sharing_roots,
    read_state,
)
from placebench.lab.reference.candidates.dedup.tree_index import Names, TreeIndex
from placebench.lab.reference.candidates.dedup.versions import ShownVersion, TreeVersion
from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.memo import PerPool
from placebench.lab.reference.candidates.results import Body, first_tree
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.settings import DEFAULTS, ServiceSettings
from placebench.lab.reference.store.queries import read_trigger_totals

MAX_HELD_IDS: Final = 200_000  # as many ids are read at once if trees are read part by part
_GROWTH: Final = 8  # each time that trees are read, there are this many times more than before
MAX_INDEXED_PROVIDERS: Final = 1_500_000  # up to this id all trees are read at once, and kept between requests
_PROVIDERS_OF_A_FEW_READ: Final = 1_000  # reading all rows of this many providers costs as much as reading a few trees
_PROVIDERS_COMPARED: Final = 10_000  # up to this number, finding what changed costs no more than reading a few trees


def find_candidates_by_dedup(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    """Return the JSON body; 5 to 11 round trips, and 5 more for each further part of the trees.

    If nothing was written since a request that read all trees, there is 1 round trip, and up to 3 more for names that
    no provider has; after a write there are 1 more, and 4 or 5 to read the trees that changed.

    Raises BadRequest for unknown names, unless the response is known to be empty before they are checked.
    """
    reader = _Reader(connection, request, implementations, settings)
    selection = Selection(request, settings)
    if implementations.reach(selection):
        return reader.read_few(selection)
    if reader.state.largest_id > MAX_INDEXED_PROVIDERS and selection.left is None and not settings.randomize:
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
        return self._respond(self._version() or self._read_version())

    def read_few(self, selection: Selection) -> Body:
        """Return the body from the first trees that have enough candidates, and all trees with a sharing provider."""
        count = min(selection.first_count, MAX_HELD_IDS)
        start = int(first_tree(self._request, self._settings) * self.state.largest_id)
        is_worth_all = self._kept.is_worth_all(self.state)
        version: TreeVersion | TreeRows | None = self._version(
            may_follow=is_worth_all or self.state.largest_id <= _PROVIDERS_COMPARED
        )
        if version is None and is_worth_all:
            version = self._read_version()
        if isinstance(version, TreeVersion):
            return self._respond(version, start)
        index, assessor = TreeIndex(), Assessor(self._request, self._equivalence)
        read = self._read_some_at_a_time(index, start, count)
        first = next(read)
        fetch_names(self._connection, index.names, self._request)
        if not has_all_names(index.names, self._request):
            return self.read_all()
        return solve_some(index, selection, assessor, chain([first], read))

    def _version(self, *, may_follow: bool = True) -> TreeVersion | None:
        return self._kept.version_of(self._connection, self.state, aggregates=self._aggregates, may_follow=may_follow)

    def _read_version(self) -> TreeVersion | TreeRows:
        """Read all trees; return their rows alone if they cannot be kept."""
        aggregates = self._aggregates or self._kept.has_aggregates  # a request with aggregates is followed by others
        read_at_s = monotonic()
        rows = read_rows(self._connection, aggregates=aggregates, summed=self._summed)
        if self.state.seen is None or rows.provider_count > MAX_INDEXED_PROVIDERS:
            return rows
        version = TreeVersion.of(self._connection, rows, self.state.seen, summed=self._summed, read_at_s=read_at_s)
        self._kept.keep(version)
        return version

    def _names(self, trees: TreeVersion | TreeRows) -> Names:
        names = Names()
        names.update(trees.names if isinstance(trees, TreeVersion) else names_in(trees))
        fetch_names(self._connection, names, self._request)
        return names

    def _respond(self, trees: TreeVersion | TreeRows, start: int | None = None) -> Body:
        """Return the body from all trees; start: as in `solve`."""

        def write(index: TreeIndex) -> Body:
            return solve(index, self._request, self._settings, self._equivalence, start)

        names = self._names(trees)
        if isinstance(trees, TreeVersion):
            return self._kept.respond(trees, names, write)
        index = TreeIndex()
        DecodedTrees(trees, index)
        index.names = names
        return write(index)

    def _read_some_at_a_time(self, index: TreeIndex, start: int, count: int) -> Iterator[Sequence[int]]:
        """Read trees into the index, more each time, and yield the ids of their roots.

        The order begins after the id *start*. All sharing trees are read with the first.
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
                selected = Selection(self._request, DEFAULTS).select(EquivalenceClasses(part, assessor).all())
                yield from write(selected, part)

        return write_document(parts(lambda selected, _: write_requests(selected)), parts(write_summaries))


class KeptTrees:
    """A version of all trees that all threads of a process share; a request holds the lock only while it computes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shown: ShownVersion | None = None
        self._kept: TreeVersion | None = None
        self._few_reads: tuple[str | None, int] = None, 0  # a state, and how many reads of a few trees it has had

    @property
    def has_aggregates(self) -> bool:
        """Whether a version with memberships in aggregates is kept."""
        return self._kept is not None and self._kept.has_aggregates

    def version_of(
        self, connection: Connection, state: ProvidersState, *, aggregates: bool, may_follow: bool
    ) -> TreeVersion | None:
        """Return the version that the connection sees, made from the kept one; None if all trees must be read.

        Args:
            connection: The connection of the request.
            state: The state that it sees.
            aggregates: Whether memberships in aggregates are needed.
            may_follow: Whether changes since the kept version are read.
        """
        connected_at_s = connection.info.setdefault(_CONNECTED_AT, monotonic())
        kept = self._kept
        if kept is None or kept.has_aggregates < aggregates or not kept.precedes(connected_at_s, state):
            return None
        if kept.seen == state.seen:
            return kept
        if not may_follow:
            return None
        self._kept = kept.follow(connection, state)
        return self._kept

    def is_worth_all(self, state: ProvidersState) -> bool:
        """Count a request with a limit; return whether those in this state have cost as much as reading all rows."""
        seen, count = self._few_reads
        count = count + 1 if seen == state.seen else 1
        self._few_reads = state.seen, count
        is_kept = state.seen is not None and state.largest_id <= MAX_INDEXED_PROVIDERS
        return is_kept and count > 1 + state.largest_id // _PROVIDERS_OF_A_FEW_READ

    def keep(self, version: TreeVersion) -> None:
        """Keep a version that was read as a whole."""
        self._kept = version

    def respond(self, version: TreeVersion, names: Names, write: Callable[[TreeIndex], Body]) -> Body:
        """Return the JSON body that *write* makes from the trees of the version; decode only trees that are new."""
        with self._lock:
            shown, self._shown = self._shown, None
            if shown is None or not shown.can_show(version):
                shown = ShownVersion(version)
            shown.show(version)
            shown.index.names = names
            body = shown.index.lend(write(shown.index))
            self._shown = shown
            return body


_CONNECTED_AT: Final = "placebench: used since"  # a key of `Connection.info`, which lasts as long as the connection
_KEPT_TREES: Final = PerPool[KeptTrees]()
