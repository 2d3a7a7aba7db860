"""An application behind a server: uWSGI, gunicorn, mod_wsgi, uvicorn, hypercorn, granian, or any command.

`serve` starts a server in its own process and returns a `RunningServer` that is ready for requests.
`with_server` finds out whether an application is WSGI or ASGI, and which server can serve it.
"""

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from placebench.decoding import read_json
from placebench.errors import MissingExtraError, PlacebenchError, ServerError
from placebench.runtime.mod_wsgi import find_mod_wsgi, mod_wsgi_options
from placebench.runtime.ports import free_port
from placebench.runtime.running_server import POLL_S, Interface, RunningServer, ServerSpec
from placebench.runtime.supervisor import ChildSpec, new_scratch_path, start_child
from placebench.runtime.uwsgi import UwsgiServer, has_uwsgi

STANDALONE = Path(__file__).with_name("standalone")
"""The folder of programs that import nothing but the application and the standard library."""
_DRIVER_HINT = (
    "; SQLAlchemy 2.1 takes postgresql:// for psycopg 3: read SQLALCHEMY_DATABASE_URL, which names the driver that is "
    "installed, in place of DATABASE_URL"
)
_LAST_PORT = 65_535


def serve(spec: ServerSpec, server: str = "") -> "RunningServer":
    """Start *server*, by default that of *spec*, and wait until it responds; takes about a second.

    Raises ServerError, one line with the end of the server's log, if the port is taken, the application does not load
    or nothing responds within spec.start_timeout_s; MissingExtraError if the server is not installed, and
    PlacebenchError if it is unknown.
    """
    server = server or spec.server
    if server not in _SERVERS:
        raise PlacebenchError(f"no server {server!r}: expected {', '.join(_SERVERS)}")
    _check_spec(spec)
    running = _SERVERS[server](spec)
    try:
        running.wait_until_ready()
    except BaseException:
        running.discard()
        raise
    return running


class _Gunicorn(RunningServer):
    """Runs gunicorn with threads, or with its ASGI worker."""

    name = "gunicorn"
    _worker_died = re.compile(r"^.*Worker \(pid:\d+\) (?:was sent|exited).*$", re.MULTILINE)

    def _command(self, spec: ServerSpec) -> list[str]:
        _require("gunicorn", spec)
        kind = ("--worker-class", "asgi") if spec.interface == "asgi" else ("--threads", str(spec.threads))
        return [
            *(_python(spec), "-m", "gunicorn", "--bind", spec.address),
            *("--workers", str(spec.processes), *kind),
            # No worker is killed for a long response, and no connection is kept, as under the other servers.
            *("--timeout", "0", "--graceful-timeout", str(round(spec.grace_s)), "--keep-alive", "0"),
            *("--backlog", "1024", "--limit-request-line", "0", spec.module),
        ]


class _Wsgiref(RunningServer):
    """Runs the standard library's server with threads, in one process."""

    name = "wsgiref"
    _worker_died = re.compile(r"(?!)")

    def worker_pids(self) -> list[int]:
        """Return the only process, which serves the requests itself."""
        return [self.pid]

    def _command(self, spec: ServerSpec) -> list[str]:
        if spec.processes > 1:
            raise ServerError(f"wsgiref serves in one process, not {spec.processes}: name another server")
        return [_python(spec), "-P", str(STANDALONE / "wsgiref_server.py"), spec.module, str(spec.threads)]


class _OnChosenPort(RunningServer):
    """A server that gets its port from placebench, because it does not report which free port it has chosen."""

    _worker_died = re.compile(r"(?!)")

    def __init__(self, spec: ServerSpec) -> None:
        super().__init__(replace(spec, port=spec.port or free_port(spec.host)))

    def _find_url(self) -> str:
        self.url = f"http://{self._spec.address}"
        return self.url


class _Uvicorn(_OnChosenPort):
    """Runs uvicorn, whose only process serves the requests itself if there is one worker."""

    name = "uvicorn"

    def worker_pids(self) -> list[int]:
        """Return the workers, or uvicorn's own process if it has none."""
        return super().worker_pids() or [self.pid]

    def _command(self, spec: ServerSpec) -> list[str]:
        _require("uvicorn", spec)
        return [
            *(_python(spec), "-m", "uvicorn", *_target(spec), "--host", spec.host, "--port", str(spec.port)),
            *("--workers", str(spec.processes), "--no-access-log", "--log-level", "warning"),
            *("--timeout-graceful-shutdown", str(round(spec.grace_s))),
        ]


class _Hypercorn(_OnChosenPort):
    """Runs hypercorn, which serves WSGI applications in its own threads."""

    name = "hypercorn"

    def _command(self, spec: ServerSpec) -> list[str]:
        return [
            *(_python(spec), "-m", "hypercorn", "--bind", spec.address),
            *("--workers", str(spec.processes), "--graceful-timeout", str(round(spec.grace_s))),
            f"{spec.interface}:{spec.module}",
        ]


