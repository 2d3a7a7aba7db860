"""A counting link: a TCP proxy between a service and its database, in a process of its own.

The door is `linked`. It counts bytes both ways and turnarounds: a round trip begins when the service sends after it
received, whatever the driver and the program are, so that foreign ones are counted alike. It adds some 50 µs to each
round trip; nothing is timed through it.

Run as `python -m placebench.experiment.link HOST PORT` (or the folder of a Unix socket as HOST). Its first line says
the port it listens on, and then it answers each line on stdin with what it counted so far.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

from placebench import guard
from placebench.errors import LoadError

_CHUNK = 1 << 16
_QUIET_S = 0.03
"""So long nothing has to pass before a count is final: a rollback may follow the answer."""
_QUIET_WITHIN_S = 5.0


@dataclass(frozen=True)
class Traffic:
    """What went over the link."""

    round_trips: int
    bytes_sent: int
    """From the service to the database."""
    bytes_received: int

    def since(self, before: "Traffic") -> "Traffic":
        """What was added since *before*."""
        return Traffic(
            self.round_trips - before.round_trips,
            self.bytes_sent - before.bytes_sent,
            self.bytes_received - before.bytes_received,
        )


class Link:
    """The way to one database that counts; `url` is the database's through it."""

    def __init__(self, child: guard.Child, database_url: str) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._asks, self._answers = child, child.stdin, child.stdout
        port = int(self._read()["port"])
        url = make_url(database_url).set(host="127.0.0.1", port=port)
        query = {name: value for name, value in url.query.items() if name not in ("host", "port")}
        self.url = url.set(query=query).render_as_string(hide_password=False)

    def traffic(self) -> Traffic:
        """What has passed until now, once nothing passes any more; raises LoadError when it never gets quiet."""
        deadline = time.monotonic() + _QUIET_WITHIN_S
        seen = self._traffic()
        while time.monotonic() < deadline:
            time.sleep(_QUIET_S)
            before, seen = seen, self._traffic()
            if seen == before:
                return seen
        raise LoadError(f"the service went on talking to its database for {_QUIET_WITHIN_S:g} s after its answer")

    def _traffic(self) -> Traffic:
        self._asks.write("\n")
        return Traffic(**self._read())

    def _read(self) -> dict[str, int]:
        line = self._answers.readline()
        if not line:
            raise LoadError(f"the counting link died: {self._child.log_tail()}")
        return dict(json.loads(line))


@contextmanager
def linked(database_url: str, *, log: Path | None = None) -> Iterator[Link]:
    """A link to the database at *database_url*; costs some 100 ms to start."""
    host, port = _address(database_url)
    argv = [sys.executable, "-m", "placebench.experiment.link", host, str(port)]
    with guard.start(guard.ChildSpec(name="link", argv=argv, log=log, pipes=True)) as child:
        yield Link(child, database_url)


def _address(database_url: str) -> tuple[str, int]:
    url = make_url(database_url)
    host, port = url.query.get("host", url.host), url.query.get("port", url.port)
    return str(host or "127.0.0.1"), int(str(port or 5432))


class _Counter:
    """Counts what one side and the other side send, over all connections."""

    def __init__(self) -> None:
        self.traffic = {"round_trips": 0, "bytes_sent": 0, "bytes_received": 0}

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def carry(self, service: tuple[asyncio.StreamReader, asyncio.StreamWriter], host: str, port: int) -> None:
        """One connection, until either side closes it."""
        from_service, to_service = service
        try:
            from_database, to_database = await self.connect(host, port)
        except OSError as error:
            sys.stderr.write(f"{host}:{port}: {error}\n")
            to_service.close()
            return
        turn = {"received": True}
        await asyncio.gather(
            self._copy(from_service, to_database, turn, sending=True),
            self._copy(from_database, to_service, turn, sending=False),
        )

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, turn: dict[str, bool], *, sending: bool
    ) -> None:
        with suppress(ConnectionError):
            while chunk := await source.read(_CHUNK):
                if sending:
                    self.traffic["round_trips"] += turn["received"]
                self.traffic["bytes_sent" if sending else "bytes_received"] += len(chunk)
                turn["received"] = not sending
                target.write(chunk)
                await target.drain()
        target.close()


async def _serve(host: str, port: int) -> None:
    counter = _Counter()
    server = await asyncio.start_server(lambda *service: counter.carry(service, host, port), "127.0.0.1", 0)
    _say({"port": server.sockets[0].getsockname()[1]})
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        _say(counter.traffic)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
