"""ASGI middleware: a recording for each HTTP request, from its arrival to the last piece of its answer.

The key piece is `ProfiledAsgiApplication`. Each request is a task with a context of its own, so that requests that run
at the same time on one thread do not mix. What an application does after its answer (background tasks) is not recorded;
lifespan and websockets go through unwatched.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from placebench.profiler.integrations.sampling import Counts, Gate, Store
from placebench.profiler.integrations.wsgi import ProfiledRequest, Recorder

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class ProfiledAsgiApplication:
    """An ASGI application with a recording for each request."""

    def __init__(self, recorder: Recorder, application: AsgiApplication, gate: Gate, store: Store) -> None:
        self._recorder = recorder
        self._application = application
        self._gate = gate
        self._store = store

    @property
    def counts(self) -> Counts:
        """How many requests came, were profiled, and were dropped for slower ones, in this process."""
        return self._gate.counts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request; the recording's name is its method and path, without the query, which may hold secrets."""
        if scope["type"] != "http" or not self._recorder.active:
            return await self._application(scope, receive, send)
        options = self._gate.options_for(_header(scope, self._gate.header))
        if options is None:
            return await self._application(scope, receive, send)
        name = f"{scope.get('method', '?')} {scope.get('path', '')}"
        request = ProfiledRequest(self._recorder, name, options, self._gate, self._store)

        async def watched_send(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                request.end()

        with request:
            await self._application(scope, receive, watched_send)
        return None


def _header(scope: MutableMapping[str, Any], name: str | None) -> str | None:
    """The value of a request's header; ASGI has them in lower case and as bytes."""
    if name is None:
        return None
    wanted = name.lower().encode("latin-1")
    return next((value.decode("latin-1") for key, value in scope.get("headers", ()) if key == wanted), None)