class _Granian(_OnChosenPort):
    """Runs granian, whose workers are children of a Python process that serves no requests itself."""

    name = "granian"
    _worker_died = re.compile(r"Unexpected exit from worker-\d+")

    def _command(self, spec: ServerSpec) -> list[str]:
        _require("granian", spec)
        threads = ("--blocking-threads", str(spec.threads)) if spec.interface == "wsgi" else ()
        return [
            *(_python(spec), "-m", "granian", "--interface", spec.interface, "--host", spec.host),
            *("--port", str(spec.port), "--workers", str(spec.processes), *threads),
            *("--workers-kill-timeout", str(max(1, round(spec.grace_s))), "--no-access-log", *_target(spec)),
        ]


class _ModWsgi(_OnChosenPort):
    """Runs Apache with mod_wsgi in Apache's own processes."""

    name = "mod_wsgi"
    _worker_died = re.compile(r"^.*child pid \d+ exit signal .*$", re.MULTILINE)

    def stop(self) -> None:
        """Serve the requests in flight, for at most grace_s, then end (by SIGWINCH; SIGTERM would drop them)."""
        give_up_at = time.monotonic() + self._spec.grace_s
        if self.is_running:
            os.kill(self.pid, signal.SIGWINCH)
        while self.is_running and time.monotonic() < give_up_at:
            time.sleep(POLL_S)
        super().stop()

    def _command(self, spec: ServerSpec) -> list[str]:
        found = find_mod_wsgi(spec.python)
        return [found.program, *mod_wsgi_options(found, spec, self._scratch)]

    def _variables(self, spec: ServerSpec) -> dict[str, str]:
        return {"PLACEBENCH_APPLICATION": spec.module}


class _Command(_OnChosenPort):
    """Runs a command of the user that serves at {port}."""

    name = "the command"

    def stop(self) -> None:
        """Send SIGTERM to every process of the tree, because a shell does not forward it."""
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
    "uwsgi": UwsgiServer,
    "gunicorn": _Gunicorn,
    "uvicorn": _Uvicorn,
    "hypercorn": _Hypercorn,
    "granian": _Granian,
    "mod_wsgi": _ModWsgi,
    "wsgiref": _Wsgiref,
    "command": _Command,
}
_SERVERS_OF: Mapping[Interface, tuple[str, ...]] = {
    "wsgi": ("uwsgi", "gunicorn", "granian", "hypercorn", "mod_wsgi"),
    "asgi": ("uvicorn", "hypercorn", "granian", "gunicorn"),
}
"""The servers for each interface, in the order in which one is chosen if none is named; mod_wsgi never is."""
_INSPECT = """
import atexit, faulthandler, importlib, importlib.util, inspect, json, os, sys, traceback
target, limit_s, found_file = sys.argv[1:4]
faulthandler.dump_traceback_later(float(limit_s), exit=True)
def takes(count):
    try:
        inspect.signature(found).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True
try:
    module, name = target.split(":")
    found = importlib.import_module(module)
    for part in name.removesuffix("()").split("."):
        found = getattr(found, part)
    if name.endswith("()"):
        found = found()
    call = found if inspect.isroutine(found) else type(found).__call__
    asynchronous = inspect.iscoroutinefunction(inspect.unwrap(call)) or (takes(3) and not takes(2))
    servers = [each for each in sys.argv[4:] if importlib.util.find_spec(each)]
    outcome = {"interface": "asgi" if asynchronous else "wsgi", "servers": servers}
except BaseException as error:
    outcome = {"error": " ".join("".join(traceback.format_exception_only(type(error), error)).split())}
with open(found_file + ".part", "w") as file:
    json.dump(outcome, file)
os.replace(found_file + ".part", found_file)
faulthandler.dump_traceback_later(5, exit=True)
try:
    atexit._run_exitfuncs()
finally:
    os._exit(0)
"""
"""A program that imports an application and writes its interface to a file, because the application may print.

The program does not wait for threads that the application has started. It gives the application's exit hooks, which
remove temporary files, 5 s.
"""
_IMPORT_GRACE_S = 10.0
_STANDARD_LIBRARY = re.compile(r"^<|/lib/python3[^/]*/(?!(site|dist)-packages/)")
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


@dataclass(frozen=True)
class _Inspection:
    """The result that the program `_INSPECT` writes."""

    interface: Interface = "wsgi"
    servers: tuple[str, ...] = ()
    error: str = ""


