"""Telemetry as pandas frames: per second, per worker, ratios, warm-up trimming, and the offset between clocks.

The main class is `Telemetry`, which `placebench.telemetry.load` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.errors import PlacebenchError
from placebench.telemetry.clock import ClockBounds

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TelemetryFile:
    """One file as it was read.

    part: the folder it lies in, below the one that was loaded; "" is that one. truncated: lines that are not whole.
    head: what it says about its process; empty where its first line is missing.
    """

    path: Path
    part: str
    worker: str
    head: dict[str, Any]
    lines: int
    truncated: int


_BY = ("series", "verb", "path", "status")
_QUANTILES = {0.25: "25%", 0.5: "50%", 0.75: "75%", 0.9: "90%", 0.95: "95%"}
_ONLY_GROW = ("cpu_user_s", "cpu_system_s", "gc_collections", "gc_pause_s")


@dataclass(frozen=True)
class Telemetry:
    """What a folder of telemetry files holds; every method gives new frames and leaves these as they are.

    durations: a row per duration: started_s (since the epoch), request, verb, path, status, series, label, duration_s,
        worker (its file), part (its folder, "" for the folder itself). The series are
        client     from sending to the last byte read, at the client
        server     from the call of the application to the last byte handed to the kernel, in the worker
        framework  the application without its handler: what routing, headers and middleware take before and after it
        handler    the handler of the route
        timed      a span of `profiler.timed(label)`
        statement  inside the driver for one statement, label its fingerprint; with the profiler on
        transaction, pool  a BEGIN, COMMIT, ROLLBACK or CONNECT, and a wait for the pool; with the profiler on
    runtime: a row per figure: at_s, name, value, worker, part.
    """

    durations: pd.DataFrame
    runtime: pd.DataFrame
    files: tuple[TelemetryFile, ...]

    @property
    def truncated(self) -> int:
        """Lines of all files that were not whole, and are in no frame."""
        return sum(file.truncated for file in self.files)

    def part(self, name: str) -> Telemetry:
        """What one folder below the one that was loaded holds, such as one pass of a run."""
        return Telemetry(
            self.durations[self.durations["part"] == name],
            self.runtime[self.runtime["part"] == name],
            tuple(file for file in self.files if file.part == name),
        )

    def summary(self, by: Sequence[str] = _BY) -> pd.DataFrame:
        """Count, mean, std, min, quartiles, 90 %, 95 % and max of the durations in seconds, a row per group of *by*.

        by: any columns of `durations`, such as ("series", "worker").
        """
        groups = self.durations.groupby(list(by), observed=True)["duration_s"]
        frame = groups.agg(["count", "mean", "std", "min"])
        quantiles = groups.quantile(list(_QUANTILES)).unstack().rename(columns=_QUANTILES)
        return frame.join(quantiles).join(groups.max().rename("max"))

    def by_worker(self, series: str = "server") -> pd.DataFrame:
        """How evenly the workers were used: requests, share of all, busy seconds; a row per worker."""
        rows = self.durations[self.durations["series"] == series]
        groups = rows.groupby("worker", observed=True)["duration_s"]
        frame = groups.agg(requests="count", busy_s="sum")
        return frame.assign(share=frame["requests"] / frame["requests"].sum())

    def per_second(self, series: str = "server") -> pd.DataFrame:
        """A row per second from the first request of all on: requests that began in it, their mean and longest."""
        rows = self.durations[self.durations["series"] == series]
        seconds = _second(rows["started_s"], self.began_s)
        frame = rows.groupby(seconds)["duration_s"].agg(requests="count", mean_s="mean", max_s="max")
        return frame.reindex(range(int(seconds.max()) + 1 if len(seconds) else 0)).fillna({"requests": 0})

    def runtime_per_second(self) -> pd.DataFrame:
        """A column per figure, a row per worker and second; CPU and collections as what was added in that second."""
        frame = _wide(self.runtime, self.began_s)
        grown = [name for name in _ONLY_GROW if name in frame]
        frame[grown] = frame.groupby(level="worker", observed=True)[grown].diff()
        return frame

    def over_time(self) -> pd.DataFrame:
        """A row per second: requests that clients began in it, `user_to_kernel`, and the workers' `rss_bytes` together.

        NaN where a figure was not measured; a worker's memory holds until its next sample.
        """
        workers = self.runtime[self.runtime["worker"].astype("str").str.contains("worker-")]
        memory: Any = _wide(workers, self.began_s).reindex(columns=["rss_bytes"])["rss_bytes"]
        frame = self.per_second("client")[["requests"]].join(self.ratios()["user_to_kernel"])
        return frame.join(memory.unstack("worker").ffill().sum(axis=1, min_count=1).rename("rss_bytes"))

    def ratios(self) -> pd.DataFrame:
        """A row per second: the database's share of the handlers' time, and user over kernel CPU time of the workers.

        NaN where the profiler was off, nothing ran, or the kernel's clock moved by less than a tick.
        """
        return _ratios_per_second(self.durations, self.runtime, self.began_s)

    def describe_ratios(self) -> str:
        """The same over the whole time, with the direction of each ratio said."""
        return _describe_ratios(self.durations, self.runtime)

    def trim_warmup(self, *, series: str | None = None, until_s: float | None = None) -> WarmupTrim:
        """The same without the warm-up, request by request, with the proof.

        series: in which the warm-up is looked for; None: client, or server where no client wrote. until_s: trim up to
        there instead, in seconds from the first request. The series of one request stay together.
        """
        chosen = series or ("client" if (self.durations["series"] == "client").any() else "server")
        return _trim(self, chosen, until_s)

    def offset(self) -> Offset:
        """The servers' clock minus the client's, from the requests that both saw; raises PlacebenchError if none."""
        return _find_offset(self)

    def aligned(self) -> Telemetry:
        """The same with the servers' and other processes' times moved onto the client's clock, by `offset()`."""
        moved = self.offset()
        durations = self.durations.assign(started_s=self.durations["started_s"] - moved.of(self.durations["worker"]))
        return replace(
            self,
            durations=durations,
            runtime=self.runtime.assign(at_s=self.runtime["at_s"] - moved.of(self.runtime["worker"])),
        )

    def paired(self, outer: str = "client", inner: str = "server") -> pd.DataFrame:
        """A row per request that both series have: `started_s_client`, `duration_s_client`, and so on for the other."""
        sides = [self.durations[self.durations["series"] == name] for name in (outer, inner)]
        shown = [side[["request", "verb", "path", "status", "started_s", "duration_s", "worker"]] for side in sides]
        first, second = shown
        return first.merge(
            second[["request", "started_s", "duration_s", "worker"]], on="request", suffixes=(f"_{outer}", f"_{inner}")
        )

    @property
    def began_s(self) -> float:
        """When the first duration began, seconds since the epoch; raises PlacebenchError where there is none."""
        if not len(self.durations):
            raise PlacebenchError("this telemetry holds no duration: no request ended while it was on")
        return float(self.durations["started_s"].min())

    def shown(self) -> dict[str, Any]:
        """Counts for a message: files, durations, figures and truncated lines."""
        return {
            "files": len(self.files),
            "durations": len(self.durations),
            "figures": len(self.runtime),
            "truncated": self.truncated,
        }


