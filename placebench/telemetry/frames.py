"""Telemetry as pandas frames, with the questions that are asked of them.

The key piece is `Telemetry`: `placebench.telemetry.load(folder)` and `placebench.results.load(run).telemetry` give it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placebench.errors import PlacebenchError
from placebench.telemetry import clocks, ratios, spike
from placebench.telemetry.clocks import Offset
from placebench.telemetry.reading import TelemetryFile
from placebench.telemetry.spike import Cut

if TYPE_CHECKING:
    import pandas as pd

_BY = ("series", "verb", "path", "status")
_QUANTILES = {0.25: "25%", 0.5: "50%", 0.75: "75%", 0.9: "90%", 0.95: "95%"}
_ONLY_GROW = ("cpu_user_s", "cpu_system_s", "gc_collections", "gc_pause_s")


@dataclass(frozen=True)
class Telemetry:
    """What a folder of telemetry files holds; every method gives new frames and leaves these as they are.

    durations: a row a duration: started_s (since the epoch), request, verb, path, status, series, label, duration_s,
        worker (its file), part (its folder, "" for the folder itself). The series are
        client     from sending to the last byte read, at the client
        server     from the call of the application to the last byte handed to the kernel, in the worker
        framework  the application without its handler: what routing, headers and middleware take before and after it
        handler    the handler of the route
        timed      a span of `profiler.timed(label)`
        statement  inside the driver for one statement, label its fingerprint; with the profiler on
        transaction, pool  a BEGIN, COMMIT, ROLLBACK or CONNECT, and a wait for the pool; with the profiler on
    runtime: a row a figure: at_s, name, value, worker, part.
    """

    durations: "pd.DataFrame"
    runtime: "pd.DataFrame"
    files: tuple[TelemetryFile, ...]

    @property
    def torn(self) -> int:
        """Lines of all files that were not whole, and are in no frame."""
        return sum(file.torn for file in self.files)

    def part(self, name: str) -> "Telemetry":
        """What one folder below the one that was loaded holds, such as one pass of a run."""
        return Telemetry(
            self.durations[self.durations["part"] == name],
            self.runtime[self.runtime["part"] == name],
            tuple(file for file in self.files if file.part == name),
        )

    def summary(self, by: Sequence[str] = _BY) -> "pd.DataFrame":
        """Count, mean, std, min, quartiles, 90 %, 95 % and max of the durations in seconds, a row a group of *by*.

        by: any columns of `durations`, such as ("series", "worker").
        """
        groups = self.durations.groupby(list(by), observed=True)["duration_s"]
        frame = groups.agg(["count", "mean", "std", "min"])
        quantiles = groups.quantile(list(_QUANTILES)).unstack().rename(columns=_QUANTILES)
        return frame.join(quantiles).join(groups.max().rename("max"))

    def by_worker(self, series: str = "server") -> "pd.DataFrame":
        """How evenly the workers were used: requests, share of all, busy seconds; a row a worker."""
        rows = self.durations[self.durations["series"] == series]
        groups = rows.groupby("worker", observed=True)["duration_s"]
        frame = groups.agg(requests="count", busy_s="sum")
        return frame.assign(share=frame["requests"] / frame["requests"].sum())

    def per_second(self, series: str = "server") -> "pd.DataFrame":
        """A row a second from the first request of all on: requests that began in it, their mean and longest."""
        rows = self.durations[self.durations["series"] == series]
        seconds = ratios.second(rows["started_s"], self.began_s)
        frame = rows.groupby(seconds)["duration_s"].agg(requests="count", mean_s="mean", max_s="max")
        return frame.reindex(range(int(seconds.max()) + 1 if len(seconds) else 0)).fillna({"requests": 0})

    def runtime_per_second(self) -> "pd.DataFrame":
        """A column a figure, a row a worker and second; CPU and collections as what was added in that second."""
        frame = ratios.wide(self.runtime, self.began_s)
        grown = [name for name in _ONLY_GROW if name in frame]
        frame[grown] = frame.groupby(level="worker", observed=True)[grown].diff()
        return frame

    def ratios(self) -> "pd.DataFrame":
        """A row a second: the database's share of the handlers' time, and user over kernel CPU time of the workers.

        NaN where the profiler was off, nothing ran, or the kernel's clock moved by less than a tick.
        """
        return ratios.per_second(self.durations, self.runtime, self.began_s)

    def ratios_in_words(self) -> str:
        """The same over the whole time, with the direction of each ratio said."""
        return ratios.in_words(self.durations, self.runtime)

    def after_spike(self, *, series: str | None = None, until_s: float | None = None) -> Cut:
        """The same without the beginning, up to the end of the first spike, request by request, with the proof.

        series: in which the spike is looked for; None: client, or server where no client wrote. until_s: cut there
        instead, in seconds from the first request. The series of one request stay together.
        """
        chosen = series or ("client" if (self.durations["series"] == "client").any() else "server")
        return spike.cut(self, chosen, until_s)

    def offset(self) -> Offset:
        """The servers' clock minus the client's, from the requests that both saw; raises PlacebenchError if none."""
        return clocks.offset(self)

    def aligned(self) -> "Telemetry":
        """The same with the servers' and other processes' times moved onto the client's clock, by `offset()`."""
        moved = self.offset()
        durations = self.durations.assign(started_s=self.durations["started_s"] - moved.of(self.durations["worker"]))
        return replace(
            self,
            durations=durations,
            runtime=self.runtime.assign(at_s=self.runtime["at_s"] - moved.of(self.runtime["worker"])),
        )

    def paired(self, outer: str = "client", inner: str = "server") -> "pd.DataFrame":
        """A row a request that both series have: started_s and duration_s of each, as `started_s_client` and so on."""
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
        """Counts for a message: files, durations, figures and torn lines."""
        return {
            "files": len(self.files),
            "durations": len(self.durations),
            "figures": len(self.runtime),
            "torn": self.torn,
        }
