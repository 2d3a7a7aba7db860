"""Machines of a hosts file on which parts of a run are started by SSH: `open_machines` connects to them.

On each machine a process of ours (`placebench.remote.parts`) starts the parts, and ends them when the connection ends.
`load_workers` starts locust workers there, for a master on this machine.
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
from placebench.runtime.ports import free_port
from placebench.runtime.supervisor import new_scratch_path

_PROGRAM: Final = "from {} import main; main()"


@dataclass
class Machine:
    """A machine on which parts of a run are started."""

    name: str
    host: RemoteHost
    process: LineProcess
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def port(self, role: Role) -> int:
        """Return the port that the hosts file has for a role; 0 if it has none."""
        return dict(zip(self.host.roles, self.host.ports, strict=False)).get(role, 0)

    def order(self, order: str, **given: Any) -> Any:
        """Carry out an order on the machine; raises ServerError with the reason if it fails or the connection ends."""
        with self._lock:
            try:
                response = self.process.call({"order": order, "given": given})
            except LoadError as error:
                raise ServerError(str(error)) from error
        if "error" in response:
            raise ServerError(f"on {self.name}: {response['error']}")
        return response["returned"]

    def end(self) -> None:
        """End the machine's parts and wait until they are gone, even if Ctrl-C came during another order."""
        with suppress(LoadError):
            response = self.process.call({"order": "end", "given": {}})
            while response.get("returned") != "ended":
                response = self.process.read()


def open_machines(
    hosts: Mapping[str, RemoteHost], stack: ExitStack, parts: str = "placebench.remote.parts"
) -> list[Machine]:
    """Connect to all hosts in parallel; *stack* ends their parts, those of the last host first.

    parts: the module whose `main` carries out the orders there. Raises HostError for a host that is not reached, or has
    no placebench or another version.
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
    """Locust workers that try to connect until their master listens."""

    count: int
    bind: str
    """The address and port on which the master must listen."""


@contextmanager
def load_workers(hosts: Mapping[str, RemoteHost], *, processes: int, bind: str = "") -> Iterator[LoadWorkers]:
    """Run *processes* workers on each host with the role load for the `with` block.

    bind: HOST:PORT of this machine; by default a free port of the address that the hosts see. Raises UsageError if no
    host has that role, HostError for a host that is not reached, or if the hosts do not all see this machine at one of
    its own addresses.
    """
    chosen = {name: host for name, host in hosts.items() if "load" in host.roles}
    if not chosen:
        raise UsageError(f"none of the hosts {', '.join(hosts)} has the role load: give it to one of them")
    with ExitStack() as stack:
        machines = open_machines(chosen, stack)
        bind = bind or _seen_by({machine.name: machine.order("peer") for machine in machines})
        address, _, port = bind.rpartition(":")
        for machine in machines:
            machine.order("load_workers", master=address, port=port, count=processes)
        yield LoadWorkers(processes * len(machines), bind)


def _seen_by(addresses: Mapping[str, str]) -> str:
    """Return the one address at which the hosts see this machine, with a free port."""
    if len(set(addresses.values())) > 1:
        seen = ", ".join(f"{name} sees {address}" for name, address in addresses.items())
        raise HostError(f"the hosts see this machine at several addresses ({seen}): name the one to use with --bind")
    address = next(iter(addresses.values()))
    try:
        return f"{address}:{free_port(address)}"
    except OSError as error:
        seen = f"the hosts see this machine as {address}, which is not one of its addresses ({error.strerror})"
        raise HostError(f"{seen}: name the one to use with --bind") from error
