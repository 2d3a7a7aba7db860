"""The service under test under uWSGI, in a process of its own, ready when `GET /` responds with 200.

The main function is `serve`; `command` gives the uWSGI flags, each with its reason.
"""

import http.client
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from placebench.errors import MissingExtraError, ServerError
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, fresh_folder, start

# The most that uWSGI takes. It holds a request's headers and, twice (REQUEST_URI and QUERY_STRING), its query, so that
# a query of more than some 32 KB arrives without QUERY_STRING.
_BUFFER_BYTES = 65_535
_BACKLOG = 1024
_SOCKET_TIMEOUT_S = 300
_SYSTEM_BACKLOG = Path("/proc/sys/net/core/somaxconn")


def command(
    *,
    address: str,
    module: str,
    processes: int,
    threads: int,
    grace_s: float,
    python: Path | None = None,
    app_threads: bool = False,
) -> list[str]:
    """The argument vector of uWSGI serving *module*, beside *python* (None: ours), at *address* ("host:port").

    app_threads: whether threads that the application starts are to run in a worker of one thread.

    Raises MissingExtraError when there is no uWSGI beside that Python (for ours: or on PATH).
    """
    return [
        program(python),
        "--strict",
        # Each connection is closed after its answer, so that no thread is tied to a client: with --http11-socket and
        # more clients than threads some clients are never served. --http would add a process that copies the bytes.
        *("--http-socket", address),
        *("--add-header", "Connection: close"),
        *("--module", module, "--need-app", "--single-interpreter"),
        *_virtual_environment(python),
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


def program(python: Path | None = None) -> str:
    """The command uwsgi beside *python*, for ours else on PATH; raises MissingExtraError where there is none."""
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


def _virtual_environment(python: Path | None) -> tuple[str, ...]:
    """A uWSGI compiled from source links the base Python: it has to be told where the packages are."""
    prefix = (python or Path(sys.executable)).parent.parent
    return ("--virtualenv", str(prefix)) if (prefix / "pyvenv.cfg").is_file() else ()


def _backlog() -> int:
    """uWSGI refuses to start with a backlog above the system's."""
    try:
        return min(_BACKLOG, int(_SYSTEM_BACKLOG.read_text()))
    except OSError:
        return 100


_BOUND = re.compile(r"socket 0 bound to TCP address \S+:(\d+) ")
_WORKER_DIED = re.compile(r"^DAMN ! worker \d+ .*$", re.MULTILINE)
_WORKER_ASKED = re.compile(r"^Gracefully killing worker \d+ \(pid: (\d+)\)", re.MULTILINE)
_LAST_PORT = 65_535
_PORT_TAKEN = "Address already in use"
_POLL_S = 0.02
_STOP_GRACE_S = 5.0
_DEFAULT_POOL_SIZE = 10


@dataclass(frozen=True)
class ServerSpec:
    """What to serve, and how."""

    database_url: str
    variant: str = "cached"
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free one that uWSGI picks."""
    processes: int = 1
    threads: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Further variables for the service, such as PYTHONHASHSEED; they override those made from this spec."""
    module: str = "placebench.reference.wsgi:application"
    python: Path | None = None
    """Of the environment that the module is installed in, with a uWSGI beside it; None: this one."""
    any_answer_is_ready: bool = False
    """Whether any answer to `GET /` means that it serves, as for an application that has nothing there."""
    telemetry: Path | None = None
    """Where each worker writes its telemetry; None: there is none."""
    log: Path | None = None
    """Where uWSGI's log goes; None: to a file that goes away with the server."""
    start_timeout_s: float = 60.0
    grace_s: float = 30.0
    """How long requests in flight may take to be answered when the server is stopped."""


class RunningServer:
    """uWSGI, answering at `url`; a context manager that stops it."""

    def __init__(self, spec: ServerSpec, child: Child, log: ChildLog) -> None:
        self._spec = spec
        self._child = child
        self._log = log
        self.url = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of uWSGI's master."""
        return self._child.pid

    def worker_pids(self) -> list[int]:
        """The processes that answer requests now, in ascending order; none when the master is gone."""
        import psutil  # not needed to find uWSGI, which `doctor` does with the extra uwsgi alone

        try:
            workers = psutil.Process(self.pid).children()
            return sorted(worker.pid for worker in workers if worker.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return []

    def check(self) -> None:
        """Raise ServerError if the master or a worker has died since the start, even when uWSGI replaced the worker."""
        if (exit_code := self._child.poll()) is not None:
            raise ServerError(f"uWSGI ended with exit code {exit_code} while it served; {self._log.end()}")
        if died := _WORKER_DIED.search(self._log.text()):
            raise ServerError(f"a worker of uWSGI died while it served ({died[0]}); {self._log.end()}")

    def stop(self) -> None:
        """Answer the requests in flight, then end, within 0.1 s when there are none; a second call does nothing."""
        if self._child.poll() is None:
            self._finish_requests()
        self._child.stop()

    def log_tail(self, lines: int = 10) -> str:
        """The last lines of uWSGI's log."""
        return self._log.tail(lines)

    def wait_until_ready(self) -> None:
        """Return when `GET /` answers 200, with `url` set; raises ServerError if it does not in start_timeout_s."""
        give_up_at = time.monotonic() + self._spec.start_timeout_s
        while not (self._find_url() and answers(self.url, whatever=self._spec.any_answer_is_ready)):
            if self._child.poll() is not None:
                raise self._not_started()
            if time.monotonic() > give_up_at:
                waited = f"`GET /` was not answered with 200 within {self._spec.start_timeout_s:g} s"
                raise ServerError(f"{waited} of uWSGI's start; {self._log.end()}")
            time.sleep(_POLL_S)

    def _finish_requests(self) -> None:
        """Ask master and workers to end when they have answered, and wait until no worker is left, up to grace_s.

        The workers are asked apart, because what the master sends is lost on one that is still starting. The master
        looks for workers that are gone once a second, or when the next signal wakes it: that is the guard's.
        """
        give_up_at = time.monotonic() + self._spec.grace_s
        os.kill(self.pid, signal.SIGTERM)
        while (pids := self.worker_pids()) and time.monotonic() < give_up_at:
            for pid in set(pids) - set(map(int, _WORKER_ASKED.findall(self._log.text()))):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGHUP)
            time.sleep(_POLL_S)

    def _find_url(self) -> str:
        """Our own port from the log: on a taken port another server might answer `GET /` in our place."""
        if not self.url and (bound := _BOUND.search(self._log.text())):
            self.url = f"http://{_in_brackets(self._spec.host)}:{bound[1]}"
        return self.url

    def _not_started(self) -> ServerError:
        where = f"{_in_brackets(self._spec.host)}:{self._spec.port}"
        if _PORT_TAKEN in self._log.text():
            return ServerError(f"port {where} is taken: stop what listens there, or choose another one with --port")
        return ServerError(f"uWSGI could not serve {self._spec.module} at {where}; {self._log.end()}")


def serve(spec: ServerSpec) -> RunningServer:
    """Start uWSGI and wait until it answers; takes about a second.

    Raises ServerError, one line with the end of uWSGI's log, when the port is taken, the application does not load or
    nothing answers within spec.start_timeout_s; MissingExtraError when there is no uWSGI.
    """
    check_spec(spec)
    argv = command(
        address=f"{_in_brackets(spec.host)}:{spec.port}",
        module=spec.module,
        processes=spec.processes,
        threads=spec.threads,
        grace_s=spec.grace_s,
        python=spec.python,
        app_threads=spec.telemetry is not None,
    )
    scratch = fresh_folder("placebench-uwsgi-")
    log = child_log(spec, scratch / "uwsgi.log")
    child = start(
        ChildSpec(
            name="uWSGI",
            argv=argv,
            env=environment(spec),
            cwd=scratch,
            log=log.path,
            grace_s=_STOP_GRACE_S,
            remove=scratch,
        )
    )
    server = RunningServer(spec, child, log)
    try:
        server.wait_until_ready()
    except BaseException:
        server.stop()
        raise
    return server


def child_log(spec: ServerSpec, otherwise: Path) -> ChildLog:
    """The log that *spec* names, in a folder that is made when it is missing; else *otherwise*."""
    if spec.log is not None:
        spec.log.parent.mkdir(parents=True, exist_ok=True)
    return ChildLog(spec.log or otherwise)


def check_spec(spec: ServerSpec) -> None:
    if spec.processes < 1 or spec.threads < 1:
        raise ServerError(f"{spec.processes} processes of {spec.threads} threads were asked for: at least 1 is needed")
    if not 0 <= spec.port <= _LAST_PORT:
        raise ServerError(f"port {spec.port} was asked for: it has to lie between 0 (any free one) and {_LAST_PORT}")
    try:
        socket.getaddrinfo(spec.host, spec.port)
    except OSError as error:  # uWSGI itself would take it, and then not be reached
        raise ServerError(f"host {spec.host!r} is not an address of this machine: {error.strerror}") from error


def environment(spec: ServerSpec) -> dict[str, str]:
    """Ours, without what uWSGI itself would read as options, and with what the service reads."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("UWSGI_")}
    return {
        **inherited,
        "PLACEBENCH_DATABASE_URL": spec.database_url,
        "PLACEBENCH_VARIANT": spec.variant,
        # A thread that waited for a connection would measure the pool, not the service.
        "PLACEBENCH_POOL_SIZE": str(max(_DEFAULT_POOL_SIZE, spec.threads)),
        "PLACEBENCH_TELEMETRY": "" if spec.telemetry is None else str(spec.telemetry.absolute()),
        **spec.environment,
    }


def answers(url: str, *, whatever: bool) -> bool:
    """Whether `GET /` at *url* answers 200 now, or *whatever*."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.client.OK or whatever
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
