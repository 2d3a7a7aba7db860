"""The two programs that are compared, each asked by the same `Request`: `Placement` in a child process, `Ours` here."""

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol
from wsgiref.types import WSGIApplication

from sqlalchemy import Engine
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder, run_wsgi_app

from placebench.lab.reference.api.pipeline import make_app
from placebench.lab.reference.domain.settings import DEFAULTS
from placebench.runtime.supervisor import Child, ChildSpec, start_child

HEADERS: Final = {
    "X-Auth-Token": "admin",
    "X-Roles": "admin,service",
    "OpenStack-API-Version": "placement 1.39",
    "Accept": "application/json",
}
_VERSION: Final = "OpenStack-API-Version"
_CHILD: Final = Path(__file__).with_name("placement_child.py")


def in_version(minor: int) -> Mapping[str, str]:
    """The headers of a request in this minor version."""
    return {**HEADERS, _VERSION: f"placement 1.{minor}"}


@dataclass(frozen=True)
class Request:
    """What both programs are asked; path and query as they stand on the wire, but for characters instead of bytes."""

    method: str
    path: str
    query: str = ""
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=lambda: HEADERS)

    def __str__(self) -> str:
        address = f"{self.method} {self.path}{'?' if self.query else ''}{self.query}"
        body = "" if self.body is None else f"  {json.dumps(self.body)}"
        version = self.headers.get(_VERSION, "no version")
        return address + body + ("" if version == HEADERS[_VERSION] else f"  ({version})")

    @property
    def all_headers(self) -> Mapping[str, str]:
        """With the content type of a body."""
        return self.headers if self.body is None else {**self.headers, "Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """What came back: of an error its title and code, otherwise the document."""

    status: int
    document: Any

    @property
    def error(self) -> tuple[str, str] | None:
        """Title and code of the error document; None without one."""
        if not isinstance(self.document, dict) or "errors" not in self.document:
            return None
        (error,) = self.document["errors"]
        return error["title"], error.get("code", "none")

    def __str__(self) -> str:
        return f"{self.status} {self.error or json.dumps(self.document, sort_keys=True)}"


class Program(Protocol):
    """Something that answers requests."""

    def ask(self, request: Request) -> Answer:
        """What it answers."""


class Placement:
    """The real Placement in a process of its own."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def ask(self, request: Request, timeout_s: float | None = None) -> Answer:
        """What it answers; RuntimeError with the end of its log when it has died, TimeoutError when it was too slow."""
        said = {
            "method": request.method,
            "path": request.path.encode().decode("latin-1"),
            "query": request.query,
            "headers": dict(request.all_headers),
            "body": None if request.body is None else json.dumps(request.body),
        }
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(said) + "\n")
        was_too_slow = threading.Event()

        def give_up() -> None:
            was_too_slow.set()
            self._child.kill()

        timer = threading.Timer(timeout_s or threading.TIMEOUT_MAX, give_up)
        timer.daemon = True
        timer.start()
        line = self._child.stdout.readline()
        timer.cancel()
        if was_too_slow.is_set():
            raise TimeoutError
        if not line:
            raise RuntimeError(f"Placement ended: {self._child.log_tail()}")
        answer = json.loads(line)
        return Answer(answer["status"], answer["body"])


@contextmanager
def placement(python: str, database_url: str, upstream: bool = False, /, **settings: str) -> Iterator[Placement]:
    """Placement on tables that are there; settings: further options, `workarounds__name="True"`.

    upstream: with the changes of upstream_search.py.
    """
    options = {
        "placement_database__connection": database_url,
        # Its own migrations would fail on our tables. What it adds at its start, standard traits and classes, is there.
        "placement_database__sync_on_startup": "False",
        "api__auth_strategy": "noauth2",
        **settings,
    }
    with tempfile.TemporaryDirectory(prefix="placebench-oracle-") as scratch:
        spec = ChildSpec(
            name="Placement",
            argv=[python, str(_CHILD), *(["--upstream"] if upstream else [])],
            env={
                **os.environ,
                **{f"OS_{name.upper()}": value for name, value in options.items()},
                "PYTHONHASHSEED": "0",  # the order of its sets decides what D4 and D5 do
                "PYTHONWARNINGS": "ignore",
            },
            cwd=Path(scratch),
            log=Path(scratch) / "log",
            pipes=True,
        )
        with start_child(spec) as child:
            yield Placement(child)


class Ours:
    """The reference service in this process, in one variant."""

    def __init__(self, engine: Engine, variant: str = "tuned", cache_url: str = "") -> None:
        """cache_url: of a cache service, where the variant has one."""
        self._app: WSGIApplication = make_app(engine, variant, replace(DEFAULTS, cache_url=cache_url))
        self._times = 3 if cache_url else 1

    def ask(self, request: Request) -> Answer:
        """What it answers, with a cache service the third time: the first two may register, and keep the response."""
        return [self._ask(request) for _ in range(self._times)][-1]

    def _ask(self, request: Request) -> Answer:
        body = None if request.body is None else json.dumps(request.body).encode()
        environ = EnvironBuilder(method=request.method, data=body, headers=Headers(request.all_headers)).get_environ()
        environ["PATH_INFO"] = request.path.encode().decode("latin-1")
        environ["QUERY_STRING"] = request.query
        chunks, status, _ = run_wsgi_app(self._app, environ)
        content = b"".join(chunks)
        return Answer(int(status[:3]), _parsed(content))


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return content.decode("latin-1")
