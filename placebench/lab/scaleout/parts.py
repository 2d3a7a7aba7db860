"""The parts of a scale-out on one of its machines: PostgreSQL servers, service hosts and nginx."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from placebench.errors import ServerError
from placebench.lab.scaleout.cluster import LoadBalancer
from placebench.remote import parts
from placebench.runtime.application_servers import serve
from placebench.runtime.ports import free_port
from placebench.runtime.postgres.cluster import ClusterNode, copy_primary, create_database, make_primary, new_node
from placebench.runtime.postgres.private_server import start_server
from placebench.runtime.running_server import ServerSpec

_ANYBODY = "host all all all scram-sha-256\nhost replication all all scram-sha-256\n"


def main() -> None:
    """Execute orders from stdin until it is closed."""
    parts.main(ScaleOutParts)


class ScaleOutParts(parts.Parts):
    """The parts on this machine; each method is an order that can be sent from the controlling machine."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack)
        self._nodes: dict[str, ClusterNode] = {}

    def node(self, name: str, address: str, port: int) -> int:
        """Prepare a node of the cluster, and return its port."""
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
        """Copy the primary, and start the copy as a replica."""
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

    def check_balancer(self) -> None:
        """Raise ServerError if nginx has ended."""
        self._balancer.check()

    def _start(self, node: ClusterNode) -> None:
        child = node.child = start_server(node.place, node.supervisor, node.port)
        self._pids[node.name] = lambda: child.pid if node.is_running else None
        self._logs[node.name] = child
