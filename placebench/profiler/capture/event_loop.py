"""Finds what holds an event loop for 50 ms or more while something is recorded, and who waits meanwhile.

The main class is `LoopWatch`. It times what runs on a loop from one await to the next:

- asyncio's own loop calls `Handle._run` for each callback: it is wrapped. A timer knows when it was due.
- Other loops of asyncio's interface, such as uvloop's, get tasks to run by `call_soon`: it is wrapped. What they call
  by themselves, such as a protocol's `data_received`, is not seen.
- trio calls an instrument before and after each step of a task.
- greenlets of gevent and eventlet are timed from one switch to the next, by greenlet's own trace function.

While nothing is recorded, a callback costs one more call, which does nothing. While something is, a thread wakes 40
times per second to see the line of what has run for long.
"""

import _thread
import os
import sys
import time
from asyncio import base_events, events
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from typing import Any
from weakref import WeakSet, finalize

from placebench.profiler.capture.active_recording import ActiveRecording, CurrentRecording
from placebench.profiler.capture.loop_thread import MIN_BLOCK_S, NOT_LATE, LateHandles, LoopThread, woken_task
from placebench.profiler.capture.options import Clock, inside_greenlets
from placebench.profiler.capture.waiting_tasks import PASSING_CODES

_LOOK_S = 0.020
_LOOK_INTERVAL_S = 0.025
_IDLE_S = 1.0
_TURNS = 8
"""Turns of a loop after a block until all that came meanwhile has been begun: a new connection takes five."""


