"""The parts of a scale-out or of a load on this machine: `main` starts those that are ordered.

An order is a line on standard input. The process, and with it every part, ends with its standard input: when the
connection does, within 5 s, whatever it is doing then.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from placebench.errors import PlacebenchError, ServerError
from placebench.runtime.application_servers import serve
from placebench.runtime.line_process import serve_lines
from placebench.runtime.postgres.cluster import (
    ClusterNode,
    copy_primary,
    create_database,
    make_primary,
    new_node,
)
from placebench.runtime.postgres.private_server import free_port, start_server
from placebench.runtime.running_server import RunningServer, ServerSpec
from placebench.runtime.scale_out import LOG_LINES, LoadBalancer
from placebench.runtime.supervisor import Child, ChildSpec, new_scratch_path, start_child

_END_LIMIT_S: Final = 1.0
_ANYBODY = "host all all all scram-sha-256\nhost replication all all scram-sha-256\n"


def main() -> None:
    """Respond to orders until there are no more."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    with ExitStack() as stack:
        serve_lines(_Parts(stack).respond)


def _end_with_input() -> None:
    """End the process soon after its input: what is left then is ended by its shepherds within 3.3 s."""
    poller = select.poll()
    poller.register(0, select.POLLRDHUP)
    poller.poll()
    time.sleep(_END_LIMIT_S)
    os._exit(1)


class _Parts:
    """The parts on this machine; each order is a method."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._nodes: dict[str, ClusterNode] = {}
        self._pids: dict[str, Callable[[], int | None]] = {}
        """Of each part; None when it has ended."""
        self._logs: dict[str, RunningServer | Child] = {}

    def respond(self, order: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the order returns, or why it failed."""
        try:
            return {"returned": getattr(self, order)(**given)}
        except (PlacebenchError, OSError) as error:
            return {"error": " ".join(str(error).split())}

    def node(self, name: str, address: str, port: int) -> int:
        """Make a place for a node of the cluster, and return its port."""
        try:
            port = port or free_port(address)
        except OSError as error:
            raise ServerError(
                f"{address} is none of its addresses ({error.strerror}): name one in the hosts file"
            ) from error
        node = self._nodes[name] = new_node(name, port)
        self._stack.callback(node.supervisor.close)
        return node.port

    def primary(self, name: str, address: str, password: str) -> None:
        """Start a primary with an empty database."""
        node = self._nodes[name]
        make_primary(node, password, [address], _ANYBODY)
        self._start(node)
        create_database(password, address, node.port)

    def replica(self, name: str, address: str, password: str, source: str) -> None:
        """Copy the primary and start a replica."""
        node = self._nodes[name]
        copy_primary(node, password, source, [address])
        self._start(node)

    def host(self, name: str, spec: Mapping[str, Any]) -> str:
        """Start a service host; return its URL."""
        server = self._stack.enter_context(serve(ServerSpec(**spec)))
        self._pids[name] = lambda: server.pid if server.is_running else None
        self._logs[name] = server
        return server.url

    def balancer(self, name: str, hosts: Sequence[str], address: str, port: int) -> str:
        """Start nginx; return its URL."""
        balancer = self._balancer = self._stack.enter_context(LoadBalancer(hosts, address=address, port=port))
        self._pids[name] = lambda: balancer.pid if balancer.is_running else None
        return balancer.url

    def peer(self) -> str:
        """The address of the machine that has connected to this one, as it is seen from here."""
        return os.environ.get("SSH_CONNECTION", "no address").split()[0]

    def load_workers(self, master: str, port: str, count: int) -> None:
        """Start workers of locust, which connect to their master as soon as it is there."""
        worker = [sys.executable, "-m", "locust", "-f", "-", "--worker", "--master-host", master, "--master-port", port]
        for _ in range(count):
            folder = new_scratch_path("placebench-worker-")
            # locust writes the master's locustfile there, by its name: workers that share it read each other's halves.
            environment = {**os.environ, "TMPDIR": str(folder)}
            child = ChildSpec("locust", worker, env=environment, cwd=folder, remove=folder)
            self._stack.enter_context(start_child(child))

    def pids(self) -> dict[str, int]:
        """The main process of each part that runs."""
        return {name: pid for name, find in self._pids.items() if (pid := find()) is not None}

    def log_tail(self, name: str) -> str:
        """The last lines of the log of a host or node."""
        return self._logs[name].log_tail(LOG_LINES)

    def check_balancer(self) -> None:
        """Raise ServerError if nginx has ended."""
        self._balancer.check()

    def end(self) -> str:
        """End all parts; "ended"."""
        self._stack.close()
        return "ended"

    def _start(self, node: ClusterNode) -> None:
        child = node.child = start_server(node.place, node.supervisor, node.port)
        self._pids[node.name] = lambda: child.pid if node.is_running else None
        self._logs[node.name] = child
