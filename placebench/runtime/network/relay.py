"""Forwards bytes between sockets, each direction through a delay queue, and counts them, in total and over time."""

import math
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from placebench.runtime.network.delay_queue import UNCHANGED, Lane, Shape

MOST_BINS = 400
_FIRST_BIN_S = 0.001


@dataclass
class Trace:
    """Bytes in bins of `bin_s` seconds from `began_s` on, as the service sent and received them."""

    began_s: float
    bin_s: float = _FIRST_BIN_S
    sent: list[int] = field(default_factory=list)
    received: list[int] = field(default_factory=list)

    def add_sent(self, at_s: float, byte_count: int) -> None:
        """The service sent so many bytes at *at_s*."""
        self._add(self.sent, at_s, byte_count)

    def add_received(self, at_s: float, byte_count: int) -> None:
        """The service received so many bytes at *at_s*."""
        self._add(self.received, at_s, byte_count)

    def to_json(self) -> dict[str, Any]:
        """`{"bin_s", "sent": [bytes, ...], "received": [...]}`; a list ends with its last byte."""
        return {"bin_s": self.bin_s, "sent": self.sent, "received": self.received}

    def _add(self, bins: list[int], at_s: float, byte_count: int) -> None:
        while (number := int((at_s - self.began_s) / self.bin_s)) >= MOST_BINS:
            self._merge()
        bins.extend([0] * (number + 1 - len(bins)))
        bins[number] += byte_count

    def _merge(self) -> None:
        self.bin_s *= 2
        for bins in (self.sent, self.received):
            bins[:] = [sum(bins[at : at + 2]) for at in range(0, len(bins), 2)]


_CHUNK = 1 << 17
_SMALLEST_CHUNK = 1448
_CHUNKS_PER_S = 1000
_MOST_HELD = 16 << 20
"""Bytes on their way in one direction of one connection; then its sender waits, as for a full window."""
_MOST_CONNECTIONS = 450
"""select() takes descriptors up to 1023."""


class Relay:
    """All connections of one link, and what passed over them."""

    def __init__(self, connect: Callable[[], socket.socket], *, clock: Callable[[], float] = time.perf_counter) -> None:
        """connect: begins a connection to the other end, and does not wait for it."""
        self.clock = clock
        self.buffer = memoryview(bytearray(_CHUNK))
        self.set_shape(UNCHANGED)
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.connections: set[Connection] = set()
        self.delayed: set[Connection] = set()
        """Those of which something is on its way."""
        self.accepted = self.round_trips = self.bytes_sent = self.bytes_received = 0
        self.under_way_s = 0.0
        self.trace = Trace(clock())
        self._connect = connect
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=_MOST_CONNECTIONS)
        self._listener.setblocking(False)
        self.readers[self._listener.fileno()] = self._accept

    def set_shape(self, shape: Shape) -> None:
        """From now on; what is on its way arrives as it was to."""
        self.shape = shape
        self.chunk_bytes = _chunk_bytes(shape)

    @property
    def port(self) -> int:
        """Where the service connects to."""
        return int(self._listener.getsockname()[1])

    def turn(self) -> None:
        """Wait until something comes or is due, and pass it on."""
        readable, writable, _ = select.select(self.readers, self.writers, (), self.until_due_s())
        for ready, handlers in ((writable, self.writers), (readable, self.readers)):
            for descriptor in ready:
                if handler := handlers.get(descriptor):
                    handler()
        for each in tuple(self.delayed):
            each.release()

    def until_due_s(self) -> float | None:
        """How long nothing is to be passed on; None where that is up to those who send and receive."""
        due_s = min((each.due_s for each in self.delayed), default=math.inf)
        return None if due_s == math.inf else max(0.0, due_s - self.clock())

    def told(self) -> dict[str, Any]:
        """What was counted so far, and how many bytes are on their way."""
        return {
            "connections": self.accepted,
            "round_trips": self.round_trips,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "under_way_s": self.under_way_s + sum(each.under_way_s for each in self.connections),
            "held_bytes": sum(each.held_bytes for each in self.connections),
            "cpu_s": time.process_time(),
        }

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        try:
            service, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        if len(self.connections) >= _MOST_CONNECTIONS:
            sys.stderr.write(f"more than {_MOST_CONNECTIONS} connections: one was refused\n")
            service.close()
            return
        self.accepted += 1
        self.connections.add(Connection(self, service, self._connect()))