_OUTLIER_DEVIATIONS = 5.0
_DEVIATION_PER_MAD = 1.4826
"""The standard deviation over the median absolute deviation, where nothing is an outlier."""


@dataclass(frozen=True)
class WarmupTrim:
    """What was kept and what was trimmed.

    until_s: seconds from the first request up to which requests were trimmed; 0.0: there was no warm-up.
    threshold_s: a second whose mean lies above it belongs to the warm-up; None where the caller said when to trim.
    counts: a row per series: before, trimmed, kept, as they were counted, each by itself.
    """

    kept: Telemetry
    until_s: float
    series: str
    threshold_s: float | None
    counts: pd.DataFrame

    @property
    def matches(self) -> bool:
        """Whether kept and trimmed together are all there was, in every series."""
        return bool((self.counts["kept"] + self.counts["trimmed"] == self.counts["before"]).all())

    def describe(self) -> str:
        """What was trimmed, and the proof, as text."""
        if not self.until_s:
            return "No warm-up at the beginning: nothing was trimmed."
        why = "as given" if self.threshold_s is None else f"a mean above {self.threshold_s * 1e3:.3g} ms in a second"
        proof = "; ".join(f"{name} {row.kept} + {row.trimmed} = {row.before}" for name, row in self.counts.iterrows())
        return f"The first {self.until_s:g} s were trimmed ({self.series}: {why}). Kept + trimmed = all: {proof}."


