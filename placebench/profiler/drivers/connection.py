"""A connection that tells the profiler how long COMMIT and ROLLBACK took: `TimedConnection`."""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from placebench.profiler.auto_explain import PlanFeed
from placebench.profiler.drivers.watching import Running, Watcher

T = TypeVar("T")


class WatchedConnection:
    """What the profiler asks of any connection that it has given a class of its own."""

    __slots__ = ()
    placebench_watcher: ClassVar[Watcher]

    def placebench_step(self, step: str, call: Callable[[], None]) -> None:
        """Run the driver's *call* as a transaction step."""
        trips = self.trips_of_step(step)
        draft = self.placebench_watcher.driver_step(self, step)
        if draft is None:
            return call()
        try:
            return call()
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            draft.leave_execute(trips)

    def stepping(self, step: str, trips: int | None = None) -> "Running":
        """Around a step that is awaited, or is neither COMMIT nor ROLLBACK."""
        trips = self.trips_of_step(step) if trips is None else trips
        return Running(self.placebench_watcher.driver_step(self, step), trips)

    @property
    def placebench_plans(self) -> PlanFeed | None:
        """Where the server's plans arrive; None for a server that sends none."""
        return None

    def in_a_transaction(self) -> bool:
        """Whether the driver has a transaction open."""
        raise NotImplementedError

    def trips_of_step(self, step: str) -> int | None:  # noqa: ARG002  psycopg 3's rollback takes more
        """Round trips that a commit or rollback will take now; None for a driver without a network."""
        return None


class TimedConnection(Generic[T], WatchedConnection):
    """One that is mixed in before the driver's own class, and has a dict for what it keeps.

    Generic, because psycopg 3's connections are: only so have both the same layout, and an object can change its class.
    """

    def commit(self) -> None:
        """The driver's commit, timed."""
        self.placebench_step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """The driver's rollback, timed."""
        self.placebench_step("ROLLBACK", super().rollback)  # type: ignore[misc]
