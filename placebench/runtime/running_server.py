"""A server of an application in its own process: its settings (`ServerSpec`), and `RunningServer`.

`placebench.runtime.application_servers.serve` starts one.
"""

import http.client
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

from placebench.errors import ServerError
from placebench.runtime.cache_server import CACHE_URL_VARIABLE, start_cache_server
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, new_scratch_path, start_child

POLL_S = 0.02
_PORT_TAKEN = "address already in use"
_DEFAULT_POOL_SIZE = 10
_FIRST_ERROR = 400
_RESPONSE_LIMIT_S = 5.0
_MAX_READ_BYTES = 65_536
Interface = Literal["wsgi", "asgi"]


@dataclass(frozen=True)
class ServerSpec:
    """The application to serve, and the settings of its server."""

    database_url: str
    variant: str = "cached"
    host: str = "127.0.0.1"
    port: int = 0
    """The port to listen on; 0 for a free port that the server picks."""
    processes: int = 1
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for the service, such as PYTHONHASHSEED; they override those that this spec sets."""
    server: str = "uwsgi"
    """One of uwsgi, gunicorn, mod_wsgi, uvicorn, hypercorn, granian and wsgiref, or command."""
    interface: Interface = "wsgi"
    """The interface of the application; not every server supports both."""
    command: str = ""
    """The command line of the server "command", which serves at {port}."""
    ready: str = ""
    """A path that responds with 200 to 399 when the service is ready; empty for `GET /`, or a command's port."""
    prefix: tuple[str, ...] = ()
    """The beginning of the server's command line, such as nsenter with its options."""
    folder: Path | None = None
    """The folder in which the server runs; None for a scratch folder."""
    module: str = "placebench.lab.reference.wsgi:application"
    python: Path | None = None
    """The Python of the module's environment, with uWSGI's program beside it; None for this one."""
    any_response_is_ready: bool = False
    """Whether any response to `GET /` counts as ready, as for an application that has nothing at that path."""
    cache_server: bool = False
    """Whether a cache server is started and stopped together with the server."""
    telemetry: Path | None = None
    """The path to which each worker writes its telemetry; None for no telemetry."""
    log: Path | None = None
    """The path of the server's log; None for a file that is removed with the server."""
    start_timeout_s: float = 60.0
    grace_s: float = 30.0
    """Seconds that requests in flight may take when the server is stopped."""
    client_timeout_s: int = 10
    """Seconds that a thread of uWSGI waits for the next bytes of a request, or for a client to read more."""

    def variables(self) -> dict[str, str]:
        """Return the environment of the service: ours without uWSGI's options, and the settings of this spec."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("UWSGI_")}
        return {
            **inherited,
            "PLACEBENCH_DATABASE_URL": self.database_url,
            "PLACEBENCH_VARIANT": self.variant,
            # A thread that waited for a connection would measure the pool, not the service.
            "PLACEBENCH_POOL_SIZE": str(max(_DEFAULT_POOL_SIZE, self.threads)),
            "PLACEBENCH_TELEMETRY": "" if self.telemetry is None else str(self.telemetry.absolute()),
            **self.environment,
        }

    @property
    def address(self) -> str:
        """The host and port, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RunningServer(ABC):
    """A server that listens at `url`; a context manager that stops it."""

    name: ClassVar[str]
    _listens: ClassVar[re.Pattern[str]] = re.compile(r"istening at:? (http://\S+)")
    """Pattern of the log line with the URL; if the port is taken by another server, this line is missing."""
    _worker_died: ClassVar[re.Pattern[str]]
    """Pattern of the log line about a worker that died."""
    _closes_at_exceptions: ClassVar[bool] = False
    """Whether the server closes the connection without a response if the application raises an exception."""
    _grace_s: ClassVar[float | None] = None
    """Seconds that the end of the server may take; None for `grace_s` of the spec."""

    def __init__(self, spec: ServerSpec) -> None:
        """Start the process; `wait_until_ready` waits until it serves."""
        self._scratch = scratch = new_scratch_path(f"placebench-{self.name}-")
        argv = [*spec.prefix, *self._command(spec)]
        if spec.log is not None:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
        self._spec = spec
        self._log = ChildLog(spec.log or scratch / "server.log")
        self._cache = start_cache_server(spec.prefix) if spec.cache_server else None
        beside = {CACHE_URL_VARIABLE: self._cache.url} if self._cache else {}
        child = ChildSpec(
            name=self.name,
            argv=argv,
            env={**spec.variables(), **beside, **self._variables(spec)},
            cwd=spec.folder or scratch,
            log=self._log.path,
            grace_s=self._grace_s or spec.grace_s,
            remove=scratch,
            adopts=True,
        )
        self.ready_after_s = 0.0
        self._descendants: set[int] = set()
        """The processes below the shepherd, when they were read last."""
        """Time from the start of the process to its first response."""
        self._started_at = time.monotonic()
        try:
            self._child: Child = start_child(child)
        except BaseException:
            self._stop_cache()
            raise
        self.url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the server's master."""
        return self._child.pid

    @property
    def guard_pid(self) -> int:
        """The parent of the master and of daemons that the service has started; it has the CPU time of ended ones."""
        return self._child.guard_pid

    @property
    def is_running(self) -> bool:
        """Whether the master process is running."""
        return self._child.poll() is None

    def worker_pids(self) -> list[int]:
        """Return the processes that serve requests now, in ascending order; empty if the master is gone."""
        import psutil  # not needed to find uWSGI, which `doctor` does with the extra uwsgi alone

        try:
            workers = psutil.Process(self.pid).children()
            return sorted(worker.pid for worker in workers if worker.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return []

    def metered_pids(self) -> list[int]:
        """Return the processes that work for a request: the workers, and the cache server if there is one."""
        return [*self.worker_pids(), *self._cache_pids()]

    def pids(self) -> list[int]:
        """Return all processes of the service: master, workers, their children and daemons, and the cache server.

        Returns an empty list if the service is gone.
        """
        import psutil

        # The kernel's lists of children may lack some while another one ends. So they only say whether anything has
        # changed since all processes were read, which takes a hundred times as long.
        if _descendants(self.guard_pid) != self._descendants or not self._descendants:
            try:
                children = psutil.Process(self.guard_pid).children(recursive=True)
            except psutil.NoSuchProcess:
                return []
            self._descendants = {each.pid for each in children}
        return [*sorted(self._descendants), *self._cache_pids()]

    def check(self) -> None:
        """Raise ServerError if the master or a worker has died since the start, even if the worker was replaced."""
        if (exit_code := self._child.poll()) is not None:
            raise ServerError(f"{self.name} ended with exit code {exit_code} while it served; {self._log.end()}")
        if died := self._worker_died.search(self._log.text()):
            raise ServerError(f"a worker of {self.name} died while it served ({died[0]}); {self._log.end()}")

    def stop(self) -> None:
        """Serve the requests in flight, then end; a second call does nothing."""
        self._child.stop()
        self._stop_cache()

    def discard(self) -> None:
        """End a server that nobody uses: what it may still respond to is not waited for."""
        self._child.kill()
        self.stop()

    def log_tail(self, lines: int = 10) -> str:
        """Return the last lines of the server's log."""
        return self._log.tail(lines)

    def wait_until_ready(self) -> None:
        """Return when the service is ready, with `url` set; raises ServerError after start_timeout_s."""
        give_up_at = self._started_at + self._spec.start_timeout_s
        while not (self._find_url() and self._is_ready()):
            if self._child.poll() is not None:
                raise self._start_error()
            if time.monotonic() > give_up_at:
                waited = f"{self._awaited()} within {self._spec.start_timeout_s:g} s of the start of {self.name}"
                more = "ready names another path, and start_timeout_s allows more time"
                raise ServerError(f"{waited}: {more}; {self._log.end()}")
            # A long start is not slowed down by being watched: its duration is known to 1 %.
            time.sleep(max(POLL_S, (time.monotonic() - self._started_at) / 100))
        self.ready_after_s = time.monotonic() - self._started_at
        if self._child.poll() is not None:  # another server responds at this address
            raise self._start_error()

    def _cache_pids(self) -> list[int]:
        return [self._cache.pid] if self._cache else []

    def _stop_cache(self) -> None:
        if self._cache:
            self._cache.stop()

    @abstractmethod
    def _command(self, spec: ServerSpec) -> list[str]:
        """Return the argument vector of the server."""

    def _variables(self, spec: ServerSpec) -> dict[str, str]:  # noqa: ARG002
        return {}

    def _find_url(self) -> str:
        if not self.url and (found := self._listens.search(self._log.text())):
            self.url = found[1]
        return self.url

    def _is_ready(self) -> bool:
        """Return whether a GET of the readiness path has a response that the spec accepts: 200, any, or 200 to 399."""
        # The first request of an application may take long, so each request may take as long as all earlier ones.
        waited_s = time.monotonic() - self._started_at
        patience_s = max(_RESPONSE_LIMIT_S, min(waited_s, self._spec.start_timeout_s - waited_s))
        status = _status(self.url, self._spec.ready or "/", patience_s)
        if self._spec.ready:
            return status is not None and 0 < status < _FIRST_ERROR
        is_response = bool(status) or (status == 0 and self._closes_at_exceptions)
        return status == http.client.OK or (is_response and self._spec.any_response_is_ready)

    def _awaited(self) -> str:
        return f"`GET {self._spec.ready or '/'}` did not respond with 200"

    def _start_error(self) -> ServerError:
        where = self._spec.address
        # A command may listen at another port, which its log names. asyncio writes the message in lower case.
        if not self._spec.command and _PORT_TAKEN in self._log.text().lower():
            return ServerError(f"port {where} is taken: stop what listens there, or choose another one with --port")
        served = self._spec.command or self._spec.module
        return ServerError(f"{self.name} could not serve {served} at {where}; {self._log.end()}")


def _descendants(pid: int) -> set[int]:
    """Return the processes below *pid* as the kernel lists the children of each; empty if it does not."""
    found, left = set[int](), [pid]
    while left:
        with suppress(FileNotFoundError, ProcessLookupError), os.scandir(f"/proc/{left.pop()}/task") as tasks:
            children = {int(each) for task in tasks for each in _read(f"{task.path}/children").split()}
            left += children - found
            found |= children
    return found


def _read(path: str) -> bytes:
    """Return the content of a file of /proc, in a fourth of the time of `Path.read_bytes`."""
    file = os.open(path, os.O_RDONLY)
    try:
        content = b""
        while part := os.read(file, _MAX_READ_BYTES):
            content += part
        return content
    finally:
        os.close(file)


def _status(url: str, path: str, timeout_s: float) -> int | None:
    """Return the status of the response to `GET path` at *url*; None if there was none.

    The status is 0 if the server accepted the request and closed the connection without a response.
    """
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout_s)
    try:
        connection.connect()  # before the request is made, because most attempts end here
        connection.request("GET", path)
        return connection.getresponse().status
    except http.client.RemoteDisconnected:
        return 0
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
