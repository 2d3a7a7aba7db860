"""Task queues and schedulers: Celery, Dramatiq, RQ, Huey, Taskiq, Django's tasks and APScheduler.

Each function takes the hooks and the module that has just been imported, and wraps the method that runs a task in its
worker. A task that runs inside of a request, because it is called like a function, belongs to the request.
"""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from placebench.profiler.integrations.frameworks.hooks import FrameworkHooks
from placebench.profiler.requests.middleware import ProfiledCalls, ProfiledRequest


def hook_celery(hooks: FrameworkHooks, _module: ModuleType) -> None:
    """Record the tasks of every application of Celery in this process."""
    hooks.on_removal(record_celery(hooks.calls))


def record_celery(calls: ProfiledCalls, app: object = None) -> Callable[[], None]:
    """Record the tasks of one application of Celery, by default of all; return a function that ends it."""
    from celery.signals import task_postrun, task_prerun

    # By the request on the task's stack: a retry has the same id, and may begin in another thread before this one ends.
    running: dict[int, ProfiledRequest] = {}

    def begin(task: Any, **_: Any) -> None:
        if (app is None or task.app is app) and (profiled := calls.begin(task.name, kind="task")) is not None:
            profiled.rename(task.name, task.name)
            running[id(task.request)] = profiled
            profiled.__enter__()

    def end(task: Any, retval: object, **_: Any) -> None:
        if (profiled := running.pop(id(task.request), None)) is not None:
            error = retval if isinstance(retval, Exception) else None
            profiled.__exit__(type(error) if error else None, error, None)

    def disconnect() -> None:
        task_prerun.disconnect(dispatch_uid=uids[0])
        task_postrun.disconnect(dispatch_uid=uids[1])

    uids = (f"placebench-{id(calls)}-begin", f"placebench-{id(calls)}-end")
    task_prerun.connect(begin, weak=False, dispatch_uid=uids[0])
    task_postrun.connect(end, weak=False, dispatch_uid=uids[1])
    return disconnect


def hook_dramatiq(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the calls of actors, by the workers and by the program itself."""
    _record_calls(hooks, module.Actor, "__call__", "task", lambda actor, *_: actor.actor_name)


def hook_rq(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the jobs of RQ, in the process that its worker forks for each."""
    _record_calls(hooks, module.Job, "perform", "task", lambda job, *_: job.func_name)


def hook_huey(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the tasks of Huey, with their hooks before and after; its errors go into the task's result."""

    def name(_huey: object, task: Any, *_: object) -> str:
        return f"{type(task).__module__}.{type(task).__name__}"

    _record_calls(hooks, module.Huey, "_execute", "task", name)


def hook_taskiq(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the tasks of Taskiq; its errors go into the task's result."""

    @hooks.wrap(module.Receiver, "run_task")
    async def run_recorded(self: Any, target: Any, message: Any, *args: Any, **kwargs: Any) -> Any:
        with hooks.calls.recorded(message.task_name, "task", message.task_name) as unit:
            result = await run_recorded.__wrapped__(self, target, message, *args, **kwargs)
            if unit is not None and unit.recording is not None and getattr(result, "is_err", False):
                unit.recording.error = type(getattr(result, "error", None)).__name__
            return result


def hook_django_tasks(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the tasks of Django 6, and of the package django-tasks for earlier versions."""
    for method in ("call", "acall"):
        _record_calls(hooks, module.Task, method, "task", lambda task, *_: task.module_path)


def hook_apscheduler(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the jobs of APScheduler 3; its executors have taken the two functions that run a job from the module."""
    for function in ("run_job", "run_coroutine_job"):
        before = getattr(module, function)
        _record_calls(hooks, module, function, "job", lambda job, *_: job.func_ref or job.name)
        for name, executor in tuple(sys.modules.items()):
            if name.startswith("apscheduler.executors.") and vars(executor).get(function) is before:
                hooks.replace(executor, function, getattr(module, function))


def _record_calls(
    hooks: FrameworkHooks, owner: Any, function: str, kind: str, name_of_call: Callable[..., object]
) -> None:
    """Record each call of a function, plain or async, under the name that *name_of_call* makes of its arguments."""

    def name(args: Any) -> str:
        try:
            return str(name_of_call(*args))
        except Exception:  # noqa: BLE001  such as a job of RQ whose function cannot be imported
            return "unknown"

    if inspect.iscoroutinefunction(getattr(owner, function)):

        @hooks.wrap(owner, function)
        async def await_recorded(*args: Any, **kwargs: Any) -> Any:
            named = name(args)
            with hooks.calls.recorded(named, kind, named):
                return await await_recorded.__wrapped__(*args, **kwargs)

        return

    @hooks.wrap(owner, function)
    def call_recorded(*args: Any, **kwargs: Any) -> Any:
        named = name(args)
        with hooks.calls.recorded(named, kind, named):
            return call_recorded.__wrapped__(*args, **kwargs)
