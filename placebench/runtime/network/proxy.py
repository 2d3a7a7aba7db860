"""The process of an emulated link: a TCP proxy that counts the traffic, in total and over time, and delays it.

Run as `python -m placebench.runtime.network.proxy HOST PORT [OPTION]` (or the folder of a Unix socket as HOST). Its
first line is the port on which it listens, or why it cannot reach the other end. Then each line on stdin is an order,
and the response holds the counts so far:

    {"profile": {...}}   changes the link
    {"trace": true}      also returns the bytes over time since the last such order
    {"cut": true}        lets nothing pass until {"cut": false}
    {"open": false}      ends all connections and refuses new ones until {"open": true}
    {}                   only counts

The process ends with its stdin. `Relay` forwards the bytes between sockets, each direction through a `DelayQueue`.
With the option `ahead` it starts before the other end, whose HOST is a numeric IPv4 address, and refuses connections;
with `listen=PORT` it listens at this port instead of a free one.
"""

import json
import math
import os
import random
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placebench.runtime.network.delay_queue import UNCHANGED, DelayQueue, LinkProfile

MAX_BINS = 400
_FIRST_BIN_S = 0.001


@dataclass
class Trace:
    """Bytes in bins of `bin_s` seconds from `began_s` on, as the service sent and received them."""

    began_s: float
    bin_s: float = _FIRST_BIN_S
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def add_sent(self, at_s: float, byte_count: int) -> None:
        """Add bytes that the service sent at *at_s*."""
        self._add(self.sent, at_s, byte_count)

    def add_received(self, at_s: float, byte_count: int) -> None:
        """Add bytes that the service received at *at_s*."""
        self._add(self.received, at_s, byte_count)

    def to_json(self) -> dict[str, Any]:
        """Return `{"bin_s", "sent": [bytes, ...], "received": [...]}`; each list ends with the bin of its last byte."""
        return {"bin_s": self.bin_s, "sent": self.sent, "received": self.received}

    def _add(self, bins: list[int], at_s: float, byte_count: int) -> None:
        while (number := int((at_s - self.began_s) / self.bin_s)) >= MAX_BINS:
            self.bin_s *= 2
            for each in (self.sent, self.received):
                each[:] = [sum(each[at : at + 2]) for at in range(0, len(each), 2)]
        bins.extend([0] * (number + 1 - len(bins)))
        bins[number] += byte_count


_CHUNK = 1 << 17
_MIN_CHUNK = 1448
_CHUNKS_PER_S = 1000
_MAX_HELD = 16 << 20
"""Maximum number of bytes in transit in one direction of a connection; then the sender waits, as for a full window."""
_MAX_CONNECTIONS = 450
"""Maximum number of connections: select() takes descriptors up to 1023."""


