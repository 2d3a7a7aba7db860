"""Cutting the beginning of a telemetry off, after its first spike, with the proof that the counts still match.

The key piece is `cut`. It cuts by request, not by row: a request that began before the cut goes with all its series, so
that a client's and a server's counts that matched before match after.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from placebench.telemetry.frames import Telemetry

_FAR = 5.0
_NORMAL = 1.4826  # so many median absolute deviations are a standard deviation, where nothing is out of the way


@dataclass(frozen=True)
class Cut:
    """What was kept and what was cut.

    until_s: seconds from the first request up to which requests were cut; 0.0: there was no spike.
    threshold_s: a second whose mean lies above it counts as a spike; None where the caller said when to cut.
    counts: a row a series: before, cut, kept, as they were counted, each by itself.
    """

    kept: "Telemetry"
    until_s: float
    series: str
    threshold_s: float | None
    counts: "pd.DataFrame"

    @property
    def matches(self) -> bool:
        """Whether kept and cut together are all there was, in every series."""
        return bool((self.counts["kept"] + self.counts["cut"] == self.counts["before"]).all())

    def in_words(self) -> str:
        """What was cut, and the proof."""
        if not self.until_s:
            return "No spike at the beginning: nothing was cut."
        why = "as asked" if self.threshold_s is None else f"a mean above {self.threshold_s * 1e3:.3g} ms in a second"
        proof = "; ".join(f"{name} {row.kept} + {row.cut} = {row.before}" for name, row in self.counts.iterrows())
        return f"The first {self.until_s:g} s were cut ({self.series}: {why}). Kept + cut = all: {proof}."


def cut(telemetry: "Telemetry", series: str, until_s: float | None) -> Cut:
    """Cut up to *until_s*, or up to the end of the first spike of *series* in the first half of the time.

    A spike is a run of seconds whose mean lies more than five robust standard deviations above the median second.
    """
    found, threshold_s = (until_s, None) if until_s is not None else _spike_end(telemetry, series)
    durations = telemetry.durations
    # A request began with the first of its series, the client's where there is one.
    began_s = durations.groupby("request")["started_s"].transform("min")
    gone = began_s < telemetry.began_s + found
    early = telemetry.runtime["at_s"] < telemetry.began_s + found
    kept = replace(telemetry, durations=durations[~gone], runtime=telemetry.runtime[~early])
    counts = _counts(durations).to_frame("before")
    counts["cut"] = _counts(durations[gone])
    counts["kept"] = _counts(kept.durations)
    return Cut(kept, found, series, threshold_s, counts.fillna(0).astype("int64"))


def _spike_end(telemetry: "Telemetry", series: str) -> tuple[float, float | None]:
    means = telemetry.per_second(series)["mean_s"].dropna()
    if not len(means):
        return 0.0, None
    middle = float(means.median())
    threshold_s = middle + _FAR * max(_NORMAL * float((means - middle).abs().median()), middle / 10)
    first_half = means[means.index < (means.index.max() + 1) / 2]
    high = list(first_half.index[first_half > threshold_s])
    if not high:
        return 0.0, threshold_s
    end = high[0]
    while end + 1 in high:
        end += 1
    return float(end + 1), threshold_s


def _counts(durations: "pd.DataFrame") -> "pd.Series[int]":
    return durations.groupby("series", observed=True)["duration_s"].count()
