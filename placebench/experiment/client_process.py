"""The process that sends requests: by one user or several at once, or to an application that lives in it.

`http_client` starts one that sends over HTTP, `app_client` one that calls a WSGI application; `drive` of either returns
`Driven`. It is a process of its own, so that what it reads and digests shares no interpreter with the one that meters
the server. Run as `python -m placebench.experiment.client_process FOLDER`.
"""

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from placebench.errors import LoadError
from placebench.experiment.canonical_response import parse_response
from placebench.experiment.http_request import HEADERS, get
from placebench.runtime.line_process import LineProcess, line_process, serve_lines
from placebench.runtime.supervisor import ChildSpec

_GONE = "the process that sends the requests died"
_IN_PROCESS = Path(__file__).parents[1] / "runtime" / "standalone" / "in_process_client.py"


@dataclass
class Driven:
    """What the users of one `drive` saw, together."""

    wall_s: list[float] = field(default_factory=list)
    """One entry a request that got a response, or failed."""
    failures: list[str] = field(default_factory=list)
    body_bytes: int = 0
    elapsed_s: float = 0.0
    """From the first request to the last response."""
    client_cpu_s: float = 0.0
    """What sending and reading took."""
    responses: dict[str, list[str]] = field(default_factory=dict)
    """By request: the canonical digest of each distinct body."""

    @property
    def digests(self) -> list[str]:
        """Those of all requests."""
        return sorted({digest for digests in self.responses.values() for digest in digests})

    def check(self) -> None:
        """Raise LoadError with the first request that failed."""
        if self.failures:
            raise LoadError(f"{len(self.failures)} of {len(self.wall_s)} requests failed: {self.failures[0]}")


class HttpClient:
    """A process of users who send requests over HTTP."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def drive(self, url: str, requests: Sequence[str], *, users: int = 1) -> Driven:
        """Let *users* send the *requests* (path and query), each the next one as soon as it has its response.

        Raises LoadError when the process is gone.
        """
        return Driven(**self._process.call({"url": url, "requests": list(requests), "users": users}))


class AppClient:
    """A process that calls the application in it, without a server: there is no URL, and no connection."""

    def __init__(self, process: LineProcess, folder: Path) -> None:
        self._process, self._folder = process, folder
        self.pid = process.pid
        self._digests: dict[str, str] = {}
        """Of the canonical form, by that of the bytes."""

    def drive(self, requests: Sequence[str]) -> Driven:
        """Call the application with one request after the other; raises LoadError when the process is gone."""
        made = self._process.call({"requests": list(requests), "headers": HEADERS})
        bodies = made.pop("bodies")
        responses = {request: sorted({self._digest(name) for name in names}) for request, names in bodies.items()}
        return Driven(**made, elapsed_s=sum(made["wall_s"]), responses=responses)

    def body(self, request: str) -> bytes:
        """Return the whole response to one request; raises LoadError unless it is 200."""
        made = self.drive([request])
        if made.failures:
            raise LoadError(f"{request} in process: {made.failures[0]} where 200 was expected")
        return body_file(self._folder, made.digests[0]).read_bytes()

    def _digest(self, name: str) -> str:
        raw = self._folder / f"{name}.raw"
        if name not in self._digests:
            self._digests[name] = parse_response(raw.read_bytes()).digest
            raw.rename(body_file(self._folder, self._digests[name]))
        raw.unlink(missing_ok=True)
        return self._digests[name]


@contextmanager
def http_client(folder: Path) -> Iterator[HttpClient]:
    """A client process for the `with` block; the bodies lie in `responses` of the run's *folder*."""
    argv = [sys.executable, "-m", "placebench.experiment.client_process", str(responses_folder(folder))]
    with line_process(_spec(argv, folder), gone=_GONE) as process:
        yield HttpClient(process)


@contextmanager
def app_client(python: str, module: str, variables: Mapping[str, str], folder: Path) -> Iterator[AppClient]:
    """The application *module* of the environment of *python*, loaded into a process for the `with` block."""
    responses = responses_folder(folder)
    argv = [python, "-P", str(_IN_PROCESS), module, str(responses)]
    with line_process(_spec(argv, folder, variables), gone=_GONE) as process:
        yield AppClient(process, responses)


def responses_folder(folder: Path) -> Path:
    """Return where the bodies of the run in *folder* lie, one of each digest."""
    responses = folder / "responses"
    responses.mkdir(exist_ok=True)
    return responses


def body_file(folder: Path, digest: str) -> Path:
    """Return where the body with this canonical digest lies."""
    return folder / f"{digest}.body"


def _spec(argv: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> ChildSpec:
    return ChildSpec(name="client", argv=argv, env=variables, log=folder / "log" / "client.log", pipes=True)


class Client:
    """Sends requests, and remembers the responses; runs in the client process."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._folder = folder
        self._clock = clock
        self._canonical: dict[bytes, str] = {}
        """The digest of the canonical form, by that of the bytes."""

    def drive(self, url: str, requests: Sequence[str], users: int = 1) -> Driven:
        """Send the requests as `HttpClient.drive` says; canonical digests are taken after the time that counts."""
        seen, bodies, waiting, lock = Driven(), dict[tuple[str, bytes], bytes](), iter(requests), threading.Lock()

        def use() -> None:
            while True:
                with lock:
                    request = next(waiting, None)
                if request is None:
                    return
                self._send(url, request, seen, bodies, lock)

        started = self._clock()
        if users == 1:
            use()
        else:
            threads = [threading.Thread(target=use) for _ in range(users)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        seen.elapsed_s = self._clock() - started
        digests: dict[str, set[str]] = {}
        for (request, name), body in bodies.items():
            digests.setdefault(request, set()).add(self._digest(name, body))
        seen.responses = {request: sorted(each) for request, each in digests.items()}
        return seen

    def _send(
        self, url: str, request: str, seen: Driven, bodies: dict[tuple[str, bytes], bytes], lock: threading.Lock
    ) -> None:
        cpu_before, started, body = time.thread_time(), self._clock(), b""
        try:
            reply = get(url, request)
            failure = "" if reply.status == HTTPStatus.OK else f"status {reply.status}"
            body = reply.body
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
        wall_s, cpu_s = self._clock() - started, time.thread_time() - cpu_before
        name = hashlib.sha256(body).digest()
        with lock:
            seen.wall_s.append(wall_s)
            seen.client_cpu_s += cpu_s
            if failure:
                seen.failures.append(failure)
            else:
                seen.body_bytes += len(body)
                bodies.setdefault((request, name), body)

    def _digest(self, name: bytes, body: bytes) -> str:
        if name not in self._canonical:
            self._canonical[name] = digest = parse_response(body).digest
            path = body_file(self._folder, digest)
            if not path.exists():
                path.write_bytes(body)
        return self._canonical[name]


def _main() -> None:
    client = Client(Path(sys.argv[1]))

    def answer(**order: Any) -> dict[str, Any]:
        return asdict(client.drive(**order))

    serve_lines(answer)


if __name__ == "__main__":
    _main()
