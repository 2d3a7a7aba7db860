"""One object per connection pool: `PerPool`."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, Pool

_T = TypeVar("_T")


class PerPool(Generic[_T]):
    """What threads that use one pool share. A server renews its pool when it forks, so no process inherits a lock."""

    def __init__(self) -> None:
        """Nothing is made yet."""
        self._made: WeakKeyDictionary[Pool, _T] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, engine: Engine, make: Callable[[], _T]) -> _T:
        """Return that of the engine's pool, made at the first call."""
        with self._lock:
            found = self._made.get(engine.pool)
            if found is None:
                found = self._made[engine.pool] = make()
            return found
