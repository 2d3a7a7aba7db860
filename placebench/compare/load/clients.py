"""Clients in processes of their own: `http_client` sends over HTTP, `app_client` calls a WSGI application.

`drive` of either returns `Driven`.
"""

import base64
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from placebench.compare.load.client_machine import ClientMachine
from placebench.compare.load.client_process import Driven, body_file, responses_folder, write_response
from placebench.compare.what.canonical_response import parse_response
from placebench.compare.what.workload import ServiceApi, Workload
from placebench.errors import LoadError
from placebench.runtime.line_process import LineProcess, line_process
from placebench.runtime.supervisor import ChildSpec

_GONE = "the process that sends the requests died"
_IN_PROCESS = Path(__file__).parents[2] / "runtime" / "standalone" / "in_process_client.py"


class HttpClient:
    """Controls a process whose users send requests over HTTP."""

    def __init__(self, process: LineProcess, responses: Path) -> None:
        self._process, self._responses = process, responses
        self._sent: Workload | None = None
        """The workload that the process received last."""

    def drive(
        self,
        url: str,
        workload: Workload,
        *,
        times: int = 1,
        users: int = 1,
        login: bool = False,
        due_s: Sequence[float] = (),
    ) -> Driven:
        """Let *users* users send the workload's cycle of requests *times* times; each waits for its responses.

        due_s: when each request is due, in seconds from the start, ascending; the users are then only the largest
        number of requests under way, and one that is due while all are waits for the service.
        login: begin a session with the requests of the workload's login, which are not counted; needed after each start
        of a server. Raises LoadError if the process is gone or a login fails.
        """
        order: dict[str, Any] = {"url": url, "times": times, "users": users, "login": login, "due_s": list(due_s)}
        if workload is not self._sent:
            order["workload"] = msgspec.to_builtins(workload)
            self._sent = workload
        made = self._process.call(order)
        for digest, body, head in made.pop("distinct", ()):
            write_response(self._responses, digest, base64.b64decode(body), head)
        if error := made.pop("error", None):
            raise LoadError(error)
        return Driven(**made)


class AppClient:
    """Controls a process that calls an application inside itself, without server, URL or connection."""

    def __init__(self, process: LineProcess, folder: Path, api: ServiceApi) -> None:
        self._process, self._folder, self._api = process, folder, api
        self.pid = process.pid
        self._digests: dict[str, str] = {}
        """Canonical digests of responses by the digest of their bytes."""

    def drive(self, requests: Sequence[str]) -> Driven:
        """Call the application with one request after the other; raises LoadError when the process is gone."""
        made = self._process.call({"requests": list(requests), "headers": dict(self._api.headers)})
        bodies = made.pop("bodies")
        responses = {request: sorted({self._digest(name) for name in names}) for request, names in bodies.items()}
        return Driven(**made, elapsed_s=sum(made["wall_s"]), responses=responses)

    def body(self, request: str) -> bytes:
        """Return the body of the response to one request; raises LoadError unless its status is 200."""
        made = self.drive([request])
        if made.failures:
            raise LoadError(f"{request} in process: {made.failures[0]} where 200 was expected")
        return body_file(self._folder, made.digests[0]).read_bytes()

    def _digest(self, name: str) -> str:
        raw = self._folder / f"{name}.raw"
        if name not in self._digests:
            self._digests[name] = parse_response(raw.read_bytes(), self._api.rules).digest
            raw.rename(body_file(self._folder, self._digests[name]))
        raw.unlink(missing_ok=True)
        return self._digests[name]


@contextmanager
def http_client(folder: Path, machine: ClientMachine | None = None) -> Iterator[HttpClient]:
    """Run a client process for the `with` block, here or on *machine*; bodies are saved in `responses` of *folder*."""
    responses = responses_folder(folder)
    if machine is not None:
        with machine.process(folder / "log" / "client.log") as process:
            yield HttpClient(process, responses)
        return
    argv = [sys.executable, "-P", "-m", "placebench.compare.load.client_process", str(responses)]
    with line_process(_spec(argv, folder), gone=_GONE) as process:
        yield HttpClient(process, responses)


@contextmanager
def app_client(
    python: str, module: str, variables: Mapping[str, str], folder: Path, *, api: ServiceApi
) -> Iterator[AppClient]:
    """Load the application *module* into a process of the Python *python* for the `with` block.

    api: the headers of its requests, and the rules by which its responses are compared.
    """
    responses = responses_folder(folder)
    argv = [python, "-P", str(_IN_PROCESS), module, str(responses)]
    with line_process(_spec(argv, folder, variables), gone=_GONE) as process:
        yield AppClient(process, responses, api)


def _spec(argv: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> ChildSpec:
    return ChildSpec(name="client", argv=argv, env=variables, log=folder / "log" / "client.log", pipes=True)