def _trim(telemetry: Telemetry, series: str, until_s: float | None) -> WarmupTrim:
    """Trim up to *until_s*, or up to the end of the warm-up of *series* in the first half of the time.

    The warm-up is the first run of seconds whose mean is more than five robust standard deviations above the median.
    """
    found, threshold_s = (until_s, None) if until_s is not None else _warmup_end(telemetry, series)
    durations = telemetry.durations
    # A request began with the first of its series, the client's where there is one.
    began_s = durations.groupby("request")["started_s"].transform("min")
    is_trimmed = began_s < telemetry.began_s + found
    early = telemetry.runtime["at_s"] < telemetry.began_s + found
    kept = replace(telemetry, durations=durations[~is_trimmed], runtime=telemetry.runtime[~early])
    counts = _counts(durations).to_frame("before")
    counts["trimmed"] = _counts(durations[is_trimmed])
    counts["kept"] = _counts(kept.durations)
    return WarmupTrim(kept, found, series, threshold_s, counts.fillna(0).astype("int64"))


def _warmup_end(telemetry: Telemetry, series: str) -> tuple[float, float | None]:
    means = telemetry.per_second(series)["mean_s"].dropna()
    if not len(means):
        return 0.0, None
    middle = float(means.median())
    deviation_s = _DEVIATION_PER_MAD * float((means - middle).abs().median())
    threshold_s = middle + _OUTLIER_DEVIATIONS * max(deviation_s, middle / 10)
    first_half = means[means.index < (means.index.max() + 1) / 2]
    high = list(first_half.index[first_half > threshold_s])
    if not high:
        return 0.0, threshold_s
    end = high[0]
    while end + 1 in high:
        end += 1
    return float(end + 1), threshold_s


def _counts(durations: pd.DataFrame) -> pd.Series[int]:
    return durations.groupby("series", observed=True)["duration_s"].count()


_DATABASE = ("statement", "transaction")
_PERCENT = 100


def _second(at_s: pd.Series[float], began_s: float) -> pd.Series[int]:
    """The number of the second, 0 for the first."""
    return (at_s - began_s).floordiv(1).astype("int64").rename("second")


def _wide(runtime: pd.DataFrame, began_s: float) -> pd.DataFrame:
    """A row per worker and second, a column per figure: the last reading in that second."""
    rows = runtime.assign(second=_second(runtime["at_s"], began_s))
    return rows.pivot_table(
        index=["worker", "second"], columns="name", values="value", aggfunc="last", observed=True
    ).rename_axis(columns=None)


def _ratios_per_second(durations: pd.DataFrame, runtime: pd.DataFrame, began_s: float) -> pd.DataFrame:
    """A row per second: database_s, handler_s, database_share, cpu_user_s, cpu_system_s, user_to_kernel."""
    seconds = durations.assign(second=_second(durations["started_s"], began_s))
    frame = (
        _sums(seconds, _DATABASE)
        .rename("database_s")
        .to_frame()
        .join(_sums(seconds, ("handler",)).rename("handler_s"), how="outer")
        .join(_cpu(runtime, began_s), how="outer")
    )
    return frame.assign(
        database_share=frame["database_s"] / frame["handler_s"].where(frame["handler_s"] > 0),
        user_to_kernel=frame["cpu_user_s"] / frame["cpu_system_s"].where(frame["cpu_system_s"] > 0),
    )


def _describe_ratios(durations: pd.DataFrame, runtime: pd.DataFrame) -> str:
    """One sentence per ratio; what was not measured is said."""
    return f"{_describe_database(durations)} {_describe_cpu(runtime)}"


def _database_share(durations: pd.DataFrame) -> float | None:
    """Seconds inside the driver over seconds of handlers; None where no statement or no handler was recorded."""
    inside = durations[durations["series"].isin(_DATABASE)]
    handlers_s = float(durations.loc[durations["series"] == "handler", "duration_s"].sum())
    return float(inside["duration_s"].sum()) / handlers_s if len(inside) and handlers_s else None


def _user_to_kernel(runtime: pd.DataFrame) -> float | None:
    """User over kernel CPU seconds of all workers while they were watched; None without a second of either."""
    spent = {name: _cpu_s_of_workers(runtime, name) for name in ("cpu_user_s", "cpu_system_s")}
    return spent["cpu_user_s"] / spent["cpu_system_s"] if spent["cpu_system_s"] else None


def _describe_database(durations: pd.DataFrame) -> str:
    share = _database_share(durations)
    if share is None:
        return "The database's share was not measured: it needs the profiler (serve --telemetry DIR --statements)."
    side = "the service waits for the database more than it computes" if share > 1 / 2 else "Python is the larger part"
    return f"Of the handlers' time {share * _PERCENT:.3g} % is inside the database's driver: {side}."


