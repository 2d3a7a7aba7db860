"""Workers of a load on other machines: `load_workers` starts locust there by SSH, for a master on this one."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from placebench.errors import HostError, UsageError
from placebench.measure.remote_hosts import RemoteHost
from placebench.remote.machines import open_machines
from placebench.runtime.postgres.private_server import free_port


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
