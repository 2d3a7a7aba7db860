"""A workload that is a Python function of the user, or a locustfile, run in the client process.

`load_script` returns a `Script`; its `run` sends the requests of one iteration by a `WorkloadClient`, whose `get`,
`post` and so on are called like those of `requests` and of locust's users.
"""

import hashlib
import importlib
import inspect
import json
import random
import sys
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlencode, urlsplit

from placebench.compare.what.http_request import Reply
from placebench.compare.what.workload import SentRequest
from placebench.errors import LoadError
from placebench.http_session import content_type
from placebench.masking import mask


class WorkloadResponse:
    """The response to a request of a script; a context manager, like the one of locust's `catch_response`."""

    def __init__(self, reply: Reply, judge: Callable[[str], object]) -> None:
        """judge: called with the reason of a failure, or with "" for a success."""
        self.status_code = reply.status
        self.content = reply.body
        self.headers = {name.title(): value for name, value in reply.headers}
        self._judge = judge

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status_code < 400

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Return the body, parsed as JSON."""
        return json.loads(self.content)

    def raise_for_status(self) -> None:
        """Raise LoadError for a status of 400 or above."""
        if not self.ok:
            raise LoadError(f"status {self.status_code}")

    def success(self) -> None:
        """Count the response as a success, whatever its status."""
        self._judge("")

    def failure(self, why: object) -> None:
        """Count the response as a failure, with *why* as its reason."""
        self._judge(str(why))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: a response that the script did not judge counts by its status."""


class WorkloadClient:
    """Sends a script's requests to one variant; each is counted, and its response is compared."""

    def __init__(self, send: Callable[[SentRequest], tuple[Reply, Callable[[str], object]]], seed: str) -> None:
        """send: sends a request; returns its reply, and a function that records a failure or success."""
        self.random = random.Random(seed)
        """Random numbers of this iteration, equal for each variant."""
        self._send = send

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        data: Any = None,
        headers: Mapping[str, str] | None = None,
        expect_status: int | None = None,
        name: str = "",
        **_: object,
    ) -> WorkloadResponse:
        """Send one request.

        expect_status: the only accepted status; by default any below 400. name: the label under which its responses are
        compared. Other arguments of `requests` and locust, such as `timeout` and `catch_response`, are ignored. Raises
        LoadError if no response came.
        """
        parts = urlsplit(url)
        query = "&".join(filter(None, [parts.query, urlencode(params or {}, doseq=True)]))
        path = f"{parts.path or '/'}?{query}" if query else parts.path or "/"
        body = _body(json, data)
        kind = "application/json" if json is not None else content_type(body)
        sent = {"Content-Type": kind} if kind else {}
        label = path if method == "GET" and not body else f"{method} {path}"
        if body:
            label += f" {hashlib.sha256(body).hexdigest()[:8]}"
        reply, judge = self._send(
            SentRequest(
                method.upper(), path, {**sent, **(headers or {})}, body, expect_status, mask(str(name or label))
            )
        )
        return WorkloadResponse(reply, judge)

    def get(self, url: str, **options: Any) -> WorkloadResponse:
        """Send a GET request, with the options of `request`."""
        return self.request("GET", url, **options)

    def head(self, url: str, **options: Any) -> WorkloadResponse:
        """Send a HEAD request, with the options of `request`."""
        return self.request("HEAD", url, **options)

    def options(self, url: str, **options: Any) -> WorkloadResponse:
        """Send an OPTIONS request, with the options of `request`."""
        return self.request("OPTIONS", url, **options)

    def post(self, url: str, data: Any = None, **options: Any) -> WorkloadResponse:
        """Send a POST request, with the options of `request`."""
        return self.request("POST", url, data=data, **options)

    def put(self, url: str, data: Any = None, **options: Any) -> WorkloadResponse:
        """Send a PUT request, with the options of `request`."""
        return self.request("PUT", url, data=data, **options)

    def patch(self, url: str, data: Any = None, **options: Any) -> WorkloadResponse:
        """Send a PATCH request, with the options of `request`."""
        return self.request("PATCH", url, data=data, **options)

    def delete(self, url: str, **options: Any) -> WorkloadResponse:
        """Send a DELETE request, with the options of `request`."""
        return self.request("DELETE", url, **options)


def _body(document: Any, data: Any) -> bytes:
    if document is not None:
        return json.dumps(document).encode()
    if data is None:
        return b""
    if isinstance(data, bytes):
        return data
    return data.encode() if isinstance(data, str) else urlencode(data, doseq=True).encode()


class Script(Protocol):
    """A workload that is run again and again, one iteration at a time."""

    def start(self, url: str, client: WorkloadClient) -> None:
        """Begin a session on the service at *url*."""

    def run(self, client: WorkloadClient) -> None:
        """Send the requests of one iteration."""


def load_script(script: str, folder: Path) -> Script:
    """Return the function `module:name`, whose module is found in *folder*, or the tasks of a locustfile there.

    Raises LoadError if the script cannot be loaded.
    """
    try:
        if script.endswith(".py"):
            return _Locustfile(folder / script)
        module, _, name = script.partition(":")
        sys.path.insert(0, str(folder))
        return _Function(getattr(importlib.import_module(module), name))
    except LoadError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(f"workload {script!r} cannot be loaded: {type(error).__name__}: {error}") from error


class _Function:
    """A script that is a function of one argument, the client."""

    def __init__(self, function: Callable[[WorkloadClient], object]) -> None:
        self._function = function

    def start(self, url: str, client: WorkloadClient) -> None:
        """Do nothing, because a function has no session to begin."""

    def run(self, client: WorkloadClient) -> None:
        self._function(client)


class _Locustfile:
    """A script that runs one task of one user class per iteration, drawn by their weights, without waits in between."""

    def __init__(self, path: Path) -> None:
        from locust import User

        if not path.is_file():
            raise LoadError(f"no locustfile {path}")
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.path.insert(0, str(path.parent))
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        found = [each for each in vars(module).values() if inspect.isclass(each) and issubclass(each, User)]
        self._classes = [each for each in found if not each.abstract and each.tasks]
        if not self._classes:
            raise LoadError(f"{path} has no user class with tasks")
        self._users: list[Any] = []

    def start(self, url: str, client: WorkloadClient) -> None:
        """Make one user of each class, and call its on_start."""
        from locust.env import Environment

        environment = Environment(host=url)
        for each in self._classes:
            each.host = url
        self._users = [each(environment) for each in self._classes]
        for user in self._users:
            user.client = client
            user.on_start()

    def run(self, client: WorkloadClient) -> None:
        """Run one task of a user, both drawn at random."""
        user = client.random.choices(self._users, [each.weight for each in self._users])[0]
        user.client = client
        self._run_task(user, client.random.choice(user.tasks), client.random)

    def _run_task(self, parent: Any, task: Any, chance: random.Random) -> None:
        """Call a task: of a TaskSet one task that is drawn, of a SequentialTaskSet all tasks in order."""
        from locust import SequentialTaskSet, TaskSet
        from locust.exception import InterruptTaskSet, RescheduleTask

        try:
            if not (inspect.isclass(task) and issubclass(task, TaskSet)):
                task(parent)
                return
            inside = task(parent)
            inside.on_start()
            is_sequence = isinstance(inside, SequentialTaskSet)
            for each in inside.tasks if is_sequence else [chance.choice(inside.tasks)]:
                self._run_task(inside, each, chance)
            inside.on_stop()  # type: ignore[no-untyped-call]
        except (InterruptTaskSet, RescheduleTask):
            pass
