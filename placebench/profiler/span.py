"""Spans of the user's own code: `with profiler.timed("label"):`, and the same as a decorator."""

import functools
import inspect
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from placebench.profiler.tape import Tape

if TYPE_CHECKING:
    from placebench.profiler.recording import Recording

P = ParamSpec("P")
T = TypeVar("T")


class Listener(Protocol):
    """Who is told what the profiler sees, as it ends; must not raise. Stamps are readings of time.perf_counter."""

    def spanned(self, label: str, started: float, ended: float) -> None:
        """A span of `timed` has ended, whether anything was recorded or not."""

    def recorded(self, recording: "Recording", started: float) -> None:
        """The recording of a request has ended, in the thread or task that answered it."""


class Timed:
    """Adds a span with this label to the recording that runs, and tells the listeners; else does nothing."""

    def __init__(self, label: str, current: ContextVar[Tape | None], listeners: Sequence[Listener] = ()) -> None:
        self._label = label
        self._current = current
        self._listeners = listeners
        self._tape: Tape | None = None
        self._started = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._tape = self._current.get()
        if self._tape is not None:
            self._started = self._tape.clock()
        if self._listeners:
            self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tape is not None:
            self._tape.span(self._label, self._started)
        for listener in self._listeners:
            listener.spanned(self._label, self._began, time.perf_counter())

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """*function* with a span around each of its calls, one inside of another too."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                with Timed(self._label, self._current, self._listeners):
                    return await function(*args, **kwargs)

            return cast(Callable[P, T], awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            with Timed(self._label, self._current, self._listeners):
                return function(*args, **kwargs)

        return called
