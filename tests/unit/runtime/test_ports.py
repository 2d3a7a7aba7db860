"""Ports that no other program gets between the moment they are chosen and the moment a server listens on them."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from placebench.runtime import ports
from placebench.runtime.ports import free_port


def allow_only(port: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the kernel be said to give away all ports but one."""
    monkeypatch.setattr(ports, "_LOWEST", port)
    monkeypatch.setattr(ports, "_KERNEL_RANGE", folder / "range")
    (folder / "range").write_text(f"{port + 1}\t65535\n")


def test_a_port_is_none_that_the_kernel_gives_to_others() -> None:
    """Neither a client nor a listener on port 0 gets it before its server listens."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())

    found = {free_port() for _ in range(32)}

    assert 32 == len(found)
    assert all(10_000 <= port < first or last < port <= 65_535 for port in found)


def test_a_port_is_given_to_one_process_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The name by which another process has reserved the only port is a name of this machine: the kernel chooses."""
    allow_only(20_001, monkeypatch, tmp_path)
    with socket.socket(socket.AF_UNIX) as other:
        with suppress(OSError):  # it may be reserved by a test that runs beside
            other.bind("\0placebench-port-20001")
        port = free_port()

    assert port not in (0, 20_001)


def test_a_port_on_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A service of the user outside of the kernel's range keeps its port; then it is free for us."""
    port = free_port()
    os.close(ports._reservations.pop())
    allow_only(port, monkeypatch, tmp_path)

    with socket.create_server(("127.0.0.1", port)):
        other = free_port()

    assert port != other
    assert port == free_port()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.3", "localhost", "::1"])
def test_a_port_can_be_listened_on_at_its_address(address: str) -> None:
    """Addresses of IPv4 and IPv6, and names."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with socket.create_server((address, free_port(address)), family=family) as listening:
        assert listening.getsockname()[1] > 0


def test_an_address_of_another_machine_has_no_free_port() -> None:
    """The error is that of the system."""
    with pytest.raises(OSError, match="Cannot assign requested address"):
        free_port("192.0.2.1")
