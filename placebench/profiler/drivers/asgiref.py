"""Call sites across asgiref's threads (`patch_asgiref`), in which Django runs the ORM for async views."""

import sys
from typing import Any

from placebench.profiler.capture.stack import awaiting_callers, find_callers
from placebench.profiler.capture.timed_cursor import CallRecorder, Replace


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
