"""Spans of the user's own code: `with profiler.timed("label"):`, and the same as a decorator."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from placebench.profiler.tape import Tape

P = ParamSpec("P")
T = TypeVar("T")


class Timed:
    """Adds a span with this label to the recording that runs; does nothing where none runs."""

    def __init__(self, label: str, current: ContextVar[Tape | None]) -> None:
        self._label = label
        self._current = current
        self._tape: Tape | None = None
        self._started = 0.0

    def __enter__(self) -> None:
        self._tape = self._current.get()
        if self._tape is not None:
            self._started = self._tape.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tape is not None:
            self._tape.span(self._label, self._started)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """*function* with a span around each of its calls, one inside of another too."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
                with Timed(self._label, self._current):
                    return await function(*args, **kwargs)

            return cast(Callable[P, T], awaited)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            with Timed(self._label, self._current):
                return function(*args, **kwargs)

        return called
