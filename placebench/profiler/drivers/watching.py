"""What the timed classes have in common: whom they tell (`Watcher`), around what (`Running`), and how they are made."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextvars import ContextVar

    from placebench.profiler.draft import Draft
    from placebench.profiler.drivers.connection import WatchedConnection
    from placebench.profiler.drivers.cursor import TimedCursor
    from placebench.profiler.tape import Tape


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