class Connection:
    """One connection of the service, and its continuation to the other end."""

    def __init__(self, relay: Relay, service: socket.socket, other: socket.socket) -> None:
        self.relay = relay
        self._turned = True
        """Whether what the service sends next begins a round trip."""
        self._since_s: float | None = None
        self._under_way_s = 0.0
        # The kernel accepts at once. Over the link the service would know that a round trip later, and send then.
        self._out = Way(self, service, other, Lane(opened_s=relay.clock() + relay.shape.latency_s))
        self._back = Way(self, other, service, Lane())
        for way in (self._out, self._back):
            way.source.setblocking(False)
            if way.source.family != socket.AF_UNIX:
                way.source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            relay.readers[way.source.fileno()] = way.read

    @property
    def due_s(self) -> float:
        """When the next part of it is to be passed on; infinite where nothing is, or nobody takes it."""
        return min(self._out.due_s, self._back.due_s)

    @property
    def held_bytes(self) -> int:
        """How much of it is on its way."""
        return self._out.lane.held_bytes + self._back.lane.held_bytes

    @property
    def under_way_s(self) -> float:
        """How long something of it was on its way, so far."""
        return self._under_way_s + (0.0 if self._since_s is None else self.relay.clock() - self._since_s)

    def release(self) -> None:
        """Pass on what is due."""
        for way in (self._out, self._back):
            if self in self.relay.connections:
                way.flush()

    def came(self, way: "Way", byte_count: int, now_s: float) -> None:
        """One side sent so many bytes."""
        if way is self._out:
            relay = self.relay
            relay.round_trips += self._turned
            relay.bytes_sent += byte_count
            self._turned = False
            relay.trace.add_sent(now_s, byte_count)

    def went(self, way: "Way", byte_count: int, now_s: float) -> None:
        """One side was given so many bytes."""
        if way is self._back:
            self.relay.bytes_received += byte_count
            self._turned = True
            self.relay.trace.add_received(now_s, byte_count)

    def moved(self, now_s: float) -> None:
        """Something entered a lane or left it."""
        if self not in self.relay.connections:
            return
        delayed = min(self._out.lane.due_s, self._back.lane.due_s) < math.inf
        if delayed and self._since_s is None:
            self._since_s = now_s
            self.relay.delayed.add(self)
        elif not delayed and self._since_s is not None:
            self._under_way_s += now_s - self._since_s
            self._since_s = None
            self.relay.delayed.discard(self)
        if self._out.ended and self._back.ended:
            self.close()

    def close(self) -> None:
        """Both sides at once; what was on its way is lost."""
        if self not in self.relay.connections:
            return
        self.relay.connections.remove(self)
        self.relay.delayed.discard(self)
        self.relay.under_way_s += self.under_way_s
        for sock in (self._out.source, self._back.source):
            self.relay.readers.pop(sock.fileno(), None)
            self.relay.writers.pop(sock.fileno(), None)
            sock.close()


class Way:
    """One direction of a connection."""

    def __init__(self, connection: Connection, source: socket.socket, target: socket.socket, lane: Lane) -> None:
        self.source = source
        self.target = target
        self.lane = lane
        self.ended = False
        """Whether the target was told that nothing follows."""
        self._exhausted = False
        self._blocked = False
        self._connection = connection
        self._relay = connection.relay
        self._rest = memoryview(b"")

    def read(self) -> None:
        """Take what the source sent."""
        try:
            came = self.source.recv_into(self._relay.buffer, self._relay.chunk_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error)
            return
        now_s = self._relay.clock()
        if came:
            self._connection.came(self, came, now_s)
        if came and self._straight:
            self._rest = self._relay.buffer[:came]
            self._write(now_s)
            self._rest = memoryview(bytes(self._rest))
        else:
            self._delay(bytes(self._relay.buffer[:came]), now_s)

    @property
    def due_s(self) -> float:
        """When the next chunk is to be handed over; infinite where there is none, or the target takes nothing now."""
        return math.inf if self._blocked else self.lane.due_s

    def flush(self) -> None:
        """Hand the target what is due."""
        now_s = self._relay.clock()
        self._write(now_s)
        self._connection.moved(now_s)

    @property
    def _straight(self) -> bool:
        """Whether what comes can be handed over as it is."""
        return self._relay.shape == UNCHANGED and not self._rest and self.lane.due_s == math.inf

    def _delay(self, chunk: bytes, now_s: float) -> None:
        self.lane.put(chunk, now_s, self._relay.shape)
        self._exhausted = not chunk
        if self._exhausted or self.lane.held_bytes > _MOST_HELD:
            del self._relay.readers[self.source.fileno()]
        self.flush()

    def _write(self, now_s: float) -> None:
        """As far as the target takes it."""
        try:
            while self._rest or self._next(now_s):
                sent = self.target.send(self._rest)
                self._rest = self._rest[sent:]
                self._connection.went(self, sent, now_s)
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
        """Whether there is something to send; the end of the stream is passed on."""
        chunk = self.lane.take(now_s)
        if chunk is None:
            return False
        self._rest = memoryview(chunk)
        if not chunk:
            self.ended = True
            self.target.shutdown(socket.SHUT_WR)
        elif self.lane.held_bytes <= _MOST_HELD and not self._exhausted:
            self._relay.readers[self.source.fileno()] = self.read
        return bool(chunk)

    def _broken(self, error: OSError) -> None:
        sys.stderr.write(f"a connection broke: {error}\n")
        self._connection.close()


def _chunk_bytes(shape: Shape) -> int:
    """Small enough that a slow link passes bytes evenly."""
    if shape.bytes_per_s is None:
        return _CHUNK
    return max(_SMALLEST_CHUNK, min(_CHUNK, round(shape.bytes_per_s / _CHUNKS_PER_S)))
