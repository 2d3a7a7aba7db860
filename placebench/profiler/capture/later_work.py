"""Work that goes on beside or after the request that caused it: its recording begins with its first statement.

A task that outlives its request, and the request's own task after the response, have a context whose recording has
ended. A job of a thread pool and a new thread have none; `LaterWork` stands in its place. The recording ends with the
task, the job or the thread.
"""

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from placebench.profiler.capture.active_recording import ActiveRecording, CurrentRecording, UnitOfWork
from placebench.profiler.capture.options import Options

_T = TypeVar("_T")
_LOCALS = "<locals>."
# By thread or greenlet: the recordings that its job has begun. `threading.local` would be one for all greenlets.
_jobs: dict[int, list[UnitOfWork]] = {}


class LaterWork(ActiveRecording):
    """Stands in place of a recording, as one that has ended, until the first statement of a thread begins one."""

    def __init__(self, unit: UnitOfWork, name: str) -> None:
        # Nothing is ever recorded here, so the rest of a recording is not made: a thread pool may get many jobs.
        self.unit, self.name, self.ended = unit, name, True
        self.options, self.notes, self.failed_hooks = Options(), [], set()

    def run(self, current: CurrentRecording, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Call the function of a thread; a recording that it begins and does not end is ended with it."""
        thread, before = threading.get_ident(), current.get()
        outer = _jobs.get(thread)
        units = _jobs[thread] = []
        current.set(self)
        failure = None
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            failure = error
            raise
        finally:
            current.set(before)
            if outer is None:
                del _jobs[thread]
            else:
                _jobs[thread] = outer
            for unit in units:
                unit.end(failure)


def begin_later(ended: ActiveRecording) -> ActiveRecording | None:
    """Begin the recording of the work that runs now, after the end of its cause; None if nobody could end it."""
    task, job = current_task(), _jobs.get(threading.get_ident())
    if ended.unit is None or (task is None and job is None):
        return None
    unit = ended.unit.begin_caused(ended.name if task is None else name_of(task.get_coro()), keep_empty=False)
    if unit is None:
        return None
    if task is not None:
        task.add_done_callback(lambda done: unit.end(None if done.cancelled() else done.exception()))
    elif job is not None:
        job.append(unit)
    return unit.recording


def is_unseen(recording: ActiveRecording) -> bool:
    """Return whether the work that runs now has outlived its cause where nobody could end a recording of it."""
    is_later = recording.ended and recording.unit is not None
    return is_later and current_task() is None and threading.get_ident() not in _jobs


def current_task() -> Any:
    """Return the task of asyncio that runs in this thread, if there is one."""
    asyncio = sys.modules.get("asyncio")
    try:
        return None if asyncio is None else asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


def name_of(code: Any) -> str:
    """Return the module and name of a function, method, coroutine or callable object."""
    while isinstance(code, partial):
        code = code.func
    if not hasattr(code, "__qualname__"):
        code = type(code)
    frame = getattr(code, "cr_frame", None)
    module = getattr(code, "__module__", None) if frame is None else frame.f_globals.get("__name__")
    name = code.__qualname__.rpartition(_LOCALS)[2]
    return f"{module}.{name}" if module else str(name)
