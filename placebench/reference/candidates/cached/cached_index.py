"""The in-memory index of a worker, brought up to date before each response, and the responses that it keeps."""

from collections.abc import Callable, Hashable, Iterator
from threading import Lock
from time import monotonic
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import URL, Connection, Engine, Pool

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.candidates.cached.change_log import (
    Changes,
    PgSnapshot,
    ReaderLease,
    VisibilityCheck,
    check_visibility,
    roots_touched,
)
from placebench.reference.candidates.dedup import statements
from placebench.reference.candidates.dedup.fetch import fetch
from placebench.reference.candidates.dedup.relevance import Likeness, same_relevance
from placebench.reference.candidates.dedup.service import answer_by_dedup
from placebench.reference.candidates.dedup.solver import solve
from placebench.reference.candidates.dedup.statements import Trees
from placebench.reference.candidates.dedup.tree_index import Picture
from placebench.reference.candidates.results import Body
from placebench.reference.settings import Settings
from placebench.reference.variants import Implementations

ROOM: Final = 16 * 1024 * 1024


class Bodies:
    """Bodies by what was asked, so many bytes of them at most; the one that was asked for longest ago goes first."""

    def __init__(self, room: int = ROOM) -> None:
        """room: bytes of all bodies together; a longer one is not kept."""
        self._room = room
        self._size = 0
        self._bodies: dict[Hashable, bytes] = {}

    def get(self, asked: Hashable) -> bytes | None:
        """The body, if it is kept."""
        body = self._bodies.pop(asked, None)
        if body is not None:
            self._bodies[asked] = body
        return body

    def keep(self, asked: Hashable, body: bytes) -> None:
        """Keep the body of a question that none is kept of."""
        if len(body) > self._room:
            return
        self._bodies[asked] = body
        self._size += len(body)
        while self._size > self._room:
            self._size -= len(self._bodies.pop(next(iter(self._bodies))))

    def clear(self) -> None:
        """Forget all of them."""
        self._bodies.clear()
        self._size = 0


# Of all trees; beyond, to read everything costs less than to find the trees by their indexes.
_SHARE_READ_BY_TREE: Final = 0.25


