"""Bytes that went over a connection, as the kernel counts them for its socket.

The key piece is `meter_of`. Linux tells the bytes of a TCP connection in TCP_INFO; over TLS they are not those of the
protocol, and a Unix socket does not count: both are "not measured".
"""

import socket
import struct

# struct tcp_info of linux/tcp.h: tcpi_bytes_acked and tcpi_bytes_received, both 64 bits wide.
_OFFSET = 120
_SIZE = _OFFSET + 16
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)


class WireMeter:
    """Reads the counters of one TCP socket that belongs to somebody else; some 2 µs a reading."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> tuple[int, int]:
        """Bytes sent (and acknowledged) and received since the connection was made. Raises OSError if it is closed."""
        if _TCP_INFO is None:
            raise OSError("this system has no TCP_INFO")
        # The plain C type is half the price of socket.socket; what is named here Python need not ask the kernel for.
        borrowed = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=self._descriptor)
        try:
            known = borrowed.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
        finally:
            borrowed.detach()
        if len(known) < _SIZE:
            raise OSError("this kernel's TCP_INFO has no byte counters")
        sent, received = struct.unpack_from("=QQ", known, _OFFSET)
        return sent, received


def meter_of(descriptor: int, *, encrypted: bool) -> WireMeter | None:
    """A meter of the socket, or None where its bytes cannot be measured."""
    meter = WireMeter(descriptor)
    try:
        meter.read()
    except OSError:
        return None
    return None if encrypted else meter