def with_server(spec: ServerSpec) -> ServerSpec:
    """Return *spec* with the interface of its application, found by importing it, and a server that supports it.

    An empty spec.server becomes the first installed one of uwsgi, gunicorn, granian and hypercorn; for an ASGI
    application, of uvicorn, hypercorn, granian and gunicorn. Costs the start of a Python and the import; processes
    that the application starts are ended.
    mod_wsgi is taken only if spec.server names it.
    Raises ServerError if the application cannot be imported within spec.start_timeout_s or the server does not support
    its interface, MissingExtraError if no such server is installed.
    """
    inspection = _inspect(spec)
    python, interface = _python(spec), inspection.interface
    installed = (*inspection.servers, *(("uwsgi",) if has_uwsgi(spec.python) else ()))
    able = _SERVERS_OF[interface]
    if spec.server and spec.server not in able:
        raise ServerError(
            f"{spec.server} cannot serve {spec.module}, whose interface is {interface.upper()}: "
            f"expected server = one of {', '.join(able)}"
        )
    if spec.server == "mod_wsgi":
        find_mod_wsgi(spec.python, spec.folder)
        return replace(spec, interface=interface)
    chosen = next((name for name in able if name in installed and spec.server in ("", name)), None)
    if chosen is None:
        wanted = spec.server or able[0]
        package = "pyuwsgi" if wanted == "uwsgi" else wanted
        raise MissingExtraError(f"{wanted} is not installed for {python}: {python} -m pip install {package}")
    return replace(spec, server=chosen, interface=interface)


def _inspect(spec: ServerSpec) -> _Inspection:
    """Import the application in its own process, and end the children and daemons that it leaves.

    Raises ServerError with the reason if the application cannot be imported within spec.start_timeout_s.
    """
    scratch, limit_s = new_scratch_path("placebench-import-"), spec.start_timeout_s
    log, found = scratch / "import.log", scratch / "found.json"
    installable = ("gunicorn", "uvicorn", "hypercorn", "granian")
    argv = [_python(spec), "-c", _INSPECT, spec.module, str(limit_s), str(found), *installable]
    child_spec = ChildSpec("import", argv, env=spec.variables(), cwd=spec.folder, log=log, remove=scratch, adopts=True)
    started_at = time.monotonic()
    with start_child(child_spec) as child:
        try:
            exit_code = child.wait(limit_s + _IMPORT_GRACE_S)
        except TimeoutError:  # the application has switched faulthandler's timer off
            exit_code = -signal.SIGKILL
        inspection = read_json(found, _Inspection, error=ServerError) if found.exists() else None
        output = log.read_text(errors="replace")
    if inspection is None and time.monotonic() - started_at > limit_s:
        *_, stacks = re.split(r"^Timeout \(.*$", output, flags=re.MULTILINE)
        last_stack = _FRAME.finditer(stacks.rpartition("\n\n")[2])
        frames = [frame for frame in last_stack if not _STANDARD_LIBRARY.search(frame["file"])]
        where = "; it was at {file}:{line} in {function}".format_map(frames[0]) if frames else ""
        raise ServerError(
            f"{spec.module}: importing it did not end within {limit_s:g} s{where}: "
            "let it wait for nothing while it is imported, or allow more by start_timeout_s"
        )
    if inspection is None:
        inspection = _Inspection(error=(output.strip().splitlines() or [f"exit code {exit_code}"])[-1])
    if inspection.error:
        hint = _DRIVER_HINT if "No module named 'psycopg'" in inspection.error else ""
        raise ServerError(f"{spec.module} cannot be imported by {argv[0]}: {inspection.error}{hint}")
    return inspection


def _require(server: str, spec: ServerSpec) -> None:
    """Raise MissingExtraError if our environment lacks the server; in another environment the server's log says so."""
    if spec.python is None and find_spec(server) is None:
        raise MissingExtraError(f"{server} is not installed: pip install {server}")


def _target(spec: ServerSpec) -> list[str]:
    """Return the application as arguments of servers that take a factory by an option, not as module:factory()."""
    is_factory = spec.module.endswith("()")
    return [spec.module.removesuffix("()"), *(("--factory",) if is_factory else ())]


def _python(spec: ServerSpec) -> str:
    return str(spec.python or sys.executable)


def _check_spec(spec: ServerSpec) -> None:
    if spec.processes < 1 or spec.threads < 1:
        raise ServerError(f"{spec.processes} processes of {spec.threads} threads: at least 1 is needed")
    if not 0 <= spec.port <= _LAST_PORT:
        raise ServerError(f"port {spec.port} is not possible: it has to lie between 0 (any free one) and {_LAST_PORT}")
    try:
        socket.getaddrinfo(spec.host, spec.port)
    except OSError as error:  # uWSGI itself would accept it, but could not be reached
        raise ServerError(f"host {spec.host!r} is not an address of this machine: {error.strerror}") from error
