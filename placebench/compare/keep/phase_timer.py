"""Wall time of a run by phase: `PhaseTimer`."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_NOT_THE_HARNESS = ("start", "requests", "stop")


class PhaseTimer:
    """Adds up wall time, in seconds by phase."""

    def __init__(
        self, before: Mapping[str, float] | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """before: the seconds by phase of earlier sessions, to which this session's are added."""
        self.seconds = dict(before or {})
        self._clock = clock
        self._phase: str | None = None
        self._began = 0.0

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the duration of the `with` block to *phase*, also if the block raises."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(phase, self._clock() - began)

    def switch(self, phase: str | None) -> None:
        """Begin *phase*, which gets the time until the next switch; with None that time is not recorded."""
        now = self._clock()
        if self._phase is not None:
            self.add(self._phase, now - self._began)
        self._phase, self._began = phase, now

    def add(self, phase: str, seconds: float) -> None:
        """Add seconds measured elsewhere to *phase*."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def harness_share(phase_s: Mapping[str, float]) -> float | None:
    """Return the share of the replicates' time outside start, requests and stop; None before the first replicate."""
    whole = phase_s.get("replicates", 0.0)
    return 1 - sum(phase_s.get(name, 0.0) for name in _NOT_THE_HARNESS) / whole if whole else None
