"""Answers from the picture that this process keeps of a database: the key piece is `answer_from_snapshot`."""

from threading import Lock
from typing import Final
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Pool

from placebench.reference.body import Body
from placebench.reference.query import CandidateRequest
from placebench.reference.settings import Settings
from placebench.reference.shapes.answering import answer_by_shapes
from placebench.reference.snapshot.keeper import Keeper
from placebench.reference.steps import Ways

# By the pool, which a server renews when it forks: no picture and no lock is shared with another process.
_keepers: Final[WeakKeyDictionary[Pool, Keeper]] = WeakKeyDictionary()
_finding: Final = Lock()


def answer_from_snapshot(connection: Connection, request: CandidateRequest, ways: Ways, settings: Settings) -> Body:
    """The JSON body as of the connection's snapshot; 1 round trip where nothing changed, 7 or 8 where something did.

    As `shapes` answers where the picture will not do: without a change log or all of its triggers, while another thread
    is ahead of this snapshot, and where the transaction is not REPEATABLE READ.
    """
    body = _keeper_of(connection.engine).answer(connection, request, settings, ways.likeness)
    return answer_by_shapes(connection, request, ways, settings) if body is None else body


def _keeper_of(engine: Engine) -> Keeper:
    with _finding:
        keeper = _keepers.get(engine.pool)
        if keeper is None:
            keeper = _keepers[engine.pool] = Keeper(engine.url)
        return keeper
