"""Django: a recording for each request, named after its route: `DjangoMiddleware`.

MIDDLEWARE = ["placebench.profiler.integrations.django.DjangoMiddleware", *MIDDLEWARE]
SQL_PROFILER = {"folder": BASE_DIR / "recordings"}
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.db import connections
from django.db.backends.signals import connection_created
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from placebench.profiler.capture.statement_comments import current_comment, set_comment
from placebench.profiler.integrations.frameworks.wsgi import django_route
from placebench.profiler.integrations.process_profiler import IntegrationSettings, split_settings
from placebench.profiler.requests.middleware import ProfiledBody, ProfiledRequest
from placebench.profiler.requests.responses import server_timing, takes_badge, with_badge

__all__ = ["DjangoMiddleware"]


class DjangoMiddleware:
    """Middleware for sync and async views, to be first in MIDDLEWARE; settings.SQL_PROFILER: see `SqlProfiler.wsgi`."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        own = cast(IntegrationSettings, getattr(settings, "SQL_PROFILER", {}))
        profiler, rest = split_settings(own)
        self._calls = profiler.calls(**rest)
        if own.get("comments"):
            _comment_statements()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Serve a request, and record it."""
        set_comment()
        token = self._calls.header and request.headers.get(self._calls.header)
        profiled = self._calls.begin(f"{request.method} {request.path}", token)
        if profiled is None:
            return cast(HttpResponseBase, self._get_response(request))
        if self._is_async:

            async def serve() -> HttpResponseBase:
                with profiled.paused_after():
                    response = await self._get_response(request)
                return self._ended(profiled, request, response)

            return serve()
        return self._ended(profiled, request, profiled.run(self._get_response, request))

    def _ended(self, profiled: ProfiledRequest, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response; its recording ends now, or with the last part of a streamed response."""
        if (route := django_route(request)) is not None:
            profiled.rename(f"{request.method} {route}", route)
        profiled.set_status(response.status_code)
        marks, recording = self._calls.marks, profiled.recording
        if marks is not None and recording is not None:
            if marks.server_timing:
                before = [response["Server-Timing"]] if "Server-Timing" in response else []
                response["Server-Timing"] = ", ".join([*before, server_timing(recording)])
            headers = list(response.items())
            if marks.badge is not None and not response.streaming and takes_badge(str(request.method), headers):
                response.content = with_badge(response.content, headers, recording, marks.badge)
                if "Content-Length" in response:
                    response["Content-Length"] = str(len(response.content))
        # The server sends a file by itself if it gets the response unchanged.
        if not isinstance(response, StreamingHttpResponse) or hasattr(response, "file_to_stream"):
            profiled.end()
        elif response.is_async:
            response.streaming_content = _recorded_parts(
                profiled, cast("AsyncIterator[bytes]", response.streaming_content)
            )
        else:
            response.streaming_content = ProfiledBody(response.streaming_content, profiled)
        return response

    def process_view(self, request: HttpRequest, view: Any, _arguments: object, _keywords: object) -> None:
        """Set the comment to the request's route, which is known now, and its view (for a view class, the class)."""
        if (route := django_route(request)) is not None:
            view = getattr(view, "view_class", view)
            set_comment(route, getattr(view, "__name__", None))


def _comment_statements() -> None:
    """Append a comment with route and view to each statement of Django's connections, both existing and new."""

    def comment(connection: Any, **_: object) -> None:
        if _execute_commented not in connection.execute_wrappers:
            # First, not last: the end of a `with connection.execute_wrapper(…)` takes the last one away.
            connection.execute_wrappers.insert(0, _execute_commented)

    connection_created.connect(comment, weak=False, dispatch_uid="placebench.comments")
    for connection in connections.all(initialized_only=True):
        comment(connection)


def _execute_commented(execute: Callable[..., Any], sql: Any, *arguments: Any) -> Any:
    return execute(sql + current_comment() if isinstance(sql, str) else sql, *arguments)


async def _recorded_parts(profiled: ProfiledRequest, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with profiled:
        async for part in parts:
            yield part
