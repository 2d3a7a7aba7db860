"""Middleware: a recording for each request, saved the moment it ends, so that no killed worker loses one.

The main classes are `ProfiledApplication` (WSGI), `ProfiledAsgiApplication`, and `ProfiledCalls` for what a framework
calls by itself, such as tasks. They start no threads and may be forked: names and counters are per process.

A WSGI request ends when its body is closed or used up; a body that is a list is used up when the application returns.
An ASGI request ends with the last part of its response. It is a task with its own context, so that requests that run at
the same time on one thread do not mix. Background tasks after the response are not recorded, nor are lifespan and
WebSockets. A recording notes if WebSockets ran statements meanwhile.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.options import Options
from placebench.profiler.requests.attachment import process_channel
from placebench.profiler.requests.sampling import Counts, RequestSampler, Store

_WEBSOCKET_NOTE = "statements of WebSocket connections ran meanwhile: they are in no recording"
_T = TypeVar("_T")
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
AsgiApplication = Callable[[MutableMapping[str, Any], _Receive, _Send], Awaitable[None]]


class _RequestRecorder(Protocol):
    """The part of the profiler that the middleware uses; no method raises."""

    @property
    def active(self) -> bool:
        """Whether the profiler is on; if it is not, requests are passed on unrecorded."""

    @property
    def is_recording(self) -> bool:
        """Whether a record already runs in this thread or task; the request then belongs to it."""

    def start(self, name: str, options: Options) -> ActiveRecording | None:
        """Start a recording; None if the profiler is off."""

    def leave_unprofiled(self, note: str = "") -> None:
        """Leave out this thread or task on purpose; recordings that run meanwhile get this note."""

    def switch_to(self, recording: ActiveRecording | None) -> ActiveRecording | None:
        """Make *recording* the current one of this thread or task, and return the one before."""

    def save(self, recording: ActiveRecording, sampler: RequestSampler, store: Store) -> None:
        """End the recording and store it."""


class _Middleware:
    """The part that the middleware of both interfaces shares."""

    def __init__(self, recorder: _RequestRecorder, application: Any, sampler: RequestSampler, store: Store) -> None:
        self._recorder = recorder
        self._application = application
        self._sampler = sampler
        self._store = store
        self._channel = process_channel() if sampler.attachable else None

    @property
    def counts(self) -> Counts:
        """The numbers of requests of this process that came, were profiled, and were dropped."""
        return self._sampler.counts

    def _sampled(self, name: str, header: str | None, kind: str = "request") -> "ProfiledRequest | None":
        """Count a request; return it if it is profiled, else None. *header*: the value of its header with the token."""
        if self._recorder.is_recording:
            return None
        options, store = self._sampler.options_for(header), self._store
        attached = None if self._channel is None else self._channel.options()
        if self._channel is not None and attached is not None:
            store = self._channel if options is None else self._channel.beside(store)
            options = attached
        return None if options is None else ProfiledRequest(self._recorder, name, options, self._sampler, store, kind)


class ProfiledApplication(_Middleware):
    """A WSGI application with a recording for each request."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request; the recording's name is its method and path, without the query, which may hold secrets."""
        request = None
        if self._recorder.active:
            header = self._sampler.header
            sent = None if header is None else environ.get(f"HTTP_{header.upper().replace('-', '_')}")
            request = self._sampled(f"{environ.get('REQUEST_METHOD', '?')} {environ.get('PATH_INFO', '')}", sent)
        body: Iterable[bytes]
        if request is None:
            self._recorder.leave_unprofiled()
            body = self._application(environ, start_response)
            return body
        profiled = request

        def start_and_note(status: str, *rest: Any) -> Any:
            profiled.set_status(status)
            return start_response(status, *rest)

        body = request.run(self._application, environ, start_and_note)
        # The server sends its own file wrapper by itself only if it gets it unwrapped.
        wrapper = environ.get("wsgi.file_wrapper")
        if isinstance(body, (list, tuple)) or (isinstance(wrapper, type) and isinstance(body, wrapper)):
            request.end()
            return body
        return ProfiledBody(body, request)


