"""Hooks where SQLAlchemy's engines have no event or an expensive one: executes, transactions, waits for connections.

The main classes are `Execution`, `DialectTimer` and `PoolTimer`. An engine with listeners to its statements prepares
arguments for each listener, which takes as long as all the work of the profiler. So the connections of an engine get a
class whose `execute` notes its beginning, and while something is recorded, the engine's dialect calls the profiler
instead of its own public methods `do_execute`, `do_begin` and so on. Both belong to one engine: no other one changes.
"""

import threading
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet, ref

import sqlalchemy.future
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import Pool, QueuePool
from sqlalchemy.pool.base import _ConnectionFairy

from placebench.profiler.capture.active_recording import ActiveRecording, CurrentRecording
from placebench.profiler.capture.pending_statement import PendingStatement

# The driver's connection behind the pool's; before SQLAlchemy 1.4.24 under its older name only.
RAW_CONNECTION = "dbapi_connection" if hasattr(_ConnectionFairy, "driver_connection") else "connection"
raw_connection: Callable[[Any], Any] = attrgetter(RAW_CONNECTION)


class Execution:
    """One call of a connection's `execute`, and its first statement.

    measured_s: the seconds charged to the driver's connection when the call began; a Python default that queries adds
        to them while the statement is compiled.
    outer: the call in which this one runs.
    """

    __slots__ = ("fairy", "measured_s", "outer", "pending", "recording", "started")

    def __init__(self, recording: ActiveRecording, connection: Any) -> None:
        self.recording = recording
        self.outer: Execution | None = connection.placebench_execution
        self.pending: PendingStatement | None = None
        # Not `Connection.connection`, which connects anew if there is none.
        self.fairy: Any = connection._dbapi_connection
        fairy = self.fairy
        state = None if fairy is None else recording.known_state(id(raw_connection(fairy)))
        self.measured_s: float = 0.0 if state is None else state.measured_s
        self.started: float = recording.clock()

    def start(self, pending: PendingStatement, compiled: object, fairy: object) -> None:
        """Start a statement of this call; the time until now is its compilation, if it is the first and *compiled*.

        The time of other statements on the same connection is left out. The compilation is 0 if the time includes a
        connect, which shows in that the pool's connection (*fairy*) is another one now.
        """
        state = pending.connection
        seconds = pending.started - self.started - (state.measured_s - self.measured_s)
        if compiled is None or self.pending is not None or seconds < 0.0 or fairy is not self.fairy:
            seconds = 0.0
        self.pending = pending
        pending.compile_s = seconds
        state.measured_s += seconds


class ExecutionRecorder(Protocol):
    """Receives connections and their executes; no method raises."""

    current: CurrentRecording
    timed_classes: dict[Any, type]
    installed: bool
    running: set[ActiveRecording]

    def connection_made(self, connection: Connection) -> None:
        """Note a new connection."""

    def execute_failed(self, connection: Connection, execution: Execution, error: BaseException) -> None:
        """Note that the call *execution* raised *error*."""


def classes_of_engines(target: Engine | type[Engine]) -> tuple[Any, ...]:
    """Return the objects that name the class of connections: one engine, or all engine classes (two in 1.4)."""
    return (target,) if isinstance(target, Engine) else tuple({Engine, sqlalchemy.future.Engine})


def watch_connections(owner: Any, recorder: ExecutionRecorder) -> None:
    """Have an engine, or a class of engines, report the connections that it makes; idempotent."""
    base = owner._connection_cls
    if recorder in _recorders(base, _WATCHED):
        return
    watched = recorder.timed_classes.get((_WATCHED, base))
    if watched is None:

        def init(connection: Any, *args: Any, **kwargs: Any) -> None:
            base.__init__(connection, *args, **kwargs)
            recorder.connection_made(connection)

        watched = recorder.timed_classes[_WATCHED, base] = _class_like(base, {"__init__": init, _WATCHED: recorder})
    owner._connection_cls = watched


def unwatch_connections(owner: Any) -> None:
    """Remove the layers of removed profilers; a layer below another profiler's stays until that one is removed."""
    kept: Any = owner._connection_cls
    while (recorder := vars(kept).get(_WATCHED)) is not None and not recorder.installed:
        kept = kept.__base__
    if kept is not owner._connection_cls:
        owner._connection_cls = kept
        if isinstance(owner, Engine) and kept is type(owner)._connection_cls:
            del owner._connection_cls


