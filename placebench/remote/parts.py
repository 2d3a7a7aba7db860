"""The parts of a run on this machine, such as load workers: `main` starts them by orders from another machine.

An order is a line on standard input. The process and all parts end within 5 s after standard input closes, as it does
with the connection, whatever they are doing.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from placebench.errors import PlacebenchError
from placebench.runtime.line_process import serve_lines
from placebench.runtime.running_server import RunningServer
from placebench.runtime.supervisor import Child, ChildSpec, new_scratch_path, start_child

_END_LIMIT_S: Final = 1.0
LOG_LINES: Final = 4
"""Number of lines of a log that a message shows."""


def main(parts: "type[Parts] | None" = None) -> None:
    """Respond to orders until there are no more; parts: the class that carries them out, by default `Parts`."""

    def end_with_input() -> None:  # the shepherds end what is left within 3.3 s
        poller = select.poll()
        poller.register(0, select.POLLRDHUP)
        poller.poll()
        time.sleep(_END_LIMIT_S)
        os._exit(1)

    threading.Thread(target=end_with_input, daemon=True).start()
    with ExitStack() as stack:
        serve_lines((parts or Parts)(stack).respond)


class Parts:
    """The parts on this machine; each order is a method."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._pids: dict[str, Callable[[], int | None]] = {}
        """Functions that return the process id of each part, or None when it has ended."""
        self._logs: dict[str, RunningServer | Child] = {}

    def respond(self, order: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out an order; return its result, or why it failed."""
        try:
            return {"returned": getattr(self, order)(**given)}
        except (PlacebenchError, OSError) as error:
            return {"error": " ".join(str(error).split())}

    def peer(self) -> str:
        """Return the address of the machine that has connected to this one, as seen from this one."""
        return os.environ.get("SSH_CONNECTION", "no address").split()[0]

    def load_workers(self, master: str, port: str, count: int) -> None:
        """Start locust workers, which connect to their master as soon as it listens."""
        named = ["--master-host", master, "--master-port", port]
        worker = [sys.executable, "-P", "-m", "placebench.loadgen", "-f", "-", "--worker", *named]
        for _ in range(count):
            folder = new_scratch_path("placebench-worker-")
            # locust writes the master's locustfile to TMPDIR under its own name, so workers must not share a folder.
            environment = {**os.environ, "TMPDIR": str(folder)}
            child = ChildSpec("locust", worker, env=environment, cwd=folder, remove=folder)
            self._stack.enter_context(start_child(child))

    def pids(self) -> dict[str, int]:
        """Return the main process id of each running part."""
        return {name: pid for name, find in self._pids.items() if (pid := find()) is not None}

    def log_tail(self, name: str) -> str:
        """Return the last lines of the log of a host or node."""
        return self._logs[name].log_tail(LOG_LINES)

    def end(self) -> str:
        """End all parts and return "ended"."""
        self._stack.close()
        return "ended"
