"""Where the wall time of a run goes: `PhaseTimer`."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_NOT_THE_HARNESS = ("start", "requests", "stop")


class PhaseTimer:
    """Where wall time goes: seconds by phase."""

    def __init__(
        self, before: Mapping[str, float] | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """before: the seconds of earlier sessions, which go on."""
        self.seconds = dict(before or {})
        self._clock = clock
        self._phase: str | None = None
        self._began = 0.0

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add what the `with` block takes, whatever ends it."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(phase, self._clock() - began)

    def switch(self, phase: str | None) -> None:
        """Begin *phase*: the time until the next switch is its own; None: nobody's."""
        now = self._clock()
        if self._phase is not None:
            self.add(self._phase, now - self._began)
        self._phase, self._began = phase, now

    def add(self, phase: str, seconds: float) -> None:
        """Add seconds that were measured elsewhere."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def harness_share(phase_s: Mapping[str, float]) -> float | None:
    """Return what is neither start, request nor stop, as a share of the replicates' time; None before the first."""
    whole = phase_s.get("replicates", 0.0)
    return 1 - sum(phase_s.get(name, 0.0) for name in _NOT_THE_HARNESS) / whole if whole else None
