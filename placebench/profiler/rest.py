"""No cost while nothing is recorded: SQLAlchemy is told that nobody listens to statements.

The key piece is `Rest`. Listeners that return at once still cost 4 to 5 µs a statement, because SQLAlchemy prepares
their arguments; it asks the attribute `_has_events` of the engine, or of the class Engine, whether to do so. The
attribute is private, but writing it is atomic, while adding and removing listeners under the feet of other threads is
not safe. It is left alone as soon as anybody else listens too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

_NAME = "_has_events"


class _Awake:
    """True, but not the True that SQLAlchemy writes for a listener: so others' listeners are noticed."""


_AWAKE: Any = _Awake()


class Rest:
    """Whether the statement listeners of one engine, or of all, are called."""

    def __init__(self, target: "Engine | type[Engine]") -> None:
        self._target = target
        self._lock = threading.Lock()
        self._records = 0
        self._alone = False

    @contextmanager
    def installing(self) -> Iterator[None]:
        """Around the registration of our listeners, which rest from then on if there are no others."""
        self._alone = vars(self._target).get(_NAME) in (None, False)
        yield
        with self._lock:
            if self._alone:
                self._write(False)

    def wake(self) -> None:
        """One more record runs."""
        with self._lock:
            self._records += 1
            if self._alone and self._records == 1:
                # Somebody has begun to listen since: from now on nothing is switched.
                self._alone = not vars(self._target).get(_NAME)
                if self._alone:
                    self._write(_AWAKE)

    def rest(self) -> None:
        """One record less."""
        with self._lock:
            self._records -= 1
            if self._alone and self._records == 0:
                self._alone = vars(self._target).get(_NAME) is _AWAKE
                if self._alone:
                    self._write(False)

    def remove(self) -> None:
        """Leave the attribute as SQLAlchemy would have it."""
        with self._lock:
            if self._alone and vars(self._target).get(_NAME) is _AWAKE:
                self._write(False)
            self._alone = False

    def _write(self, value: Any) -> None:
        """An engine without listeners of its own follows its class; the class itself says yes or no."""
        if value is False and isinstance(self._target, Engine):
            vars(self._target).pop(_NAME, None)
        else:
            setattr(self._target, _NAME, value)
