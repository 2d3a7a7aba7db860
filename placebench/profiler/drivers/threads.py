"""Threads and jobs of thread pools that a request starts: recordings of their own, which name the request.

`patch_threading` and `patch_executors` hand the cause over; the recording begins with the first statement.
"""

import functools
import threading
from typing import Any

from placebench.profiler.capture.active_recording import ProcessRecording, UnitOfWork
from placebench.profiler.capture.later_work import LaterWork, name_of
from placebench.profiler.capture.timed_cursor import CallRecorder, Replace

# Their threads outlive the request that starts them, and take work of others, which comes with its own context.
_POOLS = ("concurrent.futures.thread", "anyio", "aiosqlite", "asgiref")


def patch_executors(recorder: CallRecorder, replace: Replace) -> None:
    """Have jobs that a recorded request submits to a thread pool name it as their cause."""
    from concurrent.futures.thread import ThreadPoolExecutor

    def caused(submit: Any) -> Any:
        @functools.wraps(submit)
        def submit_caused(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            unit = _running_unit(recorder)
            if unit is None:
                return submit_caused.__wrapped__(self, fn, *args, **kwargs)
            job = LaterWork(unit, name_of(fn))
            return submit_caused.__wrapped__(self, job.run, recorder.current, fn, *args, **kwargs)

        return submit_caused

    replace(ThreadPoolExecutor, "submit", caused)


def patch_threading(recorder: CallRecorder, replace: Replace) -> None:
    """Have threads that a recorded request starts name it as their cause."""

    def caused(start: Any) -> Any:
        @functools.wraps(start)
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

        return start_caused

    replace(threading.Thread, "start", caused)


def _running_unit(recorder: CallRecorder) -> UnitOfWork | None:
    """Return the unit of work that runs in this thread or task."""
    recording = recorder.current.get()
    return None if recording is None or isinstance(recorder.current, ProcessRecording) else recording.unit
