"""WSGI middleware: a recording for each request, saved the moment the request ends, so that no killed worker loses one.

The key piece is `ProfiledApplication`. A request ends when its body is closed or used up; a body that is a list is used
up when the application returns. It has no threads of its own and may be forked: names and counters are per process.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from placebench.errors import ProfilerError
from placebench.profiler.recording import Recording, write_whole

if TYPE_CHECKING:
    from placebench.profiler.tape import Options, Tape

T = TypeVar("T")
WsgiApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Keep:
    """How many requests of a process are kept as files, and which.

    "first": the first ones; later requests run unprofiled. "slowest": all are profiled, and the slowest stay.
    """

    count: int = 200
    which: Literal["first", "slowest"] = "first"


class Recorder(Protocol):
    """What the middleware asks of the profiler; none of these raises."""

    @property
    def active(self) -> bool:
        """Whether the profiler is on; if it is not, requests go through unwatched."""

    def start(self, name: str, options: "Options") -> "Tape | None":
        """A tape that runs from now on; None if the profiler is off."""

    def switch_to(self, tape: "Tape | None") -> "Tape | None":
        """Make *tape* the current one of this thread or task; the one before comes back."""

    def keep(self, tape: "Tape", folder: "RecordingFolder | None") -> None:
        """End the tape and save its recording, or keep it in memory if there is no folder."""


class RecordingFolder:
    """The files of one process's requests: `<pid>-<counter>.recording.json` and, of a flame, `.pyisession`."""

    def __init__(self, folder: Path, keep: Keep) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProfilerError(f"folder {folder} for recordings cannot be made: {error.strerror}") from error
        self._folder = folder
        self._keep = keep
        self._lock = threading.Lock()
        self._forget()

    def admits(self) -> bool:
        """Whether one more request is to be profiled; counts it."""
        with self._lock:
            if os.getpid() != self._pid:
                self._forget()
            self._admitted += 1
            return self._keep.which == "slowest" or self._admitted <= self._keep.count

    def save(self, recording: Recording) -> None:
        """Write the recording and its session whole or not at all, and delete the fastest one if there are too many."""
        with self._lock:
            self._saved += 1
            path = self._folder / f"{self._pid}-{self._saved}"
        if recording.session is not None:
            write_whole(path.with_name(f"{path.name}.pyisession"), json.dumps(recording.session.to_json()))
        recording.save(path.with_name(f"{path.name}.recording.json"))
        with self._lock:
            self._files.append((recording.elapsed_s, path))
            if len(self._files) > self._keep.count:
                self._files.sort(key=lambda file: file[0], reverse=True)
                _, fastest = self._files.pop()
                for suffix in (".recording.json", ".pyisession"):
                    fastest.with_name(f"{fastest.name}{suffix}").unlink(missing_ok=True)

    def _forget(self) -> None:
        """Begin anew, as a forked worker has to: its parent's files are not its own."""
        self._pid = os.getpid()
        self._admitted = 0
        self._saved = 0
        self._files: list[tuple[float, Path]] = []


class ProfiledApplication:
    """A WSGI application with a recording for each request."""

    def __init__(
        self, recorder: "Recorder", application: WsgiApplication, options: "Options", *, folder: RecordingFolder | None
    ) -> None:
        self._recorder = recorder
        self._application = application
        self._options = options
        self._folder = folder

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request; the recording's name is its method and path, without the query, which may hold secrets."""
        if not self._recorder.active or (self._folder is not None and not self._folder.admits()):
            return self._application(environ, start_response)
        name = f"{environ.get('REQUEST_METHOD', '?')} {environ.get('PATH_INFO', '')}"
        request = ProfiledRequest(self._recorder, name, self._options, self._folder)
        body = request.run(self._application, environ, start_response)
        if isinstance(body, (list, tuple)) or _is_sent_by_server(body, environ):
            request.end()
            return body
        return ProfiledBody(body, request)


class ProfiledRequest:
    """One request until its body ends; its tape is the current one only while the application's code runs."""

    def __init__(self, recorder: "Recorder", name: str, options: "Options", folder: RecordingFolder | None) -> None:
        self._recorder = recorder
        self._folder = folder
        self._tape = recorder.start(name, options)

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
        self._recorder.keep(tape, self._folder)


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
