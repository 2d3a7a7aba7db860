"""An application behind a server of one's choice: uWSGI, gunicorn, uvicorn, hypercorn, granian, or any command.

`serve` starts one in a process of its own and gives a `RunningServer`, which is ready when `GET /` responds with 200.
`with_server` finds out whether an application is WSGI or ASGI, and which server can serve it. uWSGI and gunicorn close
a connection after its response, so that both are measured alike. `uwsgi_command` gives the flags of uWSGI, each with
its reason.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal, Self

from placebench.errors import MissingExtraError, PlacebenchError, ServerError
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, new_scratch_path, start_child

STANDALONE = Path(__file__).with_name("standalone")
"""The folder of programs that need nothing but what is installed beside the application."""
_LAST_PORT = 65_535
_PORT_TAKEN = "Address already in use"
_POLL_S = 0.02
_DEFAULT_POOL_SIZE = 10
_FIRST_ERROR = 400
Interface = Literal["wsgi", "asgi"]


@dataclass(frozen=True)
class ServerSpec:
    """What to serve, and how."""

    database_url: str
    variant: str = "cached"
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one that the server picks."""
    processes: int = 1
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for the service, such as PYTHONHASHSEED; they override those made from this spec."""
    server: str = "uwsgi"
    """One of uwsgi, gunicorn, uvicorn, hypercorn, granian and wsgiref, or command."""
    interface: Interface = "wsgi"
    """Of the application; not every server has both."""
    command: str = ""
    """Of the server "command": what serves at {port}."""
    ready: str = ""
    """A path that responds with 200 to 399 when the service is ready; none: `GET /` is, or for a command its port."""
    folder: Path | None = None
    """Where it runs; None: in a scratch folder."""
    module: str = "placebench.reference.wsgi:application"
    python: Path | None = None
    """Of the environment that the module is installed in, with a uWSGI beside it; None: this one."""
    any_response_is_ready: bool = False
    """Whether any response to `GET /` means that it serves, as for an application that has nothing there."""
    telemetry: Path | None = None
    """Where each worker writes its telemetry; None: there is none."""
    log: Path | None = None
    """Where the server's log goes; None: to a file that goes away with the server."""
    start_timeout_s: float = 60.0
    grace_s: float = 30.0
    """How long requests in flight may take until they are served when the server is stopped."""

    def variables(self) -> dict[str, str]:
        """The environment of the service: ours, without what uWSGI itself would read as options, and its settings."""
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


def serve(spec: ServerSpec, server: str = "") -> "RunningServer":
    """Start *server*, or that of *spec*, and wait until it responds; takes about a second.

    Raises ServerError, one line with the end of the server's log, when the port is taken, the application does not load
    or nothing responds within spec.start_timeout_s; MissingExtraError where the server is not installed, and
    PlacebenchError for one that does not exist.
    """
    server = server or spec.server
    if server not in _SERVERS:
        raise PlacebenchError(f"no server {server!r}: expected {', '.join(_SERVERS)}")
    _check_spec(spec)
    running = _SERVERS[server](spec)
    try:
        running.wait_until_ready()
    except BaseException:
        running.stop()
        raise
    return running


