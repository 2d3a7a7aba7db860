"""Ports of 127.0.0.1 for servers of ours."""

import socket


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether nobody listens on this *port* of 127.0.0.1 at this moment."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
