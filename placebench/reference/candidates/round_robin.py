"""Several iterators taken by turns: the key piece is `by_turns`."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")


def by_turns(iterators: Iterable[Iterator[_T]]) -> Iterator[_T]:
    """One of each iterator, then one more of each, until all are exhausted."""
    waiting = deque(iterators)
    while waiting:
        iterator = waiting.popleft()
        for item in islice(iterator, 1):
            yield item
            waiting.append(iterator)
