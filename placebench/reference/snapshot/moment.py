"""A snapshot of the database as PostgreSQL writes it, and which of two came first: the key piece is `Moment`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moment:
    """Which transactions a snapshot shows: pg_current_snapshot()."""

    text: str
    oldest: int  # every transaction before this one is over
    end: int  # this one and those after had not begun
    running: frozenset[int]  # of those between, the ones that were not over

    @classmethod
    def read(cls, text: str) -> "Moment":
        """The moment in PostgreSQL's form: `10:20:10,14,15`."""
        oldest, end, running = text.split(":")
        return cls(text, int(oldest), int(end), frozenset(map(int, running.split(","))) if running else frozenset())

    def shows(self, transaction: int) -> bool:
        """Whether what the transaction committed is visible, if it did commit."""
        return transaction < self.oldest or (transaction < self.end and transaction not in self.running)

    def follows(self, other: "Moment") -> bool:
        """Whether everything that *other* shows is shown here, too; of two moments of one server, one does."""
        return other.end <= self.end and not any(map(other.shows, self.running))
