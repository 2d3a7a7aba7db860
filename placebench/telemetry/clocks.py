"""The offset between two machines' clocks, from requests that both have timed.

The key piece is `offset`. A request is the exchange of NTP: sent t0 and read t3 by the client's clock, begun t1 and
answered t2 by the server's. Nothing begins before it is sent nor is read before it is answered, so each request holds
the offset (server minus client) between t2 - t3 and t1 - t0, whatever the ways took. Every request narrows the interval
down; what is left has no assumption about which way is slower, unlike the mean of the fastest exchange. Where clocks
drift, no offset fits all requests: then the fastest exchange is taken, and that is said.

Answered is when the application returned, framework and handler after its begin: the worker's own end comes after the
last byte is sent, when the client may have read it already. Of an application that tells no handler it is the begin.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placebench.errors import PlacebenchError

if TYPE_CHECKING:
    import pandas as pd

    from placebench.telemetry.frames import Telemetry


@dataclass(frozen=True)
class HostOffset:
    """One host's clock minus the client's.

    uncertainty_s: the true offset lies within it, while the clocks do not drift; 0.0 for the same clock.
    drifts: no single offset fits all requests: the one of the fastest exchange is given, right for its moment.
    """

    host: str
    offset_s: float
    uncertainty_s: float
    requests: int
    drifts: bool = False

    def in_words(self) -> str:
        """One sentence, in milliseconds."""
        if not self.requests:
            return f"{self.host}: the client's own clock."
        side = "ahead of" if self.offset_s >= 0 else "behind"
        told = f"{self.host}: its clock is {abs(self.offset_s) * 1e3:.3f} ms {side} the client's"
        known = f"± {self.uncertainty_s * 1e3:.3f} ms, from {self.requests} requests"
        drift = "; the clocks drift: no offset fits all of them, this is that of the fastest" if self.drifts else ""
        return f"{told} ({known}{drift})."


@dataclass(frozen=True)
class Offset:
    """The offset of every host, and which file is whose."""

    hosts: tuple[HostOffset, ...]
    by_worker: dict[str, float]

    def of(self, workers: "pd.Series[str]") -> "pd.Series[float]":
        """What to subtract from the times of these files."""
        return workers.astype("str").map(self.by_worker).fillna(0.0).astype("float64")

    def in_words(self) -> str:
        """A sentence a host."""
        return " ".join(host.in_words() for host in self.hosts)


def offset(telemetry: "Telemetry") -> Offset:
    """The offsets of all hosts against the one that the client ran on.

    Raises PlacebenchError where no client wrote, or a host shares no request with it.
    """
    clock = {f"{file.part}/{file.worker}".lstrip("/"): _clock(file.head) for file in telemetry.files}
    durations = telemetry.durations
    clients = {clock[str(name)] for name in durations.loc[durations["series"] == "client", "worker"].unique()}
    if len(clients) != 1:
        raise PlacebenchError(
            f"{len(clients)} clients' clocks in this telemetry: put the files of one client (`placebench load "
            "--telemetry DIR`) and of the servers that it asked into one folder"
        )
    own = clients.pop()
    pairs = telemetry.paired().join(_inside(durations), on="request").fillna({"inside_s": 0.0})
    pair_clocks = pairs["worker_server"].astype("str").map(clock)
    found = {name: _host(name, own, pairs[pair_clocks == name]) for name in dict.fromkeys(clock.values())}
    return Offset(tuple(found.values()), {worker: found[name].offset_s for worker, name in clock.items()})


def _inside(durations: "pd.DataFrame") -> "pd.Series[float]":
    """What the application took of each request, where it tells its handler's time."""
    parts = durations[durations["series"].isin(("framework", "handler"))]
    return parts.groupby("request")["duration_s"].sum().rename("inside_s")


def _clock(head: dict[str, Any]) -> str:
    """What names a clock: the host and its boot, since two containers of one machine share theirs."""
    return str(head.get("boot") or head.get("host") or "unknown host")


def _host(name: str, own: str, pairs: "pd.DataFrame") -> HostOffset:
    if name == own:
        return HostOffset(name, 0.0, 0.0, 0)
    if not len(pairs):
        raise PlacebenchError(
            f"host {name} shares no request with the client: its files are of another load, or of a version that "
            "does not read X-Placebench-Request"
        )
    sent, begun = pairs["started_s_client"], pairs["started_s_server"]
    answered, read = begun + pairs["inside_s"], sent + pairs["duration_s_client"]
    lows, highs = answered - read, begun - sent
    low, high = float(lows.max()), float(highs.min())
    if low <= high:
        return HostOffset(name, (low + high) / 2, (high - low) / 2, len(pairs))
    fastest = (highs - lows).idxmin()
    low, high = float(lows[fastest]), float(highs[fastest])
    return HostOffset(name, (low + high) / 2, (high - low) / 2, len(pairs), drifts=True)
