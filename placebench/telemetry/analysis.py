"""Telemetry as pandas frames: per second, per worker, ratios, warm-up trimming, and the offset between clocks.

The main class is `Telemetry`, which `placebench.telemetry.load` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placebench.errors import PlacebenchError
from placebench.telemetry.clock import ClockBounds
from placebench.telemetry.timeline import cpu_per_step, database_time, last_readings, of_workers, step_of, timeline

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TelemetryFile:
    """One telemetry file as it was read.

    part: the file's folder, relative to the loaded one, which is "". truncated: the number of incomplete lines.
    head: the description of the process that wrote the file; empty if the first line is missing.
    """

    path: Path
    part: str
    worker: str
    head: dict[str, Any]
    lines: int
    truncated: int


_BY = ("series", "label", "verb", "path", "status")
_QUANTILES = {0.25: "25%", 0.5: "50%", 0.75: "75%", 0.9: "90%", 0.95: "95%", 0.99: "99%"}
_ONLY_GROW = ("cpu_user_s", "cpu_system_s", "gc_collections", "gc_pause_s")


@dataclass(frozen=True)
class Telemetry:
    """The contents of a folder of telemetry files; methods return new frames and do not change these.

    durations: a row per duration: started_s (since the epoch), request, verb, path, status, series, label, duration_s,
        worker (its file), part (its folder, "" for the folder itself). The series are
        client     from sending to the last byte read, at the client
        server     from the call of the application to the last byte handed to the kernel, in the worker
        framework  the application without its handler: routing, headers and middleware before and after it
        handler    the handler of the route
        recorded   a request that the profiler recorded, while it did so
        timed      a span of `profiler.timed(label)`
        statement  inside the driver for one statement, label its fingerprint; with the profiler on
        transaction, pool  a BEGIN, COMMIT, ROLLBACK or CONNECT, and a wait for the pool; with the profiler on
    runtime: a row per figure: at_s, name, value, worker, part.
    statements: the texts of the statements by their fingerprints, without literals, cut after 1000 characters.
    """

    durations: pd.DataFrame
    runtime: pd.DataFrame
    files: tuple[TelemetryFile, ...]
    statements: Mapping[str, str] = field(default_factory=dict)

    @property
    def truncated(self) -> int:
        """The number of incomplete lines in all files; they are in none of the frames."""
        return sum(file.truncated for file in self.files)

    def part(self, name: str) -> Telemetry:
        """Return the telemetry of one folder below the loaded one, such as one pass of a run."""
        return Telemetry(
            self.durations[self.durations["part"] == name],
            self.runtime[self.runtime["part"] == name],
            tuple(file for file in self.files if file.part == name),
            self.statements,
        )

    def summary(self, by: Sequence[str] = _BY) -> pd.DataFrame:
        """Return count, mean, std, min, percentiles and max of the durations in seconds, per group of *by*.

        by: any columns of `durations`, such as ("series", "worker"). The label tells spans of `profiler.timed(label)`
        apart, and statements by their fingerprints.
        """
        groups = self.durations.groupby(list(by), observed=True)["duration_s"]
        frame = groups.agg(["count", "mean", "std", "min"])
        quantiles = groups.quantile(list(_QUANTILES)).unstack().rename(columns=_QUANTILES)
        return frame.join(quantiles).join(groups.max().rename("max"))

    def by_worker(self, series: str = "server") -> pd.DataFrame:
        """Return how evenly the workers were used: requests, share of all requests and busy seconds, per worker."""
        rows = self.durations[self.durations["series"] == series]
        groups = rows.groupby("worker", observed=True)["duration_s"]
        frame = groups.agg(requests="count", busy_s="sum")
        return frame.assign(share=frame["requests"] / frame["requests"].sum())

    def per_second(self, series: str = "server") -> pd.DataFrame:
        """Return a row per second since the first request: requests that began in it, mean and longest time."""
        rows = self.durations[self.durations["series"] == series]
        seconds = step_of(rows["started_s"], self.began_s)
        frame = rows.groupby(seconds)["duration_s"].agg(requests="count", mean_s="mean", max_s="max")
        return frame.reindex(range(int(seconds.max()) + 1 if len(seconds) else 0)).fillna({"requests": 0})

    def runtime_per_second(self) -> pd.DataFrame:
        """Return a column per figure, a row per worker and second; CPU and GC figures are increases per second."""
        frame = last_readings(self.runtime, self.began_s)
        grown = [name for name in _ONLY_GROW if name in frame]
        frame[grown] = frame.groupby(level="worker", observed=True)[grown].diff()
        return frame

    def over_time(self, step_s: float = 1.0) -> pd.DataFrame:
        """Return a row per step of *step_s* seconds since the first request, indexed by the second in which it begins.

        Requests are those of the client if one wrote, else those of the server. state: "full", "cut" or "idle": whether
        requests came during all of the step, a part of it, or none. Means per second are those of the full steps.
        requests, requests_per_s: requests that began in it. client_s, server_s: their mean durations. p50_s, p95_s,
        p99_s: percentiles at the client, or at the server. database_s, measured_s, database_share: of the recorded
        requests the time inside the driver, that of the handler (of the server if it is not timed), and their ratio.
        user_to_kernel, rss_bytes: CPU ratio of all workers, and the sum of their last memory samples. A value is NaN
        if it was not measured.
        """
        self.began_s  # noqa: B018  raises without durations
        return timeline(self.durations, self.runtime, outer=self._outer, step_s=step_s)

    def ratios(self) -> pd.DataFrame:
        """Return a row per second: the database's share of the handlers' time, and the workers' user to kernel CPU.

        Columns: database_s, measured_s, database_share, cpu_user_s, cpu_system_s, user_to_kernel.
        A value is NaN if the profiler was off, nothing ran, or the kernel's clock moved by less than a tick.
        """
        frame = database_time(self.durations, self.began_s)
        frame = frame.join(cpu_per_step(self.runtime, self.began_s), how="outer")
        share = frame["database_s"] / frame["measured_s"].where(frame["measured_s"] > 0)
        frame.insert(frame.columns.get_loc("user_to_kernel"), "database_share", share)
        return frame

    def describe_ratios(self) -> str:
        """Return a sentence per ratio over the whole time, which says which part is larger."""
        return f"{_describe_database(self.durations)} {_describe_cpu(self.runtime)}"

    def trim_warmup(self, *, series: str | None = None, until_s: float | None = None) -> WarmupTrim:
        """Trim the warm-up, request by request, with proof that nothing else is missing.

        series: the series in which the warm-up is detected; by default client, or server if no client wrote. until_s:
        trim up to this time instead, in seconds from the first request. All series of a request are trimmed together.
        """
        return _trim(self, series or self._outer, until_s)

    def offset(self) -> Offset:
        """Return the offset of the servers' clocks from the client's, found by requests that both sides recorded.

        Raises PlacebenchError if there are no such requests.
        """
        return _find_offset(self)

    def aligned(self) -> Telemetry:
        """Return the telemetry with the times of all other processes moved onto the client's clock, by `offset()`."""
        moved = self.offset()
        durations = self.durations.assign(started_s=self.durations["started_s"] - moved.of(self.durations["worker"]))
        return replace(
            self,
            durations=durations,
            runtime=self.runtime.assign(at_s=self.runtime["at_s"] - moved.of(self.runtime["worker"])),
        )

    def paired(self, outer: str = "client", inner: str = "server") -> pd.DataFrame:
        """Return a row per request that both series have, with columns such as `duration_s_client`."""
        sides = [self.durations[self.durations["series"] == name] for name in (outer, inner)]
        shown = [side[["request", "verb", "path", "status", "started_s", "duration_s", "worker"]] for side in sides]
        first, second = shown
        return first.merge(
            second[["request", "started_s", "duration_s", "worker"]], on="request", suffixes=(f"_{outer}", f"_{inner}")
        )

    @property
    def _outer(self) -> str:
        return "client" if (self.durations["series"] == "client").any() else "server"

    @property
    def began_s(self) -> float:
        """The start of the first duration, in seconds since the epoch; raises PlacebenchError without durations."""
        if not len(self.durations):
            raise PlacebenchError("this telemetry holds no duration: no request ended while it was on")
        return float(self.durations["started_s"].min())

    def shown(self) -> dict[str, Any]:
        """Return the numbers of files, durations, figures and truncated lines, for a message."""
        return {
            "files": len(self.files),
            "durations": len(self.durations),
            "figures": len(self.runtime),
            "truncated": self.truncated,
        }


