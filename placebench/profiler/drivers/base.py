"""What the timed cursor and connection classes share: whom they notify, and how COMMIT and ROLLBACK are timed."""

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from placebench.profiler.capture.auto_explain import PlanFeed

if TYPE_CHECKING:
    from contextvars import ContextVar

    from placebench.profiler.capture.active_recording import Tape
    from placebench.profiler.capture.pending_statement import Draft
    from placebench.profiler.drivers.cursor import TimedCursor


class Watcher(Protocol):
    """What the timed classes ask of the profiler; none of these raises."""

    current: "ContextVar[Tape | None]"
    timed_classes: dict[tuple[type, type], type]

    def driver_call(self, cursor: "TimedCursor", sql: object) -> "Draft | None":
        """The draft that this execute belongs to; None if nothing is being recorded."""

    def driver_step(self, connection: "WatchedConnection", step: str) -> "Draft | None":
        """A new draft of a COMMIT, ROLLBACK or PING; None if nothing is being recorded."""


class Running:
    """A call of the driver's, awaited or opened by `with`: its time, round trips and error go to the draft.

    A class of its own: the frames of contextlib would stand in the flame.
    """

    def __init__(self, draft: "Draft | None", trips: int | None, *, fetches: bool = False) -> None:
        self._draft = draft
        self._trips = trips
        self._fetches = fetches

    def __enter__(self) -> None:
        """The draft's clock runs already."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._draft is None:
            return
        if error is not None:
            self._draft.failed(error)
        if self._fetches:
            self._draft.leave_fetch((), self._trips)
        else:
            self._draft.leave_execute(self._trips)


def timed_class(mixin: type, base: Any, watcher: Watcher) -> Any:
    """*base* with *mixin* before it, made once for each watcher; a function or a timed class comes back as it is."""
    if not isinstance(base, type) or issubclass(base, mixin):
        return base
    key = (mixin, base)
    if key not in watcher.timed_classes:
        name = f"Timed{base.__name__.capitalize()}"
        body: dict[str, Any] = {"placebench_watcher": watcher}
        if base.__dictoffset__ or "__slots__" in vars(mixin):
            body["__slots__"] = ()  # the same layout: an object's class can be replaced by the timed one
        watcher.timed_classes[key] = type(name, (mixin, base), body)
    return watcher.timed_classes[key]


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