class LoopWatch:
    """Watches the event loops of a process for the recordings of one profiler.

    report_failure: notes an error of the watch itself, which never reaches the application.
    """

    application: tuple[str, ...] = ()

    def __init__(
        self,
        current: Callable[[], CurrentRecording],
        running: set[ActiveRecording],
        clock: Clock,
        report_failure: Callable[[Exception], None],
    ) -> None:
        self._current = current
        self._running = running
        self._clock = clock
        self._report_failure = report_failure
        self._threads: dict[int, LoopThread] = {}
        self._late: set[LoopThread] = set()
        self._begun: set[LoopThread] = set()
        """Threads in whose running stretch the first recording has begun."""
        self._wrapped: list[tuple[Any, str, Any, Any]] = []
        self._wrapped_loops: dict[type, Any] = {}
        """Their `call_soon` before, by class."""
        self._looking = _thread.allocate_lock()
        self._is_removed = False
        self._get_ident: Callable[[], int] = _thread.get_ident
        self._start_thread: Callable[..., object] = _thread.start_new_thread
        self._sleep: Callable[[float], None] = time.sleep
        self._traced: set[int] = set()
        self._instrumented: WeakSet[Any] = WeakSet()
        finalize(self, _serve_all, self._threads)  # and when the program ends
        _WATCHES.add(self)
        if "ipykernel" not in sys.modules:  # a notebook runs its cells on the kernel's own loop
            self._wrap(events.Handle, "_run", events.Handle._run, self._timed_run(events.Handle._run))
            self._watch_uvloop()

    # Called by the profiler.

    def recording_started(self, recording: ActiveRecording) -> None:
        """Watch the loops of this process from now on; note that *recording* had to wait for one."""
        if not self._wrapped:
            return
        try:
            loop = self._running_loop(recording)
            thread = self._threads.get(self._get_ident())
            if thread is None and loop is not None:
                thread = self._add_thread(loop)
            if thread is None:
                return
            if thread.is_late:
                thread.goes_on(recording)
            if not thread.started and loop is not None:  # nothing was recorded when that began which runs now
                thread.started = recording.started
                self._begun.add(thread)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._report_failure(error)

    def recording_ended(self, recording: ActiveRecording) -> None:
        """Note a block in a recording that ends while it holds the loop."""
        try:
            thread = self._threads.get(self._get_ident())
            if thread is not None:
                thread.recording_ended(recording)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._report_failure(error)

    def when_served(self, recording: ActiveRecording, action: Callable[[], None]) -> bool:
        """Call *action* when all who waited for *recording* have gone on; return False if they have, or none did."""
        thread = self._threads.get(self._get_ident())
        if thread is None or not any(block.is_open for block in recording.blocks):
            return False
        thread.after_serving(action)
        return True

    def forget_threads(self) -> None:
        """Forget all threads, and what waits there to be stored."""
        for threads in (self._threads, self._traced, self._late, self._begun):
            threads.clear()
        self._looking = _thread.allocate_lock()

    def remove(self) -> None:
        """Remove the wrappers that no other library has wrapped again; those that remain only pass on."""
        self._is_removed = True
        for owner, name, before, wrapper in reversed(self._wrapped):
            wrapper.placebench_removed = True
            wrapper.__wrapped__ = before
            while getattr(vars(owner).get(name), "placebench_removed", False):  # another profiler's may be above
                before = vars(owner)[name].__wrapped__
                delattr(owner, name) if before is None else setattr(owner, name, before)
        self._wrapped.clear()
        self._wrapped_loops.clear()
        _serve_all(self._threads)
        self._threads.clear()

    # asyncio.

    def _wrap(self, owner: Any, name: str, before: Any, wrapper: Any) -> None:
        PASSING_CODES.add(wrapper.__code__)
        self._wrapped.append((owner, name, before, wrapper))
        setattr(owner, name, wrapper)

    def _timed_run(self, run: Callable[[Any], None]) -> Any:
        """Return `Handle._run`, timed; written without helpers because it runs for every callback of the loop."""
        running, late, begun, threads = self._running, self._late, self._begun, self._threads
        clock, get_ident = self._clock, _thread.get_ident

        def _run(handle: Any) -> None:
            if not running and not late:
                run(handle)
                if begun and (thread := threads.get(get_ident())) in begun:
                    begun.discard(thread)
                    if clock() - thread.started >= MIN_BLOCK_S:
                        self._handle_held(thread, handle, None)
                    thread.started = 0.0
                return
            thread = threads.get(get_ident())
            if thread is None:
                thread = self._add_thread("asyncio")
            elif thread.is_late:
                self._run_late(thread, handle, run)
                return
            thread.started = started = clock()
            try:
                run(handle)
            finally:
                if clock() - started >= MIN_BLOCK_S:
                    self._handle_held(thread, handle, None)
                thread.started = 0.0

        return _run

    def _run_late(self, thread: LoopThread, handle: Any, run: Callable[[Any], None]) -> None:
        """Run a callback that a blocked loop may have delayed, and record for whom it was late."""
        handles, scheduled = thread.late_handles, len(handle._loop._ready)
        thread.started = started = self._clock()
        try:
            thread.ready = NOT_LATE if handles is None else handles.ready(handle, started, thread.turn)
            thread.goes_on(self._recording_in(handle._context), woken_task(handle))
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._report_failure(error)
        try:
            run(handle)
        finally:
            if handles is not None:
                handles.has_run(thread.ready, scheduled)
            if self._clock() - started >= MIN_BLOCK_S:
                self._handle_held(thread, handle, scheduled)
            thread.started = 0.0

    def _handle_held(self, thread: LoopThread, handle: Any, scheduled: int | None) -> None:
        """Note that a callback of asyncio has held its loop; *scheduled* others had been before, if that is known."""
        loop = handle._loop
        if self._stretch_ended(thread, self._recording_in(handle._context), loop.call_soon):
            thread.late_handles = LateHandles(loop, thread.stretch[0], scheduled)

    def _watch_uvloop(self) -> None:
        uvloop = sys.modules.get("uvloop")
        kind = getattr(uvloop, "Loop", None)  # none while it is being imported
        if kind is not None and kind not in self._wrapped_loops:
            self._wrap_loop(kind, "uvloop")

    def _running_loop(self, recording: ActiveRecording) -> str | None:
        """Return the name of the loop in which *recording* begins, which is watched from now on; None outside of one.

        uvloop's are also watched if they begin later.
        """
        loop, trio = events._get_running_loop(), sys.modules.get("trio")
        if isinstance(loop, base_events.BaseEventLoop):
            return "asyncio"
        if loop is not None:
            kind = type(loop)
            name = kind.__module__.partition(".")[0]
            if not self._wrapped_loops.keys() & kind.__mro__:
                self._wrap_loop(kind, name)
            thread = self._threads.get(self._get_ident()) or self._add_thread(name)
            if not thread.started:
                # What runs now was called while nothing was recorded, and is not timed: it ends before the loop turns.
                call_soon = next(self._wrapped_loops[each] for each in kind.__mro__ if each in self._wrapped_loops)
                Context().run(call_soon, loop, self._first_ended, thread, recording, loop.call_soon)
            return name
        if trio is not None and trio.lowlevel.in_trio_run():
            token = trio.lowlevel.current_trio_token()
            if token not in self._instrumented:
                self._instrumented.add(token)
                trio.lowlevel.add_instrument(_TrioSteps(self, token.run_sync_soon))
            return "trio"
        self._watch_uvloop()
        if not inside_greenlets():
            return None
        name = self._watch_greenlets()
        return name if sys.modules["greenlet"].getcurrent().parent is not None else None

    def _wrap_loop(self, kind: type, name: str) -> None:
        before: Any = vars(kind).get("call_soon")
        original: Any = kind.call_soon  # type: ignore[attr-defined]
        self._wrapped_loops[kind] = original
        running, late, begun, threads = self._running, self._late, self._begun, self._threads
        clock, get_ident = self._clock, _thread.get_ident

        def timed(loop: Any, callback: Callable[..., object], args: tuple[Any, ...], scheduled_by: float) -> None:
            if not running and not late:
                callback(*args)
                if begun and (thread := threads.get(get_ident())) in begun:
                    self._first_ended(thread, self._current().get(), loop.call_soon)
                return
            thread = threads.get(get_ident())
            if thread is None:
                thread = self._add_thread(name)
            thread.started = started = clock()
            if thread.is_late:
                thread.step_goes_on(self._current().get(), scheduled_by)
            try:
                callback(*args)
            finally:
                if clock() - started >= MIN_BLOCK_S:
                    self._stretch_ended(thread, self._current().get(), loop.call_soon)
                thread.started = 0.0

        def call_soon(self: Any, callback: Any, *args: Any, context: Any = None) -> Any:
            if not running and not late:
                return original(self, callback, *args, context=context)
            thread = threads.get(get_ident())
            scheduled_by = 0.0 if thread is None else thread.started
            return original(self, timed, self, callback, args, scheduled_by, context=context)

        PASSING_CODES.add(timed.__code__)
        with suppress(TypeError):  # a class of C
            self._wrap(kind, "call_soon", before, call_soon)

    def _first_ended(
        self, thread: LoopThread, recording: ActiveRecording | None, schedule: Callable[..., object]
    ) -> None:
        """Note that the stretch has ended in which the first recording began."""
        if thread in self._begun:
            self._begun.discard(thread)
            if thread.started and self._clock() - thread.started >= MIN_BLOCK_S:
                self._stretch_ended(thread, recording, schedule)
            thread.started = 0.0

    def _add_thread(self, loop: str) -> LoopThread:
        """Watch this thread from now on, and have the looking thread run."""
        # gevent's get_ident names the greenlet: reading the CPU clock of such a thread can crash the process.
        identifier = _unpatched("_thread", "get_ident")()
        thread = self._threads[self._get_ident()] = LoopThread(identifier, loop, self._clock, self._late)
        if self._looking.acquire(blocking=False):
            self._start_thread(self._look, ())
        return thread

    def _recording_in(self, context: Context) -> ActiveRecording | None:
        """Return the recording of a task or greenlet by its context."""
        current = self._current()
        return context.get(current) if isinstance(current, ContextVar) else current.within(context)

    def _stretch_ended(
        self, thread: LoopThread, recording: ActiveRecording | None, schedule: Callable[..., object]
    ) -> bool:
        """Note what has held the loop; look for those who waited in its next turns. Return whether it is a block.

        recording: that of the task at its end. schedule: calls a function in the next turn of the loop.
        """
        try:
            is_block = thread.stretch_ended(recording)
            if is_block:
                _Turns(thread, schedule)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            self._report_failure(error)
            return False
        return is_block

    def step_began(self, loop: str, context: Context) -> None:
        """Note that a task goes on, on a loop that calls this before each step."""
        if (self._running or self._late) and not self._is_removed:
            thread = self._threads.get(_thread.get_ident()) or self._add_thread(loop)
            thread.started = self._clock()
            if thread.is_late:
                thread.step_goes_on(self._recording_in(context), 0.0)

    def step_ended(self, context: Context, schedule: Callable[..., object]) -> None:
        """Note the end of the step that began last on this thread."""
        thread = self._threads.get(_thread.get_ident())
        if thread is not None and thread.started:
            if self._clock() - thread.started >= MIN_BLOCK_S:
                self._stretch_ended(thread, self._recording_in(context), schedule)
            thread.started = 0.0
            self._begun.discard(thread)

    # Greenlets.

    def _watch_greenlets(self) -> str:
        """Time what the greenlets of this thread do between two switches; return the name of their library."""
        if self._get_ident is _thread.get_ident:
            self._get_ident, self._sleep = _unpatched("_thread", "get_ident"), _unpatched("time", "sleep")
            self._start_thread = _unpatched("_thread", "start_new_thread")
        eventlet = None if "gevent" in sys.modules else sys.modules.get("eventlet")
        name = "gevent" if eventlet is None else "eventlet"
        identifier = self._get_ident()
        if identifier in self._traced:
            return name
        self._traced.add(identifier)
        thread = self._threads.get(identifier) or self._add_thread(name)
        greenlet = sys.modules["greenlet"]
        before, running, late, clock = greenlet.gettrace(), self._running, self._late, self._clock
        # In the hub's next turn. A greenlet of its own calls it, since storing a recording may switch greenlets.
        schedule = partial(sys.modules["gevent"].spawn_later if eventlet is None else eventlet.spawn_after, 0)

        def trace(event: str, greenlets: tuple[Any, Any]) -> None:
            if before is not None:
                before(event, greenlets)
            if not running and not late and not thread.started:
                return
            origin, target = greenlets
            now = clock()
            self._begun.discard(thread)
            if thread.started and now - thread.started >= MIN_BLOCK_S:
                self._stretch_ended(thread, self._recording_in(origin.gr_context or Context()), schedule)
            # The greenlet without a parent is the program's own, which may run before there are others.
            if target.parent is None or _is_hub(target) or (not running and not late):
                thread.started = 0.0
                return
            thread.started = now
            if thread.is_late:
                thread.step_goes_on(self._current().get(), 0.0)

        greenlet.settrace(trace)
        return name

    # The thread that looks at what has run for long.

    def _look(self) -> None:
        idle_s = 0.0
        while idle_s < _IDLE_S and not self._is_removed:
            self._sleep(_LOOK_INTERVAL_S)
            try:
                for thread in list(self._threads.values()):
                    started = thread.started
                    if started and self._clock() - started >= _LOOK_S:
                        thread.look(self.application)
            except Exception as error:  # noqa: BLE001  the next look may succeed
                self._report_failure(error)
            idle_s = 0.0 if self._running else idle_s + _LOOK_INTERVAL_S
        self._looking.release()