def time_executes(connection: Any, recorder: ExecutionRecorder) -> None:
    """Have the executes of this connection timed; idempotent."""
    base = type(connection)
    if recorder in _recorders(base, _TIMED):
        return
    timed = recorder.timed_classes.get((_TIMED, base))
    if timed is None:
        # The methods that lead to a statement, of which none calls another.
        names = ["execute", "scalar", "exec_driver_sql"]
        if hasattr(base, "_execute_20"):  # SQLAlchemy 1.4
            names = ["_execute_20", "exec_driver_sql", *([] if base._is_future else ["execute"])]
        body: dict[str, Any] = {name: _timed_execute(getattr(base, name), recorder) for name in names}
        body |= {"placebench_execution": None, _TIMED: recorder}
        timed = recorder.timed_classes[_TIMED, base] = _class_like(base, body)
    connection.__class__ = timed


def leave_executes(connection: Any) -> None:
    """Remove the layers of profilers that record nothing; a layer below another profiler's stays until that goes."""
    kept: Any = type(connection)
    while (recorder := vars(kept).get(_TIMED)) is not None and not recorder.running:
        kept = kept.__base__
    if kept is not type(connection):
        connection.__class__ = kept


_WATCHED, _TIMED = "placebench_watched_by", "placebench_timed_by"


def _recorders(kind: type, name: str) -> list[Any]:
    """Return the profilers that have a layer in the class *kind*, under the attribute *name*."""
    return [vars(each)[name] for each in kind.__mro__ if name in vars(each)]


def _class_like(base: type, body: dict[str, Any]) -> type:
    """Return a subclass of *base* with the same name and the attributes in *body*."""
    return type(base.__name__, (base,), body | {"__module__": base.__module__, "__qualname__": base.__qualname__})


def _timed_execute(execute: Callable[..., Any], recorder: ExecutionRecorder) -> Callable[..., Any]:
    """Return a connection's method *execute*, wrapped so that it notes when it begins."""
    current = recorder.current

    def timed(connection: Any, *args: Any, **kwargs: Any) -> Any:
        recording = current.get()
        if recording is None:
            return execute(connection, *args, **kwargs)
        execution = connection.placebench_execution = Execution(recording, connection)
        try:
            return execute(connection, *args, **kwargs)
        except BaseException as error:
            recorder.execute_failed(connection, execution, error)
            raise
        finally:
            connection.placebench_execution = execution.outer
            pending = execution.pending
            if pending is not None and pending.executing:
                pending.executing = False
                if pending.execute_s is None:  # its cursor is timed for another profiler
                    pending.execute_returned(None)

    timed.__name__, timed.__doc__ = execute.__name__, execute.__doc__
    return timed


Replacement = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the function that is called instead of the given method."""


class DialectTimer:
    """Makes a dialect call the recording profilers instead of its own methods; all profilers of a dialect share it."""

    def __init__(self, dialect: Any) -> None:
        # Weakly: `_TIMERS` would keep the dialect alive.
        self._dialect = ref(dialect)
        self._lock = threading.RLock()  # the garbage collector may end a recording
        self._recorders: list[Mapping[str, Replacement]] = []
        # While something is recorded, by name: the object's attribute before (None: it had none), the method that was
        # called, and the object's attribute now.
        self._methods: dict[str, tuple[Any, Callable[..., Any], Any]] = {}
        # Another's replacement over ours, and ours, which is called through theirs as long as theirs stays.
        self._covered: dict[str, tuple[Any, Any]] = {}

    @staticmethod
    def of(dialect: Any) -> "DialectTimer":
        """Return the timer of this dialect."""
        return _TIMERS.setdefault(dialect, DialectTimer(dialect))

    def add(self, replacements: Mapping[str, Replacement]) -> None:
        """Have these functions called from now on, each under the name of the method that it replaces; idempotent."""
        with self._lock:
            if replacements not in self._recorders:
                self._replace([*self._recorders, replacements])

    def discard(self, replacements: Mapping[str, Replacement]) -> None:
        """Stop calling these functions; idempotent."""
        with self._lock:
            if replacements in self._recorders:
                self._replace([each for each in self._recorders if each is not replacements])

    def _replace(self, recorders: list[Mapping[str, Replacement]]) -> None:
        """Exchange the methods: attributes of the object hide those of its class, and writing one is atomic."""
        dialect = self._dialect()
        own = vars(dialect)
        if not self._recorders:
            names = [name for each in recorders for name in each if not self._is_covered(own, name)]
            self._methods = {name: (own.get(name), getattr(dialect, name), own.get(name)) for name in names}
        for name, (before, method, now) in self._methods.items():
            if own.get(name) is not now:
                self._covered[name] = own.get(name), now
                continue
            call = method
            for each in recorders:
                call = each[name](call)
            self._methods[name] = before, method, call
            if recorders or before is not None:
                own[name] = call
            else:
                del own[name]
        self._recorders = recorders
        if not recorders:
            self._methods = {}

    def _is_covered(self, own: dict[str, Any], name: str) -> bool:
        """Return whether another library's replacement still covers ours; if only ours was left behind, remove it."""
        theirs, ours = self._covered.get(name, (None, None))
        if theirs is not None and own.get(name) is theirs:
            return True
        if self._covered.pop(name, None) is not None and own.get(name) is ours:
            del own[name]
        return False


