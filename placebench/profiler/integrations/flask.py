"""Flask: a recording for each request, named after its route: `FlaskExtension`.

FlaskExtension(app, folder=Path("recordings"))
"""

from typing import Unpack

from flask import Flask, request

from placebench.profiler.capture.statement_comments import set_comment
from placebench.profiler.integrations.frameworks.wsgi import flask_route
from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings

__all__ = ["FlaskExtension"]


class FlaskExtension:
    """Profiles an application; make it before the first connection to the database.

    settings: as for `SqlProfiler.wsgi`; settings of the same names in app.config["SQL_PROFILER"] take precedence.
    """

    def __init__(self, app: Flask | None = None, **settings: Unpack[IntegrationSettings]) -> None:
        self._settings = settings
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Profile the requests to *app*."""
        profiler, settings = split_settings({**self._settings, **app.config.get("SQL_PROFILER", {})})

        def name_request() -> None:
            route, view = flask_route(request), app.view_functions.get(request.endpoint or "")
            set_comment(route, getattr(view, "__name__", None))
            if route is not None:
                profiler.rename(f"{request.method} {route}", route)

        app.wsgi_app = profiler.wsgi(app.wsgi_app, **settings)
        # The first of these functions; a signal would need blinker, which Flask 2.2 does without.
        app.before_request_funcs.setdefault(None, []).insert(0, name_request)
        app.extensions["placebench"] = profiler
