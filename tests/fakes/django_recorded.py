"""A program of Django's whose frameworks are hooked before it imports them; it prints what was recorded and traced.

It serves requests under WSGI and ASGI, WebSockets of Channels, and tasks.
"""

import asyncio
import json
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from placebench.http_session import Request
from placebench.profiler import Recording, SqlProfiler
from placebench.profiler.integrations.frameworks import record_frameworks
from placebench.profiler.integrations.in_process_client import in_process_client

recorded: list[Recording] = []
traced: list[str] = []
urlpatterns: list[Any] = []


class Store:
    """Keeps the recordings."""

    def save(self, recording: Recording) -> int:
        """Keep one."""
        recorded.append(recording)
        return 0


def query(count: int) -> None:
    """Run statements on Django's connection."""
    from django.db import connection

    with connection.cursor() as cursor:
        for _ in range(count):
            cursor.execute("select 1")


def trace(connection: Any, **_: object) -> None:
    """Have sqlite3 tell what it runs from now on; what Django runs when it connects came before."""
    connection.connection.set_trace_callback(traced.append)


def make_urls() -> None:
    """Fill in the views."""
    from django.http import HttpResponse, StreamingHttpResponse
    from django.urls import include, path

    def order(_request: Any, number: int) -> Any:
        query(number)
        return HttpResponse(status=202)

    async def awaited(_request: Any, name: str) -> Any:
        from asgiref.sync import sync_to_async

        await sync_to_async(query)(len(name))
        return HttpResponse("awaited")

    def stream(_request: Any) -> Any:
        return StreamingHttpResponse(query(1) or "part" for _ in range(2))

    urlpatterns.extend(
        [
            path("orders/<int:number>/", order),
            path("shop/", include([path("items/<name>/", awaited), path("stream/", stream)])),
        ]
    )


async def talk(application: Any) -> None:
    """Open a WebSocket, and send two messages."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    sent: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "websocket", "path": "/ws/blue/", "headers": [], "query_string": b""}
    serving = asyncio.create_task(application(scope, events.get, sent.put))
    await events.put({"type": "websocket.connect"})
    await sent.get()
    for count in ("2", "3"):
        await events.put({"type": "websocket.receive", "text": count})
        await sent.get()
    await events.put({"type": "websocket.disconnect", "code": 1000})
    await serving


def serve_channels(is_sync: bool) -> None:
    """Serve a WebSocket by a consumer of Channels."""
    from asgiref.sync import sync_to_async
    from channels.generic.websocket import AsyncWebsocketConsumer, WebsocketConsumer
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.urls import path

    class Chat(WebsocketConsumer):
        def receive(self, text_data: str) -> None:
            query(int(text_data))
            self.send("done")

    class AwaitedChat(AsyncWebsocketConsumer):
        async def receive(self, text_data: str) -> None:
            await sync_to_async(query)(int(text_data))
            await self.send("done")

    consumer = Chat if is_sync else AwaitedChat
    router = URLRouter([path("ws/<room>/", consumer.as_asgi())])
    asyncio.run(talk(ProtocolTypeRouter({"websocket": router})))


def bill(count: int) -> None:
    """A task."""
    query(count)


def main() -> None:
    """Do all of it."""
    hooks = record_frameworks(SqlProfiler(), Store(), "light")
    from django.conf import settings

    tasks = next((name for name in ("django.tasks", "django_tasks") if find_spec(name)), None)
    backend = {"BACKEND": f"{tasks}.backends.immediate.ImmediateBackend"}
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="x",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
        INSTALLED_APPS=["django_tasks"] if tasks == "django_tasks" else [],
        TASKS={"default": backend},
    )
    import django

    django.setup()
    from django.db.backends.signals import connection_created

    connection_created.connect(trace)
    make_urls()
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    requests = ["/orders/3/", "/shop/items/abcd/", "/shop/stream/", "/nothing/"]
    for application in (get_wsgi_application(), get_asgi_application()):
        with in_process_client(application) as client:
            for each in requests:
                client.send(Request.parse(each))
    if find_spec("channels"):
        for is_sync in (True, False):
            serve_channels(is_sync)
    if tasks:
        import_module(tasks).task(bill).enqueue(2)
    hooks.remove()
    counted = [sum(statement.sql == "select ?" for statement in each.statements) for each in recorded]
    kinds = [
        [each.kind, each.name, each.status, count, each.missed] for each, count in zip(recorded, counted, strict=True)
    ]
    sys.stdout.write(json.dumps({"recorded": kinds, "traced": traced.count("select 1"), "tasks": tasks}))


if __name__ == "__main__":
    main()
