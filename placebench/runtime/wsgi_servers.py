"""A WSGI application behind a server of one's choice: uWSGI, gunicorn, or the standard library's with threads.

The door is `serve_by`. Each closes a connection after its answer, so that all are asked alike.
"""

import re
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, Self

import psutil

from placebench.errors import MissingExtraError, PlacebenchError, ServerError
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, fresh_folder, start
from placebench.runtime.uwsgi import ServerSpec, answers, check_spec, child_log, environment, serve

STANDALONE = Path(__file__).with_name("standalone")
_LISTENS = re.compile(r"istening at:? (http://\S+)")
_WORKER_LOST = re.compile(r"^.*Worker \(pid:\d+\) (?:was sent|exited).*$", re.MULTILINE)
_POLL_S = 0.02


class Serving(Protocol):
    """A server that answers at `url`; a context manager that stops it."""

    url: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def worker_pids(self) -> list[int]:
        """The processes that answer requests now."""

    def check(self) -> None:
        """Raise ServerError if one of them has died since the start."""


def serve_by(server: str, spec: ServerSpec) -> Serving:
    """Start *server* ("uwsgi", "gunicorn", "wsgiref") and wait until it answers.

    Raises ServerError as `serve` does, MissingExtraError where the server is not installed, and PlacebenchError for
    one that does not exist.
    """
    if server == "uwsgi":
        return serve(spec)
    if server not in _COMMANDS:
        raise PlacebenchError(f"no server {server!r}: expected uwsgi, {', '.join(_COMMANDS)}")
    check_spec(spec)
    scratch = fresh_folder(f"placebench-{server}-")
    log = child_log(spec, scratch / f"{server}.log")
    child = start(
        ChildSpec(
            name=server,
            argv=_COMMANDS[server](spec),
            env=environment(spec),
            cwd=scratch,
            log=log.path,
            grace_s=spec.grace_s,
            remove=scratch,
        )
    )
    serving = OtherServer(server, spec, child, log)
    try:
        serving.wait_until_ready()
    except BaseException:
        child.stop()
        raise
    return serving


class OtherServer:
    """A server other than uWSGI, which says in its log where it listens."""

    def __init__(self, name: str, spec: ServerSpec, child: Child, log: ChildLog) -> None:
        self._name, self._spec, self._child, self._log = name, spec, child, log
        self.url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.stop()

    def worker_pids(self) -> list[int]:
        """The children of gunicorn's master; wsgiref's one process is its own worker."""
        if self._name == "wsgiref":
            return [self._child.pid]
        try:
            return sorted(worker.pid for worker in psutil.Process(self._child.pid).children())
        except psutil.NoSuchProcess:
            return []

    def check(self) -> None:
        """Raise ServerError if the server or one of its workers has died."""
        if (exit_code := self._child.poll()) is not None:
            raise ServerError(f"{self._name} ended with exit code {exit_code} while it served; {self._log.end()}")
        if lost := _WORKER_LOST.search(self._log.text()):
            raise ServerError(f"a worker of {self._name} died while it served ({lost[0]}); {self._log.end()}")

    def wait_until_ready(self) -> None:
        """Return when `GET /` is answered, with `url` set; raises ServerError if it is not in start_timeout_s."""
        give_up_at = time.monotonic() + self._spec.start_timeout_s
        while not (self._find_url() and answers(self.url, whatever=self._spec.any_answer_is_ready)):
            if self._child.poll() is not None:
                raise ServerError(f"{self._name} could not serve {self._spec.module}; {self._log.end()}")
            if time.monotonic() > give_up_at:
                waited = f"`GET /` was not answered within {self._spec.start_timeout_s:g} s"
                raise ServerError(f"{waited} of the start of {self._name}; {self._log.end()}")
            time.sleep(_POLL_S)

    def _find_url(self) -> str:
        if not self.url and (found := _LISTENS.search(self._log.text())):
            self.url = found[1]
        return self.url


def _gunicorn(spec: ServerSpec) -> list[str]:
    if spec.python is None and find_spec("gunicorn") is None:
        raise MissingExtraError("gunicorn is not installed: pip install gunicorn")
    return [
        *(_python(spec), "-m", "gunicorn", "--bind", f"{spec.host}:{spec.port}"),
        *("--workers", str(spec.processes), "--threads", str(spec.threads)),
        # No worker is killed for a long answer, and no connection kept, as under the other servers.
        *("--timeout", "0", "--graceful-timeout", str(round(spec.grace_s)), "--keep-alive", "0"),
        *("--backlog", "1024", "--limit-request-line", "0", spec.module),
    ]


def _wsgiref(spec: ServerSpec) -> list[str]:
    if spec.processes > 1:
        raise ServerError(f"{spec.processes} processes were asked for: wsgiref serves in one")
    return [_python(spec), "-P", str(STANDALONE / "wsgiref_server.py"), spec.module, str(spec.threads)]


def _python(spec: ServerSpec) -> str:
    return str(spec.python or sys.executable)


_COMMANDS: Mapping[str, Callable[[ServerSpec], list[str]]] = {"gunicorn": _gunicorn, "wsgiref": _wsgiref}
