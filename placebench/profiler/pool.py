"""The wait for a pooled connection, which no event of SQLAlchemy brackets.

The key piece is `PoolWatch`: it times the queue inside a QueuePool. The queue is private to SQLAlchemy (`_pool`), but
the alternative, a pool class of our own, would have to be chosen when the engine is made. Pools without a queue
(NullPool, StaticPool) make nobody wait: their wait is "not measured".
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from sqlalchemy.pool import Pool, QueuePool


class PoolWatch:
    """Times the queues of pools until it is removed.

    waited: called with (seconds, whether a connection came) after each get; must not raise.
    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float], waited: Callable[[float, bool], None]) -> None:
        self._clock = clock
        self._waited = waited
        self._queues: WeakSet[Any] = WeakSet()

    def watch(self, pool: Pool | None) -> None:
        """Time this pool's queue from now on, if it has one; again is harmless, and needed after `engine.dispose`."""
        if isinstance(pool, QueuePool) and pool._pool not in self._queues:
            queue = pool._pool
            self._queues.add(queue)
            # An attribute of the instance hides the class's method, and deleting it brings the method back.
            queue.get = self._timed(queue.get)  # type: ignore[method-assign]

    def remove(self) -> None:
        """The queues as they were."""
        for queue in self._queues:
            del queue.get
        self._queues.clear()

    def _timed(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """The queue's *get*, timed; a time-out that leaves no connection is told too."""

        def timed_get(block: bool = True, timeout: float | None = None) -> Any:
            started = self._clock()
            try:
                entry = get(block, timeout)
            except BaseException:
                self._waited(self._clock() - started, not block)
                raise
            self._waited(self._clock() - started, True)
            return entry

        return timed_get
