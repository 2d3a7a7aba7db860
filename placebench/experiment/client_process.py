"""A long-lived process that sends a block of requests one after the other, driven by JSON lines."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from placebench.errors import LoadError
from placebench.experiment.canonical_response import read_answer
from placebench.experiment.http_request import HEADERS, get
from placebench.runtime import supervisor


def command(folder: Path) -> list[str]:
    """The command line that starts it."""
    return [sys.executable, "-m", "placebench.experiment.client_process", str(folder)]


def body_file(folder: Path, digest: str) -> Path:
    """Where a body with this canonical digest lies."""
    return folder / f"{digest}.body"


class Client:
    """Sends requests, and remembers what it was answered."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._folder = folder
        self._clock = clock
        self._canonical: dict[bytes, str] = {}
        """The digest of the canonical form, by that of the bytes."""

    def drive(self, url: str, request: str, requests: int) -> dict[str, Any]:
        """Send *requests* one after the other and say how long each took, what failed and what was answered.

        `{"wall_s": [...], "failures": [...], "body_bytes": n, "client_cpu_s": s, "answers": [digest, ...]}`, where
        client_cpu_s is what sending and reading took, and answers holds each canonical digest once.
        """
        wall_s: list[float] = []
        failures: list[str] = []
        bodies: dict[bytes, bytes] = {}
        body_bytes, client_cpu_s = 0, 0.0
        for _ in range(requests):
            cpu_before, started = time.process_time(), self._clock()
            try:
                reply = get(url, request)
            except OSError as error:
                failures.append(f"{type(error).__name__}: {error}")
                reply = None
            wall_s.append(self._clock() - started)
            client_cpu_s += time.process_time() - cpu_before
            if reply is not None and reply.status == HTTPStatus.OK:
                body_bytes += len(reply.body)
                bodies.setdefault(hashlib.sha256(reply.body).digest(), reply.body)
            elif reply is not None:
                failures.append(f"status {reply.status}")
        return {
            "wall_s": wall_s,
            "failures": failures,
            "body_bytes": body_bytes,
            "client_cpu_s": client_cpu_s,
            "answers": sorted({self._digest(name, body) for name, body in bodies.items()}),
        }

    def _digest(self, name: bytes, body: bytes) -> str:
        if name not in self._canonical:
            self._canonical[name] = digest = read_answer(body).digest
            path = body_file(self._folder, digest)
            if not path.exists():
                path.write_bytes(body)
        return self._canonical[name]


def main() -> None:
    """Answer each line on stdin until it ends."""
    client = Client(Path(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(json.dumps(client.drive(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()


_STANDALONE = Path(__file__).parents[1] / "runtime" / "standalone" / "in_process_client.py"


class Driver:
    """The process; `drive` makes it work."""

    def __init__(self, child: supervisor.Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._asks, self._answers = child, child.stdin, child.stdout

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def drive(self, **order: Any) -> dict[str, Any]:
        """Let it send requests; what `placebench.experiment.client_process.Client.drive` says of them.

        Raises LoadError when the process is gone.
        """
        try:
            self._asks.write(json.dumps(order) + "\n")
            line = self._answers.readline()
        except OSError:
            line = ""
        if not line:
            said = " | ".join(self._child.log_tail(4).splitlines())
            raise LoadError(f"the process that sends the requests died: {said or '(it left no message)'}")
        return dict(json.loads(line))


class AppDriver(Driver):
    """The same for an application that lives in the process: there is no URL, and no connection."""

    def __init__(self, child: supervisor.Child, answers: Path) -> None:
        super().__init__(child)
        self._folder = answers
        self._digests: dict[str, str] = {}
        """Of the canonical form, by that of the bytes."""

    def drive(self, **order: Any) -> dict[str, Any]:
        """Call the application; `{"wall_s", "failures", "body_bytes", "answers"}` as over HTTP."""
        told = super().drive(**order, headers=HEADERS)
        return {**told, "answers": sorted({self._digest(name) for name in told.pop("bodies")})}

    def body(self, request: str) -> bytes:
        """The whole answer to one request; raises LoadError unless it is 200."""
        told = self.drive(request=request, requests=1)
        if told["failures"]:
            raise LoadError(f"{request} in process: {told['failures'][0]} where 200 was expected")
        return body_file(self._folder, told["answers"][0]).read_bytes()

    def _digest(self, name: str) -> str:
        raw = self._folder / f"{name}.raw"
        if name not in self._digests:
            self._digests[name] = read_answer(raw.read_bytes()).digest
            raw.rename(body_file(self._folder, self._digests[name]))
        raw.unlink(missing_ok=True)
        return self._digests[name]


@contextmanager
def http_driver(folder: Path) -> Iterator[Driver]:
    """A client that is told `url`, `request` and `requests`; the bodies lie in `answers` of the run's *folder*."""
    with supervisor.start(client_spec(folder)) as child:
        yield Driver(child)


@contextmanager
def app_driver(python: str, module: str, variables: Mapping[str, str], folder: Path) -> Iterator[AppDriver]:
    """The application *module* of the environment of *python*, loaded; is told `request` and `requests`."""
    answers = answers_of(folder)
    argv = [python, "-P", str(_STANDALONE), module, str(answers)]
    with supervisor.start(_spec(argv, folder, variables)) as child:
        yield AppDriver(child, answers)


def client_spec(folder: Path) -> supervisor.ChildSpec:
    """The program of `http_driver`, for who starts it."""
    return _spec(command(answers_of(folder)), folder)


def answers_of(folder: Path) -> Path:
    """Where the bodies of a run lie, one of each digest."""
    answers = folder / "answers"
    answers.mkdir(exist_ok=True)
    return answers


def _spec(argv: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> supervisor.ChildSpec:
    return supervisor.ChildSpec(name="client", argv=argv, env=variables, log=folder / "log" / "client.log", pipes=True)
