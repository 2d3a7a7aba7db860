"""How uWSGI is called: the flags, each with its reason.

The key piece is `command`. The measured reasons are in docs/explanation/decisions.md, "Serving".
"""

import shutil
import sys
from pathlib import Path

from placebench.errors import MissingExtraError

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
