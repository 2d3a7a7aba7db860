"""Recordings of what an ASGI server asks of an application: `ProfiledAsgiApplication`.

A request ends with the last part of its response. It is a task with its own context, so that requests that run at the
same time on one thread do not mix. What the application does after the response, such as a background task, is a
recording of its own, with the request as its `cause`; so are tasks that outlive the request. A WebSocket connection has
a recording for its handshake and one for each message: from its arrival until the application waits for the next one.
Startup and shutdown of the lifespan are recorded if they run statements.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from placebench.profiler.requests.exchange import OPEN_CONNECTION, Connection, Exchange, RouteOf, Scope
from placebench.profiler.requests.middleware import SERVED, Middleware, ProfiledRequest, RequestRecorder
from placebench.profiler.requests.responses import marked_send
from placebench.profiler.requests.sampling import RequestSampler, Store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApplication = Callable[[Scope, Receive, Send], Awaitable[None]]


class ProfiledAsgiApplication(Middleware):
    """An ASGI application with a recording for each HTTP request and WebSocket message."""

    def __init__(
        self,
        recorder: RequestRecorder,
        application: Any,
        sampler: RequestSampler,
        store: Store,
        route_of: RouteOf | None = None,
    ) -> None:
        super().__init__(recorder, application, sampler, store)
        self.route_of = route_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; the recording's name is its method and path, without the query, which may hold secrets."""
        await self.serve(self._application, scope, receive, send)

    async def serve(self, application: AsgiApplication, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by this application; if one around it records the request, only name it."""
        kind = scope["type"]
        outer: Exchange | None = scope.get(SERVED)
        if outer is not None or kind not in ("http", "websocket", "lifespan") or not self._recorder.active:
            if outer is not None:
                outer.add(self.route_of, scope)
            await application(scope, receive, send)
            return
        path = scope.get("path", "")
        exchange = Connection(path) if kind == "websocket" else Exchange(scope.get("method", "?"), path)
        scope[SERVED] = exchange
        exchange.add(self.route_of, scope)
        if kind == "lifespan":
            await self._serve_lifespan(application, scope, receive, send)
            return
        header = None
        if self._sampler.header is not None:  # ASGI has headers in lower case and as bytes
            wanted = self._sampler.header.lower().encode("latin-1")
            sent = (value for key, value in scope.get("headers", ()) if key == wanted)
            header = next((value.decode("latin-1") for value in sent), None)
        request = self.sampled(f"{exchange.method} {path}", header, "request" if kind == "http" else kind)
        if request is None:
            self._recorder.leave_unprofiled()
            await application(scope, receive, send)
        elif isinstance(exchange, Connection):
            await self._serve_connection(application, scope, receive, send, request, exchange)
        else:
            await self._serve_request(application, scope, receive, send, request, exchange)

    async def _serve_request(
        self,
        application: AsgiApplication,
        scope: Scope,
        receive: Receive,
        send: Send,
        request: ProfiledRequest,
        exchange: Exchange,
    ) -> None:
        """Record a request until the last part of its response, and apart from it what runs afterwards."""
        marks = self._sampler.marks
        if marks is not None:
            send = marked_send(lambda: request.recording, marks, exchange.method, send)

        async def send_and_end(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.set_status(message["status"])
                exchange.name(request)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                request.end()

        recording, failure = request.recording, None
        before = self._recorder.switch_to(recording)
        try:
            await application(scope, receive, send_and_end)
        except BaseException as error:
            failure = error
            exchange.name(request)
            raise
        finally:
            last = self._recorder.switch_to(before)
            request.end(failure)
            if last is not None and last is not recording and recording is not None and last.unit is not None:
                last.name = last.route = f"{recording.name}, after the response"
                last.unit.end(failure)

    async def _serve_connection(
        self,
        application: AsgiApplication,
        scope: Scope,
        receive: Receive,
        send: Send,
        handshake: ProfiledRequest,
        connection: Connection,
    ) -> None:
        """Record the handshake of a WebSocket, and each message that the task of the application receives.

        What other tasks of the application run is recorded like all tasks that outlive their request.
        """
        is_connected = False

        async def receive_next() -> Message:
            nonlocal is_connected
            if not is_connected or not connection.is_own_task:
                is_connected = True
                return await receive()
            connection.end_message()
            message = await receive()
            connection.begin_message(keep_empty=message["type"] == "websocket.receive")
            return message

        async def send_and_note(message: Message) -> None:
            if message["type"] == "websocket.accept":
                handshake.set_status(101)
            elif message["type"] == "websocket.close":
                handshake.set_status(403)
            elif message["type"] == "websocket.http.response.start":
                handshake.set_status(message["status"])
            await send(message)

        failure = None
        connection.begin(handshake)
        token = OPEN_CONNECTION.set(connection)
        before = self._recorder.switch_to(handshake.recording)
        try:
            await application(scope, receive_next, send_and_note)
        except BaseException as error:
            failure = error
            raise
        finally:
            self._recorder.switch_to(before)
            OPEN_CONNECTION.reset(token)
            connection.end_message(failure)

    async def _serve_lifespan(self, application: AsgiApplication, scope: Scope, receive: Receive, send: Send) -> None:
        """Record startup and shutdown, each from its message until the application says that it is complete."""
        unit: ProfiledRequest | None = None

        async def receive_event() -> Message:
            nonlocal unit
            message = await receive()
            unit = self.sampled(message["type"], None, "lifespan", keep_empty=False)
            if unit is not None:
                unit.rename(message["type"], message["type"])
                self._recorder.switch_to(unit.recording)
            return message

        async def send_and_end(message: Message) -> None:
            if unit is not None:
                unit.end()
            await send(message)

        self._recorder.leave_unprofiled()
        failure = None
        try:
            await application(scope, receive_event, send_and_end)
        except BaseException as error:
            failure = error
            raise
        finally:
            if unit is not None:
                unit.end(failure)
