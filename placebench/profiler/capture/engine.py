"""What SQLAlchemy's engines have no event for: the wait for a pooled connection, and that nobody listens.

The main classes are `PoolTimer` and `_IdleSwitch`. Listeners that return at once still cost 4 to 5 µs per statement,
because SQLAlchemy prepares their arguments; it does so if the attribute `_has_events` of the engine, or of the class
Engine, is true. The attribute is private, but writing it is atomic, while adding and removing listeners under the feet
of other threads is not safe. It is left alone as soon as anybody else listens too.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.event.attr import _JoinedListener
from sqlalchemy.pool import Pool, QueuePool
from sqlalchemy.pool.base import _ConnectionFairy

_NAME = "_has_events"

# The driver's connection behind the pool's; before SQLAlchemy 1.4.24 under its older name only.
raw_connection: Callable[[Any], Any] = attrgetter(
    "dbapi_connection" if hasattr(_ConnectionFairy, "driver_connection") else "connection"
)

# Likewise in SQLAlchemy 1.4.
_dispatch_of_engine: Callable[[Any], Any] = attrgetter(
    "parent_dispatch" if hasattr(_JoinedListener, "parent_dispatch") else "parent"
)


class FlatListener(_JoinedListener):  # type: ignore[type-arg]  # it has no parameter in SQLAlchemy 1.4
    """The listeners of a connection and of its engine in one loop, where SQLAlchemy nests four Python functions."""

    __slots__ = ("_lists",)

    def __init__(self, connection: Connection, name: str, local: Any) -> None:
        super().__init__(connection.engine.dispatch, name, local)
        self._lists = (local.parent_listeners, local.listeners, *_listener_lists(connection.engine.dispatch, name))

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return chain.from_iterable(self._lists)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call them."""
        for listener in chain.from_iterable(self._lists):
            listener(*args, **kwargs)

    def for_modify(self, obj: Any) -> "FlatListener":
        """The same: somebody is about to listen to this connection alone."""
        super().for_modify(obj)
        own: Any = self.parent_listeners
        self._lists = (own.parent_listeners, own.listeners, *self._lists[2:])
        return self


def _listener_lists(dispatch: Any, name: str) -> tuple[Any, ...]:
    """Where listeners of that name are and will be, which SQLAlchemy changes in place once somebody may listen."""
    listener = getattr(dispatch, name).for_modify(dispatch)
    if isinstance(listener, _JoinedListener):  # of an engine with execution options
        own: Any = listener.parent_listeners
        return (own.parent_listeners, own.listeners, *_listener_lists(_dispatch_of_engine(listener), name))
    return listener.parent_listeners, listener.listeners


_FLATTENING = threading.Lock()


def flatten_listeners(connection: Connection) -> None:
    """Have the same listeners called for this connection's statements, in the same order, at a tenth of the cost."""
    with _FLATTENING:
        for name in ("before_execute", "before_cursor_execute", "after_cursor_execute", "after_execute"):
            listener = getattr(connection.dispatch, name)
            if type(listener) is _JoinedListener:
                setattr(connection.dispatch, name, FlatListener(connection, name, listener.parent_listeners))


class PoolRequest(NamedTuple):
    """One get of a pool's queue.

    seconds: how long it waited. pending: how many waited when it began, itself included if it had to.
    came: whether it leads to a connection.
    """

    pool: "ref[Pool]"
    started: float
    seconds: float
    pending: int
    came: bool


class PoolTimer:
    """Times the queues of pools until it is removed.

    waited: called after each get; must not raise.
    clock: seconds.
    """

    def __init__(self, clock: Callable[[], float], waited: Callable[[PoolRequest], None]) -> None:
        self._clock = clock
        self._waited = waited
        self._queues: WeakSet[Any] = WeakSet()

    def time(self, pool: Pool | None) -> None:
        """Time this pool's queue from now on, if it has one; again is harmless, and needed after `engine.dispose`."""
        if isinstance(pool, QueuePool) and pool._pool not in self._queues:
            queue = pool._pool
            self._queues.add(queue)
            # An attribute of the instance hides the class's method, and deleting it brings the method back.
            queue.get = self._timed(ref(pool), queue.get, queue.empty)  # type: ignore[method-assign]

    def remove(self) -> None:
        """The queues as they were; one that another profiler has timed since passes our times on to nobody."""
        for queue in self._queues:
            get = queue.get
            if getattr(get, "placebench_timer", None) is self:
                queue.get = get.placebench_get
        self._queues.clear()

    def _timed(self, pool: "ref[Pool]", get: Callable[..., Any], is_empty: Callable[[], bool]) -> Callable[..., Any]:
        """The queue's *get*, timed; also one that times out without a connection."""
        waiting: set[object] = set()  # adding and discarding is atomic

        def timed_get(block: bool = True, timeout: float | None = None) -> Any:
            started, request = self._clock(), object()
            if block and is_empty():
                waiting.add(request)
            pending = len(waiting)
            came = not block  # else a connection is made
            try:
                entry = get(block, timeout)
                came = True
            finally:
                waiting.discard(request)
                self._waited(PoolRequest(pool, started, self._clock() - started, pending, came))
            return entry

        timed_get.placebench_timer = self  # type: ignore[attr-defined]
        timed_get.placebench_get = get  # type: ignore[attr-defined]
        return timed_get


class _Awake:
    """True, but not the True that SQLAlchemy writes for a listener: so others' listeners are noticed."""


_AWAKE: Any = _Awake()


class _IdleSwitch:
    """Whether the statement listeners of one engine, or of all, are called; shared by all its profilers."""

    def __init__(self, target: "Engine | type[Engine]") -> None:
        # Weakly: what is kept for an engine must not keep the engine.
        self._target = ref(target)
        self._lock = threading.Lock()
        self._recordings = 0
        self._alone = True

    @contextmanager
    def installing(self) -> Iterator[None]:
        """Around the registration of our listeners, which are not called from then on if there are no others."""
        with self._lock:
            self._alone = self._alone and self._read() in (None, False, _AWAKE)
            yield
            if self._alone:
                self._write(_AWAKE if self._recordings else False)

    def recording_started(self) -> None:
        """One more recording runs: SQLAlchemy is to call the statement listeners."""
        with self._lock:
            self._recordings += 1
            # True is SQLAlchemy's: somebody has begun to listen since. From now on nothing is switched.
            self._alone = self._alone and self._read() in (None, False, _AWAKE)
            if self._alone:
                self._write(_AWAKE)

    def recording_ended(self) -> None:
        """One recording less."""
        with self._lock:
            self._recordings -= 1
            self._alone = self._alone and self._read() is _AWAKE
            if self._alone and self._recordings == 0:
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


_SWITCHES: "WeakKeyDictionary[Engine | type[Engine], _IdleSwitch]" = WeakKeyDictionary()


def idle_switch_of(target: "Engine | type[Engine]") -> _IdleSwitch:
    """The one of this engine, or of the class Engine."""
    return _SWITCHES.setdefault(target, _IdleSwitch(target))
