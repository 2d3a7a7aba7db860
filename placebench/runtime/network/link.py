"""An emulated network link: TCP proxies between a service and its database, or a client and its service.

`open_database_link` and `open_service_link` open a link, each proxy in its own process. A link counts bytes in both
directions and round trips: a round trip begins when the service sends after it received, whatever driver or program it
uses. Latency and bandwidth can change while the link is open; without them a proxy adds some 60 µs per round trip.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.engine import make_url

from placebench.errors import LoadError, PlacebenchError
from placebench.limits import PROXIES
from placebench.runtime.line_process import LineProcess, line_process
from placebench.runtime.network.delay_queue import LinkProfile
from placebench.runtime.supervisor import ChildSpec

_QUIET_S = 0.03
"""Seconds without traffic after which a count is final: a rollback may follow the response."""
_QUIET_WITHIN_S = 5.0


@dataclass(frozen=True)
class Traffic:
    """The traffic of a link since it was opened, or since an earlier reading."""

    round_trips: int
    bytes_sent: int
    """Bytes from the service to the database."""
    bytes_received: int
    connections: int = 0
    """Number of connections opened; the handshake of each takes one more round trip of the nearest proxy."""
    in_transit_s: float = field(default=0.0, compare=False)
    """Seconds in which data was in transit, summed over connections and proxies."""
    loss_s: float = field(default=0.0, compare=False)
    """Seconds by which lost packets have delayed the data, summed over connections, directions and proxies."""
    proxy_cpu_s: float = field(default=0.0, compare=False)
    """CPU seconds of the proxies themselves."""

    def since(self, before: "Traffic") -> "Traffic":
        """Return the traffic since *before*."""
        return Traffic(**{name: value - getattr(before, name) for name, value in asdict(self).items()})


class Link:
    """A counting link to one address; `url` leads to that address through the link."""

    def __init__(self, proxies: list["_Proxy"], url: str) -> None:
        """Wrap *proxies*, beginning with the one nearest to the service, which counts the traffic."""
        self._proxies = proxies
        self.url = url
        self.is_cut = False

    @property
    def pids(self) -> list[int]:
        """The process ids of the link's proxies, nearest first."""
        return [proxy.pid for proxy in self._proxies]

    @property
    def proxies(self) -> int:
        """The number of proxies in the chain; a round trip takes the latency of all of them."""
        return len(self._proxies)

    def set_profile(self, profile: LinkProfile) -> None:
        """Apply *profile* in every proxy to new data; data in transit arrives as before.

        Raises LoadError if the link is dead.
        """
        self.set_profiles([profile] * self.proxies)

    def set_profiles(self, profiles: Sequence[LinkProfile]) -> None:
        """Apply a profile of its own to each proxy, nearest first, as `set_profile` does."""
        for proxy, profile in zip(self._proxies, profiles, strict=True):
            proxy.order({"profile": asdict(profile)})

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that leads through the link."""
        return self._proxies[0].port

    def cut(self) -> None:
        """Pass nothing on from now on, as when all packets are lost: no connection ends, and none is refused."""
        self.is_cut = True
        self._order({"cut": True})

    def heal(self) -> None:
        """Pass on the data that was sent since `cut`, then continue as before."""
        self.is_cut = False
        self._order({"cut": False})

    def shut(self) -> None:
        """End all connections together with the data in transit, and refuse new ones, as when the other end dies."""
        self._order({"open": False})

    def open(self) -> None:
        """Accept connections, because the other end accepts them now."""
        self._order({"open": True})

    def traffic(self) -> Traffic:
        """Return the traffic so far, once no more data passes; raises LoadError if traffic continues for 5 s."""
        deadline = time.monotonic() + _QUIET_WITHIN_S
        seen = None
        while time.monotonic() < deadline:
            counts = [proxy.order({}) for proxy in self._proxies]
            before, seen = seen, _traffic(counts)
            if seen == before and not any(each["held_bytes"] for each in counts):
                return seen
            time.sleep(_QUIET_S)
        raise LoadError(f"the service went on talking to its database for {_QUIET_WITHIN_S:g} s after its response")

    def trace(self) -> dict[str, Any]:
        """Return bytes over time since the last call: `{"bin_s": s, "sent": [bytes, ...], "received": [...]}`.

        Returns at most 400 bins (placebench.runtime.network.proxy) of bytes that the service sent and received.
        """
        return dict(self._proxies[0].order({"trace": True})["trace"])

    def _order(self, order: Mapping[str, Any]) -> None:
        for proxy in self._proxies:
            proxy.order(order)


@contextmanager
def open_database_link(database_url: str, *, proxies: int = 1, log: Path | None = None) -> Iterator[Link]:
    """Open a link of *proxies* chained proxies to the database at *database_url*; costs some 100 ms per proxy.

    Raises LoadError if the database cannot be reached, PlacebenchError unless there are 1 to 8 proxies.
    """
    url = make_url(database_url)
    host, port = url.query.get("host", url.host), url.query.get("port", url.port)
    with _chain(str(host or "127.0.0.1"), int(str(port or 5432)), proxies, log) as chain:
        through = url.set(host="127.0.0.1", port=chain[0].port)
        query = {name: value for name, value in url.query.items() if name not in ("host", "port")}
        yield Link(chain, through.set(query=query).render_as_string(hide_password=False))


@contextmanager
def open_link_ahead(port: int) -> Iterator[Link]:
    """Open a link to a port of this machine before a server listens there; it refuses connections until `Link.open`."""
    with _chain("127.0.0.1", port, 1, None, "ahead") as chain:
        yield Link(chain, f"127.0.0.1:{chain[0].port}")


@contextmanager
def open_link(host: str, port: int, *, proxies: int = 1, listen: int = 0) -> Iterator[Link]:
    """Open a link to *host* and *port*, like `open_database_link`, at the port *listen* of 127.0.0.1 or a free one.

    Raises LoadError also if that port is in use.
    """
    with _chain(host, port, proxies, None, listen=listen) as chain:
        yield Link(chain, f"127.0.0.1:{chain[0].port}")


@contextmanager
def open_service_link(url: str, *, proxies: int = 1, log: Path | None = None) -> Iterator[Link]:
    """Open a link to the service at *url*, like `open_database_link`; it counts what the client sends and receives."""
    address = urlsplit(url)
    with _chain(str(address.hostname), address.port or 80, proxies, log) as chain:
        yield Link(chain, f"http://127.0.0.1:{chain[0].port}")


@contextmanager
def _chain(
    host: str, port: int, proxies: int, log: Path | None, *options: str, listen: int = 0
) -> Iterator[list["_Proxy"]]:
    if not 1 <= proxies <= PROXIES:
        raise PlacebenchError(f"{proxies} proxies: expected 1 to {PROXIES}")
    with ExitStack() as stack:
        chain: list[_Proxy] = []
        for place in range(proxies):
            nearest = [f"listen={listen}"] if place == proxies - 1 else []
            argv = [sys.executable, "-P", "-m", "placebench.runtime.network.proxy", host, str(port), *options, *nearest]
            spec = ChildSpec(name="link", argv=argv, log=log, pipes=True)
            process = stack.enter_context(line_process(spec, gone="the link dropped: its process is gone"))
            chain.insert(0, _Proxy(process))
            host, port = "127.0.0.1", chain[0].port
        yield chain


class _Proxy:
    """One proxy process, controlled by JSON lines."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.port = int(_check_response(process.read())["port"])

    def order(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Send an order and return the response; raises LoadError if the proxy is gone."""
        return _check_response(self._process.call(order))


def _check_response(response: dict[str, Any]) -> dict[str, Any]:
    if "error" in response:
        raise LoadError(f"the link cannot be opened: {response['error']}")
    return response


def _traffic(counts: Sequence[Mapping[str, Any]]) -> Traffic:
    """Return the counts of the nearest proxy, with the times summed over all proxies."""
    nearest = counts[0]
    return Traffic(
        round_trips=nearest["round_trips"],
        bytes_sent=nearest["bytes_sent"],
        bytes_received=nearest["bytes_received"],
        connections=nearest["connections"],
        in_transit_s=sum(each["in_transit_s"] for each in counts),
        loss_s=sum(each["loss_s"] for each in counts),
        proxy_cpu_s=sum(each["cpu_s"] for each in counts),
    )
