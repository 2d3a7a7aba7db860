"""Processes and interpreters that are started while something is recorded, and run statements that nobody sees.

`patch_multiprocessing` counts children of multiprocessing that are not forked, `patch_interpreters` sub-interpreters,
and `patch_os` forks of any kind, by a hook of `os` that cannot be removed and does nothing without a recording.
"""

import os
import sys
from typing import Any
from weakref import WeakSet

from placebench.profiler.capture.timed_cursor import CallRecorder, Replace

_recorders: WeakSet[CallRecorder] = WeakSet()


def _count_fork() -> None:
    for recorder in tuple(_recorders):
        recorder.count_started("child process")


if hasattr(os, "register_at_fork"):  # Windows starts all processes anew
    os.register_at_fork(after_in_parent=_count_fork)


def patch_os(recorder: CallRecorder, _replace: Replace) -> None:
    """Count the processes that this process forks in the recordings of *recorder*; nothing is patched."""
    _recorders.add(recorder)


def patch_multiprocessing(recorder: CallRecorder, replace: Replace) -> None:
    """Count the processes that are started by spawn and forkserver."""
    from multiprocessing.process import BaseProcess

    @replace(BaseProcess, "start")
    def start_counted(self: Any) -> None:
        start_counted.__wrapped__(self)
        if getattr(self._popen, "method", "fork") != "fork":
            recorder.count_started("child process")


def patch_interpreters(recorder: CallRecorder, replace: Replace) -> None:
    """Count the sub-interpreters, in which the profiler does not run."""
    module = sys.modules["_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"]

    @replace(module, "create")
    def create_counted(*args: Any, **kwargs: Any) -> Any:
        made = create_counted.__wrapped__(*args, **kwargs)
        recorder.count_started("sub-interpreter")
        return made
