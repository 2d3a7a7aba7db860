"""Telemetry in steps of equal length: `timeline`, and which of the steps are full, cut or idle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

DATABASE = ("statement", "transaction")
_PAUSE_S = 1.0
_TIMES_THE_USUAL_GAP = 10
_MIN_KERNEL_S = 0.01
"""A tick of the kernel's clock: a ratio to less is chance."""
_ROUNDED_S = 1e-6
"""The last digit of a start in a file: a step that is full but for this is full."""
_QUANTILES = {0.5: "p50_s", 0.95: "p95_s", 0.99: "p99_s"}


def step_of(at_s: pd.Series[float], began_s: float, step_s: float = 1.0) -> pd.Series[int]:
    """Return the number of the step in which each time lies; 0 for the first."""
    return (at_s - began_s).floordiv(step_s).astype("int64").rename("second")


def last_readings(runtime: pd.DataFrame, began_s: float, step_s: float = 1.0) -> pd.DataFrame:
    """Return the last reading in each step: a row per worker and step, a column per figure."""
    rows = runtime.assign(second=step_of(runtime["at_s"], began_s, step_s))
    return rows.pivot_table(
        index=["worker", "second"], columns="name", values="value", aggfunc="last", observed=True
    ).rename_axis(columns=None)


def of_workers(runtime: pd.DataFrame) -> pd.DataFrame:
    """Return the figures of worker processes."""
    return runtime[runtime["worker"].astype("str").str.contains("worker-")]


def cpu_per_step(runtime: pd.DataFrame, began_s: float, step_s: float = 1.0) -> pd.DataFrame:
    """Return the CPU seconds of all workers by step: cpu_user_s, cpu_system_s, and their ratio user_to_kernel.

    The ratio is NaN if less than a tick of the kernel's clock was spent in the kernel.
    """
    readings: Any = last_readings(of_workers(runtime), began_s, step_s)
    cpu = readings.reindex(columns=["cpu_user_s", "cpu_system_s"])
    added = cpu.groupby(level="worker", observed=True).diff().groupby(level="second").sum(min_count=1)
    kernel_s = added["cpu_system_s"]
    result: pd.DataFrame = added.assign(user_to_kernel=added["cpu_user_s"] / kernel_s.where(kernel_s >= _MIN_KERNEL_S))
    return result


def timeline(durations: pd.DataFrame, runtime: pd.DataFrame, *, outer: str, step_s: float) -> pd.DataFrame:
    """Return a row per step since the first request of the series *outer*; `Telemetry.over_time` says its columns."""
    requests = durations[durations["series"] == outer]
    began_s = float((requests if len(requests) else durations)["started_s"].min())
    by_step = requests.groupby(step_of(requests["started_s"], began_s, step_s))["duration_s"]
    states = _states(requests["started_s"] - began_s, requests["duration_s"], step_s)
    frame = by_step.count().rename("requests").to_frame().reindex(range(len(states)), fill_value=0)
    frame.insert(0, "state", states)
    frame["requests_per_s"] = frame["requests"] / step_s
    for series in ("client", "server"):
        rows = durations[durations["series"] == series]
        frame[f"{series}_s"] = rows.groupby(step_of(rows["started_s"], began_s, step_s))["duration_s"].mean()
    quantiles = by_step.quantile(list(_QUANTILES)).unstack().reindex(columns=list(_QUANTILES))
    frame = frame.join(quantiles.rename(columns=_QUANTILES))
    frame = frame.join(database_time(durations, began_s, step_s))
    frame["database_share"] = frame["database_s"] / frame["measured_s"].where(frame["measured_s"] > 0)
    frame["user_to_kernel"] = cpu_per_step(runtime, began_s, step_s)["user_to_kernel"]
    frame["rss_bytes"] = _memory_of_workers(runtime, began_s, step_s, frame.index)
    frame.index = (frame.index * step_s).rename("second")
    return frame


def _memory_of_workers(runtime: pd.DataFrame, began_s: float, step_s: float, steps: pd.Index[int]) -> pd.Series[float]:
    """Return the sum of the workers' last memory samples by step; of a worker that has ended nothing is left."""
    readings: Any = last_readings(of_workers(runtime), began_s, step_s).reindex(columns=["rss_bytes"])["rss_bytes"]
    by_worker = readings.unstack("worker")
    by_worker = by_worker.reindex(by_worker.index.union(steps))
    seen = readings.dropna().index.to_frame(index=False)
    latest = seen.groupby("worker", observed=True)["second"].max().reindex(by_worker.columns)
    # One step more: a worker that was killed has written nothing for up to a second
    is_alive = by_worker.index.to_numpy()[:, None] <= latest.to_numpy() + 1
    result: pd.Series[float] = by_worker.ffill().where(is_alive).sum(axis=1, min_count=1)
    return result


def _states(starts_s: pd.Series[float], took_s: pd.Series[float], step_s: float) -> list[str]:
    """Return full, cut or idle for each step: whether the service was in use during all, a part or none of it.

    It is in use from the first request until a pause without any: longer than a second, and than ten times the usual
    gap between two requests, so that a slow but steady use has no pauses.
    """
    if not len(starts_s):
        return []
    order = starts_s.sort_values().index
    starts = starts_s.loc[order].reset_index(drop=True)
    ends = (starts_s + took_s).loc[order].cummax().reset_index(drop=True)
    gaps = (starts - ends.shift()).clip(lower=0.0)
    usual = gaps.median() if len(gaps) > 1 else 0.0
    is_new = gaps > max(_PAUSE_S, _TIMES_THE_USUAL_GAP * usual)
    begun = [starts.iloc[0], *starts[is_new]]
    ended = [*ends.shift()[is_new], ends.iloc[-1]]
    states = ["idle"] * max(1, math.ceil((ended[-1] - _ROUNDED_S) / step_s))
    for first_s, last_s in zip(begun, ended, strict=True):
        used = range(
            math.floor((first_s + _ROUNDED_S) / step_s), min(len(states), math.ceil((last_s - _ROUNDED_S) / step_s))
        )
        states[used.start : used.stop] = ["cut"] * len(used)
        whole = range(math.ceil((first_s - _ROUNDED_S) / step_s), math.floor((last_s + _ROUNDED_S) / step_s))
        states[whole.start : whole.stop] = ["full"] * len(whole)
    return states


def database_time(durations: pd.DataFrame, began_s: float, step_s: float = 1.0) -> pd.DataFrame:
    """Return a row per step: database_s, the time inside the driver, and measured_s, the time that it is a part of.

    Both are those of the recorded requests that began in the step. measured_s is the time of the handler, or of the
    server for a request whose handler is not timed. A part without a statement has no row: it is not known whether the
    profiler saw its connections.
    """
    series = durations["series"]
    inside, marks = durations[series.isin(DATABASE)], durations[series == "recorded"]
    whole = durations[series.isin(("handler", "server")) & durations["part"].isin(inside["part"].unique())]
    # placebench 0.2.0 does not mark recorded requests: all requests of such a part count.
    whole = whole[whole["request"].isin(marks["request"]) | ~whole["part"].isin(marks["part"].unique())]
    has_handler = whole["request"].isin(whole.loc[whole["series"] == "handler", "request"])
    whole = whole[(whole["series"] == "handler") | ~has_handler]
    by_request = inside.groupby("request")["duration_s"].sum()
    times = whole.assign(database_s=whole["request"].map(by_request).fillna(0.0), measured_s=whole["duration_s"])
    return times.groupby(step_of(whole["started_s"], began_s, step_s))[["database_s", "measured_s"]].sum()
