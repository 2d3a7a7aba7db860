"""Machines of a hosts file that parts are started on by SSH: `open_machines` connects to them.

On each one process of ours (`placebench.remote.parts`) has its parts, and ends them when the connection ends.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from placebench.errors import LoadError, ServerError
from placebench.measure.remote_hosts import RemoteHost, Role, python_process
from placebench.runtime.line_process import LineProcess
from placebench.runtime.supervisor import new_scratch_path

_PROGRAM: Final = "from placebench.remote.parts import main; main()"


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


def open_machines(hosts: Mapping[str, RemoteHost], stack: ExitStack) -> list[Machine]:
    """Connect to all of them side by side; *stack* ends their parts, those of the last host first.

    Raises HostError for one that is not reached, or has no placebench or another one.
    """

    def connect(name: str, host: RemoteHost) -> Machine:
        scratch = new_scratch_path("placebench-machine-")
        process = stack.enter_context(
            python_process(f"host {name}", name, host, _PROGRAM, scratch / "log", child="ssh", remove=scratch)
        )
        return Machine(name, host, process)

    with ThreadPoolExecutor(len(hosts)) as pool:
        machines = list(pool.map(connect, hosts, hosts.values()))
    for machine in machines:
        stack.callback(machine.end)
    return machines