class ProfiledAsgiApplication(_Middleware):
    """An ASGI application with a recording for each HTTP request."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Serve a request; the recording's name is its method and path, without the query, which may hold secrets."""
        request = None
        if scope["type"] == "http" and self._recorder.active:
            name = f"{scope.get('method', '?')} {scope.get('path', '')}"
            header = None
            if self._sampler.header is not None:  # ASGI has headers in lower case and as bytes
                wanted = self._sampler.header.lower().encode("latin-1")
                sent = (value for key, value in scope.get("headers", ()) if key == wanted)
                header = next((value.decode("latin-1") for value in sent), None)
            request = self._sampled(name, header)
        if request is None:
            self._recorder.leave_unprofiled(_WEBSOCKET_NOTE if scope["type"] == "websocket" else "")
            await self._application(scope, receive, send)
            return

        async def send_and_end(message: _Message) -> None:
            if message["type"] == "http.response.start":
                request.set_status(message["status"])
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                request.end()

        with request:
            await self._application(scope, receive, send_and_end)


class ProfiledCalls(_Middleware):
    """Recordings of units of work that a framework starts and finishes: requests of Django, tasks of Celery."""

    def __init__(self, recorder: _RequestRecorder, sampler: RequestSampler, store: Store) -> None:
        super().__init__(recorder, None, sampler, store)

    @property
    def header(self) -> str | None:
        """The name of the header whose value `begin` takes; None if no token is set."""
        return self._sampler.header

    def begin(self, name: str, header: str | None = None, kind: str = "request") -> "ProfiledRequest | None":
        """Start a recording under this name; None if it is not sampled. *header*: the request's value of `header`."""
        request = self._sampled(name, header, kind) if self._recorder.active else None
        if request is None:
            self._recorder.leave_unprofiled()
        return request


class ProfiledRequest:
    """One request until its body ends; its recording is current only while the application's code runs."""

    def __init__(
        self,
        recorder: _RequestRecorder,
        name: str,
        options: Options,
        sampler: RequestSampler,
        store: Store,
        kind: str = "request",
    ) -> None:
        self._recorder = recorder
        self._sampler = sampler
        self._store = store
        self._recording = recorder.start(name, options)
        if self._recording is not None:
            # Not by `random`, whose state is the application's.
            self._recording.kind, self._recording.identifier = kind, os.urandom(8).hex()
        self._before: ActiveRecording | None = None

    def __enter__(self) -> None:
        """Make the request's recording the current one of this task."""
        self._before = self._recorder.switch_to(self._recording)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._recorder.switch_to(self._before)
        self.end(error)

    @contextmanager
    def paused_after(self) -> Iterator[None]:
        """Make the request's recording the current one in the block; it ends only if the block raises."""
        previous = self._recorder.switch_to(self._recording)
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise
        finally:
            self._recorder.switch_to(previous)

    def rename(self, name: str, route: str | None = None) -> None:
        """Rename the recording, for example after the route that was found for the request."""
        if self._recording is not None:
            self._recording.name, self._recording.route = name, route or self._recording.route

    def set_status(self, status: object) -> None:
        """Note the HTTP status of the response, a number or a text such as "200 OK"."""
        digits = str(status)[:3]
        if self._recording is not None and digits.isdecimal():
            self._recording.status = int(digits)

    def run(self, code: Callable[..., _T], *arguments: Any) -> _T:
        """Call the application's *code* in this request's recording, which ends if the code raises."""
        previous = self._recorder.switch_to(self._recording)
        try:
            return code(*arguments)
        except BaseException as error:
            if not isinstance(error, StopIteration):
                self.end(error)
            raise
        finally:
            self._recorder.switch_to(previous)

    def end(self, error: BaseException | None = None) -> None:
        """Save the recording; idempotent."""
        recording, self._recording = self._recording, None
        if recording is None:
            return
        if error is not None:
            recording.error = type(error).__name__
        self._recorder.save(recording, self._sampler, self._store)


class ProfiledBody:
    """A streamed body, whose code belongs to the request until `close()` or the last part."""

    def __init__(self, body: Iterable[bytes], request: ProfiledRequest) -> None:
        self._body = body
        self._request = request
        self._parts: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._parts is None:
            self._parts = self._request.run(iter, self._body)
        try:
            part: bytes = self._request.run(next, self._parts)
        except StopIteration:
            self._request.end()
            raise
        return part

    def close(self) -> None:
        """Close the application's body, as the server must, and end the request."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                self._request.run(close)
        finally:
            self._request.end()
