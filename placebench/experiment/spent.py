"""Where the wall time of an experiment went: `Spent` adds up seconds under a few names.

    start       servers and client until they answer, and their warm-up
    requests    the blocks themselves, as the client saw them
    stop        servers and client until they are gone
    replicates  all of the three, and what the harness takes between them

The key piece is `Spent`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_NOT_THE_HARNESS = ("start", "requests", "stop")


class Spent:
    """Seconds by name."""

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """What the `with` block takes, whatever ends it."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(what, self._clock() - began)

    def add(self, what: str, seconds: float) -> None:
        """Seconds that somebody else has measured."""
        self.seconds[what] = self.seconds.get(what, 0.0) + seconds


def together(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The sums of two, such as those of two sittings."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in dict.fromkeys((*one, *other))}


def harness_share(spent_s: Mapping[str, float]) -> float | None:
    """What is neither start, request nor stop, as a share of the replicates' time; None before the first replicate."""
    whole = spent_s.get("replicates", 0.0)
    return 1 - sum(spent_s.get(name, 0.0) for name in _NOT_THE_HARNESS) / whole if whole else None
