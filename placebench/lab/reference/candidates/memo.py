"""Caches of objects that are made once: per argument of a function (`Memo`), and per connection pool (`PerPool`)."""

from collections.abc import Callable
from threading import Lock
from types import MethodType
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Engine, Pool

_K = TypeVar("_K")
_T = TypeVar("_T")


class Memo(dict[_K, _T]):
    """A dict that calls a function for a missing key and stores the result."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[_K], _T]) -> None:
        """Make an empty memo; a key that is present is looked up without calling any Python function.

        call: the function. The object of a bound method is referenced weakly: it usually holds the memo, and objects in
            a reference cycle stay in memory until they are found by a garbage collection.
        """
        if isinstance(call, MethodType):
            owner, method = ref(call.__self__), call.__func__
            self._call: Callable[[_K], _T] = lambda key: method(owner(), key)
        else:
            self._call = call

    def __missing__(self, key: _K) -> _T:
        """Call the function with the key, and store the result."""
        value = self[key] = self._call(key)
        return value


class PerPool(Generic[_T]):
    """One object per connection pool, which all threads share.

    A server replaces its pool when it forks, so no process inherits an object whose lock is held.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Pool, _T] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, engine: Engine, make: Callable[[], _T]) -> _T:
        """Return the object of the engine's pool; the first call makes it."""
        with self._lock:
            found = self._made.get(engine.pool)
            if found is None:
                found = self._made[engine.pool] = make()
            return found