class Relay:
    """All connections of one link, and their traffic."""

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        *,
        ahead: bool = False,
        listen: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Listen at the port *listen*, by default a free one; raises OSError if it is in use.

        connect: begins a connection to the other end without waiting. ahead: refuse connections until `open`.
        """
        self.clock = clock
        self.buffer = memoryview(bytearray(_CHUNK))
        self.set_profile(UNCHANGED)
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.connections: set[_Connection] = set()
        self.delayed: set[_Connection] = set()
        """Connections that have data in transit."""
        self.accepted = self.round_trips = self.bytes_sent = self.bytes_received = 0
        self.in_transit_s = self.loss_s = 0.0
        self.trace = Trace(clock())
        self._connect = connect
        self._listener = _bound_socket(listen)
        if not ahead:
            self.open()

    def set_profile(self, profile: LinkProfile) -> None:
        """Apply *profile* to new data; data in transit keeps its delivery time."""
        self.profile = profile
        self.chance = random.Random(profile.loss_seed)
        self.chunk_bytes = _CHUNK
        if profile.bytes_per_s is not None:  # small chunks, so that a link with little bandwidth passes bytes evenly
            self.chunk_bytes = max(_MIN_CHUNK, min(_CHUNK, round(profile.bytes_per_s / _CHUNKS_PER_S)))

    @property
    def port(self) -> int:
        """The port to which the service connects."""
        return int(self._listener.getsockname()[1])

    def run_once(self) -> None:
        """Wait until data arrives or is due, and pass it on."""
        readable, writable, _ = select.select(self.readers, self.writers, (), self.until_due_s())
        for ready, handlers in ((writable, self.writers), (readable, self.readers)):
            for descriptor in ready:
                if handler := handlers.get(descriptor):
                    handler()
        for each in tuple(self.delayed):
            each.release()

    def until_due_s(self) -> float | None:
        """Return the seconds until data in transit is due; None if there is none, or if its receiver does not read."""
        due_s = min((each.due_s for each in self.delayed), default=math.inf)
        return None if due_s == math.inf else max(0.0, due_s - self.clock())

    def counts(self) -> dict[str, Any]:
        """Return the counts so far, including the bytes in transit."""
        return {
            "connections": self.accepted,
            "round_trips": self.round_trips,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "in_transit_s": self.in_transit_s + sum(each.in_transit_s for each in self.connections),
            "loss_s": self.loss_s + sum(each.loss_s for each in self.connections),
            "held_bytes": sum(each.held_bytes for each in self.connections),
            "cpu_s": time.process_time(),
        }

    def open(self) -> None:
        """Accept connections from now on."""
        self._listener.listen(_MAX_CONNECTIONS)
        self.readers[self._listener.fileno()] = self._accept

    def shut(self) -> None:
        """End all connections, and refuse new ones; data in transit is lost."""
        for each in tuple(self.connections):
            each.close()
        port = self.port
        self.readers.pop(self._listener.fileno(), None)
        self._listener.close()
        self._listener = _bound_socket(port)

    def close(self) -> None:
        """Accept no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        try:
            service, _ = self._listener.accept()
        except OSError:  # the client is already gone
            return
        if len(self.connections) >= _MAX_CONNECTIONS:
            sys.stderr.write(f"more than {_MAX_CONNECTIONS} connections: one was refused\n")
            service.close()
            return
        self.accepted += 1
        self.connections.add(_Connection(self, service, self._connect()))


def _bound_socket(port: int) -> socket.socket:
    """Return a socket that does not listen yet, so that connections are refused."""
    bound = socket.socket()
    bound.setblocking(False)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


