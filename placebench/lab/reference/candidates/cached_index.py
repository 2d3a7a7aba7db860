"""The algorithm `cached`: a worker keeps an in-memory index of all trees, and validates it before each response.

The main function is `find_candidates_from_cache`. The main class is `CachedIndex`, which also caches responses until
the data changes.
"""

from collections.abc import Callable, Hashable
from threading import Lock
from time import monotonic
from typing import Final

from sqlalchemy import URL, Connection

from placebench.lab.reference.candidates.dedup import statements
from placebench.lab.reference.candidates.dedup.decode import DecodedTrees
from placebench.lab.reference.candidates.dedup.fetch import fetch, names_in
from placebench.lab.reference.candidates.dedup.few_trees import read_changed
from placebench.lab.reference.candidates.dedup.relevance import SAME_RELEVANCE, Equivalence
from placebench.lab.reference.candidates.dedup.solver import solve
from placebench.lab.reference.candidates.dedup.statements import Trees
from placebench.lab.reference.candidates.dedup.tree_index import TreeIndex
from placebench.lab.reference.candidates.dedup_service import find_candidates_by_dedup
from placebench.lab.reference.candidates.implementations import Implementations
from placebench.lab.reference.candidates.memo import PerPool
from placebench.lab.reference.candidates.results import Body
from placebench.lab.reference.domain.candidates_query import CandidateRequest
from placebench.lab.reference.domain.settings import ServiceSettings
from placebench.lab.reference.store.change_log import (
    Changes,
    PgSnapshot,
    ReaderLease,
    VisibilityCheck,
    check_visibility,
    find_changed_roots,
)

_MAX_CACHED_BYTES: Final = 16 * 1024 * 1024
_BYTES_PER_CHARACTER: Final = 10
"""The memory that a request needs per character of its repr: 700 kB for a query of 27 kB, even with an empty body."""
# The largest share of the trees that are read by index; above it, reading everything costs less.
_SHARE_READ_BY_TREE: Final = 0.25


