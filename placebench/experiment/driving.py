"""A process that sends requests one after the other, told in JSON lines: over HTTP, or to an application inside it.

The doors are `http_driver` and `app_driver`.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from placebench import guard
from placebench.errors import LoadError
from placebench.experiment.answers import read_answer
from placebench.experiment.client import body_file, command
from placebench.experiment.requesting import HEADERS

_STANDALONE = Path(__file__).with_name("standalone") / "in_process.py"


class Driver:
    """The process; `drive` makes it work."""

    def __init__(self, child: guard.Child) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._asks, self._answers = child, child.stdin, child.stdout

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def drive(self, **order: Any) -> dict[str, Any]:
        """Let it send requests; what `placebench.experiment.client.Client.drive` says of them.

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

    def __init__(self, child: guard.Child, answers: Path) -> None:
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
    with guard.start(client_spec(folder)) as child:
        yield Driver(child)


@contextmanager
def app_driver(python: str, module: str, variables: Mapping[str, str], folder: Path) -> Iterator[AppDriver]:
    """The application *module* of the environment of *python*, loaded; is told `request` and `requests`."""
    answers = answers_of(folder)
    argv = [python, "-P", str(_STANDALONE), module, str(answers)]
    with guard.start(_spec(argv, folder, variables)) as child:
        yield AppDriver(child, answers)


def client_spec(folder: Path) -> guard.ChildSpec:
    """The program of `http_driver`, for who starts it."""
    return _spec(command(answers_of(folder)), folder)


def answers_of(folder: Path) -> Path:
    """Where the bodies of a run lie, one of each digest."""
    answers = folder / "answers"
    answers.mkdir(exist_ok=True)
    return answers


def _spec(argv: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> guard.ChildSpec:
    return guard.ChildSpec(name="client", argv=argv, env=variables, log=folder / "log" / "client.log", pipes=True)