class Keeper:
    """One picture for all threads of a process. It only moves forward; who needs an older one is told to read himself.

    A request holds the lock from its look at the database to its answer: what Python computes meanwhile no other
    thread could have computed either, and no request finds the picture ahead of its own snapshot.
    """

    def __init__(self, url: URL, clock: Callable[[], float] = monotonic) -> None:
        """url: where the entry among the readers is kept. Nothing is connected to before the first answer."""
        self._lock = Lock()
        self._registry = ReaderLease(url, clock)
        self._picture: Picture | None = None
        self._moment: PgSnapshot | None = None  # which the picture shows
        self._bodies = Bodies()
        self._kinds = 0  # after the last sweep
        self._lent: WeakSet[Iterator[bytes]] = WeakSet()  # answers that read from it while they are sent

    def answer(
        self,
        connection: Connection,
        request: CandidateRequest,
        settings: Settings,
        likeness: Likeness = same_relevance,
    ) -> Body | None:
        """The JSON body as of the connection's snapshot; None if that has to be read by itself.

        1 round trip if nothing changed; 6 more for the trees that did, 1 more for an in_tree not asked for before.
        Raises BadRequest as `solve`.
        """
        with self._lock:
            self._registry.renew(self._moment)
            picture = self._up_to_date(connection)
            if picture is None:
                return None
            asked = request, settings
            kept = self._bodies.get(asked)
            if kept is not None:
                return kept
            _find_named(connection, picture, request)
            body = solve(picture, request, settings, likeness)
            if not isinstance(body, bytes):
                return self._lending(body)
            if not settings.randomize:
                self._bodies.keep(asked, body)
            return body

    def _lending(self, body: Iterator[bytes]) -> Iterator[bytes]:
        """The parts; as long as somebody holds them, the picture that they come from stays as it is."""
        parts = (part for part in body)
        self._lent.add(parts)
        return parts

    def _up_to_date(self, connection: Connection) -> Picture | None:
        """The picture as of the connection's snapshot; None if it cannot be had."""
        reader = self._registry.reader
        if reader is None:
            self._drop()
            return None
        seen = check_visibility(connection, reader, self._moment)
        if not seen.registered:
            self._registry.forget()
            self._drop()
            return None
        if not seen.holds or (self._moment and not seen.moment.follows(self._moment)):
            return None
        return self._moved(connection, seen)

    def _moved(self, connection: Connection, seen: VisibilityCheck) -> Picture:
        """The picture at the moment seen; none is left if that fails on the way."""
        picture, self._picture = self._picture, None
        if picture is None or seen.changes is not None:
            self._bodies.clear()
            picture = self._changed(connection, picture, seen.changes)
        self._picture, self._moment = picture, seen.moment
        return picture

    def _read(self, connection: Connection) -> Picture:
        picture = Picture()
        _read_names(connection, picture)
        fetch(connection, picture)
        self._kinds = len(picture.kinds)
        return picture

    def _changed(self, connection: Connection, picture: Picture | None, changes: Changes | None) -> Picture:
        """The picture with its changes, or another one where that is less work, or somebody still needs this one."""
        if picture is None or changes is None or changes.everything or self._lent:
            return self._read(connection)
        roots = roots_touched(connection, changes)
        roots.update(changes.among(picture.shape_of))
        if len(roots) > _SHARE_READ_BY_TREE * len(picture.shape_of) + 100:
            return self._read(connection)
        if changes.touches("trait", "class"):
            _read_names(connection, picture)
        for root_id in roots:
            picture.remove(root_id)
        if roots:
            fetch(connection, picture, Trees.of(roots))
        picture.named.clear()
        self._sweep(picture)
        return picture

    def _sweep(self, picture: Picture) -> None:
        """Forget kinds that nobody is any more, when they may be half of all."""
        if len(picture.kinds) > 2 * self._kinds + 1000:
            picture.sweep()
            self._kinds = len(picture.kinds)

    def _drop(self) -> None:
        self._picture = self._moment = None
        self._bodies.clear()


def _read_names(connection: Connection, picture: Picture) -> None:
    """All names that exist; 2 round trips."""
    picture.traits = set(statements.every_name(connection, "traits"))
    picture.classes = set(statements.every_name(connection, "resource_classes"))


def _find_named(connection: Connection, picture: Picture, request: CandidateRequest) -> None:
    """The trees of in_tree, as long as nothing changes; a round trip if one was not asked for before."""
    uuids = {group.in_tree for group in request.groups if group.in_tree is not None}
    if unseen := uuids - picture.named.keys():
        picture.named.update(statements.roots_above(connection, unseen))


# By the pool, which a server renews when it forks: no picture and no lock is shared with another process.
_keepers: Final[WeakKeyDictionary[Pool, Keeper]] = WeakKeyDictionary()
_finding: Final = Lock()


def answer_from_cache(
    connection: Connection, request: CandidateRequest, implementations: Implementations, settings: Settings
) -> Body:
    """The JSON body as of the connection's snapshot; 1 round trip where nothing changed, 7 or 8 where something did.

    As `dedup` answers where the picture will not do: without a change log or all of its triggers, while another thread
    is ahead of this snapshot, and where the transaction is not REPEATABLE READ.
    """
    body = _keeper_of(connection.engine).answer(connection, request, settings, implementations.likeness)
    return answer_by_dedup(connection, request, implementations, settings) if body is None else body


def _keeper_of(engine: Engine) -> Keeper:
    with _finding:
        keeper = _keepers.get(engine.pool)
        if keeper is None:
            keeper = _keepers[engine.pool] = Keeper(engine.url)
        return keeper
