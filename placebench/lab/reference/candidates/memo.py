"""What a function returns for each key, called once: `Memo`."""

from collections.abc import Callable
from typing import TypeVar

_K = TypeVar("_K")
_T = TypeVar("_T")


class Memo(dict[_K, _T]):
    """The values of a function by its argument."""

    def __init__(self, call: Callable[[_K], _T]) -> None:
        """call: the function; a key that is there already costs no call of Python's own."""
        self._call = call

    def __missing__(self, key: _K) -> _T:
        """Call the function."""
        value = self[key] = self._call(key)
        return value
