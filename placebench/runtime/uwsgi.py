"""uWSGI as a server of an application, with the reason for each of its flags: `UwsgiServer`.

uWSGI closes a connection after its response, as gunicorn does here, so that both are measured alike.
"""

import os
import platform
import re
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from placebench.errors import MissingExtraError
from placebench.runtime.running_server import POLL_S, RunningServer, ServerSpec

# The maximum that uWSGI accepts. It holds a request's headers and twice its query (REQUEST_URI and QUERY_STRING), so
# a query of more than some 32 KB arrives without QUERY_STRING.
_BUFFER_BYTES = 65_535
_UWSGI_BACKLOG = 1024
_MASTER_STOPS = "graceful shutdown triggered"
_SYSTEM_BACKLOG = Path("/proc/sys/net/core/somaxconn")


class UwsgiServer(RunningServer):
    """Runs uWSGI, which stops within 0.1 s if no requests are in flight."""

    name = "uWSGI"
    _closes_at_exceptions = True
    _grace_s = 5.0  # `stop` has waited for the requests already
    _listens = re.compile(r"socket 0 bound to TCP address \S+:(\d+) ")
    _worker_died = re.compile(r"^DAMN ! worker \d+ .*$", re.MULTILINE)
    _worker_starts = re.compile(r"^(?:S|s|Res)pawned uWSGI worker \d+ \((?:new )?pid: (\d+)", re.MULTILINE)
    _worker_stops = re.compile(r"^Gracefully killing worker \d+ \(pid: (\d+)\)", re.MULTILINE)

    def stop(self) -> None:
        """Serve the requests in flight for at most grace_s, then end.

        A signal is lost on a process that is still starting. So the master gets SIGTERM until its log confirms it, and
        is killed if it has no workers yet, because nothing is in flight then. The master sends SIGHUP to its workers,
        and a worker that does not confirm it gets another one. A second SIGHUP would end a worker at once, without its
        exit hooks, so ours never precedes the master's.
        The master checks for ended workers once a second, or when the supervisor's signal wakes it. It also waits for
        every other child, such as a daemon that the application has started and that ignores signals as the application
        does. Those children are killed when the workers are gone.
        """
        give_up_at = time.monotonic() + self._spec.grace_s
        while self._child.poll() is None and time.monotonic() < give_up_at:
            children, log = set(self.worker_pids()), self._log.text()
            workers = children.intersection(map(int, self._worker_starts.findall(log)))
            has_signalled = _MASTER_STOPS in log
            if not workers:
                if not has_signalled:
                    self._child.kill()
                for pid in children:
                    _signal(pid, signal.SIGKILL)
                break
            if not has_signalled:
                _signal(self.pid, signal.SIGTERM)
            time.sleep(POLL_S)
            if has_signalled:
                for pid in workers - set(map(int, self._worker_stops.findall(self._log.text()))):
                    _signal(pid, signal.SIGHUP)
        super().stop()

    def _command(self, spec: ServerSpec) -> list[str]:
        # A uWSGI compiled from source links the base Python: it needs the path of the packages.
        prefix = (spec.python or Path(sys.executable)).parent.parent
        virtualenv = ("--virtualenv", str(prefix)) if (prefix / "pyvenv.cfg").is_file() else ()
        try:  # uWSGI refuses to start with more than the system allows
            backlog = min(_UWSGI_BACKLOG, int(_SYSTEM_BACKLOG.read_text()))
        except OSError:
            backlog = 100
        return [
            uwsgi_program(spec.python),
            "--strict",
            # Each connection is closed after its response, so that no thread is tied to a client: with --http11-socket
            # and more clients than threads some clients are never served. --http would add a process that copies the
            # bytes.
            *("--http-socket", spec.address),
            *("--add-header", "Connection: close"),
            *("--module", spec.module, "--need-app", "--single-interpreter"),
            *virtualenv,
            *("--master", "--processes", str(spec.processes), "--threads", str(spec.threads)),
            # SIGTERM would reload; --die-on-term would drop the requests in flight.
            *("--hook-master-start", "unix_signal:15 gracefully_kill_them_all"),
            *("--worker-reload-mercy", str(max(1, round(spec.grace_s)))),
            # uWSGI has one timeout for reading requests and for writing responses. Few seconds cut off a busy client
            # that reads megabytes; many let half-sent requests hold the threads.
            *("--socket-timeout", str(spec.client_timeout_s)),
            *("--buffer-size", str(_BUFFER_BYTES)),
            *("--listen", str(backlog)),
            "--disable-logging",
            # Without it, and with one thread, uWSGI takes no GIL: telemetry's thread would not run between requests.
            *(("--enable-threads",) if spec.telemetry is not None else ()),
        ]

    def _find_url(self) -> str:
        if not self.url and (bound := self._listens.search(self._log.text())):
            self.url = f"http://{replace(self._spec, port=int(bound[1])).address}"
        return self.url


def _signal(pid: int, number: int) -> None:
    """Send the signal, unless the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def uwsgi_program(python: Path | None = None) -> str:
    """Return the path of the program uwsgi beside *python*; for our own Python, else the one on PATH.

    Raises MissingExtraError if there is none.
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


def has_uwsgi(python: Path | None = None) -> bool:
    """Return whether `uwsgi_program` finds a uWSGI."""
    try:
        uwsgi_program(python)
    except MissingExtraError:
        return False
    return True


def wsgi_server() -> str:
    """Return the server of the reference service: "uwsgi", or "gunicorn" if of the two only it is installed here."""
    return "uwsgi" if has_uwsgi() or find_spec("gunicorn") is None else "gunicorn"


def stand_in() -> str:
    """Return a line that says that gunicorn serves, because this Python has no uWSGI; "" if uWSGI serves."""
    if wsgi_server() == "uwsgi":
        return ""
    return f"no uWSGI is installed for Python {platform.python_version()}: gunicorn serves instead"
