"""FastAPI and Starlette: a recording for each request, named after its route: `StarletteMiddleware`.

app.add_middleware(StarletteMiddleware, folder=Path("recordings"))
"""

from collections.abc import MutableMapping
from typing import Any, Unpack

from placebench.profiler.capture.statement_comments import comment_text, commenting
from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings
from placebench.profiler.requests.middleware import AsgiApplication

__all__ = ["StarletteMiddleware"]


class StarletteMiddleware:
    """ASGI middleware for `app.add_middleware`; settings: as for `SqlProfiler.asgi`."""

    def __init__(self, app: AsgiApplication, **settings: Unpack[IntegrationSettings]) -> None:
        self._application = app
        self._profiler, rest = split_settings(settings)
        self._profiled = self._profiler.asgi(self._serve, **rest)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request, and record it."""
        await self._profiled(scope, receive, send)

    async def _serve(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Serve a request; the router writes the route into the scope before the response starts."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        mounted_at = scope.get("root_path", "")

        async def send_named(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._rename(scope, mounted_at)
            await send(message)

        comment = ""

        def comment_of_route() -> str:
            nonlocal comment
            if not comment and (route := _route(scope, mounted_at)) is not None:
                comment = comment_text(route, getattr(scope.get("endpoint"), "__name__", None))
            return comment

        try:
            with commenting(comment_of_route):
                await self._application(scope, receive, send_named)
        except BaseException:
            self._rename(scope, mounted_at)
            raise

    def _rename(self, scope: MutableMapping[str, Any], mounted_at: str) -> None:
        if (route := _route(scope, mounted_at)) is not None:
            self._profiler.rename(f"{scope['method']} {route}", route)


def _route(scope: MutableMapping[str, Any], mounted_at: str) -> str | None:
    """Return the route including the paths that its application is mounted at; None if no route was found."""
    try:
        path = _route_path(scope)
    except Exception:  # noqa: BLE001  routes may be of the application's own class
        path = None
    return None if path is None else f"{str(scope.get('root_path', '')).removeprefix(mounted_at)}{path}"


def _route_path(scope: MutableMapping[str, Any]) -> str | None:
    """Return the path of the route with the names of its parameters; None if no route was found.

    FastAPI writes the route into the scope; Starlette writes only the endpoint, which is looked up in its router.
    """
    if (path := getattr(scope.get("route"), "path", None)) is not None:
        return str(path)
    endpoint, router = scope.get("endpoint"), scope.get("router")
    for route in getattr(router, "routes", ()):
        if endpoint is not None and getattr(route, "endpoint", None) is endpoint:
            return str(route.path)
    return None
