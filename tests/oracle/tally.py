"""What a run has seen, and the difference that ends it."""

from collections import Counter
from dataclasses import dataclass, field


class DisagreementError(AssertionError):
    """The two programs answer differently, and no known defect explains it; the message is for a person."""


@dataclass
class Tally:
    """Counts of a run; a search for a smaller example is not counted."""

    reads: int = 0
    answered: int = 0  # of the reads: with candidates
    refused: int = 0  # of the reads: with an error
    writes: int = 0
    known: Counter[str] = field(default_factory=Counter)
    closed: bool = False

    def read(self, *, found: bool, error: bool) -> None:
        """One query for candidates was compared."""
        if not self.closed:
            self.reads += 1
            self.answered += found
            self.refused += error

    def wrote(self) -> None:
        """One write, or read of what writes change, was compared."""
        if not self.closed:
            self.writes += 1

    def explain(self, defect: str) -> None:
        """One difference was a known defect's."""
        if not self.closed:
            self.known[defect] += 1

    def disagree(self, message: str) -> None:
        """Raises DisagreementError; hypothesis searches for a smaller one from here, which is not counted."""
        self.closed = True
        raise DisagreementError(message)

    def lines(self) -> list[str]:
        """For the end of the run."""
        known = sum(self.known.values())
        each = ", ".join(f"{name} {count}" for name, count in sorted(self.known.items()))
        return [
            f"queries for candidates compared: {self.reads}",
            f"of these {self.answered} with candidates, {self.refused} errors, the others empty",
            f"writes, and reads of what they wrote, compared: {self.writes}",
            f"equal: {self.reads + self.writes - known - self.closed}",
            f"known divergences: {known}{f' ({each})' if each else ''}",
            f"disagreements: {int(self.closed)}",
        ]
