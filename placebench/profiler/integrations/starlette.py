"""FastAPI and Starlette: a recording for each request, named after its route: `StarletteMiddleware`.

app.add_middleware(StarletteMiddleware, folder=Path("recordings"))
"""

from typing import Unpack

from placebench.profiler.capture.statement_comments import comment_text, commenting
from placebench.profiler.integrations.frameworks.asgi import starlette_route
from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings
from placebench.profiler.requests.asgi import AsgiApplication, Receive, Send
from placebench.profiler.requests.exchange import Scope

__all__ = ["StarletteMiddleware"]


class StarletteMiddleware:
    """ASGI middleware for `app.add_middleware`; settings: as for `SqlProfiler.asgi`."""

    def __init__(self, app: AsgiApplication, **settings: Unpack[IntegrationSettings]) -> None:
        self._application = app
        profiler, rest = split_settings(settings)
        self._profiled = profiler.asgi(self._serve, **rest)
        self._profiled.route_of = starlette_route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and record it."""
        await self._profiled(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, with its route in the comments of its statements; the router finds the route."""
        mounted_at = scope.get("root_path", "")
        comment = ""

        def comment_of_route() -> str:
            nonlocal comment
            if not comment and (route := starlette_route(scope, mounted_at)) is not None:
                comment = comment_text(route, getattr(scope.get("endpoint"), "__name__", None))
            return comment

        with commenting(comment_of_route):
            await self._application(scope, receive, send)
