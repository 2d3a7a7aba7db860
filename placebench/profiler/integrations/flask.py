"""Flask: a recording for each request, named after its route: `FlaskExtension`.

FlaskExtension(app, folder=Path("recordings"))
"""

from typing import Any, Unpack

from flask import Flask, request, request_started

from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings


class FlaskExtension:
    """Profiles an application; make it before the first connection to the database.

    Takes what `SqlProfiler.wsgi` takes; app.config["SQL_PROFILER"] may hold the same by name, and comes first.
    """

    def __init__(self, app: Flask | None = None, **settings: Unpack[IntegrationSettings]) -> None:
        self._settings = settings
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Profile the requests to *app*."""
        profiler, settings = split_settings({**self._settings, **app.config.get("SQL_PROFILER", {})})

        def name_request(_sender: Flask, **_: Any) -> None:
            if request.url_rule is not None:
                profiler.rename(f"{request.method} {request.root_path}{request.url_rule}")

        app.wsgi_app = profiler.wsgi(app.wsgi_app, **settings)
        request_started.connect(name_request, app, weak=False)
        app.extensions["placebench"] = profiler
