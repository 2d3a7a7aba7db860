"""The process of a link: a TCP proxy that counts what passes, and delays it as it is told.

Run as `python -m placebench.runtime.network.proxy HOST PORT` (or the folder of a Unix socket as HOST). Its first line
says the port it listens on, or why it cannot reach the other end. Then each line on stdin is an order, and its response
is what was counted so far: `{"shape": {...}}` changes the link, `{"trace": true}` also tells the bytes over time since
the last such order, `{}` only asks. It ends with its stdin.
"""

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from placebench.runtime.network.delay_queue import Shape
from placebench.runtime.network.relay import Relay, Trace

_TIMER_SLACK = Path("/proc/self/timerslack_ns")
_CONNECT_TIMEOUT_S = 10.0


def main(host: str, port: int) -> None:
    """Serve until stdin ends."""
    with suppress(OSError):  # by default the kernel lets each wait last up to 50 µs longer
        _TIMER_SLACK.write_text("1")
    try:
        relay = Relay(_connector(host, port))
    except OSError as error:
        _say({"error": f"{host}:{port} cannot be reached: {error}"})
        return
    _say({"port": relay.port})
    orders = Orders(relay)
    relay.readers[sys.stdin.fileno()] = orders.read
    while not orders.ended:
        relay.turn()


class Orders:
    """What the benchmark asks on stdin, a JSON line each."""

    def __init__(self, relay: Relay) -> None:
        self.ended = False
        self._relay = relay
        self._partial = b""

    def read(self) -> None:
        """Answer each whole line that came."""
        came = os.read(sys.stdin.fileno(), 1 << 16)
        self.ended = not came
        *lines, self._partial = (self._partial + came).split(b"\n")
        for line in lines:
            _say(self._answer(json.loads(line)))

    def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        if "shape" in order:
            self._relay.set_shape(Shape(**order["shape"]))
        told = self._relay.told()
        if "trace" in order:
            told["trace"] = self._relay.trace.to_json()
            self._relay.trace = Trace(self._relay.clock())
        return told


def _connector(host: str, port: int) -> Callable[[], socket.socket]:
    """What begins a connection to the other end; raises OSError where nothing can be reached there now."""
    if host.startswith("/"):
        family, address = socket.AF_UNIX, f"{host}/.s.PGSQL.{port}"
        with socket.socket(family) as tried:
            tried.connect(address)
    else:
        with socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S) as tried:
            family, address = tried.family, tried.getpeername()

    def connect() -> socket.socket:
        begun = socket.socket(family)
        begun.setblocking(False)
        begun.connect_ex(address)
        return begun

    return connect


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
