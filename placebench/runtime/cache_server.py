"""A throwaway cache server: `start_cache_server` starts the machine's Valkey or Redis.

The server listens on 127.0.0.1 only, requires a password, keeps at most 256 MB, and writes nothing to disk.
"""

import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from placebench.errors import ServerError
from placebench.runtime.ports import free_port
from placebench.runtime.private_files import write_private
from placebench.runtime.supervisor import Child, ChildSpec, Supervisor, new_scratch_path, start_child

CACHE_URL_VARIABLE: Final = "PLACEBENCH_CACHE_URL"
_PROGRAMS: Final = ("valkey-server", "redis-server")
_PATH: Final = "/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
_START_LIMIT_S: Final = 30.0
_POLL_S: Final = 0.005
_READY: Final = "Ready to accept connections"
_SETTINGS: Final = {
    "bind": "127.0.0.1",
    "save": '""',
    "appendonly": "no",
    "maxmemory": "256mb",
    "maxmemory-policy": "allkeys-lru",
}


@dataclass(frozen=True)
class CacheServer:
    """A running cache server."""

    url: str
    _child: Child
    _supervisor: Supervisor

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._child.pid

    def stop(self) -> None:
        """End the server; a second call does nothing."""
        self._child.stop()
        self._supervisor.close()


def find_cache_server() -> str:
    """Return the path of valkey-server or redis-server; raises ServerError, with how to install one."""
    for name in _PROGRAMS:
        if path := shutil.which(name) or shutil.which(name, path=_PATH):
            return path
    raise ServerError(
        "no valkey-server or redis-server on this machine: apt-get install --no-install-recommends redis-server "
        "(nothing of it has to run; placebench starts a server of its own)"
    )


def start_cache_server(prefix: Sequence[str] = ()) -> CacheServer:
    """Start a server, which takes some 50 ms; prefix: the beginning of its command line, as for the service.

    Raises ServerError if this machine has none, or if it does not start, with the end of its log.
    """
    program, folder = find_cache_server(), new_scratch_path("placebench-cache-")
    port, password = free_port(), secrets.token_urlsafe(32)
    supervisor = Supervisor(folder)
    try:
        settings, log = folder / "cache.conf", folder / "cache.log"
        own = {**_SETTINGS, "port": str(port), "requirepass": password, "dir": str(folder)}
        write_private(settings, "".join(f"{name} {value}\n" for name, value in own.items()))
        argv = [*prefix, program, str(settings)]
        child = start_child(ChildSpec(Path(program).name, argv, cwd=folder, log=log), supervisor)
        give_up_at = time.monotonic() + _START_LIMIT_S
        while child.poll() is None and time.monotonic() < give_up_at:
            if log.exists() and _READY in log.read_text(errors="replace"):
                return CacheServer(f"redis://:{password}@127.0.0.1:{port}", child, supervisor)
            time.sleep(_POLL_S)
        raise ServerError(f"{child.spec.name} did not start: {' '.join(child.log_tail(3).split())}")
    except BaseException:
        supervisor.close()
        raise
