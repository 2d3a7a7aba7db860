"""A link: a TCP proxy between a service and its database, or a client and its service, in a process of its own.

The doors are `linked` and `linked_service`. A link counts bytes both ways and turnarounds: a round trip begins when the
service sends after it received, whatever the driver and the program are, so that foreign ones are counted alike. It
can be given a latency, a bandwidth and hops while it stands; without them it adds some 60 µs to each round trip.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import make_url

from placebench.errors import LoadError, PlacebenchError
from placebench.limits import HOPS
from placebench.runtime.line_process import LineProcess, line_process
from placebench.runtime.network.delay_queue import Shape
from placebench.runtime.supervisor import ChildSpec

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
    connections: int = 0
    """That were opened; each takes a round trip of the nearest hop more, for its handshake."""
    under_way_s: float = field(default=0.0, compare=False)
    """How long something was on its way, summed over connections and hops."""
    proxy_cpu_s: float = field(default=0.0, compare=False)
    """What the proxies themselves took."""

    def since(self, before: "Traffic") -> "Traffic":
        """What was added since *before*."""
        return Traffic(**{name: value - getattr(before, name) for name, value in asdict(self).items()})


class Link:
    """The way to one address that counts; `url` is the address through it."""

    def __init__(self, hops: list["_Hop"], url: str) -> None:
        """hops: from the nearest to the service on; the nearest counts."""
        self._hops = hops
        self.url = url

    @property
    def pids(self) -> list[int]:
        """The processes of its proxies, nearest first."""
        return [hop.pid for hop in self._hops]

    @property
    def hops(self) -> int:
        """How many links stand one after the other; a round trip takes the latency of all of them."""
        return len(self._hops)

    def set_shape(self, shape: Shape) -> None:
        """From now on, for each hop; what is on its way arrives as it was to. Raises LoadError for a dead link."""
        for hop in self._hops:
            hop.order({"shape": asdict(shape)})

    def traffic(self) -> Traffic:
        """What has passed until now, once nothing passes any more; raises LoadError when it never gets quiet."""
        deadline = time.monotonic() + _QUIET_WITHIN_S
        seen = None
        while time.monotonic() < deadline:
            told = [hop.order({}) for hop in self._hops]
            before, seen = seen, _traffic(told)
            if seen == before and not any(each["held_bytes"] for each in told):
                return seen
            time.sleep(_QUIET_S)
        raise LoadError(f"the service went on talking to its database for {_QUIET_WITHIN_S:g} s after its answer")

    def trace(self) -> dict[str, Any]:
        """Bytes over time since the last call: `{"bin_s": s, "sent": [bytes, ...], "received": [...]}`.

        At most 400 bins (placebench.runtime.network.relay), as the service sent and received.
        """
        return dict(self._hops[0].order({"trace": True})["trace"])


@contextmanager
def linked(database_url: str, *, hops: int = 1, log: Path | None = None) -> Iterator[Link]:
    """A link to the database at *database_url*, of *hops* proxies in a chain; costs some 100 ms for each.

    Raises LoadError where the database cannot be reached, PlacebenchError for hops that are not 1 to 8.
    """
    url = make_url(database_url)
    host, port = url.query.get("host", url.host), url.query.get("port", url.port)
    with _chain(str(host or "127.0.0.1"), int(str(port or 5432)), hops, log) as chain:
        through = url.set(host="127.0.0.1", port=chain[0].port)
        query = {name: value for name, value in url.query.items() if name not in ("host", "port")}
        yield Link(chain, through.set(query=query).render_as_string(hide_password=False))


@contextmanager
def linked_service(url: str, *, hops: int = 1, log: Path | None = None) -> Iterator[Link]:
    """As `linked`, to the service at *url*: the client is then the side that sends and receives."""
    address = urlsplit(url)
    with _chain(str(address.hostname), address.port or 80, hops, log) as chain:
        yield Link(chain, f"http://127.0.0.1:{chain[0].port}")


def check_hops(hops: int) -> None:
    """Raise PlacebenchError for a number of hops that a link cannot have."""
    if not 1 <= hops <= HOPS:
        raise PlacebenchError(f"{hops} hops: expected 1 to {HOPS}")


@contextmanager
def _chain(host: str, port: int, hops: int, log: Path | None) -> Iterator[list["_Hop"]]:
    check_hops(hops)
    with ExitStack() as stack:
        chain: list[_Hop] = []
        for _ in range(hops):
            argv = [sys.executable, "-m", "placebench.runtime.network.proxy", host, str(port)]
            spec = ChildSpec(name="link", argv=argv, log=log, pipes=True)
            chain.insert(0, _Hop(stack.enter_context(line_process(spec, gone="the link dropped: its process is gone"))))
            host, port = "127.0.0.1", chain[0].port
        yield chain


class _Hop:
    """One proxy, spoken to in JSON lines."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.port = int(_reachable(process.read())["port"])

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """What the proxy answers; raises LoadError where it is gone."""
        return _reachable(self._process.call(order))


def _reachable(told: dict[str, Any]) -> dict[str, Any]:
    if "error" in told:
        raise LoadError(f"the link has no other end: {told['error']}")
    return told


def _traffic(told: Sequence[Mapping[str, Any]]) -> Traffic:
    """Counts are the nearest hop's, times are summed over all."""
    nearest = told[0]
    return Traffic(
        round_trips=nearest["round_trips"],
        bytes_sent=nearest["bytes_sent"],
        bytes_received=nearest["bytes_received"],
        connections=nearest["connections"],
        under_way_s=sum(each["under_way_s"] for each in told),
        proxy_cpu_s=sum(each["cpu_s"] for each in told),
    )
