"""Free ports for servers that cannot report which one they chose: `free_port` reserves one among our processes."""

import os
import random
import socket
from collections import deque
from pathlib import Path

_KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _HIGHEST = 10_000, 65_535
_ATTEMPTS = 100
_MAX_RESERVATIONS = 32
_reservations: deque[int] = deque()
"""File descriptors: the last ports stay reserved until their servers listen, which takes seconds on a busy machine."""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a port of an address of this machine on which nothing listens at this moment.

    The kernel gives this port to no client and to no listener on port 0, because it is outside of the range in
    ip_local_port_range, and no other process gets it from this function before its server listens. If all ports from
    10000 on are in that range, the kernel chooses.
    """
    try:
        first, last = map(int, _KERNEL_RANGE.read_text().split())
    except OSError:  # not Linux, or no /proc
        first, last = _LOWEST, _HIGHEST
    choices: list[int] = [*range(_LOWEST, first), *range(last + 1, _HIGHEST + 1)]
    random.Random().shuffle(choices)
    for port in choices[:_ATTEMPTS]:
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0placebench-port-{port}")  # an abstract name: gone with its process
            _bind(address, port)
        except OSError:
            reservation.close()
            continue
        _reservations.append(reservation.detach())
        if len(_reservations) > _MAX_RESERVATIONS:
            os.close(_reservations.popleft())
        return port
    return _bind(address, 0)


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether nothing listens on this *port* at this moment."""
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) != 0


def _bind(address: str, port: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.bind((address, port))
        return int(probe.getsockname()[1])
