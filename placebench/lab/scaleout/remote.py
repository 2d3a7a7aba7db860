"""A scale-out on other machines: `MachineScaleOut` starts its parts there by SSH, and stops them.

             ┌──ssh──▶ nginx                    role balancer
this machine ├──ssh──▶ service hosts            role service
             └──ssh──▶ primary and replicas     role database, the first is the primary
"""

import secrets
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self, get_args

from placebench.errors import UsageError
from placebench.meters.remote_hosts import RemoteHost, Role, host_address
from placebench.remote.machines import Machine, open_machines
from placebench.runtime.postgres.cluster import (
    READER,
    WRITER,
    await_streams,
    cluster_url,
    conninfo,
    node_url,
    wait_for_replicas,
)
from placebench.runtime.running_server import ServerSpec


@dataclass(frozen=True)
class _Node:
    """A node of the cluster, with its machine and address."""

    machine: Machine
    address: str
    port: int


class MachineScaleOut:
    """All parts of a scaled-out service on other machines, reachable at `url`; a context manager that stops them."""

    def __init__(
        self,
        hosts: Mapping[str, RemoteHost],
        spec: ServerSpec,
        fill: Callable[[str], None],
        *,
        synchronous: bool = False,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start the primary, let *fill* write the data, copy it to the replicas, then start hosts and balancer.

        hosts: from a hosts file, as returned by `check_roles`; each host gets a part for each of its roles but load.
        spec: the service hosts; its port is the port of the load balancer if the hosts file has none. fill: is called
        with the URL of the primary's empty database. synchronous: whether a commit waits until every replica shows it.
        announce: is called at the start of each step.

        Raises HostError if a machine cannot be reached or lacks placebench, ServerError if a part does not start,
        DatabaseError if the primary cannot be reached from here.
        """
        self._password = secrets.token_urlsafe(32)
        with ExitStack() as stack:
            announce(f"machines: {len(hosts)}")
            # Databases are stopped last; otherwise the order of the file is kept.
            database_first = dict(sorted(hosts.items(), key=lambda item: "database" not in item[1].roles))
            machines = open_machines(database_first, stack, "placebench.lab.scaleout.parts")
            databases, services, (balancer,) = (
                [each for each in machines if role in each.host.roles] for role in _ROLES
            )
            announce("PostgreSQL: the primary")
            self._nodes = {f"node{number}": _make_node(number, each) for number, each in enumerate(databases)}
            self._start_node("primary", "node0")
            announce("data")
            fill(self.databases["node0"])
            announce(f"replicas: {len(databases) - 1}")
            self._add_replicas(synchronous=synchronous)
            announce(f"service hosts: {len(services)}")
            self._machines = {f"host{number}": each for number, each in enumerate(services, 1)}
            urls = self._start_hosts(spec)
            announce("nginx")
            self._machines |= {"nginx": balancer, **{name: node.machine for name, node in self._nodes.items()}}
            where = {"address": host_address(balancer.host), "port": balancer.port("balancer") or spec.port}
            self.url = balancer.order("balancer", name="nginx", hosts=urls, **where)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def writer_url(self) -> str:
        """A URL with all nodes that connects to the one that accepts writes."""
        return cluster_url(self._password, self._places, **WRITER)

    @property
    def databases(self) -> dict[str, str]:
        """The URL of each node by itself, by the node's name."""
        return {name: node_url(self._password, node.address, node.port) for name, node in self._nodes.items()}

    @property
    def names(self) -> Set[str]:
        """Names of all parts: nginx, host1, node0 (the first primary), node1 and so on."""
        return self._machines.keys()

    def pids(self) -> dict[str, int]:
        """Return the main process id of each running part, by name; raise ServerError if a connection is lost."""
        found: dict[str, int] = {}
        for machine in {each.name: each for each in self._machines.values()}.values():
            found |= machine.order("pids")
        return found

    def log_tail(self, name: str) -> str:
        """Return the last lines of the log of a host or node."""
        return str(self._machines[name].order("log_tail", name=name))

    def check(self) -> None:
        """Raise ServerError if nginx has ended."""
        self._machines["nginx"].order("check_balancer")

    def isolation(self) -> dict[str, Any]:
        """Return the machine of each part, for results."""
        return {"machines": {part: machine.name for part, machine in self._machines.items()}}

    @property
    def _places(self) -> list[tuple[str, int]]:
        return [(node.address, node.port) for node in self._nodes.values()]

    def _start_node(self, order: str, name: str, **more: str) -> None:
        node = self._nodes[name]
        node.machine.order(order, name=name, address=node.address, password=self._password, **more)

    def _add_replicas(self, *, synchronous: bool) -> None:
        _, *replicas = self._nodes
        if not replicas:
            return
        with ThreadPoolExecutor(len(replicas)) as pool:
            list(pool.map(lambda name: self._start_node("replica", name, source=conninfo(self._places)), replicas))
        await_streams(self.databases["node0"], len(replicas))
        if synchronous:
            wait_for_replicas(self.databases["node0"], replicas)

    def _start_hosts(self, spec: ServerSpec) -> list[str]:
        readers = {}
        if len(self._nodes) > 1:
            readers["PLACEBENCH_READER_URL"] = cluster_url(self._password, self._places, **READER)
        given = {
            "database_url": self.writer_url,
            "variant": spec.variant,
            "processes": spec.processes,
            "threads": spec.threads,
            "environment": {**spec.environment, **readers},
            "grace_s": spec.grace_s,
        }

        def start(name: str) -> str:
            machine = self._machines[name]
            own = {"host": host_address(machine.host), "port": machine.port("service")}
            return str(machine.order("host", name=name, spec=given | own))

        with ThreadPoolExecutor(len(self._machines)) as pool:
            return list(pool.map(start, self._machines))


_ROLES: Final[tuple[Role, ...]] = ("database", "service", "balancer")


def check_roles(hosts: Mapping[str, RemoteHost]) -> dict[str, RemoteHost]:
    """Return the hosts with a role in a scale-out; raise UsageError if a part has no host, or nginx several."""
    counts = {role: sum(role in each.roles for each in hosts.values()) for role in get_args(Role)}
    if not counts["database"] or not counts["service"] or counts["balancer"] != 1:
        seen = ", ".join(f"{count} {role}" for role, count in counts.items())
        raise UsageError(f"roles of the hosts file: {seen}; expected a database or more, a service or more, 1 balancer")
    return {name: host for name, host in hosts.items() if set(host.roles) & set(_ROLES)}


def _make_node(number: int, machine: Machine) -> _Node:
    address = host_address(machine.host)
    port = machine.order("node", name=f"node{number}", address=address, port=machine.port("database"))
    return _Node(machine, address, port)
