"""The solver of `dedup` on an in-memory index that a worker keeps, and validates before each response."""

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Pool

from placebench.reference.api.candidates_query import CandidateRequest
from placebench.reference.api.responses import Body
from placebench.reference.candidates.cached.cached_index import Keeper
from placebench.reference.candidates.dedup.service import answer_by_dedup
from placebench.reference.optimizations import Ways
from placebench.reference.settings import Settings

# By the pool, which a server renews when it forks: no picture and no lock is shared with another process.
_keepers: Final[WeakKeyDictionary[Pool, Keeper]] = WeakKeyDictionary()
_finding: Final = Lock()


def answer_from_cache(connection: Connection, request: CandidateRequest, ways: Ways, settings: Settings) -> Body:
    """The JSON body as of the connection's snapshot; 1 round trip where nothing changed, 7 or 8 where something did.

    As `dedup` answers where the picture will not do: without a change log or all of its triggers, while another thread
    is ahead of this snapshot, and where the transaction is not REPEATABLE READ.
    """
    body = _keeper_of(connection.engine).answer(connection, request, settings, ways.likeness)
    return answer_by_dedup(connection, request, ways, settings) if body is None else body


def _keeper_of(engine: Engine) -> Keeper:
    with _finding:
        keeper = _keepers.get(engine.pool)
        if keeper is None:
            keeper = _keepers[engine.pool] = Keeper(engine.url)
        return keeper


__all__ = ["answer_from_cache"]
