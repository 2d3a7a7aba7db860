"""Web frameworks and task queues, recorded without a change in the program: `record_frameworks`.

A framework is hooked as soon as the program imports it, or at once if it is imported already; none is imported for it.
"""

import logging
import sys
from collections.abc import Callable
from types import ModuleType

from placebench.profiler.drivers.driver_hooks import ImportWatch
from placebench.profiler.integrations.frameworks import asgi, queues, wsgi
from placebench.profiler.integrations.frameworks.hooks import FrameworkHooks
from placebench.profiler.integrations.process_profiler import share_profiler
from placebench.profiler.requests.sampling import Sampling, Store
from placebench.profiler.sql_profiler import SqlProfiler

__all__ = ["record_frameworks"]

_LOG = logging.getLogger("placebench.profiler")
# By the module that is imported.
_HOOKS: dict[str, Callable[[FrameworkHooks, ModuleType], None]] = {
    "aiohttp.web_app": asgi.hook_aiohttp,
    "aiohttp.web_ws": asgi.hook_aiohttp_websocket,
    "apscheduler.executors.base": queues.hook_apscheduler,
    "bottle": wsgi.hook_bottle,
    "celery.signals": queues.hook_celery,
    "channels.consumer": asgi.hook_channels_consumer,
    "channels.routing": asgi.hook_channels_routing,
    "django.core.handlers.asgi": asgi.hook_django,
    "django.core.handlers.base": wsgi.hook_django_routes,
    "django.core.handlers.wsgi": wsgi.hook_django,
    "django.tasks.base": queues.hook_django_tasks,
    "django_tasks.base": queues.hook_django_tasks,
    "dramatiq.actor": queues.hook_dramatiq,
    "falcon.app": wsgi.hook_falcon,
    "falcon.asgi.app": asgi.hook_falcon,
    "flask.app": wsgi.hook_flask,
    "huey.api": queues.hook_huey,
    "litestar.app": asgi.hook_litestar,
    "litestar.background_tasks": asgi.hook_background("fn"),
    "pyramid.router": wsgi.hook_pyramid,
    "rq.job": queues.hook_rq,
    "sanic.app": asgi.hook_sanic,
    "sanic.server.websockets.impl": asgi.hook_sanic_websocket,
    "starlette.applications": asgi.hook_starlette,
    "starlette.background": asgi.hook_background("func"),
    "taskiq.receiver.receiver": queues.hook_taskiq,
}


def record_frameworks(
    profiler: SqlProfiler, store: Store, mode: str, sampling: Sampling | None = None
) -> FrameworkHooks:
    """Record each request, task, job and WebSocket message of this process from now on, named after its route.

    The integrations of the process use *profiler*, too: what both would record is recorded once. A framework
    without the methods that are wrapped is left alone, and one line is logged.

    mode: a mode of the profiler, see `SqlProfiler.record`.
    sampling: the choice of the requests, and marks in their responses; by default all, without marks.
    Returns the hooks, whose `remove` ends it.
    """
    hooks = FrameworkHooks(profiler, store, mode, sampling)
    share_profiler(profiler)

    def hook(name: str) -> None:
        try:
            _HOOKS[name](hooks, sys.modules[name])
        except Exception as error:  # noqa: BLE001  whatever it is, it must not become the application's
            package = name.partition(".")[0]
            version = getattr(sys.modules.get(package), "__version__", "of an unknown version")
            _LOG.warning("%s %s is not recorded: %s is not as expected (%s)", package, version, name, error)

    watch = ImportWatch(hook)
    watch.begin(set(_HOOKS))
    hooks.on_removal(watch.end)
    for name in _HOOKS.keys() & sys.modules.keys():
        if not watch.is_deferred(sys.modules[name]):
            hook(name)
    return hooks
