"""Any WSGI or ASGI application under the profiler, for a server: `application`, made from the environment on import.

    uwsgi --http-socket 127.0.0.1:8000 --master --need-app --module MODULE:application

MODULE                    placebench.profiler.integrations.wsgi_entry

PLACEBENCH_WATCH_APP      module:callable; required
PLACEBENCH_WATCH_MODE     a mode of the profiler, such as "flame"; default "light"
PLACEBENCH_WATCH_DIR      where the recordings go, one per request; required

The names differ from those of the reference service, which may be the application and would profile itself twice.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from placebench.errors import PlacebenchError, ProfilerError
from placebench.profiler.integrations.application import interface_of, load_application
from placebench.profiler.integrations.process_profiler import share_profiler
from placebench.profiler.requests.asgi import ProfiledAsgiApplication
from placebench.profiler.requests.middleware import ProfiledApplication
from placebench.profiler.requests.sampling import KEEP_FOR_COUNTS
from placebench.profiler.sql_profiler import SqlProfiler


def _profiled_application(environment: Mapping[str, str]) -> ProfiledApplication | ProfiledAsgiApplication:
    """Return the application that these variables name, with every engine profiled. May raise ProfilerError."""
    for name in ("PLACEBENCH_WATCH_APP", "PLACEBENCH_WATCH_DIR"):
        if not environment.get(name):
            raise ProfilerError(
                f"{name} is not set: expected {'module:callable' if name.endswith('APP') else 'a folder'}"
            )
    profiler = SqlProfiler()  # before the application is imported: connections that it makes at once are timed too
    share_profiler(profiler)
    folder, mode = Path(environment["PLACEBENCH_WATCH_DIR"]), environment.get("PLACEBENCH_WATCH_MODE") or "light"
    loaded = load_application(environment["PLACEBENCH_WATCH_APP"])
    wrap = profiler.asgi if interface_of(loaded) == "asgi" else profiler.wsgi
    return wrap(loaded, folder=folder, mode=mode, keep=KEEP_FOR_COUNTS)


try:
    application: ProfiledApplication | ProfiledAsgiApplication = _profiled_application(os.environ)
except PlacebenchError as error:
    sys.exit(f"placebench: {error}")
