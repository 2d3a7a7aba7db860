"""Network namespaces: service hosts with their own network stack, address and link, for root on Linux.

The main function is `host_networks`.

    host 1 (198.18.7.2) ──veth──┐
                                ├── this machine (198.18.7.1)
    host 2 (198.18.7.3) ──veth──┘

The kernel removes a namespace and its link with the last process in it, so nothing is left, however placebench ends.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from placebench.errors import PlacebenchError, ServerError
from placebench.runtime.supervisor import Child, ChildLog, ChildSpec, new_scratch_path, start_child

BLOCK: Final = IPv4Network("198.18.0.0/15")
"""The addresses that RFC 2544 reserves for benchmarks."""
_ADDRESSES: Final = 32
"""Number of addresses of one command: for its side of the links, and for the hosts."""
_LIMIT_S: Final = 10.0
_POLL_S: Final = 0.005


@dataclass(frozen=True)
class HostNetwork:
    """The network of one emulated host."""

    address: str
    enter: tuple[str, ...]
    """The beginning of a command line that runs a program in this network."""


@contextmanager
def host_networks(count: int) -> Iterator[tuple[str, list[HostNetwork]]]:
    """Yield this machine's address on all links, and *count* networks (up to 30) for the `with` block.

    Takes some 0.1 s per network. Hosts reach this machine at that address, and nothing else. Raises ServerError with
    the system's message if the machine cannot make namespaces.
    """
    first = BLOCK[os.getpid() * _ADDRESSES % BLOCK.num_addresses]
    with ExitStack() as stack:
        yield str(first + 1), [_make_network(stack, first, number) for number in range(1, count + 1)]


def _make_network(stack: ExitStack, first: IPv4Address, number: int) -> HostNetwork:
    """Make a namespace, kept by a sleeping process, and a veth pair into it."""
    gateway, address = first + 1, first + 1 + number
    pid = stack.enter_context(_holder()).pid
    inside = ("nsenter", f"--net=/proc/{pid}/ns/net")
    name = f"pb{os.getpid()}-{number}"
    _ip((), f"link add {name} type veth peer name eth0 netns {pid}")
    _ip((), f"address add {gateway} peer {address} dev {name}", f"link set {name} up")
    _ip(inside, f"address add {address} peer {gateway} dev eth0", "link set eth0 up", "link set lo up")
    return HostNetwork(str(address), inside)


def _holder() -> Child:
    """Start the first process of a new namespace; raises ServerError if the namespace does not appear within 10 s."""
    folder = new_scratch_path("placebench-network-")
    log = ChildLog(folder / "unshare.log")
    spec = ChildSpec("network", ["unshare", "--net", "sleep", "infinity"], log=log.path, remove=folder)
    try:
        child = start_child(spec)
    except PlacebenchError as error:
        raise _refused(str(error)) from error
    give_up_at = time.monotonic() + _LIMIT_S
    while _namespace(child.pid) in (_namespace(os.getpid()), ""):
        if child.poll() is not None or time.monotonic() > give_up_at:
            refused = _refused(log.tail(1))
            child.stop()
            raise refused
        time.sleep(_POLL_S)
    return child


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def _ip(inside: Sequence[str], *commands: str) -> None:
    for command in commands:
        argv = [*inside, "ip", *command.split()]
        try:
            subprocess.run(argv, check=True, capture_output=True, text=True)
        except OSError as error:
            raise _refused(str(error)) from error
        except subprocess.CalledProcessError as error:
            raise _refused(f"{' '.join(argv)}: {error.stderr.strip()}") from error


def _refused(reason: str) -> ServerError:
    return ServerError(f"this machine makes no network namespaces, which need Linux, root and iproute2: {reason}")