class _Connection:
    """One connection of the service, and its continuation to the other end."""

    def __init__(self, relay: Relay, service: socket.socket, other: socket.socket) -> None:
        self.relay = relay
        self._next_send_starts_round_trip = True
        """Whether the next data that the service sends begins a round trip."""
        self._since_s: float | None = None
        self._in_transit_s = 0.0
        # The kernel accepts at once, but the service would learn that a round trip later, and would send only then.
        self._out = _Direction(self, service, other, DelayQueue(opened_s=relay.clock() + relay.profile.latency_s))
        self._back = _Direction(self, other, service, DelayQueue())
        for direction in (self._out, self._back):
            direction.source.setblocking(False)
            if direction.source.family != socket.AF_UNIX:
                direction.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            relay.readers[direction.source.fileno()] = direction.read

    @property
    def due_s(self) -> float:
        """The time at which the next data is due; infinite if there is none, or if its receiver does not read."""
        return min(self._out.due_s, self._back.due_s)

    @property
    def held_bytes(self) -> int:
        """The number of bytes in transit in both directions."""
        return self._out.queue.held_bytes + self._back.queue.held_bytes

    @property
    def loss_s(self) -> float:
        """The seconds by which lost packets have delayed the data of both directions."""
        return self._out.queue.loss_s + self._back.queue.loss_s

    @property
    def in_transit_s(self) -> float:
        """The seconds so far in which the connection had data in transit."""
        return self._in_transit_s + (0.0 if self._since_s is None else self.relay.clock() - self._since_s)

    def release(self) -> None:
        """Pass on the data that is due."""
        for direction in (self._out, self._back):
            if self in self.relay.connections:
                direction.flush()

    def note_received(self, direction: "_Direction", byte_count: int, now_s: float) -> None:
        if direction is self._out:
            relay = self.relay
            relay.round_trips += self._next_send_starts_round_trip
            relay.bytes_sent += byte_count
            self._next_send_starts_round_trip = False
            relay.trace.add_sent(now_s, byte_count)

    def note_sent(self, direction: "_Direction", byte_count: int, now_s: float) -> None:
        if direction is self._back:
            self.relay.bytes_received += byte_count
            self._next_send_starts_round_trip = True
            self.relay.trace.add_received(now_s, byte_count)

    def note_move(self, now_s: float) -> None:
        """Update the time in transit after data entered or left a queue."""
        if self not in self.relay.connections:
            return
        delayed = min(self._out.queue.due_s, self._back.queue.due_s) < math.inf
        if delayed and self._since_s is None:
            self._since_s = now_s
            self.relay.delayed.add(self)
        elif not delayed and self._since_s is not None:
            self._in_transit_s += now_s - self._since_s
            self._since_s = None
            self.relay.delayed.discard(self)
        if self._out.ended and self._back.ended:
            self.close()

    def close(self) -> None:
        """Close both sides at once; data in transit is lost."""
        if self not in self.relay.connections:
            return
        self.relay.connections.remove(self)
        self.relay.delayed.discard(self)
        self.relay.in_transit_s += self.in_transit_s
        self.relay.loss_s += self.loss_s
        for sock in (self._out.source, self._back.source):
            self.relay.readers.pop(sock.fileno(), None)
            self.relay.writers.pop(sock.fileno(), None)
            sock.close()


