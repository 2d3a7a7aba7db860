"""Machines of a hosts file that parts are started on by SSH: `open_machines` connects to them.

On each one process of ours (`placebench.remote.parts`) has its parts, and ends them when the connection ends.
`load_workers` starts workers of locust there, for a master on this machine.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from placebench.errors import HostError, LoadError, ServerError, UsageError
from placebench.meters.remote_hosts import RemoteHost, Role, python_process
from placebench.runtime.line_process import LineProcess
from placebench.runtime.postgres.private_server import free_port
from placebench.runtime.supervisor import new_scratch_path

_PROGRAM: Final = "from {} import main; main()"


@dataclass
class Machine:
    """A machine that parts are started on."""

    name: str
    host: RemoteHost
    process: LineProcess
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def port(self, role: Role) -> int:
        """The port that the hosts file has for a role; 0 where it has none."""
        return dict(zip(self.host.roles, self.host.ports, strict=False)).get(role, 0)

    def order(self, order: str, **given: Any) -> Any:
        """Have it done there; raises ServerError with the reason where it fails or the connection has ended."""
        with self._lock:
            try:
                response = self.process.call({"order": order, "given": given})
            except LoadError as error:
                raise ServerError(str(error)) from error
        if "error" in response:
            raise ServerError(f"on {self.name}: {response['error']}")
        return response["returned"]

    def end(self) -> None:
        """End its parts and wait until they are gone, also where Ctrl-C came before the response to another order."""
        with suppress(LoadError):
            response = self.process.call({"order": "end", "given": {}})
            while response.get("returned") != "ended":
                response = self.process.read()


def open_machines(
    hosts: Mapping[str, RemoteHost], stack: ExitStack, parts: str = "placebench.remote.parts"
) -> list[Machine]:
    """Connect to all of them side by side; *stack* ends their parts, those of the last host first.

    parts: the module whose `main` carries out the orders there.

    Raises HostError for one that is not reached, or has no placebench or another one.
    """

    def connect(name: str, host: RemoteHost) -> Machine:
        scratch, program = new_scratch_path("placebench-machine-"), _PROGRAM.format(parts)
        process = stack.enter_context(
            python_process(f"host {name}", name, host, program, scratch / "log", child="ssh", remove=scratch)
        )
        return Machine(name, host, process)

    with ThreadPoolExecutor(len(hosts)) as pool:
        machines = list(pool.map(connect, hosts, hosts.values()))
    for machine in machines:
        stack.callback(machine.end)
    return machines


@dataclass(frozen=True)
class LoadWorkers:
    """Workers that connect to their master until it is there."""

    count: int
    bind: str
    """The address and port that the master has to listen on."""


@contextmanager
def load_workers(hosts: Mapping[str, RemoteHost], *, processes: int, bind: str = "") -> Iterator[LoadWorkers]:
    """So many workers on each of the hosts with the role load, which end with the `with` block.

    bind: HOST:PORT of this machine; empty: a free port of the address that the hosts see. Raises UsageError where no
    host has that role, HostError for one that is not reached, or that sees this machine as another one.
    """
    chosen = {name: host for name, host in hosts.items() if "load" in host.roles}
    if not chosen:
        raise UsageError(f"none of the hosts {', '.join(hosts)} has the role load")
    with ExitStack() as stack:
        machines = open_machines(chosen, stack)
        bind = bind or _seen_by({machine.name: machine.order("peer") for machine in machines})
        address, _, port = bind.rpartition(":")
        for machine in machines:
            machine.order("load_workers", master=address, port=port, count=processes)
        yield LoadWorkers(processes * len(machines), bind)


def _seen_by(addresses: Mapping[str, str]) -> str:
    """A free port of the one address that the hosts see."""
    if len(set(addresses.values())) > 1:
        seen = ", ".join(f"{name} sees {address}" for name, address in addresses.items())
        raise HostError(f"the hosts see this machine at several addresses ({seen}): name the one to use with --bind")
    address = next(iter(addresses.values()))
    try:
        return f"{address}:{free_port(address)}"
    except OSError as error:
        seen = f"the hosts see this machine as {address}, which is none of its addresses ({error.strerror})"
        raise HostError(f"{seen}: name the one to use with --bind") from error
