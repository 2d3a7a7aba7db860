"""Records the SQL of a SQLAlchemy application: times, rows, fingerprints and call sites, from the pool to the fetch.

The main class is `SqlProfiler`. Its hooks are installed once; a ContextVar
says whether they record, and for whom, so that requests in different threads and tasks never mix. A hook that fails
switches the profiler off and logs it once: a failure of the profiler never becomes the application's.
"""

import functools
import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from sqlalchemy import Engine

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.hooks import Hooks
from placebench.profiler.capture.options import FLAME_GRAPH_MODES, Clocks, Options
from placebench.profiler.capture.pending_statement import guarded
from placebench.profiler.integrations.middleware import (
    AsgiApplication,
    ProfiledApplication,
    ProfiledAsgiApplication,
    WsgiApplication,
)
from placebench.profiler.integrations.sampling import (
    Keep,
    RecentRecordings,
    RecordingFolder,
    RequestSampler,
    Sampling,
    Store,
)
from placebench.profiler.recording import Recording

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from placebench.profiler.capture.flame_graph import FlameGraphRecorder

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Listener(Protocol):
    """Called with what the profiler sees, as it ends; must not raise. Stamps are readings of time.perf_counter."""

    def on_span(self, label: str, started: float, ended: float) -> None:
        """A span of `timed` has ended, whether anything was recorded or not."""

    def on_recording(self, recording: Recording, started: float) -> None:
        """The recording of a request has ended, in the thread or task that served it."""


