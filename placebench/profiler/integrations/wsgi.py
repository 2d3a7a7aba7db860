"""WSGI middleware: a recording for each request, saved the moment the request ends, so that no killed worker loses one.

The key piece is `ProfiledApplication`. A request ends when its body is closed or used up; a body that is a list is used
up when the application returns. It has no threads of its own and may be forked: names and counters are per process.
"""

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from placebench.profiler.integrations.sampling import Counts, Gate, Store

if TYPE_CHECKING:
    from placebench.profiler.capture.active_recording import Options, Tape

T = TypeVar("T")
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Recorder(Protocol):
    """What the middleware asks of the profiler; none of these raises."""

    @property
    def active(self) -> bool:
        """Whether the profiler is on; if it is not, requests go through unwatched."""

    def start(self, name: str, options: "Options") -> "Tape | None":
        """A tape that runs from now on; None if the profiler is off."""

    def switch_to(self, tape: "Tape | None") -> "Tape | None":
        """Make *tape* the current one of this thread or task; the one before comes back."""

    def keep(self, tape: "Tape", gate: Gate, store: Store) -> None:
        """End the tape and save its recording."""


class ProfiledApplication:
    """A WSGI application with a recording for each request."""

    def __init__(self, recorder: "Recorder", application: WsgiApplication, gate: Gate, store: Store) -> None:
        self._recorder = recorder
        self._application = application
        self._gate = gate
        self._store = store
        self._header = None if gate.header is None else f"HTTP_{gate.header.upper().replace('-', '_')}"

    @property
    def counts(self) -> Counts:
        """How many requests came, were profiled, and were dropped for slower ones, in this process."""
        return self._gate.counts

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; the recording's name is its method and path, without the query, which may hold secrets."""
        if not self._recorder.active:
            return self._application(environ, start_response)
        options = self._gate.options_for(None if self._header is None else environ.get(self._header))
        if options is None:
            return self._application(environ, start_response)
        name = f"{environ.get('REQUEST_METHOD', '?')} {environ.get('PATH_INFO', '')}"
        request = ProfiledRequest(self._recorder, name, options, self._gate, self._store)
        body = request.run(self._application, environ, start_response)
        if isinstance(body, (list, tuple)) or _is_sent_by_server(body, environ):
            request.end()
            return body
        return ProfiledBody(body, request)


class ProfiledRequest:
    """One request until its body ends; its tape is the current one only while the application's code runs."""

    def __init__(self, recorder: "Recorder", name: str, options: "Options", gate: Gate, store: Store) -> None:
        self._recorder = recorder
        self._gate = gate
        self._store = store
        self._tape = recorder.start(name, options)
        self._before: Tape | None = None

    def __enter__(self) -> None:
        """Make its tape the current one of this task."""
        self._before = self._recorder.switch_to(self._tape)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._recorder.switch_to(self._before)
        self.end(error)

    def run(self, code: Callable[..., T], *arguments: Any) -> T:
        """Call the application's *code* under this request's tape; a request that raises has ended."""
        previous = self._recorder.switch_to(self._tape)
        try:
            return code(*arguments)
        except BaseException as error:
            if not isinstance(error, StopIteration):
                self.end(error)
            raise
        finally:
            self._recorder.switch_to(previous)

    def end(self, error: BaseException | None = None) -> None:
        """Save the recording; again is harmless."""
        tape, self._tape = self._tape, None
        if tape is None:
            return
        if error is not None:
            tape.error = type(error).__name__
        self._recorder.keep(tape, self._gate, self._store)


class ProfiledBody:
    """A streamed body, whose own code belongs to the request until `close()` or its last piece."""

    def __init__(self, body: Iterable[bytes], request: ProfiledRequest) -> None:
        self._body = body
        self._request = request
        self._pieces: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._pieces is None:
            self._pieces = self._request.run(iter, self._body)
        try:
            piece: bytes = self._request.run(next, self._pieces)
        except StopIteration:
            self._request.end()
            raise
        return piece

    def close(self) -> None:
        """Close the application's body, as the server has to, and end the request."""
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                self._request.run(close)
        finally:
            self._request.end()


def _is_sent_by_server(body: object, environ: dict[str, Any]) -> bool:
    """Whether the body is the server's own file wrapper, which it sends by itself only if it gets it unwrapped."""
    wrapper = environ.get("wsgi.file_wrapper")
    return isinstance(wrapper, type) and isinstance(body, wrapper)