def find_candidates_from_cache(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body:
    """Return the JSON body for the connection's snapshot; 1 round trip if nothing changed, 3 if a few trees did.

    If the index cannot be used, the response is that of `dedup`. This happens if the change log or one of its triggers
    is missing, if another thread has moved the index beyond this snapshot, and if the transaction is not REPEATABLE
    READ.
    """
    index = _index_of(connection)
    body = index.respond(connection, request, settings, implementations.equivalence)
    return find_candidates_by_dedup(connection, request, implementations, settings) if body is None else body


def find_candidates_at_once(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: ServiceSettings
) -> Body | None:
    """Return the JSON body for the present state of the database, or None if more than a few providers have changed.

    1 round trip if nothing changed, else 2. connection: in autocommit, so that no messages begin and end a transaction.
    """
    return _index_of(connection).respond_at_once(connection, request, settings, implementations.equivalence)


def _index_of(connection: Connection) -> "CachedIndex":
    return _INDEXES.of(connection.engine, lambda: CachedIndex(connection.engine.url))


class CachedIndex:
    """An index that all threads of a process share. It only moves to newer snapshots, never back to older ones.

    A request holds the lock from its visibility check to its response, so that no other thread moves the index beyond
    the request's snapshot. This costs little, since Python's interpreter lock lets only one thread compute anyway.
    """

    def __init__(self, url: URL, clock: Callable[[], float] = monotonic) -> None:
        """url: the database in which the reader registers; no connection is opened before the first response."""
        self._lock = Lock()
        self._lease = ReaderLease(url, clock)
        self._index: TreeIndex | None = None
        self._snapshot: PgSnapshot | None = None  # the snapshot that the index shows
        self._bodies = ResponseCache()

    def respond(
        self,
        connection: Connection,
        request: CandidateRequest,
        settings: ServiceSettings,
        equivalence: Equivalence = SAME_RELEVANCE,
    ) -> Body | None:
        """Return the JSON body for the connection's snapshot; None if the index cannot be used for this snapshot.

        1 round trip if nothing changed; 2 more to read a few changed trees, up to 8 more to read all.
        Raises BadRequest as `solve` does.
        """
        with self._lock:
            self._lease.renew(self._snapshot)
            index = self._update(connection)
            if index is None:
                return None
            return self._solve(index, request, settings, equivalence)

    def respond_at_once(
        self,
        connection: Connection,
        request: CandidateRequest,
        settings: ServiceSettings,
        equivalence: Equivalence = SAME_RELEVANCE,
    ) -> Body | None:
        """Return the JSON body for the present state of the database, or None: call `respond` then.

        1 round trip if nothing changed, and 1 more to read a few changed trees. They need no transaction around them,
        since each statement has one snapshot. Raises BadRequest as `solve` does.
        """
        with self._lock:
            self._lease.renew(self._snapshot)
            index, snapshot, reader = self._index, self._snapshot, self._lease.reader
            if index is None or snapshot is None or reader is None:
                return None
            seen = check_visibility(connection, reader, snapshot)
            if not seen.registered or not seen.snapshot.follows(snapshot):
                return None
            if seen.changes is None:
                self._snapshot = seen.snapshot
            elif not self._follow_at_once(connection, reader, index, snapshot, seen.changes):
                return None
            return self._solve(index, request, settings, equivalence)

    def _follow_at_once(
        self, connection: Connection, reader: str, index: TreeIndex, snapshot: PgSnapshot, changes: Changes
    ) -> bool:
        """Read the changed trees with one statement and move the index; return False if the index cannot follow so.

        changes: what was seen just before; the statement says whether more has changed meanwhile.
        """
        changed = changes.few_providers()
        found = read_changed(connection, reader, snapshot, changed) if changed and not index.is_lent else None
        if changed is None or found is None:
            return False
        seen, rows = found
        if not seen.registered or not seen.snapshot.follows(snapshot):
            return False
        if seen.changes is None or seen.changes.few_providers() != changed:
            return False
        self._index = None  # until each tree is replaced
        self._bodies.clear()
        for root_id in changed:
            index.remove(root_id)
        index.names.update(names_in(rows))
        DecodedTrees(rows, index)
        self._index, self._snapshot = index, seen.snapshot
        return True

    def _solve(
        self, index: TreeIndex, request: CandidateRequest, settings: ServiceSettings, equivalence: Equivalence
    ) -> Body:
        """Return the JSON body, which is kept until the data changes unless candidates are random or it is long."""
        key = request, settings
        cached = self._bodies.get(key)
        if cached is not None:
            return cached
        in_trees = {group.in_tree for group in request.groups if group.in_tree is not None}
        roots = ((uuid, index.root_of(uuid)) for uuid in in_trees)
        index.names.roots_of_named = {uuid: root_id for uuid, root_id in roots if root_id is not None}
        body = index.lend(solve(index, request, settings, equivalence))
        if isinstance(body, bytes) and not settings.randomize:
            self._bodies.keep(key, body)
        return body

    def _update(self, connection: Connection) -> TreeIndex | None:
        """Return the index, updated to the connection's snapshot; None if it cannot be used for this snapshot."""
        reader = self._lease.reader
        if reader is None:
            self._drop()
            return None
        seen = check_visibility(connection, reader, self._snapshot)
        if not seen.registered:
            self._lease.forget()
            self._drop()
            return None
        if not seen.holds or (self._snapshot and not seen.snapshot.follows(self._snapshot)):
            return None
        return self._move(connection, seen)

    def _move(self, connection: Connection, seen: VisibilityCheck) -> TreeIndex:
        """Return the index, moved to the snapshot in *seen*; if that fails, drop the index."""
        index, self._index = self._index, None
        if index is None or seen.changes is not None:
            self._bodies.clear()
            index = self._apply(connection, index, seen.changes)
        self._index, self._snapshot = index, seen.snapshot
        return index

    def _read(self, connection: Connection) -> TreeIndex:
        index = TreeIndex()
        _read_names(connection, index)
        fetch(connection, index)
        return index

    def _apply(self, connection: Connection, index: TreeIndex | None, changes: Changes | None) -> TreeIndex:
        """Return the index with the changes, or a new one if that is less work or this one is lent."""
        if index is None or changes is None or changes.is_truncated or index.is_lent:
            return self._read(connection)
        roots = find_changed_roots(connection, changes)
        roots.update(changes.among(index.class_of))
        if len(roots) > _SHARE_READ_BY_TREE * len(index.class_of) + 100:
            return self._read(connection)
        if changes.touches("trait", "class"):
            _read_names(connection, index)
        for root_id in roots:
            index.remove(root_id)
        if roots:
            fetch(connection, index, Trees.of(roots))
        return index

    def _drop(self) -> None:
        self._index = self._snapshot = None
        self._bodies.clear()


_INDEXES: Final = PerPool[CachedIndex]()


def _read_names(connection: Connection, index: TreeIndex) -> None:
    """Read the names of all traits and resource classes into the index; 2 round trips."""
    index.names.traits = set(statements.read_names(connection, "traits"))
    index.names.resource_classes = set(statements.read_names(connection, "resource_classes"))


class ResponseCache:
    """An LRU cache of response bodies by request, limited by size."""

    def __init__(self, max_bytes: int = _MAX_CACHED_BYTES) -> None:
        """max_bytes: the limit for all bodies and requests together; a larger single entry is not cached."""
        self._max_bytes = max_bytes
        self._size = 0
        self._bodies: dict[Hashable, tuple[bytes, int]] = {}  # bodies with the sizes of their entries

    def get(self, request: Hashable) -> bytes | None:
        """Return the cached body of the request, or None."""
        entry = self._bodies.pop(request, None)
        if entry is None:
            return None
        self._bodies[request] = entry
        return entry[0]

    def keep(self, request: Hashable, body: bytes) -> None:
        """Cache the body of a request, which must have no entry yet, and remove the least recently used entries."""
        size = len(body) + _BYTES_PER_CHARACTER * len(repr(request))
        if size > self._max_bytes:
            return
        self._bodies[request] = body, size
        self._size += size
        while self._size > self._max_bytes:
            self._size -= self._bodies.pop(next(iter(self._bodies)))[1]

    def clear(self) -> None:
        """Remove all entries."""
        self._bodies.clear()
        self._size = 0