_OUTLIER_DEVIATIONS = 5.0
_DEVIATION_PER_MAD = 1.4826
"""The standard deviation divided by the median absolute deviation, for normally distributed values."""


@dataclass(frozen=True)
class WarmupTrim:
    """The telemetry that was kept, and the proof that only the warm-up was trimmed.

    until_s: seconds from the first request up to which requests were trimmed; 0.0 if there was no warm-up.
    threshold_s: a second whose mean lies above it belongs to the warm-up; None if the caller set the time.
    counts: a row per series: before, trimmed and kept, each counted separately.
    """

    kept: Telemetry
    until_s: float
    series: str
    threshold_s: float | None
    counts: pd.DataFrame

    @property
    def matches(self) -> bool:
        """Whether kept and trimmed durations add up to all durations, in every series."""
        return bool((self.counts["kept"] + self.counts["trimmed"] == self.counts["before"]).all())

    def describe(self) -> str:
        """Return sentences that say what was trimmed and why, with the proof."""
        if not self.until_s:
            return "No warm-up at the beginning: nothing was trimmed."
        why = "as given" if self.threshold_s is None else f"a mean above {self.threshold_s * 1e3:.3g} ms in a second"
        proof = "; ".join(f"{name} {row.kept} + {row.trimmed} = {row.before}" for name, row in self.counts.iterrows())
        return f"The first {self.until_s:g} s were trimmed ({self.series}: {why}). Kept + trimmed = all: {proof}."


