"""Records the SQL of an application: times, rows, fingerprints and call sites, from the pool to the fetch.

The main class is `SqlProfiler`. Its hooks are installed once; a ContextVar holds the recording that they write into, so
that requests in different threads and tasks never mix. A hook that fails is named in the recording and logged once: a
failure of the profiler never reaches the application.
"""

import functools
import inspect
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, cast

from placebench.errors import ProfilerError
from placebench.profiler.capture.active_recording import (
    ActiveRecording,
    BackgroundRecording,
    CurrentRecording,
    ProgramRecording,
)
from placebench.profiler.capture.event_loop import LoopWatch
from placebench.profiler.capture.options import FLAME_GRAPH_MODES, Clocks, Options, inside_greenlets
from placebench.profiler.capture.pending_statement import guarded
from placebench.profiler.capture.statement_comments import comment_text, commenting
from placebench.profiler.capture.statistics_collector import StatisticsCollector
from placebench.profiler.drivers.driver_hooks import DriverHooks, ImportWatch
from placebench.profiler.model.session import gil_is_off
from placebench.profiler.recording import Recording
from placebench.profiler.requests.asgi import AsgiApplication, ProfiledAsgiApplication
from placebench.profiler.requests.middleware import ProfiledApplication, ProfiledCalls, WsgiApplication
from placebench.profiler.requests.sampling import (
    Keep,
    RecentRecordings,
    RecordingFolder,
    RequestSampler,
    Sampling,
    Store,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from placebench.profiler.capture.external_flame_graph import ExternalFlameGraph
    from placebench.profiler.capture.flame_graph import FlameGraphRecorder
    from placebench.profiler.drivers.hooks import Hooks
    from placebench.profiler.model.statement_statistics import StatementStatistics

_ENGINES = "sqlalchemy"  # the whole package: while it is imported, its engine cannot be hooked yet
_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))
"""Whether a new thread has the context of the one that starts it: the default of free-threaded Pythons from 3.14 on."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Listener(Protocol):
    """Receives spans and recordings as they end; must not raise. Times are readings of time.perf_counter."""

    def on_span(self, label: str, started: float, ended: float) -> None:
        """Take a span of `timed` that has ended, whether anything was recorded or not."""

    def on_recording(self, recording: Recording, started: float) -> None:
        """Take the recording of a request that has ended, in the thread or task that served it."""


class _Timed:
    """Adds a span with this label to the recording that runs, and calls the listeners."""

    def __init__(self, label: str, current: CurrentRecording, listeners: Sequence[Listener] = ()) -> None:
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

    def __exit__(self, *_: object) -> None:
        if self._recording is not None:
            self._recording.add_span(self._label, self._started)
        for listener in self._listeners:
            listener.on_span(self._label, self._began, time.perf_counter())

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """Return *function* with a span around each of its calls, nested calls included."""
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
    """Records the SQL of one engine, sync or async, or of the whole process if none is given.

    Without an engine it records every engine, and each driver that the process imports, now or later. A statement is
    counted once, whether SQLAlchemy or the application sends it.

    Make it before the first connection: the driver's time in a fetch can only be measured on connections made later.
    A thread that the application starts records nothing, unless it runs in a copy of the context
    (`contextvars.copy_context().run`); tasks and `asyncio.to_thread` copy it by themselves.

    application: folders or packages, such as "keystone", that are the application's own code although they are
        installed. By default installed code is a library: call sites and findings name the lines that call it.
    whole_process: a record takes the statements of every thread and task of the process. For programs that do one
        thing at a time, such as a test suite: records that run at the same time would mix.
    recordings: the last 100 requests of `wsgi` and `asgi` applications without a folder, or the slowest 100.
    Raises ProfilerError if *engine* is not an engine.
    """

    _watch: ImportWatch | None = None
    """Waits until the program imports SQLAlchemy."""

    def __init__(
        self,
        engine: "Engine | AsyncEngine | None" = None,
        *,
        clocks: Clocks | None = None,
        whole_process: bool = False,
        application: Sequence[str] = (),
    ) -> None:
        clocks = clocks or Clocks()
        hooks: Hooks | DriverHooks
        if engine is None and sys.modules.get(_ENGINES) is None:
            # To import SQLAlchemy only to profile would take longer than most programs take to start.
            hooks = DriverHooks(whole_process=whole_process)
            self._watch = ImportWatch(lambda _: self._include_engines())
            self._watch.begin({_ENGINES})
        else:
            hooks = _engine_hooks(engine, clocks, whole_process=whole_process)
        self._install(hooks, clocks, application)

    @classmethod
    def for_drivers(
        cls, *drivers: str, clocks: Clocks | None = None, whole_process: bool = False, application: Sequence[str] = ()
    ) -> Self:
        """Return a profiler of database drivers alone, which loads no SQLAlchemy.

        Make it before the program connects: connections that are open already are not seen. Statements of SQLAlchemy
        appear as statements of its driver. Plans are not available.

        drivers: names of packages among "aiosqlite", "asyncpg", "MySQLdb", "psycopg", "psycopg2", "pymysql" and
            "sqlite3", which are imported; by default all, each as soon as it is imported.
        whole_process, application: see `SqlProfiler`.
        Raises ProfilerError for a driver that is unknown or not installed.
        """
        profiler = cls.__new__(cls)
        profiler._install(DriverHooks(drivers, whole_process=whole_process), clocks or Clocks(), application)
        return profiler

    def _install(self, hooks: "Hooks | DriverHooks", clocks: Clocks, application: Sequence[str]) -> None:
        self._clocks = clocks
        self._hooks = hooks
        self._hooks.install()
        clock = clocks.elapsed_safely(self.report_failure)
        self._loops = LoopWatch(lambda: self._hooks.current, self._hooks.running, clock, self.report_failure)
        self.recordings: deque[Recording] = deque(maxlen=100)
        self._listeners: list[Listener] = []
        self._application = (application,) if isinstance(application, str) else tuple(application)
        self._loops.application = self._application

    @property
    def active(self) -> bool:
        """Whether the hooks are installed; False after `remove`."""
        return self._hooks.installed

    @property
    def is_recording(self) -> bool:
        """Whether a record runs in this thread or task."""
        recording = self._around()
        return recording is not None and not recording.ended

    @property
    def nothing_seen(self) -> str:
        """A line for a report without statements, which says where the profiler looked and what it cannot see."""
        sources = self._hooks.sources if self._watch is None else f"SQLAlchemy (not imported) and {self._hooks.sources}"
        return (
            f"no statement was seen: placebench looked for {sources}; connections that were open before "
            "it began are not seen, nor are processes that the program starts"
        )

    def remove(self) -> None:
        """Remove the hooks and their cost; idempotent."""
        if self._watch is not None:
            self._watch.end()
        self._hooks.collector = None
        self._hooks.remove()
        self._loops.remove()

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
        """Record the statements of this thread or task inside the block, and fill the recording at its end.

        mode: "light" (times, rows, fingerprints), "full" (call sites and bytes too), "sampled" (a flame graph too: a
            thread samples Python's stacks 100 times per second), "flame" (a flame graph by a profile function, which
            every call of Python runs) or "plans" (as "flame", with PostgreSQL's plans: times and bytes include the
            sending of plans). "external" is full without bytes, with a flame graph by py-spy, another process that
            costs this one next to nothing (placebench[sampler]). If py-spy may not sample, the thread does, and a note
            says so.
        explain: in mode "plans", have EXPLAIN estimate plans if the role may not see the actual plan.
        parameters: keep bound values, literals and the messages of errors; they may be secrets.
        Statements of a record inside of a record belong to both. Raises ProfilerError for an unknown mode.
        """
        options = Options(mode, parameters, max_statements, explain)
        recording = Recording(name, mode)
        active = self.start(name, options, caller=sys._getframe(2))
        before = outer = self.switch_to(active)
        if outer is not None and outer.ended:  # that of a request which has left this thread or task behind
            outer = None
        if active is not None and outer is not None:
            active.databases = outer.databases
        elif active is not None and isinstance(self._hooks.current, ProgramRecording):
            active.kind = "program"
        try:
            yield recording
        except BaseException as error:
            if active is not None:
                active.error = type(error).__name__
            raise
        finally:
            self.switch_to(before)
            if active is not None:
                self.stop(active, recording)
                if outer is not None:
                    outer.absorb(active)

    def timed(self, label: str) -> _Timed:
        """Return a span of the user's own code, for `with` and as a decorator of functions, plain or async."""
        return _Timed(label, self._hooks.current, self._listeners)

    def comment_statements(self) -> None:
        """Put a comment with route and function behind each statement of SQLAlchemy, as sqlcommenter does.

        A comment such as ` /*controller='list_orders',route='/orders/{id}'*/` is added until `remove`, whether the
        statement is recorded or not. The integrations of FastAPI, Starlette and Flask know both; other code names them
        by `tagged`.
        Raises ProfilerError for a profiler of drivers alone.
        """
        if self._watch is not None:
            self._include_engines()
        if not hasattr(self._hooks, "comment_statements"):
            raise ProfilerError("only statements of SQLAlchemy get comments: expected SqlProfiler()")
        self._hooks.comment_statements()

    @staticmethod
    def tagged(route: str | None = None, function: str | None = None) -> AbstractContextManager[None]:
        """Name the route and the function of the statements in the block, for `comment_statements`.

        Keep the number of distinct values small (no identifiers); otherwise the driver cannot reuse prepared
        statements.
        """
        text = comment_text(route, function)
        return commenting(lambda: text)

    def listen(self, listener: Listener) -> None:
        """Call *listener* from now on with each span of `timed` and with each request's recording, as they end."""
        self._listeners.append(listener)

    def wsgi(
        self,
        application: WsgiApplication,
        *,
        folder: Path | str | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledApplication:
        """Return *application* with a recording per request, saved into *folder* at once or kept in `recordings`.

        By default every request is profiled, and the first 200 are kept as files or the last 100 in memory.
        Raises ProfilerError for an unknown mode or rate, or if the folder cannot be made.
        """
        return ProfiledApplication(self, application, *self._sampler_and_store(folder, mode, keep, sampling))

    def asgi(
        self,
        application: AsgiApplication,
        *,
        folder: Path | str | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledAsgiApplication:
        """Like `wsgi`, for an ASGI application; requests that run at the same time on one thread do not mix."""
        return ProfiledAsgiApplication(self, application, *self._sampler_and_store(folder, mode, keep, sampling))

    def calls(
        self,
        *,
        folder: Path | str | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledCalls:
        """Return a recorder of units of work, such as requests, for frameworks that begin and end them themselves."""
        return ProfiledCalls(self, *self._sampler_and_store(folder, mode, keep, sampling))

    def collect_statistics(self, *, max_fingerprints: int = 200) -> None:
        """Count every statement from now on, recorded or not; idempotent.

        The counts are read by `statistics` or `prometheus_text`. Each process counts by itself, and a forked process
        starts from zero. Connections that are open already are not seen.

        max_fingerprints: the number of fingerprints counted separately; all later ones are counted together as "other".
        Raises ProfilerError if max_fingerprints is below 1.
        """
        if max_fingerprints < 1:
            raise ProfilerError(f"max_fingerprints is {max_fingerprints}: expected 1 or more")
        if self._hooks.collector is None:
            clock = self._clocks.elapsed_safely(self.report_failure)
            self._hooks.collector = StatisticsCollector(max_fingerprints, clock, self.report_failure)

    def statistics(self) -> "Sequence[StatementStatistics]":
        """Return the statistics of each statement of this process, the most expensive first; "other" comes last.

        Raises ProfilerError if nothing is counted: see `collect_statistics`.
        """
        return self._collector.statistics()

    def prometheus_text(self) -> str:
        """Return the statistics in Prometheus's text format 0.0.4, for the application to serve at an address.

        Raises ProfilerError if nothing is counted: see `collect_statistics`.
        """
        from placebench.profiler.output.prometheus import write_prometheus_text

        collector = self._collector
        return write_prometheus_text(collector.statistics(), max_fingerprints=collector.max_fingerprints)

    @property
    def _collector(self) -> StatisticsCollector:
        if self._hooks.collector is None:
            raise ProfilerError("no statistics are collected: call collect_statistics() before the first connection")
        return self._hooks.collector

    def rename(self, name: str, route: str | None = None) -> None:
        """Rename the recording that runs in this thread or task, for example after the route of its request."""
        recording = self._hooks.current.get()
        if recording is not None:
            recording.name, recording.route = name, route or recording.route

    def _sampler_and_store(
        self, folder: Path | str | None, mode: str, keep: Keep | None, sampling: Sampling | None
    ) -> tuple[RequestSampler, Store]:
        keep = keep or Keep()
        store: Store = RecentRecordings(self.recordings, keep) if folder is None else RecordingFolder(folder, keep)
        # In memory the last recordings stay, so there is always space for another one.
        admitted = Keep(0, "slowest") if folder is None else keep
        return RequestSampler(Options(mode=mode), admitted, sampling or Sampling()), store

    # Internal API used by the middleware and by `record`.

    def report_failure(self, error: Exception) -> None:
        """Name the hook that failed with *error* in the recording, and log it once."""
        self._hooks.report_failure(error)

    @guarded
    def start(self, name: str, options: Options, *, caller: FrameType | None = None) -> ActiveRecording:
        """Start a recording; its flame graph, if it has one, begins at the caller's frame."""
        flame_graph, notes = None, tuple[str, ...]()
        try:
            flame_graph = self._flame_graph(options.mode, caller or sys._getframe(2))
        except ProfilerError as refusal:
            notes = (f"no flame graph: {refusal}",)
        active = ActiveRecording(name, options, self._clocks, self.report_failure, flame_graph)
        active.note(*notes)
        active.inherited_by_threads = _THREADS_INHERIT and isinstance(self._hooks.current, ContextVar)
        active.application = self._application
        around = self._around()
        if around is not None and not around.ended:
            active.begin_inside(around)
        self._hooks.recording_started(active)
        self._loops.recording_started(active)
        return active

    def _flame_graph(self, mode: str, caller: FrameType) -> "FlameGraphRecorder | ExternalFlameGraph | None":
        """Start the flame graph of a mode that has one; pyinstrument is imported only for such a mode."""
        if mode not in FLAME_GRAPH_MODES:
            return None
        from placebench.profiler.capture.flame_graph import FlameGraphRecorder

        if mode != "external":
            return FlameGraphRecorder(mode, self._clocks.elapsed, caller, self.report_failure)
        from placebench.profiler.capture.external_flame_graph import ExternalFlameGraph

        try:
            if inside_greenlets():
                raise ProfilerError("it does not distinguish the greenlets of a thread")
            return ExternalFlameGraph(self._clocks.elapsed, caller, self.report_failure)
        except ProfilerError as refusal:
            if gil_is_off():  # a thread may not sample either
                raise
            thread = FlameGraphRecorder("sampled", self._clocks.elapsed, caller, self.report_failure)
            thread.notes = (f"a sampling thread of this process takes the samples: {refusal}", *thread.notes)
            return thread

    def switch_to(self, recording: ActiveRecording | None) -> ActiveRecording | None:
        """Make *recording* the current one of this thread or task, and return the one before."""
        before = self._hooks.current.get()
        self._hooks.current.set(recording)
        return before

    def record_program(self) -> None:
        """Make the next recording that of the program: it includes threads and greenlets without a recording."""
        self._hooks.current = ProgramRecording()

    def _around(self) -> ActiveRecording | None:
        """Return the recording that a new one in this thread or task would be part of."""
        current = self._hooks.current
        return current.own() if isinstance(current, BackgroundRecording) else current.get()

    @guarded
    def record_background(self, options: Options) -> ActiveRecording:
        """Start a recording of what runs outside of all others, in this process and until `stop`.

        It replaces an earlier one, as in a forked process. Its mode must have no flame graph.
        """
        hooks = self._hooks
        current = hooks.current
        if not isinstance(current, BackgroundRecording):
            hooks.current = current = BackgroundRecording()
        active = self.start("", options)
        assert active is not None
        active.kind, active.thread = "program", 0  # of no thread: the CPU time of each is that of its requests
        if (before := current.replace(active)) is not None:
            hooks.running.discard(before)
        return active

    def _include_engines(self) -> None:
        """Record SQLAlchemy's engines from now on too. Recordings go on, and so do open connections."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.end()
        try:
            hooks = _engine_hooks(None, self._clocks)
            hooks.take_over(cast(DriverHooks, self._hooks))
            self._hooks = hooks
            hooks.install()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become that of an import
            self.report_failure(error)

    def leave_unprofiled(self) -> None:
        """Leave out this thread or task from now on, on purpose: no recording counts its statements as missed."""
        if not self.is_recording:
            self._hooks.unprofiled.set(True)

    @guarded
    def stop(
        self, active: ActiveRecording, recording: Recording, *, flame_graph_later: bool = False
    ) -> "ExternalFlameGraph | None":
        """End the active recording, and fill *recording* with everything it has seen.

        flame_graph_later: do not wait for the samples of another process; the flame graph that needs them is returned.
        """
        active.end()
        self._loops.recording_ended(active)
        self._hooks.recording_ended(active)
        if self._hooks.collector is not None:
            self._hooks.collector.add_recorded(active.statements, active.steps)
        flame_graph, waiting = None if active.borrows_flame_graph else active.flame_graph, None
        if flame_graph is not None:
            span = active.started, active.started + active.elapsed_s, (*active.statements, *active.steps)
            if flame_graph_later and flame_graph.is_external:
                flame_graph.end(*span)
                waiting = flame_graph
            else:
                try:
                    recording.session = flame_graph.stop(*span)
                except Exception as error:  # noqa: BLE001  another thread may end it: the statements are not lost
                    self.report_failure(error)
            active.note(*flame_graph.notes)
        if self._hooks.is_second and not active.statements:
            active.note(
                "no statement was seen: the connections are timed for another profiler of this process, which has "
                "their statements; use that one, or remove it"
            )
        if not self.active:
            active.note("nothing is measured: the profiler was removed")
        elif unseen := self._hooks.unseen_drivers():
            active.note(
                f"statements by {', '.join(unseen)} without SQLAlchemy are not measured: placebench has no hooks there"
            )
        active.fill(recording, measured=self.active)
        if flame_graph is not None and recording.session is not None:
            recording.check_flame_graph(flame_graph)
        if active.blocks:
            self._loops.when_served(active, lambda: setattr(recording, "loop_blocks", active.loop_blocks()))
        return waiting

    def discard(self, active: ActiveRecording) -> None:
        """End a recording that nobody wants."""
        self.stop(active, Recording(active.name, active.options.mode))

    @guarded
    def save(self, active: ActiveRecording, sampler: RequestSampler, store: Store) -> None:
        """End the active recording of a request, and store it."""
        recording = Recording(active.name, active.options.mode)
        waiting = self.stop(active, recording, flame_graph_later=True)
        for listener in self._listeners:
            listener.on_recording(recording, active.started)

        def store_it() -> None:
            sampler.count_dropped(store.save(recording))
            if waiting is not None:
                waiting.hand_to(lambda session: recording.add_flame_graph(session, waiting))

        # Who waited for a recording that held the event loop goes on when this request has ended.
        if not (active.blocks and self._loops.when_served(active, store_it)):
            store_it()


def _engine_hooks(engine: object, clocks: Clocks, *, whole_process: bool = False) -> "Hooks":
    """Return the hooks in one engine, or in all engines and the drivers if it is None; this imports SQLAlchemy.

    Raises ProfilerError if *engine* is not an engine.
    """
    from sqlalchemy.engine import Engine

    from placebench.profiler.drivers.hooks import Hooks

    target: Any = Engine if engine is None else getattr(engine, "sync_engine", engine)
    if not isinstance(target, Engine) and target is not Engine:
        raise ProfilerError(f"SqlProfiler got {target!r:.100}: expected an engine of SQLAlchemy, or nothing for all")
    return Hooks(target, clocks.elapsed, whole_process=whole_process)
