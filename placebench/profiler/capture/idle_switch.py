"""No cost while nothing is recorded: SQLAlchemy is told that nobody listens to statements.

The key piece is `rest_of`. Listeners that return at once still cost 4 to 5 µs a statement, because SQLAlchemy prepares
their arguments; it asks the attribute `_has_events` of the engine, or of the class Engine, whether to do so. The
attribute is private, but writing it is atomic, while adding and removing listeners under the feet of other threads is
not safe. It is left alone as soon as anybody else listens too.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, ref

from sqlalchemy import Engine

_NAME = "_has_events"


class _Awake:
    """True, but not the True that SQLAlchemy writes for a listener: so others' listeners are noticed."""


_AWAKE: Any = _Awake()


class Rest:
    """Whether the statement listeners of one engine, or of all, are called; shared by all profilers that watch it."""

    def __init__(self, target: "Engine | type[Engine]") -> None:
        # Weakly: what is kept for an engine must not keep the engine.
        self._target = ref(target)
        self._lock = threading.Lock()
        self._records = 0
        self._alone = True

    @contextmanager
    def installing(self) -> Iterator[None]:
        """Around the registration of our listeners, which rest from then on if there are no others."""
        with self._lock:
            self._alone = self._alone and self._read() in (None, False, _AWAKE)
            yield
            if self._alone:
                self._write(_AWAKE if self._records else False)

    def wake(self) -> None:
        """One more record runs."""
        with self._lock:
            self._records += 1
            # True is SQLAlchemy's: somebody has begun to listen since. From now on nothing is switched.
            self._alone = self._alone and self._read() in (None, False, _AWAKE)
            if self._alone:
                self._write(_AWAKE)

    def rest(self) -> None:
        """One record less."""
        with self._lock:
            self._records -= 1
            self._alone = self._alone and self._read() is _AWAKE
            if self._alone and self._records == 0:
                self._write(False)

    def _read(self) -> Any:
        """The attribute of the target itself, not of its class; None if it has none."""
        return vars(self._target()).get(_NAME)

    def _write(self, value: Any) -> None:
        """An engine without listeners of its own follows its class; the class itself says yes or no."""
        target = self._target()
        if value is False and isinstance(target, Engine):
            vars(target).pop(_NAME, None)
        else:
            setattr(target, _NAME, value)


_RESTS: "WeakKeyDictionary[Engine | type[Engine], Rest]" = WeakKeyDictionary()


def rest_of(target: "Engine | type[Engine]") -> Rest:
    """The one of this engine, or of the class Engine."""
    return _RESTS.setdefault(target, Rest(target))