def _trim(telemetry: Telemetry, series: str, until_s: float | None) -> WarmupTrim:
    """Trim up to *until_s*, or up to the end of the warm-up of *series* in the first half of the time.

    The warm-up is the first sequence of seconds whose mean is over five robust standard deviations above the median.
    """
    found, threshold_s = (until_s, None) if until_s is not None else _warmup_end(telemetry, series)
    durations = telemetry.durations
    # A request began with the earliest of its series: the client's, if there is one.
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


_PERCENT = 100


def _describe_database(durations: pd.DataFrame) -> str:
    database_s, measured_s = database_time(durations, 0.0).sum()
    if not measured_s:
        return "The database's share was not measured: no request was recorded (profiler.listen(telemeter))."
    share = database_s / measured_s
    side = "the service waits for the database more than it computes" if share > 1 / 2 else "Python is the larger part"
    return f"Of the handlers' time {share * _PERCENT:.3g} % is inside the database's driver: {side}."


def _describe_cpu(runtime: pd.DataFrame) -> str:
    workers = of_workers(runtime)
    spent_s = []
    for name in ("cpu_user_s", "cpu_system_s"):
        readings = workers[workers["name"] == name].groupby("worker", observed=True)["value"]
        spent_s.append(float((readings.max() - readings.min()).sum()))
    if not spent_s[1]:
        return "User and kernel time were not measured."
    ratio = spent_s[0] / spent_s[1]
    if ratio >= 1:
        return (
            f"The workers spent {ratio:.3g} times as much CPU in their own code (user) as in the kernel: "
            "most of the CPU is the program's."
        )
    return (
        f"The workers spent {1 / ratio:.3g} times as much CPU in the kernel as in their own code (user): "
        "most of the CPU is the system's calls."
    )


@dataclass(frozen=True)
class HostOffset:
    """The offset of one host's clock from the client's, in seconds.

    uncertainty_s: the maximum error of the offset if the clocks do not drift; 0.0 for the client's own clock.
    drifts: whether no single offset fits all requests; offset_s then holds at the moment of the fastest exchange.
    """

    host: str
    offset_s: float
    uncertainty_s: float
    requests: int
    drifts: bool = False

    def describe(self) -> str:
        """Describe the offset in one sentence, in milliseconds."""
        if not self.requests:
            return f"{self.host}: the client's own clock."
        side = "ahead of" if self.offset_s >= 0 else "behind"
        text = f"{self.host}: its clock is {abs(self.offset_s) * 1e3:.3f} ms {side} the client's"
        known = f"± {self.uncertainty_s * 1e3:.3f} ms, from {self.requests} requests"
        drift = "; the clocks drift: no offset fits all of them, this is that of the fastest" if self.drifts else ""
        return f"{text} ({known}{drift})."


@dataclass(frozen=True)
class Offset:
    """The offset of every host, and of each worker's file."""

    hosts: tuple[HostOffset, ...]
    by_worker: dict[str, float]

    def of(self, workers: pd.Series[str]) -> pd.Series[float]:
        """Return the offsets to subtract from times in these workers' files, in seconds."""
        return workers.astype("str").map(self.by_worker).fillna(0.0).astype("float64")

    def describe(self) -> str:
        """Describe the offsets, a sentence per host."""
        return " ".join(host.describe() for host in self.hosts)


def _find_offset(telemetry: Telemetry) -> Offset:
    """Return the offsets of all hosts from the client's clock.

    Raises PlacebenchError unless exactly one client wrote, and each host shares a request with it.
    """
    # The boot id names a clock, because two containers on one machine share the machine's clock.
    clock = {
        f"{file.part}/{file.worker}".lstrip("/"): str(file.head.get("boot") or file.head.get("host") or "unknown host")
        for file in telemetry.files
    }
    durations = telemetry.durations
    clients = {clock[str(name)] for name in durations.loc[durations["series"] == "client", "worker"].unique()}
    if len(clients) != 1:
        raise PlacebenchError(
            f"{len(clients)} clients' clocks in this telemetry: put the files of one client (`placebench load "
            "--telemetry DIR`) and of the servers under load into one folder"
        )
    own = clients.pop()
    parts = durations[durations["series"].isin(("framework", "handler"))]
    inside_s = parts.groupby("request")["duration_s"].sum().rename("inside_s")
    pairs = telemetry.paired().join(inside_s, on="request").fillna({"inside_s": 0.0})
    pair_clocks = pairs["worker_server"].astype("str").map(clock)
    found = {name: _host(name, own, pairs[pair_clocks == name]) for name in dict.fromkeys(clock.values())}
    return Offset(tuple(found.values()), {worker: found[name].offset_s for worker, name in clock.items()})


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
