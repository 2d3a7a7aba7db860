"""A stretch of time in which one recording held its event loop, and who waited meanwhile: `LoopBlock`."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from placebench.profiler.model.statement import Caller

KINDS_ALONE = ("program", "lifespan", "background")
"""Kinds of recordings that may hold a loop as long as nobody waits: a start, or a script that does one thing."""

BlockCause = Literal["statement", "connection-pool wait", "transaction step", "call"]


class LateRequest(NamedTuple):
    """Who went on late because an event loop was held.

    name: that of its recording; within the recording that held the loop, "task" and the name of the coroutine.
    seconds: how late it went on. is_exact: whether it is known when it was ready; if not, *seconds* is the most that it
    can have waited: what came from outside meanwhile was seen only when the loop went on.
    """

    name: str
    seconds: float
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """One stretch of time in which a recording held its event loop, without an await.

    started_s: from the start of its recording. elapsed_s: the whole stretch.
    loop: "asyncio", the name of another loop, such as "uvloop" or "trio", or of a hub of greenlets, "gevent" or
        "eventlet".
    cause: what took the largest part of it: a statement of a driver that does not yield, a wait for a pool's
        connection, a step such as CONNECT or COMMIT, or (if these took less than half of it) the program itself.
    cause_s: the seconds of the cause. sql, fingerprint: of the statement; the name of a step; None for a call.
    caller, outer_caller: as for `Statement`. Those of a call were seen by samples of the thread; None in mode "light",
        without a GIL, and if no sample was taken in time.
    late: who went on late, the longest wait first; 100 at most.
    request: the number of the recording that it comes from, if several were merged; 1 for the first.
    """

    started_s: float
    elapsed_s: float
    loop: str
    cause: BlockCause
    cause_s: float
    sql: str | None = None
    fingerprint: str | None = None
    caller: Caller | None = None
    outer_caller: Caller | None = None
    late: tuple[LateRequest, ...] = ()
    request: int = 1
