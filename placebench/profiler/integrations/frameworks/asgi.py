"""Frameworks that serve ASGI, or run an event loop of their own, and how they name a route.

Each function takes the hooks and the module that has just been imported, and wraps the methods that all requests pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

from placebench.profiler.capture.later_work import name_of
from placebench.profiler.integrations.frameworks.hooks import FrameworkHooks
from placebench.profiler.requests.exchange import OPEN_CONNECTION, Connection, Exchange, RouteOf, Scope
from placebench.profiler.requests.middleware import SERVED, ProfiledRequest


def hook_starlette(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Starlette, and so those of FastAPI."""
    _serve(hooks, module.Starlette, starlette_route)


def hook_litestar(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Litestar, whose router writes the template of the path into the scope."""
    _serve(hooks, module.Litestar, lambda scope, _: scope.get("path_template") or None)


def hook_background(attribute: str) -> Callable[[FrameworkHooks, ModuleType], None]:
    """Return a hook that records background tasks whose function is this attribute, as caused by their request."""

    def hook(hooks: FrameworkHooks, module: ModuleType) -> None:
        @hooks.wrap(module.BackgroundTask, "__call__")
        async def call_recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
            with hooks.calls.caused(name_of(getattr(self, attribute, self))):
                return await call_recorded.__wrapped__(self, *args, **kwargs)

    return hook


def hook_django(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests that Django serves under ASGI; `hook_django_routes` names them."""
    _serve(hooks, module.ASGIHandler)


def hook_falcon(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Falcon's ASGI applications; the hook of its WSGI applications names both."""
    _serve(hooks, module.App)


def hook_channels_routing(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the connections of Channels, from its outermost router on, named after the patterns that match."""
    _serve(hooks, module.ProtocolTypeRouter)

    @hooks.wrap(module.URLRouter, "__call__")
    async def route(self: Any, scope: Scope, receive: Any, send: Any) -> Any:
        exchange = scope.get(SERVED)
        if isinstance(exchange, Exchange):
            exchange.add_route(partial(_channels_route, self.routes, scope.get("path", "")))
        return await route.__wrapped__(self, scope, receive, send)


def hook_channels_consumer(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record each message of a consumer; it receives them in tasks of their own, and dispatches them one by one."""
    _serve(hooks, module.AsyncConsumer)

    @hooks.wrap(module, "await_many_dispatch")
    async def await_many(callables: Any, dispatch: Any) -> Any:
        async def dispatch_recorded(message: Any) -> Any:
            connection = OPEN_CONNECTION.get()
            if connection is None:
                return await dispatch(message)
            if message.get("type") != "websocket.connect":
                connection.begin_message(keep_empty=message.get("type") != "websocket.disconnect")
            failure = None
            try:
                return await dispatch(message)
            except Exception as error:
                failure = None if type(error).__name__ == "StopConsumer" else error
                raise
            finally:
                connection.end_message(failure)

        return await await_many.__wrapped__(callables, dispatch_recorded)


def hook_sanic(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Sanic, under its own server and under ASGI."""

    def record_handler() -> None:
        @hooks.wrap(module.Sanic, "handle_request")
        async def handle_recorded(self: Any, request: Any) -> Any:
            def route() -> str | None:
                return None if request.route is None else f"/{request.route.path}"

            with _own_server(hooks, request, route) as unit:
                try:
                    return await handle_recorded.__wrapped__(self, request)
                finally:
                    if unit is not None:
                        unit.set_status(getattr(getattr(request.stream, "response", None), "status", None))

    record_handler()
    # When a server starts, Sanic compiles this method anew from its source.
    touch_up = getattr(module, "TouchUp", None)
    if touch_up is not None:
        compile_methods = touch_up.run

        def run(*args: Any, **kwargs: Any) -> None:
            compile_methods(*args, **kwargs)
            record_handler()

        hooks.replace(touch_up, "run", staticmethod(run))


def hook_sanic_websocket(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record each message of a WebSocket of Sanic, from its arrival until the next one is awaited."""
    _record_messages(hooks, module.WebsocketImplProtocol, "recv", lambda message: message is not None)


def hook_aiohttp(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of aiohttp's server."""

    @hooks.wrap(module.Application, "_handle")
    async def handle_recorded(self: Any, request: Any) -> Any:
        with _own_server(hooks, request, lambda: request.match_info.route.resource.canonical) as unit:
            try:
                response = await handle_recorded.__wrapped__(self, request)
            except Exception as error:
                if unit is not None:
                    unit.set_status(getattr(error, "status", None))  # aiohttp's HTTP errors are responses
                raise
            if unit is not None:
                unit.set_status(getattr(response, "status", None))
            return response


def hook_aiohttp_websocket(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record each message of a WebSocket of aiohttp, from its arrival until the next one is awaited."""
    _record_messages(hooks, module.WebSocketResponse, "receive", lambda each: each.type.name in ("TEXT", "BINARY"))


@contextmanager
def _own_server(
    hooks: FrameworkHooks, request: Any, route: Callable[[], str | None]
) -> Iterator[ProfiledRequest | None]:
    """Record a request of a framework that has its own server, and that reads WebSockets inside of the request."""
    exchange, connection = Exchange(request.method, request.path), Connection(request.path)
    exchange.add_route(route)
    connection.add_route(route)
    with hooks.calls.recorded(f"{request.method} {request.path}", "request") as unit:
        if unit is None:
            yield None
            return
        connection.begin(unit)
        token = OPEN_CONNECTION.set(connection)
        failure = None
        try:
            yield unit
        except BaseException as error:
            failure = error
            raise
        finally:
            OPEN_CONNECTION.reset(token)
            if connection.is_accepted:
                connection.end_message(failure)
            else:
                exchange.name(unit)


def _record_messages(
    hooks: FrameworkHooks, websocket_class: Any, method: str, is_message: Callable[[Any], bool]
) -> None:
    @hooks.wrap(websocket_class, method)
    async def receive_recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        connection = OPEN_CONNECTION.get()
        if connection is not None:
            connection.accept()
        if connection is None or not connection.is_own_task:
            return await receive_recorded.__wrapped__(self, *args, **kwargs)
        connection.end_message()
        message = await receive_recorded.__wrapped__(self, *args, **kwargs)
        connection.begin_message(keep_empty=is_message(message))
        return message


def starlette_route(scope: Scope, mounted_at: str) -> str | None:
    """Return the route including the paths that its application is mounted at; None if no route was found.

    FastAPI writes the route into the scope; Starlette writes only the endpoint, which is looked up in its router.
    """
    try:
        path = getattr(scope.get("route"), "path", None)
        endpoint = scope.get("endpoint")
        for route in getattr(scope.get("router"), "routes", ()) if path is None and endpoint is not None else ():
            if getattr(route, "endpoint", None) is endpoint:
                path = route.path
                break
    except Exception:  # noqa: BLE001  routes may be of the application's own class
        path = None
    return None if path is None else f"{str(scope.get('root_path', '')).removeprefix(mounted_at)}{path}"


def _serve(hooks: FrameworkHooks, application_class: Any, route_of: RouteOf | None = None) -> None:
    serve = hooks.asgi(route_of).serve

    @hooks.wrap(application_class, "__call__")
    async def call_recorded(self: Any, scope: Scope, receive: Any, send: Any) -> None:
        await serve(partial(call_recorded.__wrapped__, self), scope, receive, send)


def _channels_route(routes: Any, path: str) -> str | None:
    """Return the pattern of the first route that matches a path; patterns of Django have the names of parameters."""
    for route in routes:
        if route.pattern.match(path.lstrip("/")):
            return f"/{route.pattern}"
    return None
