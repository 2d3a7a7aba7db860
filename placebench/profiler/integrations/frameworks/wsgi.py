"""Frameworks that serve WSGI, and how they name a route: Django, Flask, Falcon, Bottle and Pyramid.

Each function takes the hooks and the module that has just been imported, and wraps the methods that all requests pass.
"""

from functools import partial
from types import ModuleType
from typing import Any

from placebench.profiler.integrations.frameworks.hooks import FrameworkHooks


def hook_django(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests that Django serves under WSGI, its own server included; `hook_django_routes` names them."""
    _serve(hooks, module.WSGIHandler)


def hook_django_routes(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Name the requests of Django, under WSGI and ASGI, when their route is found."""

    @hooks.wrap(module.BaseHandler, "resolve_request")
    def resolve_and_name(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        found = resolve_and_name.__wrapped__(self, request, *args, **kwargs)
        if (route := django_route(request)) is not None:
            hooks.profiler.rename(f"{request.method} {route}", route)
        return found


def django_route(request: Any) -> str | None:
    """Return the route of a request to Django; None if it is not resolved."""
    match = getattr(request, "resolver_match", None)
    return None if match is None else f"/{match.route}"


def hook_flask(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Flask, its error handlers and what is wrapped around `app.wsgi_app` included."""
    _serve(hooks, module.Flask)

    @hooks.wrap(module.Flask, "full_dispatch_request")
    def dispatch_named(self: Any, *args: Any, **kwargs: Any) -> Any:
        from flask import request

        if (route := flask_route(request)) is not None:
            hooks.profiler.rename(f"{request.method} {route}", route)
        return dispatch_named.__wrapped__(self, *args, **kwargs)


def flask_route(request: Any) -> str | None:
    """Return the route of a request to Flask, including the path at which the application is mounted."""
    return None if request.url_rule is None else f"{request.root_path}{request.url_rule}"


def hook_falcon(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Falcon; ASGI applications are named here too, as their class inherits from this one."""
    _serve(hooks, module.App)

    @hooks.wrap(module.App, "_get_responder")
    def find_and_name(self: Any, request: Any) -> Any:
        found = find_and_name.__wrapped__(self, request)
        if isinstance(template := found[3], str):
            method = "WEBSOCKET" if getattr(request, "is_websocket", False) else request.method
            route = f"{request.root_path}{template}"
            hooks.profiler.rename(f"{method} {route}", route)
        return found


def hook_bottle(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Bottle."""
    _serve(hooks, module.Bottle)

    @hooks.wrap(module.Router, "match")
    def match_and_name(self: Any, environ: Any) -> Any:
        found = match_and_name.__wrapped__(self, environ)
        if isinstance(rule := getattr(found[0], "rule", None), str):
            route = f"{environ.get('SCRIPT_NAME', '').rstrip('/')}{rule}"
            hooks.profiler.rename(f"{environ.get('REQUEST_METHOD', '?')} {route}", route)
        return found


def hook_pyramid(hooks: FrameworkHooks, module: ModuleType) -> None:
    """Record the requests of Pyramid; those found by traversal keep their path as their name."""
    _serve(hooks, module.Router)

    @hooks.wrap(module.Router, "invoke_request")
    def invoke_and_name(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return invoke_and_name.__wrapped__(self, request, *args, **kwargs)
        finally:
            if (route := getattr(request, "matched_route", None)) is not None:
                path = f"{request.script_name}/{route.pattern.lstrip('/')}"
                hooks.profiler.rename(f"{request.method} {path}", path)


def _serve(hooks: FrameworkHooks, application_class: Any) -> None:
    @hooks.wrap(application_class, "__call__")
    def call_recorded(self: Any, environ: Any, start_response: Any) -> Any:
        return hooks.wsgi.serve(partial(call_recorded.__wrapped__, self), environ, start_response)
