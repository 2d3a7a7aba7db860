"""Section `link` of the bench: what the proxy of a link adds to a round trip, beside none and beside asyncio's streams.

The main part is `bench_link`. Messages of one size go to an echo in a process of its own and back, one after the other,
in blocks of ABC CBA; each way keeps its connection. Latencies are then set, and what is added to them is told.
"""

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from sqlalchemy import make_url

from placebench.meters.processes import read_cpu_s
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.network.link import Link, open_database_link

SIZES = {100: 300, 100_000: 100}
"""Bytes of a message, and how many of them are a block."""
LATENCIES_MS = (0.5, 5.0, 50.0)
ECHO = """
import socket, threading
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while message := connection.recv(1 << 20):
        connection.sendall(message)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
STREAMS = """
import asyncio, sys
async def copy(source, target):
    while chunk := await source.read(1 << 16):
        target.write(chunk)
        await target.drain()
    target.close()
async def carry(reader, writer):
    back, out = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await asyncio.gather(copy(reader, out), copy(back, writer))
async def main():
    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@dataclass
class Way:
    """One way to the echo."""

    name: str
    connection: socket.socket
    pid: int | None
    """Of the proxy in between."""
    round_trip_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    def block(self, size: int, count: int) -> None:
        """Send *size* bytes back and forth *count* times."""
        message, cpu_before, began = b"x" * size, self._cpu_s(), time.perf_counter()
        for _ in range(count):
            round_trip(self.connection, message)
        self.round_trip_us.append((time.perf_counter() - began) / count * 1e6)
        self.cpu_us.append((self._cpu_s() - cpu_before) / count * 1e6)

    def _cpu_s(self) -> float:
        return 0.0 if self.pid is None else read_cpu_s(self.pid)


def bench_link(arguments: argparse.Namespace, say: Callable[..., None], spread: Callable[..., str]) -> None:
    """Microseconds of a round trip and of the proxy's CPU for it, and what comes on top of a latency."""
    blocks = arguments.repeats * 5
    with ways() as (all_ways, link):
        for size, count in SIZES.items():
            for number in range(blocks + 1):
                for way in all_ways if number % 2 else reversed(all_ways):
                    way.block(size, count)
            say(f"link, {size} bytes, n = {blocks}", "µs a round trip", "added", "µs of the proxy's CPU")
            direct = all_ways[0].round_trip_us[1:]
            for way in all_ways:
                added = [mine - theirs for mine, theirs in zip(way.round_trip_us[1:], direct, strict=True)]
                say(way.name, spread(way.round_trip_us[1:]), spread(added), spread(way.cpu_us[1:]))
                way.round_trip_us.clear()
                way.cpu_us.clear()
        say(f"link, latency, n = {blocks}", "ms on top")
        for latency_ms in LATENCIES_MS:
            say(f"{latency_ms:g} ms", spread(on_top(all_ways[-1], link, latency_ms, blocks)))


def on_top(way: Way, link: Link, latency_ms: float, count: int) -> list[float]:
    """By how many milliseconds each round trip took longer than it was to."""
    link.set_profile(LinkProfile(latency_ms / 1e3))
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        round_trip(way.connection, b"x" * 100)
        taken.append((time.perf_counter() - began) * 1e3 - latency_ms)
    return taken


def round_trip(connection: socket.socket, message: bytes) -> None:
    """There and back, whole."""
    connection.sendall(message)
    missing = len(message)
    while missing:
        missing -= len(connection.recv(1 << 20))


@contextmanager
def ways() -> Iterator[tuple[list[Way], Link]]:
    """Directly, through asyncio's streams, and through a link of ours."""
    with ExitStack() as stack:
        echo_port, _ = stack.enter_context(program(ECHO))
        streams_port, streams_pid = stack.enter_context(program(STREAMS, str(echo_port)))
        link = stack.enter_context(open_database_link(f"postgresql://bench@127.0.0.1:{echo_port}/bench"))
        link_port = make_url(link.url).port
        yield (
            [
                Way("nothing in between", connected(echo_port), None),
                Way("asyncio's streams", connected(streams_port), streams_pid),
                Way("the link at 0 ms", connected(link_port), link.pids[0]),
            ],
            link,
        )


@contextmanager
def program(source: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """The port that the program prints, and its process."""
    command = [sys.executable, "-c", source, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline()), child.pid
        finally:
            child.kill()


def connected(port: int | None) -> socket.socket:
    """A connection that sends at once."""
    made = socket.create_connection(("127.0.0.1", port or 0))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
