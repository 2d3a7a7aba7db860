"""A clock that moves only when told."""

from dataclasses import dataclass


@dataclass
class ManualClock:
    """Seconds that pass only by `advance`."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass; gives the seconds, so that SQL can select them."""
        self.now += seconds
        return seconds