class RunningServer(ABC):
    """A server that serves at `url`; a context manager that stops it."""

    name: ClassVar[str]
    _listens: ClassVar[re.Pattern[str]] = re.compile(r"istening at:? (http://\S+)")
    """How its log says where it listens; the URL is our own then: on a taken port another server might respond."""
    _worker_died: ClassVar[re.Pattern[str]]
    """How its log says that a worker died."""
    _grace_s: ClassVar[float | None] = None
    """How long its end may take; None: as the spec says."""

    def __init__(self, spec: ServerSpec) -> None:
        """Start the process; `wait_until_ready` waits for it."""
        argv, scratch = self._command(spec), new_scratch_path(f"placebench-{self.name}-")
        if spec.log is not None:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
        self._spec = spec
        self._log = ChildLog(spec.log or scratch / "server.log")
        self._child: Child = start_child(
            ChildSpec(
                name=self.name,
                argv=argv,
                env=spec.variables(),
                cwd=spec.folder or scratch,
                log=self._log.path,
                grace_s=self._grace_s or spec.grace_s,
                remove=scratch,
                adopts=True,
            )
        )
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
        """The parent of the master, and of daemons that the service has started: what those took that have ended."""
        return self._child.guard_pid

    def worker_pids(self) -> list[int]:
        """The processes that serve requests now, in ascending order; none when the master is gone."""
        import psutil  # not needed to find uWSGI, which `doctor` does with the extra uwsgi alone

        try:
            workers = psutil.Process(self.pid).children()
            return sorted(worker.pid for worker in workers if worker.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return []

    def pids(self) -> list[int]:
        """All processes of the service: master, workers, what they have started, daemons too; none when it is gone."""
        import psutil

        try:
            return [each.pid for each in psutil.Process(self.guard_pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def check(self) -> None:
        """Raise ServerError if the master or a worker has died since the start, even when the worker was replaced."""
        if (exit_code := self._child.poll()) is not None:
            raise ServerError(f"{self.name} ended with exit code {exit_code} while it served; {self._log.end()}")
        if died := self._worker_died.search(self._log.text()):
            raise ServerError(f"a worker of {self.name} died while it served ({died[0]}); {self._log.end()}")

    def stop(self) -> None:
        """Serve the requests in flight, then end; a second call does nothing."""
        self._child.stop()

    def log_tail(self, lines: int = 10) -> str:
        """The last lines of the server's log."""
        return self._log.tail(lines)

    def wait_until_ready(self) -> None:
        """Return when the service is ready, with `url` set; raises ServerError if not within start_timeout_s."""
        give_up_at = time.monotonic() + self._spec.start_timeout_s
        while not (self._find_url() and self._is_ready()):
            if self._child.poll() is not None:
                raise self._start_error()
            if time.monotonic() > give_up_at:
                waited = f"{self._awaited()} within {self._spec.start_timeout_s:g} s"
                raise ServerError(f"{waited} of the start of {self.name}; {self._log.end()}")
            time.sleep(_POLL_S)
        if self._child.poll() is not None:  # what responds is another one's
            raise self._start_error()

    @abstractmethod
    def _command(self, spec: ServerSpec) -> list[str]:
        """Its argument vector."""

    def _find_url(self) -> str:
        if not self.url and (found := self._listens.search(self._log.text())):
            self.url = found[1]
        return self.url

    def _is_ready(self) -> bool:
        """Whether `GET` of the path that tells it responds now: with 200, in any way, or with 200 to 399."""
        status = _status(self.url, self._spec.ready or "/")
        if self._spec.ready:
            return status is not None and status < _FIRST_ERROR
        return status == http.client.OK or (status is not None and self._spec.any_response_is_ready)

    def _awaited(self) -> str:
        return f"`GET {self._spec.ready or '/'}` did not respond with 200"

    def _start_error(self) -> ServerError:
        where = f"{_in_brackets(self._spec.host)}:{self._spec.port}"
        if _PORT_TAKEN in self._log.text():
            return ServerError(f"port {where} is taken: stop what listens there, or choose another one with --port")
        served = self._spec.command or self._spec.module
        return ServerError(f"{self.name} could not serve {served} at {where}; {self._log.end()}")


class _Uwsgi(RunningServer):
    """uWSGI, which stops within 0.1 s when there are no requests in flight."""

    name = "uWSGI"
    _grace_s = 5.0  # `stop` has waited for the requests already
    _listens = re.compile(r"socket 0 bound to TCP address \S+:(\d+) ")
    _worker_died = re.compile(r"^DAMN ! worker \d+ .*$", re.MULTILINE)
    _worker_stops = re.compile(r"^Gracefully killing worker \d+ \(pid: (\d+)\)", re.MULTILINE)

    def stop(self) -> None:
        """Serve the requests in flight, up to grace_s, then end.

        The workers are stopped one by one, because what the master sends is lost on one that is still starting.
        The master checks for workers that are gone once a second, or when the next signal wakes it: that is the
        supervisor's.
        """
        if self._child.poll() is None:
            give_up_at = time.monotonic() + self._spec.grace_s
            os.kill(self.pid, signal.SIGTERM)
            while (pids := self.worker_pids()) and time.monotonic() < give_up_at:
                for pid in set(pids) - set(map(int, self._worker_stops.findall(self._log.text()))):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGHUP)
                time.sleep(_POLL_S)
        self._child.stop()

    def _command(self, spec: ServerSpec) -> list[str]:
        return uwsgi_command(
            address=f"{_in_brackets(spec.host)}:{spec.port}",
            module=spec.module,
            processes=spec.processes,
            threads=spec.threads,
            grace_s=spec.grace_s,
            python=spec.python,
            app_threads=spec.telemetry is not None,
        )

    def _find_url(self) -> str:
        if not self.url and (bound := self._listens.search(self._log.text())):
            self.url = f"http://{_in_brackets(self._spec.host)}:{bound[1]}"
        return self.url


class _Gunicorn(RunningServer):
    """gunicorn with threads."""

    name = "gunicorn"
    _worker_died = re.compile(r"^.*Worker \(pid:\d+\) (?:was sent|exited).*$", re.MULTILINE)

    def _command(self, spec: ServerSpec) -> list[str]:
        if spec.python is None and find_spec("gunicorn") is None:
            raise MissingExtraError("gunicorn is not installed: pip install gunicorn")
        kind = ("--worker-class", "asgi") if spec.interface == "asgi" else ("--threads", str(spec.threads))
        return [
            *(_python(spec), "-m", "gunicorn", "--bind", f"{spec.host}:{spec.port}"),
            *("--workers", str(spec.processes), *kind),
            # No worker is killed for a long response, and no connection kept, as under the other servers.
            *("--timeout", "0", "--graceful-timeout", str(round(spec.grace_s)), "--keep-alive", "0"),
            *("--backlog", "1024", "--limit-request-line", "0", spec.module),
        ]


class _Wsgiref(RunningServer):
    """The standard library's server with threads, in one process."""

    name = "wsgiref"
    _worker_died = re.compile(r"(?!)")

    def worker_pids(self) -> list[int]:
        """Its one process is its own worker."""
        return [self.pid]

    def _command(self, spec: ServerSpec) -> list[str]:
        if spec.processes > 1:
            raise ServerError(f"{spec.processes} processes: wsgiref serves in one")
        return [_python(spec), "-P", str(STANDALONE / "wsgiref_server.py"), spec.module, str(spec.threads)]


class _OnChosenPort(RunningServer):
    """A server that is told its port, because it does not say which free one it took."""

    _worker_died = re.compile(r"(?!)")

    def __init__(self, spec: ServerSpec) -> None:
        super().__init__(replace(spec, port=spec.port or _free_port(spec.host)))

    def _find_url(self) -> str:
        self.url = f"http://{_in_brackets(self._spec.host)}:{self._spec.port}"
        return self.url


class _Uvicorn(_OnChosenPort):
    """uvicorn, whose only process serves where there is one worker."""

    name = "uvicorn"

    def _command(self, spec: ServerSpec) -> list[str]:
        return [
            *(_python(spec), "-m", "uvicorn", *_target(spec), "--host", spec.host, "--port", str(spec.port)),
            *("--workers", str(spec.processes), "--no-access-log", "--log-level", "warning"),
            *("--timeout-graceful-shutdown", str(round(spec.grace_s))),
        ]


class _Hypercorn(_OnChosenPort):
    """hypercorn, WSGI applications in threads of its own."""

    name = "hypercorn"

    def _command(self, spec: ServerSpec) -> list[str]:
        return [
            *(_python(spec), "-m", "hypercorn", "--bind", f"{_in_brackets(spec.host)}:{spec.port}"),
            *("--workers", str(spec.processes), "--graceful-timeout", str(round(spec.grace_s))),
            f"{spec.interface}:{spec.module}",
        ]


class _Granian(_OnChosenPort):
    """granian, whose workers are children of a Python process that serves nothing itself."""

    name = "granian"
    _worker_died = re.compile(r"Unexpected exit from worker-\d+")

    def _command(self, spec: ServerSpec) -> list[str]:
        threads = ("--blocking-threads", str(spec.threads)) if spec.interface == "wsgi" else ()
        return [
            *(_python(spec), "-m", "granian", "--interface", spec.interface, "--host", spec.host),
            *("--port", str(spec.port), "--workers", str(spec.processes), *threads),
            *("--workers-kill-timeout", str(max(1, round(spec.grace_s))), "--no-access-log", *_target(spec)),
        ]


class _Command(_OnChosenPort):
    """What a command of the user serves at {port}."""

    name = "the command"

    def stop(self) -> None:
        """Send SIGTERM to every process of the tree: a shell does not hand it on."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        super().stop()

    def _command(self, spec: ServerSpec) -> list[str]:
        return ["/bin/sh", "-c", spec.command.replace("{port}", str(spec.port)).replace("{host}", spec.host)]

    def _is_ready(self) -> bool:
        if self._spec.ready:
            return super()._is_ready()
        try:
            socket.create_connection((self._spec.host, self._spec.port), timeout=5).close()
        except OSError:
            return False
        return True

    def _awaited(self) -> str:
        return super()._awaited() if self._spec.ready else f"nothing listened at port {self._spec.port}"


_SERVERS: Mapping[str, type[RunningServer]] = {
    "uwsgi": _Uwsgi,
    "gunicorn": _Gunicorn,
    "uvicorn": _Uvicorn,
    "hypercorn": _Hypercorn,
    "granian": _Granian,
    "wsgiref": _Wsgiref,
    "command": _Command,
}
_SERVERS_OF: Mapping[Interface, tuple[str, ...]] = {
    "wsgi": ("uwsgi", "gunicorn", "granian", "hypercorn"),
    "asgi": ("uvicorn", "hypercorn", "granian", "gunicorn"),
}
"""In the order in which one is chosen where none is named."""
_INSPECT = """
import importlib, importlib.util, inspect, json, sys
module, name = sys.argv[1].split(":")
found = importlib.import_module(module)
for part in name.removesuffix("()").split("."):
    found = getattr(found, part)
if name.endswith("()"):
    found = found()
call = found if inspect.isroutine(found) else type(found).__call__
def takes(count):
    try:
        inspect.signature(found).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True
asynchronous = inspect.iscoroutinefunction(inspect.unwrap(call)) or (takes(3) and not takes(2))
servers = [each for each in sys.argv[2:] if importlib.util.find_spec(each)]
print(json.dumps(["asgi" if asynchronous else "wsgi", servers]))
"""


def with_server(spec: ServerSpec) -> ServerSpec:
    """Return *spec* with the interface of its application, found by an import of it, and a server that has it.

    An empty spec.server is the first of uwsgi, gunicorn, granian, hypercorn that its environment has; for an ASGI
    application of uvicorn, hypercorn, granian, gunicorn. Costs a Python and the import.
    Raises ServerError for an application that cannot be imported or a server without its interface, MissingExtraError
    where there is no such server.
    """
    python = _python(spec)
    program = [python, "-c", _INSPECT, spec.module, "gunicorn", "uvicorn", "hypercorn", "granian"]
    environment = spec.variables()
    ended = subprocess.run(
        program, env=environment, cwd=spec.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
        raise ServerError(f"{spec.module} cannot be imported by {python}: {said}")
    interface, installed = json.loads(ended.stdout.splitlines()[-1])
    able = _SERVERS_OF[interface]
    if _has_uwsgi(spec.python):
        installed.append("uwsgi")
    if spec.server and spec.server not in able:
        raise ServerError(
            f"{spec.server} cannot serve {spec.module}, whose interface is {interface.upper()}: "
            f"expected server = one of {', '.join(able)}"
        )
    chosen = next((name for name in able if name in installed and spec.server in ("", name)), None)
    if chosen is None:
        wanted = spec.server or able[0]
        package = "pyuwsgi" if wanted == "uwsgi" else wanted
        raise MissingExtraError(f"{wanted} is not installed for {python}: {python} -m pip install {package}")
    return replace(spec, server=chosen, interface=interface)


def _has_uwsgi(python: Path | None) -> bool:
    try:
        uwsgi_program(python)
    except MissingExtraError:
        return False
    return True


def _target(spec: ServerSpec) -> list[str]:
    """The application for servers that take a factory by an option, not as module:factory()."""
    is_factory = spec.module.endswith("()")
    return [spec.module.removesuffix("()"), *(("--factory",) if is_factory else ())]


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        port: int = taken.getsockname()[1]
        return port


def _python(spec: ServerSpec) -> str:
    return str(spec.python or sys.executable)


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _check_spec(spec: ServerSpec) -> None:
    if spec.processes < 1 or spec.threads < 1:
        raise ServerError(f"{spec.processes} processes of {spec.threads} threads: at least 1 is needed")
    if not 0 <= spec.port <= _LAST_PORT:
        raise ServerError(f"port {spec.port} is not possible: it has to lie between 0 (any free one) and {_LAST_PORT}")
    try:
        socket.getaddrinfo(spec.host, spec.port)
    except OSError as error:  # uWSGI itself would take it, and then not be reached
        raise ServerError(f"host {spec.host!r} is not an address of this machine: {error.strerror}") from error


def _status(url: str, path: str) -> int | None:
    """The status of the response to `GET path` at *url*; None where none came."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


# The most that uWSGI takes. It holds a request's headers and, twice (REQUEST_URI and QUERY_STRING), its query, so that
# a query of more than some 32 KB arrives without QUERY_STRING.
_BUFFER_BYTES = 65_535
_UWSGI_BACKLOG = 1024
_SOCKET_TIMEOUT_S = 300
_SYSTEM_BACKLOG = Path("/proc/sys/net/core/somaxconn")


def uwsgi_command(
    *,
    address: str,
    module: str,
    processes: int,
    threads: int,
    grace_s: float,
    python: Path | None = None,
    app_threads: bool = False,
) -> list[str]:
    """Return the argument vector of uWSGI serving *module*, beside *python* (None: ours), at *address* ("host:port").

    app_threads: whether threads that the application starts are to run in a worker of one thread.

    Raises MissingExtraError when there is no uWSGI beside that Python (for ours: or on PATH).
    """
    return [
        uwsgi_program(python),
        "--strict",
        # Each connection is closed after its response, so that no thread is tied to a client: with --http11-socket and
        # more clients than threads some clients are never served. --http would add a process that copies the bytes.
        *("--http-socket", address),
        *("--add-header", "Connection: close"),
        *("--module", module, "--need-app", "--single-interpreter"),
        *_virtualenv_option(python),
        *("--master", "--processes", str(processes), "--threads", str(threads)),
        # SIGTERM would reload; --die-on-term would drop the requests in flight.
        *("--hook-master-start", "unix_signal:15 gracefully_kill_them_all"),
        *("--worker-reload-mercy", str(max(1, round(grace_s)))),
        # The default of 4 s cuts off a client that is slow to read a body of megabytes.
        *("--socket-timeout", str(_SOCKET_TIMEOUT_S)),
        *("--buffer-size", str(_BUFFER_BYTES)),
        *("--listen", str(_backlog())),
        "--disable-logging",
        # Without it, and with one thread, uWSGI takes no GIL: nothing runs between the requests.
        *(("--enable-threads",) if app_threads else ()),
    ]


def uwsgi_program(python: Path | None = None) -> str:
    """Return the path of the command uwsgi beside *python*, for ours else on PATH.

    Raises MissingExtraError where there is none.
    """
    beside = (python or Path(sys.executable)).with_name("uwsgi")
    if beside.is_file():
        return str(beside)
    if python is not None:
        raise MissingExtraError(f"no command uwsgi beside {python}: {python} -m pip install pyuwsgi")
    found = shutil.which("uwsgi")
    if found is None:
        raise MissingExtraError(
            f"no command uwsgi beside {sys.executable} or on PATH: pip install 'placebench[bench]', "
            "or 'placebench[uwsgi]' where pyuwsgi has no wheel"
        )
    return found


def _virtualenv_option(python: Path | None) -> tuple[str, ...]:
    """A uWSGI compiled from source links the base Python: it needs the path of the packages."""
    prefix = (python or Path(sys.executable)).parent.parent
    return ("--virtualenv", str(prefix)) if (prefix / "pyvenv.cfg").is_file() else ()


def _backlog() -> int:
    """Return our backlog, or the system's where that is less: uWSGI refuses to start with more."""
    try:
        return min(_UWSGI_BACKLOG, int(_SYSTEM_BACKLOG.read_text()))
    except OSError:
        return 100