class _Direction:
    """One direction of a connection, from the source to the target."""

    def __init__(
        self, connection: _Connection, source: socket.socket, target: socket.socket, queue: DelayQueue
    ) -> None:
        self.source = source
        self.target = target
        self.queue = queue
        self.ended = False
        """Whether the end of the stream was passed on to the target."""
        self._exhausted = False
        self._blocked = False
        self._connection = connection
        self._relay = connection.relay
        self._rest = memoryview(b"")

    def read(self) -> None:
        """Receive data from the source; pass it on at once if the link has no delay."""
        try:
            count = self.source.recv_into(self._relay.buffer, self._relay.chunk_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        now_s = self._relay.clock()
        if count:
            self._connection.note_received(self, count, now_s)
        is_waiting = bool(self._rest) or self.queue.due_s != math.inf
        if count and self._relay.profile == UNCHANGED and not is_waiting:
            self._rest = self._relay.buffer[:count]
            self._write(now_s)
            self._rest = memoryview(bytes(self._rest))
            return
        self.queue.put(bytes(self._relay.buffer[:count]), now_s, self._relay.profile, self._relay.chance)
        self._exhausted = not count
        if self._exhausted or self.queue.held_bytes > _MAX_HELD:
            del self._relay.readers[self.source.fileno()]
        self.flush()

    @property
    def due_s(self) -> float:
        """The time at which the next chunk is due; infinite if there is none, or if the target does not read now."""
        return math.inf if self._blocked else self.queue.due_s

    def flush(self) -> None:
        """Write the data that is due to the target."""
        now_s = self._relay.clock()
        self._write(now_s)
        self._connection.note_move(now_s)

    def _write(self, now_s: float) -> None:
        """Write as much due data as the target accepts."""
        try:
            while self._rest or self._next(now_s):
                sent = self.target.send(self._rest)
                self._rest = self._rest[sent:]
                self._connection.note_sent(self, sent, now_s)
        except BlockingIOError:
            self._blocked = True
            self._relay.writers[self.target.fileno()] = self.flush
        except OSError as error:
            self._broken(error)
        else:
            if self._blocked:
                self._blocked = False
                del self._relay.writers[self.target.fileno()]

    def _next(self, now_s: float) -> bool:
        """Take the next chunk that is due, and return whether there is one; pass on the end of the stream."""
        chunk = self.queue.take(now_s)
        if chunk is None:
            return False
        self._rest = memoryview(chunk)
        if not chunk:
            self.ended = True
            self.target.shutdown(socket.SHUT_WR)
        elif self.queue.held_bytes <= _MAX_HELD and not self._exhausted:
            self._relay.readers[self.source.fileno()] = self.read
        return bool(chunk)

    def _broken(self, error: OSError) -> None:
        sys.stderr.write(f"a connection broke: {error}\n")
        self._connection.close()


_TIMER_SLACK = Path("/proc/self/timerslack_ns")
_CONNECT_TIMEOUT_S = 10.0


def _main(host: str, port: int, *, ahead: bool, listen: int) -> None:
    """Serve until stdin ends."""
    with suppress(OSError):  # by default the kernel lets each wait last up to 50 µs longer
        _TIMER_SLACK.write_text("1")
    try:
        connect = _connection_to(socket.AF_INET, (host, port)) if ahead else _connector(host, port)
    except OSError as error:
        _print({"error": f"{host}:{port} cannot be reached: {error.strerror or error}"})
        return
    try:
        relay = Relay(connect, ahead=ahead, listen=listen)
    except OSError as error:
        _print({"error": f"port {listen} of 127.0.0.1 cannot be listened at: {error}"})
        return
    _print({"port": relay.port})
    orders = _Orders(relay)
    relay.readers[sys.stdin.fileno()] = orders.read
    while not orders.ended:
        if orders.is_cut:
            orders.read()
        else:
            relay.run_once()


class _Orders:
    """Reads and executes the orders on stdin, one JSON line each."""

    def __init__(self, relay: Relay) -> None:
        self.ended = False
        self.is_cut = False
        """Whether nothing passes: no byte, no new connection, and no end of a connection."""
        self._relay = relay
        self._partial = b""

    def read(self) -> None:
        """Execute each complete line that was received, and write its response."""
        received = os.read(sys.stdin.fileno(), 1 << 16)
        self.ended = not received
        *lines, self._partial = (self._partial + received).split(b"\n")
        for line in lines:
            _print(self._respond(json.loads(line)))

    def _respond(self, order: dict[str, Any]) -> dict[str, Any]:
        if "profile" in order:
            self._relay.set_profile(LinkProfile(**order["profile"]))
        self.is_cut = order.get("cut", self.is_cut)
        if "open" in order:
            (self._relay.open if order["open"] else self._relay.shut)()
        counts = self._relay.counts()
        if "trace" in order:
            counts["trace"] = self._relay.trace.to_json()
            self._relay.trace = Trace(self._relay.clock())
        return counts


def _connector(host: str, port: int) -> Callable[[], socket.socket]:
    """Return a function that begins a connection to the other end; raises OSError if that is unreachable now."""
    if host.startswith("/"):
        family, address = socket.AF_UNIX, f"{host}/.s.PGSQL.{port}"
        with socket.socket(family) as probe:
            probe.connect(address)
    else:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S) as probe:
            family, address = probe.family, probe.getpeername()
    return _connection_to(family, address)


def _connection_to(family: socket.AddressFamily, address: Any) -> Callable[[], socket.socket]:
    def connect() -> socket.socket:
        started = socket.socket(family)
        started.setblocking(False)
        started.connect_ex(address)
        return started

    return connect


def _print(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _options = dict(each.partition("=")[::2] for each in sys.argv[3:])
    _main(sys.argv[1], int(sys.argv[2]), ahead="ahead" in _options, listen=int(_options.get("listen", 0)))
