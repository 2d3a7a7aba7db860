"""Recordings of units of work, each saved the moment it ends, so that no killed worker loses one.

The main classes are `ProfiledApplication` (WSGI) and `ProfiledCalls` for what a framework calls by itself, such as
tasks; both make a `ProfiledRequest` for each. They start no threads and may be forked: names and counters are per
process.

A WSGI request ends when its body is closed or used up; a body that is a list is used up when the application returns.
Jobs and threads that a request starts are recordings of their own, with the request as their `cause`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from placebench.profiler.capture.active_recording import ActiveRecording
from placebench.profiler.capture.options import Options
from placebench.profiler.requests.attachment import process_channel
from placebench.profiler.requests.responses import WsgiResponse
from placebench.profiler.requests.sampling import Counts, RequestSampler, Sampling, Store

_T = TypeVar("_T")
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
SERVED = "placebench.served"
"""The key of an environ or scope whose request an outer application has recorded, or left out."""


class RequestRecorder(Protocol):
    """The part of the profiler that the middleware uses; no method raises."""

    @property
    def active(self) -> bool:
        """Whether the profiler is on; if it is not, requests are passed on unrecorded."""

    @property
    def is_recording(self) -> bool:
        """Whether a record already runs in this thread or task; the request then belongs to it."""

    def start(self, name: str, options: Options) -> ActiveRecording | None:
        """Start a recording; None if the profiler is off."""

    def leave_unprofiled(self) -> None:
        """Leave out this thread or task on purpose."""

    def switch_to(self, recording: ActiveRecording | None) -> ActiveRecording | None:
        """Make *recording* the current one of this thread or task, and return the one before."""

    def rename(self, name: str, route: str | None = None) -> None:
        """Rename the recording that runs in this thread or task."""

    def save(self, recording: ActiveRecording, sampler: RequestSampler, store: Store) -> None:
        """End the recording and store it."""

    def discard(self, recording: ActiveRecording) -> None:
        """End the recording without storing it."""


class Middleware:
    """The part that the middleware of both interfaces shares."""

    def __init__(self, recorder: RequestRecorder, application: Any, sampler: RequestSampler, store: Store) -> None:
        self._recorder = recorder
        self._application = application
        self._sampler = sampler
        self._store = store
        self._channel = process_channel() if sampler.attachable else None

    @property
    def counts(self) -> Counts:
        """The numbers of requests that this process received, profiled and dropped."""
        return self._sampler.counts

    def sampled(
        self, name: str, header: str | None, kind: str = "request", *, keep_empty: bool = True
    ) -> "ProfiledRequest | None":
        """Count a request; return it if it is profiled, else None. *header*: the value of its header with the token."""
        if self._recorder.is_recording:
            return None
        options, store = self._sampler.options_for(header), self._store
        attached = None if self._channel is None else self._channel.options()
        if self._channel is not None and attached is not None:
            store = self._channel if options is None else self._channel.beside(store)
            options = attached
        if options is None:
            return None
        return ProfiledRequest(self._recorder, name, options, self._sampler, store, kind, keep_empty=keep_empty)


class ProfiledApplication(Middleware):
    """A WSGI application with a recording for each request."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve a request; the recording's name is its method and path, without the query, which may hold secrets."""
        return self.serve(self._application, environ, start_response)

    def serve(
        self, application: WsgiApplication, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Serve a request by this application, unless one around it records the request."""
        request = None
        if self._recorder.active and SERVED not in environ:
            environ[SERVED] = True
            header = self._sampler.header
            sent = None if header is None else environ.get(f"HTTP_{header.upper().replace('-', '_')}")
            request = self.sampled(f"{environ.get('REQUEST_METHOD', '?')} {environ.get('PATH_INFO', '')}", sent)
        if request is None:
            self._recorder.leave_unprofiled()
            return application(environ, start_response)
        profiled = request

        marks, method = self._sampler.marks, environ.get("REQUEST_METHOD", "?")
        response = None if marks is None else WsgiResponse(lambda: profiled.recording, marks, method, start_response)

        def start_and_note(status: str, *rest: Any) -> Any:
            profiled.set_status(status)
            return (start_response if response is None else response.start)(status, *rest)

        body = request.run(application, environ, start_and_note)
        # The server sends its own file wrapper by itself only if it gets it unwrapped.
        wrapper = environ.get("wsgi.file_wrapper")
        if response is not None:
            body = response.finish(body, request.run, wrapper)
        if isinstance(body, (list, tuple)) or (isinstance(wrapper, type) and isinstance(body, wrapper)):
            request.end()
            return body
        return ProfiledBody(body, request)


class ProfiledCalls(Middleware):
    """Recordings of units of work that a framework starts and finishes: requests of Django, tasks of Celery."""

    def __init__(self, recorder: RequestRecorder, sampler: RequestSampler, store: Store) -> None:
        super().__init__(recorder, None, sampler, store)

    @property
    def header(self) -> str | None:
        """The name of the header whose value `begin` takes; None if no token is set."""
        return self._sampler.header

    @property
    def marks(self) -> Sampling | None:
        """The settings for marks in responses; None if responses stay as they are."""
        return self._sampler.marks

    def begin(self, name: str, header: str | None = None, kind: str = "request") -> "ProfiledRequest | None":
        """Start a recording under this name; None if it is not sampled. *header*: the request's value of `header`."""
        request = self.sampled(name, header, kind) if self._recorder.active else None
        if request is None:
            self._recorder.leave_unprofiled()
        return request

    @contextmanager
    def recorded(self, name: str, kind: str, route: str | None = None) -> Iterator["ProfiledRequest | None"]:
        """Record the block as a unit of work, such as a task; yield None inside a unit that is already recorded."""
        unit = self.begin(name, kind=kind)
        if unit is None:
            yield None
            return
        unit.rename(name, route)
        with unit:
            yield unit

    @contextmanager
    def caused(self, name: str) -> Iterator[None]:
        """Record the block as work that the request of this thread or task has left behind, if one is recorded."""
        before = self._recorder.switch_to(None)
        cause = None if before is None else before.unit
        is_inner = cause is not None and cause.recording is not None and cause.recording.kind == "background"
        unit = None if cause is None or is_inner else cause.begin_caused(name)
        if unit is None:
            self._recorder.switch_to(before)
            yield
            return
        failure = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self._recorder.switch_to(before)
            unit.end(failure)


class ProfiledRequest:
    """One unit of work until it ends; its recording is current only while the application's code runs."""

    def __init__(
        self,
        recorder: RequestRecorder,
        name: str,
        options: Options,
        sampler: RequestSampler,
        store: Store,
        kind: str = "request",
        *,
        cause: str = "",
        keep_empty: bool = True,
    ) -> None:
        self._recorder = recorder
        self._options = options
        self._sampler = sampler
        self._store = store
        self._keep_empty = keep_empty
        # Not by `random`, whose state is the application's.
        self._identifier = os.urandom(8).hex()
        self._before: ActiveRecording | None = None
        self.recording: ActiveRecording | None = recorder.start(name, options)
        if self.recording is not None:
            self.recording.unit, self.recording.kind = self, kind
            self.recording.identifier, self.recording.cause = self._identifier, cause

    def __enter__(self) -> None:
        """Make the request's recording the current one of this task."""
        self._before = self._recorder.switch_to(self.recording)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._recorder.switch_to(self._before)
        self.end(error)

    @contextmanager
    def paused_after(self) -> Iterator[None]:
        """Make the request's recording the current one in the block; it ends only if the block raises."""
        previous = self._recorder.switch_to(self.recording)
        try:
            yield
        except BaseException as error:
            self.end(error)
            raise
        finally:
            self._recorder.switch_to(previous)

    def rename(self, name: str, route: str | None = None) -> None:
        """Rename the recording, for example after the route that was found for the request."""
        if self.recording is not None:
            self.recording.name, self.recording.route = name, route or self.recording.route

    def set_status(self, status: object) -> None:
        """Note the HTTP status of the response, a number or a text such as "200 OK"."""
        digits = str(status)[:3]
        if self.recording is not None and digits.isdecimal():
            self.recording.status = int(digits)

    def run(self, code: Callable[..., _T], *arguments: Any) -> _T:
        """Call the application's *code* in this request's recording, which ends if the code raises."""
        previous = self._recorder.switch_to(self.recording)
        try:
            return code(*arguments)
        except BaseException as error:
            if not isinstance(error, StopIteration):
                self.end(error)
            raise
        finally:
            self._recorder.switch_to(previous)

    def begin_caused(self, name: str, kind: str = "background", *, keep_empty: bool = True) -> "ProfiledRequest | None":
        """Begin a unit of work that this one caused, and make it the current one; None if it is not recorded.

        keep_empty: whether to store its recording if it has no statement and no COMMIT.
        """
        if not (self._recorder.active and self._sampler.admits_caused()):
            return None
        self._recorder.switch_to(None)  # else it would begin inside of the recording of its cause
        unit = ProfiledRequest(
            *(self._recorder, name, self._options, self._sampler, self._store, kind),
            cause=self._identifier,
            keep_empty=keep_empty,
        )
        unit.rename(name, name)
        self._recorder.switch_to(unit.recording)
        return unit

    def end(self, error: BaseException | None = None) -> None:
        """Save the recording; idempotent."""
        recording, self.recording = self.recording, None
        if recording is None:
            return
        if error is not None:
            recording.error = type(error).__name__
        if self._keep_empty or recording.statements or any(each.step == "COMMIT" for each in recording.steps):
            self._recorder.save(recording, self._sampler, self._store)
        else:
            self._recorder.discard(recording)


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
