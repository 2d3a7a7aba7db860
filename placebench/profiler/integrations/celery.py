"""Celery: a recording for each task, named after it: `profile_tasks`.

profile_tasks(app, folder=Path("recordings"))
"""

from typing import Any, Unpack

from celery import Celery
from celery.signals import task_postrun, task_prerun

from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings
from placebench.profiler.requests.middleware import ProfiledCalls, ProfiledRequest

__all__ = ["profile_tasks"]


def profile_tasks(app: Celery, **settings: Unpack[IntegrationSettings]) -> ProfiledCalls:
    """Record each task of *app*, in whatever pool it runs; call it before the first connection to the database.

    settings: as for `SqlProfiler.wsgi`. Each process of a prefork pool writes its own files. If a task ends
    with an exception, the recording names the class of the exception.
    """
    profiler, rest = split_settings(settings)
    calls = profiler.calls(**rest)
    running: dict[str, ProfiledRequest] = {}

    def begin(task_id: str, task: Any, **_: Any) -> None:
        if task.app is app and (profiled := calls.begin(task.name, kind="task")) is not None:
            profiled.rename(task.name, task.name)
            running[task_id] = profiled
            profiled.__enter__()

    def end(task_id: str, retval: object, **_: Any) -> None:
        if (profiled := running.pop(task_id, None)) is not None:
            error = retval if isinstance(retval, Exception) else None
            profiled.__exit__(type(error) if error else None, error, None)

    task_prerun.connect(begin, weak=False, dispatch_uid=f"placebench-{id(calls)}-begin")
    task_postrun.connect(end, weak=False, dispatch_uid=f"placebench-{id(calls)}-end")
    return calls
