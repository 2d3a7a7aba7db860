"""A second machine that sends the requests: `find_client` logs in to it by SSH.

A client process (`client_process`) runs there and connects to the servers directly. Durations are measured on the
client machine and the servers' CPU on this one, so that no clocks are compared.
"""

import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from placebench.errors import HostError, LoadError
from placebench.meters.remote_hosts import RemoteHost, python_process
from placebench.runtime.line_process import LineProcess
from placebench.runtime.supervisor import new_scratch_path

_PROGRAM: Final = "from placebench.compare.load.client_process import main; main()"


@dataclass(frozen=True)
class ClientMachine:
    """A machine that sends requests and can reach servers on this machine."""

    name: str
    host: RemoteHost
    address: str
    """This machine's address as the client machine sees it; the servers listen there."""
    round_trip_s: float
    """The shortest of several times, in seconds, to open and close a TCP connection."""

    def process(self, log: Path) -> AbstractContextManager[LineProcess]:
        """Run a client process on the machine for the `with` block; raises HostError if it cannot be started."""
        return _client_process(self.name, self.host, log)

    def to_json(self) -> dict[str, Any]:
        """Return the machine for the manifest of a run."""
        return {"host": self.name, "address": self.address, "round_trip_ms": round(1000 * self.round_trip_s, 3)}


def find_client(name: str, host: RemoteHost) -> ClientMachine:
    """Log in to *host*, called *name*, and open a connection from there to this machine.

    Raises HostError if the login fails, if the host has no placebench or another version, or if it cannot reach this
    machine at the address that it sees, as behind an address translation.
    """
    scratch = new_scratch_path("placebench-client-")
    with _client_process(name, host, scratch / "client.log", remove=scratch) as process:
        try:
            address = process.call({"peer": True})["peer"]
            with _listening(name, address) as port:
                made = process.call({"connect": [address, port]})
        except LoadError as error:
            raise HostError(f"client host {name}: {error}") from error
    if "error" in made:
        raise HostError(
            f"client host {name} cannot connect to this machine at {address}: {made['error']}: servers listen there at "
            "ports that the system chooses, which a firewall must let through"
        )
    return ClientMachine(name, host, address, min(made["connected_s"]))


def _client_process(
    name: str, host: RemoteHost, log: Path, *, remove: Path | None = None
) -> AbstractContextManager[LineProcess]:
    from placebench.meters.cost import CLIENT_ELSEWHERE  # with SQLAlchemy, which no client process needs

    return python_process(f"client host {name}", name, host, _PROGRAM, log, child=CLIENT_ELSEWHERE, remove=remove)


@contextmanager
def _listening(name: str, address: str) -> Iterator[int]:
    """Listen at *address* and yield the port; raises HostError if it is not an address of this machine."""
    try:
        taken = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        raise HostError(
            f"client host {name} sees this machine as {address}, which is not one of its addresses ({error.strerror}): "
            "the two have to reach each other without an address translation between them"
        ) from error
    with taken:
        yield taken.getsockname()[1]