class _Timed:
    """Adds a span with this label to the recording that runs, and calls the listeners."""

    def __init__(
        self, label: str, current: ContextVar[ActiveRecording | None], listeners: Sequence[Listener] = ()
    ) -> None:
        self._label = label
        self._current = current
        self._listeners = listeners
        self._recording: ActiveRecording | None = None
        self._started = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._recording = self._current.get()
        if self._recording is not None:
            self._started = self._recording.clock()
        if self._listeners:
            self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._recording is not None:
            self._recording.add_span(self._label, self._started)
        for listener in self._listeners:
            listener.on_span(self._label, self._began, time.perf_counter())

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """*function* with a span around each of its calls, nested ones too."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: _P.args, **kwargs: _P.kwargs) -> Any:
                with _Timed(self._label, self._current, self._listeners):
                    return await function(*args, **kwargs)

            return cast(Callable[_P, _T], awaited)

        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with _Timed(self._label, self._current, self._listeners):
                return function(*args, **kwargs)

        return called


class SqlProfiler:
    """Records the SQL of one engine, sync or async, or of every engine of the process if none is given.

    Make it before the first connection: the driver's time in a fetch can only be measured on connections made later.
    A thread that the application starts by itself records nothing, unless it runs in a copy of the context
    (`contextvars.copy_context().run`); tasks and `asyncio.to_thread` copy it by themselves.

    recordings: the last 100 requests of `wsgi` and `asgi` applications without a folder, or the slowest ones.
    """

    def __init__(self, engine: "Engine | AsyncEngine | None" = None, *, clocks: Clocks | None = None) -> None:
        self._clocks = clocks or Clocks()
        target: Any = Engine if engine is None else getattr(engine, "sync_engine", engine)
        self._hooks = Hooks(target, self._clocks.elapsed)
        self._hooks.install()
        self.recordings: deque[Recording] = deque(maxlen=100)
        self._listeners: list[Listener] = []

    @property
    def active(self) -> bool:
        """Whether the hooks record: not after `remove`, nor after one of them has failed."""
        return self._hooks.installed and not self._hooks.failed

    def remove(self) -> None:
        """Take the hooks away, and their cost; again is harmless."""
        self._hooks.remove()

    @contextmanager
    def record(
        self,
        name: str,
        mode: str = "full",
        *,
        parameters: bool = False,
        max_statements: int = 10_000,
        explain: bool = False,
    ) -> Iterator[Recording]:
        """Record what this thread or task runs inside the block; the recording is filled when the block ends.

        mode: "light" (times, rows, fingerprints), "full" (call sites and bytes too), "flame" (Python's stacks too) or
            "plans" (PostgreSQL's plans too: its times and bytes hold the sending of plans). "sampled" is full with an
            estimated flame graph, by a thread that samples 50 times per second: for a server under load.
        explain: in mode "plans", have EXPLAIN estimate plans where the role may not see the actual plan.
        parameters: keep bound values, literals and the messages of errors; they may be secrets.
        A record inside of a record belongs to both. Raises ProfilerError for an unknown mode.
        """
        options = Options(mode, parameters, max_statements, explain)
        recording = Recording(name, mode)
        active = self.start(name, options, caller=sys._getframe(2))
        outer = self.switch_to(active)
        try:
            yield recording
        except BaseException as error:
            if active is not None:
                active.error = type(error).__name__
            raise
        finally:
            self.switch_to(outer)
            if active is not None:
                self.stop(active, recording)
                if outer is not None:
                    outer.absorb(active)

    def timed(self, label: str) -> _Timed:
        """A span of the user's own code, for `with` and as a decorator of functions, plain or async."""
        return _Timed(label, self._hooks.current, self._listeners)

    def listen(self, listener: Listener) -> None:
        """Call *listener* from now on with each span of `timed` and with each request's recording, as they end."""
        self._listeners.append(listener)

    def wsgi(
        self,
        application: WsgiApplication,
        *,
        folder: Path | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledApplication:
        """*application* with a recording for each request, saved into *folder* at once, or kept in `recordings`.

        By default every request is profiled, and the first 200 are kept as files or the last 100 in memory.
        Raises ProfilerError for an unknown mode or rate, or if the folder cannot be made.
        """
        return ProfiledApplication(self, application, *self._sampler_and_store(folder, mode, keep, sampling))

    def asgi(
        self,
        application: AsgiApplication,
        *,
        folder: Path | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledAsgiApplication:
        """The same for an ASGI application; requests that run at the same time on one thread do not mix."""
        return ProfiledAsgiApplication(self, application, *self._sampler_and_store(folder, mode, keep, sampling))

    def _sampler_and_store(
        self, folder: Path | None, mode: str, keep: Keep | None, sampling: Sampling | None
    ) -> tuple[RequestSampler, Store]:
        """What decides which requests are recorded, and where the recordings go."""
        keep = keep or Keep()
        store: Store = RecentRecordings(self.recordings, keep) if folder is None else RecordingFolder(folder, keep)
        # In memory the last ones stay, so that there is always space for one more.
        admitted = Keep(0, "slowest") if folder is None else keep
        return RequestSampler(Options(mode=mode), admitted, sampling or Sampling()), store

    # What the middleware needs; `record` is made of the same.

    def give_up(self, error: Exception) -> None:
        """Switch the profiler off because of *error*, and log it once."""
        self._hooks.give_up(error)

    @guarded
    def start(self, name: str, options: Options, *, caller: FrameType | None = None) -> ActiveRecording:
        """A recording that runs from now on; a flame graph begins at the caller's frame."""
        flame_graph = self._flame_graph(options.mode, caller or sys._getframe(2))
        active = ActiveRecording(name, options, self._clocks, self.give_up, flame_graph)
        self._hooks.recording_started()
        return active

    def _flame_graph(self, mode: str, caller: FrameType) -> "FlameGraphRecorder | None":
        """The flame graph of a mode that has one; pyinstrument is loaded only for such a mode."""
        if mode not in FLAME_GRAPH_MODES:
            return None
        from placebench.profiler.capture.flame_graph import FlameGraphRecorder

        return FlameGraphRecorder(mode, self._clocks.elapsed, caller, self.give_up)

    def switch_to(self, recording: ActiveRecording | None) -> ActiveRecording | None:
        """Make *recording* the current one of this thread or task; returns the one before."""
        before = self._hooks.current.get()
        self._hooks.current.set(recording)
        return before

    @guarded
    def stop(self, active: ActiveRecording, recording: Recording) -> None:
        """End the active recording, and fill *recording* with what it has seen."""
        active.end()
        self._hooks.recording_ended()
        if active.flame_graph is not None:
            recording.session = active.flame_graph.stop(active.started, active.started + active.elapsed_s)
            active.note(*active.flame_graph.notes)
        if not self.active:
            active.note("nothing is measured: the profiler was removed, or has switched itself off and logged why")
        active.fill(recording, measured=self.active)

    @guarded
    def save(self, active: ActiveRecording, sampler: RequestSampler, store: Store) -> None:
        """End the active recording of a request, and store it."""
        recording = Recording(active.name, active.options.mode)
        self.stop(active, recording)
        for listener in self._listeners:
            listener.on_recording(recording, active.started)
        sampler.count_dropped(store.save(recording))