_TIMERS: "WeakKeyDictionary[Any, DialectTimer]" = WeakKeyDictionary()


class PoolRequest(NamedTuple):
    """One `get` from a pool's queue.

    seconds: how long it waited. pending: how many requests waited when it began, itself included if it had to.
    came: whether it leads to a connection.
    """

    pool: "ref[Pool]"
    started: float
    seconds: float
    pending: int
    came: bool


class PoolTimer:
    """Times the queues of pools, and watches their checkouts, until it is removed.

    waited: called after each get; must not raise.
    failed: called with the error of each checkout that fails, in a listener of the application too; must not raise.
    clock: returns a time in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        waited: Callable[[PoolRequest], None],
        failed: Callable[[BaseException], object],
    ) -> None:
        self._clock = clock
        self._waited = waited
        self._failed = failed
        self._pools: WeakSet[Any] = WeakSet()

    def time(self, pool: Pool | None) -> None:
        """Time this pool's checkouts from now on; idempotent, and needed again after `engine.dispose`."""
        if not isinstance(pool, Pool) or pool in self._pools:
            return
        self._pools.add(pool)
        # An attribute of the instance hides the class's method, and deleting it brings the method back.
        pool.connect = self._watched(ref(pool), vars(pool).get("connect"))  # type: ignore[method-assign]
        if isinstance(pool, QueuePool):
            queue = pool._pool
            queue.get = self._timed(ref(pool), queue.get, queue.empty)  # type: ignore[method-assign]

    def remove(self) -> None:
        """Restore the pools; one that another profiler has timed since keeps our layers without effect."""
        for pool in self._pools:
            get: Any = pool._pool.get if isinstance(pool, QueuePool) else None
            if getattr(get, "placebench_timer", None) is self:
                pool._pool.get = get.placebench_get
            connect = pool.connect
            if getattr(connect, "placebench_timer", None) is self:
                del pool.connect
                if connect.placebench_connect is not None:
                    pool.connect = connect.placebench_connect
        self._pools.clear()

    def _timed(self, pool: "ref[Pool]", get: Callable[..., Any], is_empty: Callable[[], bool]) -> Callable[..., Any]:
        """Return the queue's *get*, wrapped so that each call is timed, even one that times out."""
        waiting: set[object] = set()  # adding and discarding is atomic

        def timed_get(block: bool = True, *timeout: float | None) -> Any:
            if not timeout:  # `dispose` empties the queue
                return get(block)
            started, request = self._clock(), object()
            if block and is_empty():
                waiting.add(request)
            pending = len(waiting)
            came = not block  # without blocking, the pool makes a connection next
            try:
                entry = get(block, *timeout)
                came = True
            finally:
                waiting.discard(request)
                self._waited(PoolRequest(pool, started, self._clock() - started, pending, came))
            return entry

        timed_get.placebench_timer = self  # type: ignore[attr-defined]
        timed_get.placebench_get = get  # type: ignore[attr-defined]
        return timed_get

    def _watched(self, pool: "ref[Pool]", before: Callable[[], Any] | None) -> Callable[[], Any]:
        """Return a pool's *connect* that reports its failure.

        pool: a reference that keeps no dropped pool alive. before: another profiler's `connect` of this pool, if any.
        """

        def watched_connect() -> Any:
            made: Any = pool()
            try:
                return type(made).connect(made) if before is None else before()
            except BaseException as error:
                self._failed(error)
                raise

        watched_connect.placebench_timer = self  # type: ignore[attr-defined]
        watched_connect.placebench_connect = before  # type: ignore[attr-defined]
        return watched_connect