def _describe_cpu(runtime: pd.DataFrame) -> str:
    ratio = _user_to_kernel(runtime)
    if ratio is None:
        return "User and kernel time were not measured."
    if ratio >= 1:
        return (
            f"The workers spent {ratio:.3g} times as much CPU in their own code (user) as in the kernel: "
            "most of the CPU is the program's."
        )
    return (
        f"The workers spent {1 / ratio:.3g} times as much CPU in the kernel as in their own code (user): "
        "most of the CPU is the system's calls."
    )


def _sums(durations: pd.DataFrame, series: tuple[str, ...]) -> pd.Series[float]:
    return durations[durations["series"].isin(series)].groupby("second")["duration_s"].sum()


def _cpu(runtime: pd.DataFrame, began_s: float) -> pd.DataFrame:
    """CPU of all workers, added in each second."""
    workers = runtime[runtime["worker"].astype("str").str.contains("worker-")]
    frame: Any = _wide(workers, began_s).reindex(columns=["cpu_user_s", "cpu_system_s"])
    added = frame.groupby(level="worker", observed=True).diff()
    return added.groupby(level="second").sum(min_count=1)


def _cpu_s_of_workers(runtime: pd.DataFrame, name: str) -> float:
    rows = runtime[(runtime["name"] == name) & runtime["worker"].astype("str").str.contains("worker-")]
    groups = rows.groupby("worker", observed=True)["value"]
    return float((groups.max() - groups.min()).sum())


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

    def describe(self) -> str:
        """One sentence, in milliseconds."""
        if not self.requests:
            return f"{self.host}: the client's own clock."
        side = "ahead of" if self.offset_s >= 0 else "behind"
        text = f"{self.host}: its clock is {abs(self.offset_s) * 1e3:.3f} ms {side} the client's"
        known = f"± {self.uncertainty_s * 1e3:.3f} ms, from {self.requests} requests"
        drift = "; the clocks drift: no offset fits all of them, this is that of the fastest" if self.drifts else ""
        return f"{text} ({known}{drift})."


@dataclass(frozen=True)
class Offset:
    """The offset of every host, and which file is whose."""

    hosts: tuple[HostOffset, ...]
    by_worker: dict[str, float]

    def of(self, workers: pd.Series[str]) -> pd.Series[float]:
        """What to subtract from the times of these files."""
        return workers.astype("str").map(self.by_worker).fillna(0.0).astype("float64")

    def describe(self) -> str:
        """A sentence per host."""
        return " ".join(host.describe() for host in self.hosts)


def _find_offset(telemetry: Telemetry) -> Offset:
    """The offsets of all hosts against the one that the client ran on.

    Raises PlacebenchError where no client wrote, or a host shares no request with it.
    """
    clock = {f"{file.part}/{file.worker}".lstrip("/"): _clock(file.head) for file in telemetry.files}
    durations = telemetry.durations
    clients = {clock[str(name)] for name in durations.loc[durations["series"] == "client", "worker"].unique()}
    if len(clients) != 1:
        raise PlacebenchError(
            f"{len(clients)} clients' clocks in this telemetry: put the files of one client (`placebench load "
            "--telemetry DIR`) and of the servers under load into one folder"
        )
    own = clients.pop()
    pairs = telemetry.paired().join(_inside(durations), on="request").fillna({"inside_s": 0.0})
    pair_clocks = pairs["worker_server"].astype("str").map(clock)
    found = {name: _host(name, own, pairs[pair_clocks == name]) for name in dict.fromkeys(clock.values())}
    return Offset(tuple(found.values()), {worker: found[name].offset_s for worker, name in clock.items()})


def _inside(durations: pd.DataFrame) -> pd.Series[float]:
    """What the application took of each request, where it records its handler's time."""
    parts = durations[durations["series"].isin(("framework", "handler"))]
    return parts.groupby("request")["duration_s"].sum().rename("inside_s")


def _clock(head: dict[str, Any]) -> str:
    """What names a clock: the host and its boot, since two containers of one machine share theirs."""
    return str(head.get("boot") or head.get("host") or "unknown host")


def _host(name: str, own: str, pairs: pd.DataFrame) -> HostOffset:
    if name == own:
        return HostOffset(name, 0.0, 0.0, 0)
    if not len(pairs):
        raise PlacebenchError(
            f"host {name} shares no request with the client: its files are of another load, or of a version that "
            "does not read X-Placebench-Request"
        )
    sent, begun = pairs["started_s_client"], pairs["started_s_server"]
    answered, read = begun + pairs["inside_s"], sent + pairs["duration_s_client"]
    bounds = ClockBounds.of(list(zip(sent, begun, answered, read, strict=True)))
    return HostOffset(name, bounds.offset_s, bounds.uncertainty_s, len(pairs), bounds.drifts)
