"""Records the SQL of a SQLAlchemy application: times, rows, fingerprints and call sites, from the pool to the fetch.

The main class is `SqlProfiler`; `Timed` adds spans of the user's own code. Its hooks are installed once; a ContextVar
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

from placebench.errors import ProfilerError
from placebench.profiler.capture.active_recording import Clocks, Options, Tape
from placebench.profiler.capture.hooks import Hooks
from placebench.profiler.capture.pending_statement import guarded
from placebench.profiler.integrations.asgi import AsgiApplication, ProfiledAsgiApplication
from placebench.profiler.integrations.sampling import (
    MODES,
    Gate,
    Keep,
    RecordingFolder,
    RecordingShelf,
    Sampling,
    Store,
)
from placebench.profiler.integrations.wsgi import ProfiledApplication, WsgiApplication
from placebench.profiler.model.recording import Recording

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from placebench.profiler.capture.flame import Flame
    from placebench.profiler.model.recording import Recording


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


class SqlProfiler:
    """Records the SQL of one engine, sync or async, or of every engine of the process if none is given.

    Make it before the first connection: the driver's time in a fetch can only be measured on connections made later.
    A thread that the application starts by itself records nothing, unless it runs in a copy of the context
    (`contextvars.copy_context().run`); tasks and `asyncio.to_thread` copy it by themselves.

    recordings: the last 100 requests of `wsgi` and `asgi` applications without a folder, or the slowest if asked for.
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
            estimated flame, by a thread that looks 50 times a second: for a server under load.
        explain: in mode "plans", ask EXPLAIN for estimates where the role may not see the actual plan.
        parameters: keep bound values, literals and the messages of errors; they may be secrets.
        A record inside of a record belongs to both. Raises ProfilerError for an unknown mode.
        """
        options = _checked(Options(mode, parameters, max_statements, explain))
        recording = Recording(name, mode)
        tape = self.start(name, options, caller=sys._getframe(2))
        outer = self.switch_to(tape)
        try:
            yield recording
        except BaseException as error:
            if tape is not None:
                tape.error = type(error).__name__
            raise
        finally:
            self.switch_to(outer)
            if tape is not None:
                self.stop(tape, recording)
                if outer is not None:
                    outer.absorb(tape)

    def timed(self, label: str) -> Timed:
        """A span of the user's own code, for `with` and as a decorator of functions, plain or async."""
        return Timed(label, self._hooks.current, self._listeners)

    def listen(self, listener: Listener) -> None:
        """Tell *listener* from now on of each span of `timed` and of each request's recording, as they end."""
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
        gate, store = self._kept(folder, mode, keep, sampling)
        return ProfiledApplication(self, application, gate, store)

    def asgi(
        self,
        application: AsgiApplication,
        *,
        folder: Path | None = None,
        mode: str = "light",
        keep: Keep | None = None,
        sampling: Sampling | None = None,
    ) -> ProfiledAsgiApplication:
        """The same for an ASGI application; what runs at the same time on one thread is kept apart."""
        gate, store = self._kept(folder, mode, keep, sampling)
        return ProfiledAsgiApplication(self, application, gate, store)

    def _kept(self, folder: Path | None, mode: str, keep: Keep | None, sampling: Sampling | None) -> tuple[Gate, Store]:
        """What decides which requests are recorded, and where the recordings go."""
        store: Store = (
            RecordingShelf(self.recordings, keep or Keep())
            if folder is None
            else RecordingFolder(folder, keep or Keep())
        )
        # In memory the last ones stay, so that there is always room for one more.
        admitted = Keep(0, "slowest") if folder is None else keep or Keep()
        return Gate(_checked(Options(mode=mode)), admitted, sampling or Sampling()), store

    # What the middleware asks for; `record` is made of the same.

    def give_up(self, error: Exception) -> None:
        """Switch the profiler off because of *error*, and say so once in the log."""
        self._hooks.give_up(error)

    @guarded
    def start(self, name: str, options: Options, *, caller: FrameType | None = None) -> Tape:
        """A tape that runs from now on; the caller's frame is where a flame begins."""
        flame = self._flame(options.mode, caller or sys._getframe(2))
        tape = Tape(name, options, self._clocks, self.give_up, flame)
        self._hooks.wake()
        return tape

    def _flame(self, mode: str, caller: FrameType) -> "Flame | None":
        """The flame of a mode that has one; pyinstrument is loaded where one is asked for, and nowhere else."""
        if mode not in ("sampled", "flame", "plans"):
            return None
        from placebench.profiler.capture.flame import Flame

        return Flame(mode, self._clocks.elapsed, caller, self.give_up)

    def switch_to(self, tape: Tape | None) -> Tape | None:
        """Make *tape* the current one of this thread or task; the one before comes back."""
        before = self._hooks.current.get()
        self._hooks.current.set(tape)
        return before

    @guarded
    def stop(self, tape: Tape, recording: Recording) -> None:
        """End the tape and fill the recording with what it has seen."""
        tape.end()
        self._hooks.rest()
        if tape.flame is not None:
            recording.session = tape.flame.stop(tape.started, tape.started + tape.elapsed_s)
            tape.note_all(tape.flame.notes)
        if not self.active:
            tape.note("nothing is measured: the profiler was removed, or has switched itself off and told the log why")
        tape.fill(recording, measured=self.active)

    @guarded
    def keep(self, tape: Tape, gate: Gate, store: Store) -> None:
        """End the tape and save its recording."""
        recording = Recording(tape.name, tape.options.mode)
        self.stop(tape, recording)
        for listener in self._listeners:
            listener.recorded(recording, tape.started)
        gate.dropped(store.save(recording))


def _checked(options: Options) -> Options:
    """The options, if they can be met; else ProfilerError."""
    if options.mode not in MODES:
        raise ProfilerError(f"unknown mode {options.mode!r}: expected one of {', '.join(MODES)}")
    if options.max_statements < 1:
        raise ProfilerError(f"max_statements is {options.max_statements}: expected at least 1")
    return options
