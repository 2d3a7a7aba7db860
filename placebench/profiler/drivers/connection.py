"""A connection that tells the profiler how long COMMIT and ROLLBACK took: `TimedConnection`."""

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from placebench.profiler.auto_explain import PlanFeed
from placebench.profiler.drivers.watching import Running, Watcher

T = TypeVar("T")


class TimedConnection(Generic[T]):
    """A connection that tells the profiler how long COMMIT and ROLLBACK took, and keeps the plans it was sent.

    Generic, because psycopg 3's connections are: only so have both the same layout, and an object can change its class.
    """

    placebench_watcher: ClassVar[Watcher]

    def commit(self) -> None:
        """The driver's commit, timed."""
        self._step("COMMIT", super().commit)  # type: ignore[misc]

    def rollback(self) -> None:
        """The driver's rollback, timed."""
        self._step("ROLLBACK", super().rollback)  # type: ignore[misc]

    def _step(self, step: str, call: Callable[[], None]) -> None:
        """Run the driver's *call* as a transaction step."""
        trips = self.trips_of_step()
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

    def stepping(self, step: str) -> "Running":
        """Around a step that is awaited."""
        trips = self.trips_of_step()
        return Running(self.placebench_watcher.driver_step(self, step), trips)

    @property
    def placebench_plans(self) -> PlanFeed | None:
        """Where the server's plans arrive; None for a server that sends none."""
        return None

    def in_a_transaction(self) -> bool:
        """Whether the driver has a transaction open."""
        raise NotImplementedError

    def trips_of_step(self) -> int | None:
        """Round trips that a commit or rollback will take now; None for a driver without a network."""
        return None