_WATCHES: WeakSet[LoopWatch] = WeakSet()


def _forget_threads() -> None:
    """Begin anew in a forked process, which has none of its parent's threads; their recordings are the parent's."""
    for watch in tuple(_WATCHES):
        watch.forget_threads()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_threads)


class _Turns:
    """Lets a loop turn some times after a block, in which those go on who had to wait; or until it is closed."""

    def __init__(self, thread: LoopThread, schedule: Callable[..., object]) -> None:
        self._thread = thread
        self._stretch = thread.stretch
        self._schedule = schedule
        Context().run(schedule, self)

    def __call__(self) -> None:
        self._thread.turn += 1
        if self._thread.stretch != self._stretch:
            return
        if self._thread.turn < _TURNS:
            with suppress(RuntimeError):  # the loop was closed
                Context().run(self._schedule, self)
                return
        self._thread.serve(self._stretch)

    def __del__(self) -> None:
        self._thread.serve(self._stretch)  # the loop was closed, with what it had still to call


class _TrioSteps:
    """An instrument of trio, which calls it before and after each step of a task."""

    def __init__(self, watch: LoopWatch, schedule: Callable[..., object]) -> None:
        self._watch = watch
        self._schedule = schedule

    def before_task_step(self, task: Any) -> None:
        """Note that a task goes on."""
        self._watch.step_began("trio", task.context)

    def after_task_step(self, task: Any) -> None:
        """Note that a task waits again, or has ended."""
        self._watch.step_ended(task.context, self._schedule)


def _is_hub(greenlet: Any) -> bool:
    """Return whether this is the greenlet in which gevent or eventlet waits."""
    if type(greenlet).__name__ == "Hub":
        return True
    hubs = sys.modules.get("eventlet.hubs")
    hub = None if hubs is None else getattr(hubs._threadlocal, "hub", None)
    return hub is not None and hub.greenlet is greenlet


def _serve_all(threads: dict[int, LoopThread]) -> None:
    for thread in list(threads.values()):
        thread.serve()


def _unpatched(module: str, name: str) -> Any:
    """Return a function of Python's as it was before gevent or eventlet patched it."""
    if (monkey := sys.modules.get("gevent.monkey")) is not None:
        return monkey.get_original(module, name)
    patcher = sys.modules.get("eventlet.patcher")
    return getattr(sys.modules[module] if patcher is None else patcher.original(module), name)
