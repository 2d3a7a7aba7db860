"""Celery: a recording for each task, named after it: `profile_tasks`.

profile_tasks(app, folder=Path("recordings"))
"""

from typing import Unpack

from celery import Celery

from placebench.profiler.integrations.frameworks.queues import record_celery
from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings
from placebench.profiler.requests.middleware import ProfiledCalls

__all__ = ["profile_tasks"]


def profile_tasks(app: Celery, **settings: Unpack[IntegrationSettings]) -> ProfiledCalls:
    """Record each task of *app*, in whatever pool it runs; call it before the first connection to the database.

    settings: as for `SqlProfiler.wsgi`. Each process of a prefork pool writes its own files. If a task ends
    with an exception, the recording names the class of the exception.
    """
    profiler, rest = split_settings(settings)
    calls = profiler.calls(**rest)
    record_celery(calls, app)
    return calls
