"""Threads and jobs of thread pools that a request starts.

Those without the request's context have recordings of their own, which name the request: `patch_threading` and
`patch_executors` hand the cause over, and the recording begins with the first statement. Those with its context, which
the request waits for, are part of its recording, and are sampled for its flame graph (`asyncio.to_thread`, asgiref, and
by `patch_anyio` the endpoints of FastAPI and Starlette that are not coroutines). `patch_asgiref` keeps call sites of
Django's ORM in async views.
"""

import functools
import sys
import threading
from contextvars import Context
from typing import Any

from placebench.profiler.capture.active_recording import ProcessRecording, UnitOfWork
from placebench.profiler.capture.call_sites import awaiting_callers, find_callers
from placebench.profiler.capture.later_work import LaterWork, name_of
from placebench.profiler.capture.timed_cursor import CallRecorder, Replace

# Their threads outlive the request that starts them, and take work of others, which comes with its own context.
_POOLS = ("concurrent.futures.thread", "anyio", "aiosqlite", "asgiref", "placebench.profiler")


def patch_executors(recorder: CallRecorder, replace: Replace) -> None:
    """Have jobs that a recorded request submits to a thread pool name it as their cause."""
    from concurrent.futures.thread import ThreadPoolExecutor

    @replace(ThreadPoolExecutor, "submit")
    def submit_caused(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        unit = _running_unit(recorder)
        call = _sampled(recorder, fn) if _has_context(fn) else fn
        if unit is None:
            return submit_caused.__wrapped__(self, call, *args, **kwargs)
        job = LaterWork(unit, name_of(fn))
        return submit_caused.__wrapped__(self, job.run, recorder.current, call, *args, **kwargs)


def patch_threading(recorder: CallRecorder, replace: Replace) -> None:
    """Have threads that a recorded request starts name it as their cause."""

    # gevent has a class of its own here, which inherits the function.
    @replace(next(each for each in threading.Thread.__mro__ if "start" in vars(each)), "start")
    def start_caused(self: threading.Thread) -> None:
        unit = _running_unit(recorder)
        target: Any = getattr(self, "_target", None) or type(self).run
        if unit is not None and not str(getattr(target, "__module__", "")).startswith(_POOLS):
            run, job = self.run, LaterWork(unit, name_of(target))

            def run_job() -> None:
                del self.run  # a cycle would keep the thread's arguments
                job.run(recorder.current, run)

            self.run = run_job  # type: ignore[method-assign]
        start_caused.__wrapped__(self)


def patch_anyio(recorder: CallRecorder, replace: Replace) -> None:
    """Sample the functions that a recorded request runs in threads of anyio, for the flame graph of the request."""
    from anyio import to_thread

    @replace(to_thread, "run_sync")
    async def run_sync_sampled(func: Any, *args: Any, **kwargs: Any) -> Any:
        return await run_sync_sampled.__wrapped__(_sampled(recorder, func), *args, **kwargs)


def patch_asgiref(recorder: CallRecorder, replace: Replace) -> None:
    """Give the threads of `sync_to_async` the call sites that await them, while something is recorded."""
    from asgiref.sync import SyncToAsync

    @replace(SyncToAsync, "__call__")
    async def call_with_callers(self: Any, *args: Any, **kwargs: Any) -> Any:
        recording = recorder.current.get()
        if recording is None or recording.options.mode == "light":
            return await call_with_callers.__wrapped__(self, *args, **kwargs)
        token = awaiting_callers.set(find_callers(sys._getframe(1), recording.application))
        try:
            return await call_with_callers.__wrapped__(self, *args, **kwargs)
        finally:
            awaiting_callers.reset(token)


def _sampled(recorder: CallRecorder, function: Any) -> Any:
    """Return *function*, to be sampled in its thread if the recording that runs here has a flame graph."""
    recording = recorder.current.get()
    graph = None if recording is None or recording.ended else recording.flame_graph
    return function if graph is None or graph.is_external else functools.partial(graph.run_in_worker, function)


def _has_context(function: Any) -> bool:
    """Return whether a job runs in a copy of a context, that of the task that submits it: by asyncio or by asgiref."""
    parts = (function.func, *function.args) if isinstance(function, functools.partial) else (function,)
    owners = [getattr(each, "__self__", None) for each in parts]
    return any(isinstance(each, Context) or type(each).__module__ == "asgiref.sync" for each in owners)


def _running_unit(recorder: CallRecorder) -> UnitOfWork | None:
    recording = recorder.current.get()
    return None if recording is None or isinstance(recorder.current, ProcessRecording) else recording.unit
